//! `executor collectives`.

use std::sync::Arc;

use anyhow::{bail, ensure};
use command_line::terminal::{print_bytes, print_json_text};
use executor::collectives::{
    Shown, SizeRange, TimedCollective, TimingPlan, bus_factor, show, time,
};
use executor_communicators::{Communicator, Group, Reduction};
use executor_kernels::array::Element;
use executor_kernels::ops::Kernels;
use ir::collective::Collective;
use serde_json::{Value, json};
use traces::collectives::Operation;

use super::args::{CommunicatorKind, PrecisionArg};
use super::choices::ranks_and_devices;
use super::cluster::microseconds;
use super::measuring::{CollectivesArgs, RanksArgs, ReportFormat, TimingArgs};
use super::start;
use super::words;
use super::work::RankJob;

/// Maximum number of ranks for which contents are shown: more do not fit on a line.
const MOST_RANKS_SHOWN: u32 = 8;

pub(crate) fn collectives(args: &CollectivesArgs) -> anyhow::Result<()> {
    args.ranks.backend.check(args.precision)?;
    check_timing(&args.timing, &args.ranks)?;
    start::run(&Job { args }, &args.ranks)
}

/// Refuses impossible sizes, and a number of ranks that is known to be too small.
pub(super) fn check_timing(timing: &TimingArgs, ranks: &RanksArgs) -> anyhow::Result<()> {
    sizes(timing)?;
    match ranks.communicator {
        CommunicatorKind::Local => check_ranks(ranks.num_ranks()),
        CommunicatorKind::Mpi | CommunicatorKind::Nccl => Ok(()),
    }
}

/// The sizes in the arguments.
fn sizes(args: &TimingArgs) -> anyhow::Result<SizeRange> {
    let TimingArgs { min_bytes: least, max_bytes: most, factor, .. } = *args;
    ensure!(
        least <= most,
        "`--min-bytes` is {}, above `--max-bytes` {}\nhint: `--min-bytes {0} --max-bytes {0}` times one \
         size",
        least.get(),
        most.get()
    );
    Ok(SizeRange { least, most, factor })
}

/// Refuses a collective of one rank.
pub(super) fn check_ranks(num_ranks: u32) -> anyhow::Result<()> {
    ensure!(
        num_ranks >= 2,
        "a collective of one rank sends nothing that could be timed\nhint: `--ranks 2` or more"
    );
    Ok(())
}

/// Timing of collectives, size by size.
pub(super) struct Timing<'a> {
    pub(super) args: &'a TimingArgs,
    pub(super) reduction: Reduction,
    pub(super) element: Element,
}

impl Timing<'_> {
    /// Times an operation in all groups at the same time, each size once. Only rank 0 has rows, and calls `observe` for
    /// each.
    pub(super) fn rows<B: Kernels>(
        &self,
        communicator: &dyn Communicator<B>,
        device: &B::Device,
        groups: &[Group],
        operation: Operation,
        mut observe: impl FnMut(&TimedCollective) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<TimedCollective>> {
        let plan = TimingPlan {
            operation,
            reduction: self.reduction,
            element: self.element,
            warm_ups: self.args.warm_up,
            iterations: self.args.iterations,
        };
        let contents = plan.contents(groups[0].len() as u32);
        let mut rows: Vec<TimedCollective> = Vec::new();
        for bytes in sizes(self.args)?.all() {
            let row = time(communicator, groups, &contents, &plan, bytes, device)?;
            // Small sizes may be rounded up to the same size: an element for each rank.
            let is_new =
                |row: &TimedCollective| rows.last().is_none_or(|last| last.bytes != row.bytes);
            if let Some(row) = row.filter(is_new) {
                observe(&row)?;
                rows.push(row);
            }
        }
        Ok(rows)
    }
}

/// The arguments, shared by all ranks.
struct Job<'a> {
    args: &'a CollectivesArgs,
}

impl RankJob for Job<'_> {
    fn run<B: Kernels>(
        &self,
        communicator: Arc<dyn Communicator<B>>,
        device: B::Device,
    ) -> anyhow::Result<()> {
        let Job { args } = self;
        let num_ranks = communicator.num_ranks();
        check_ranks(num_ranks)?;
        let operations =
            if args.names.is_empty() { Operation::ALL.to_vec() } else { args.names.clone() };
        let report = CollectivesOutput { args, num_ranks, is_first: communicator.rank() == 0 };
        report.start()?;
        let mut drawings = Vec::new();
        if num_ranks <= MOST_RANKS_SHOWN {
            for operation in &operations {
                let reduction = args.reduction.reduction();
                let shown = show(&*communicator, *operation, reduction, &device)?;
                if let Some(shown) = shown {
                    report.drawing(&shown)?;
                    drawings.push(shown);
                }
            }
        }
        let world = [Group::new((0..num_ranks).collect::<Vec<_>>())];
        let mut rows: Vec<TimedCollective> = Vec::new();
        for operation in &operations {
            rows.extend(report.times(&*communicator, &device, &world, *operation)?);
        }
        if report.is_first {
            report.finish(&drawings, &rows)?;
        }
        Ok(())
    }
}

/// Output of rank 0; other ranks print nothing.
struct CollectivesOutput<'a> {
    args: &'a CollectivesArgs,
    num_ranks: u32,
    is_first: bool,
}

impl CollectivesOutput<'_> {
    fn is_table(&self) -> bool {
        self.is_first && self.args.format == ReportFormat::Table
    }

    fn print(&self, text: &str) -> anyhow::Result<()> {
        if self.is_table() {
            print_bytes(format!("{text}\n").as_bytes())?;
        }
        Ok(())
    }

    fn start(&self) -> anyhow::Result<()> {
        let RanksArgs { backend, communicator, .. } = self.args.ranks;
        let kind = ranks_and_devices(backend, communicator);
        self.print(&format!("# {} ({kind})", words::ranks(self.num_ranks)))
    }

    fn drawing(&self, shown: &Shown) -> anyhow::Result<()> {
        self.print(&format!("#\n# {}: who holds what\n{shown}", shown.operation))
    }

    /// Times one operation over all sizes, and prints its table.
    fn times<B: Kernels>(
        &self,
        communicator: &dyn Communicator<B>,
        device: &B::Device,
        world: &[Group],
        operation: Operation,
    ) -> anyhow::Result<Vec<TimedCollective>> {
        self.print(&format!("#\n# {operation}, {}", words::ranks(self.num_ranks)))?;
        self.print(HEADING)?;
        let timing = Timing {
            args: &self.args.timing,
            reduction: self.args.reduction.reduction(),
            element: self.args.precision.element(),
        };
        let print = |row: &TimedCollective| self.print(&self.line(row));
        let rows = timing.rows(communicator, device, world, operation, print)?;
        let mean =
            rows.iter().map(TimedCollective::bus_bandwidth).sum::<f64>() / rows.len().max(1) as f64;
        self.print(&format!("# Avg bus bandwidth    : {:.4} GB/s", mean / 1e9))?;
        Ok(rows)
    }

    fn line(&self, row: &TimedCollective) -> String {
        let (reduction, root) = self.words_of(row.operation);
        format!(
            "{:>12} {:>13} {:>9} {:>7} {:>7} {:>9} {:>8.3} {:>8.3} {:>7} {:>12}",
            row.bytes.get(),
            row.count,
            self.type_name(),
            reduction,
            root,
            microseconds(row.median),
            row.algorithm_bandwidth() / 1e9,
            row.bus_bandwidth() / 1e9,
            row.num_wrong,
            row.sent.iter().max().map_or(0, |bytes| bytes.get()),
        )
    }

    /// Names of the reduction and the root in nccl-tests.
    fn words_of(&self, operation: Operation) -> (&'static str, i32) {
        let is_rooted = matches!(
            operation,
            Operation::Reduce
                | Operation::Gather
                | Operation::Scatter
                | Operation::Collective(Collective::Broadcast)
        );
        let reduction =
            if operation.is_reduction() { self.args.reduction.nccl_name() } else { "none" };
        (reduction, if is_rooted { 0 } else { -1 })
    }

    const fn type_name(&self) -> &'static str {
        match self.args.precision {
            PrecisionArg::Fp64 => "double",
            PrecisionArg::Fp32 => "float",
            PrecisionArg::Fp16 => "half",
            PrecisionArg::Bf16 => "bfloat16",
        }
    }

    /// Prints the JSON, and reports errors.
    fn finish(&self, drawings: &[Shown], rows: &[TimedCollective]) -> anyhow::Result<()> {
        if self.args.format == ReportFormat::Json {
            let json = json!({
                "num_ranks": self.num_ranks,
                "who_holds_what": drawings.iter().map(drawing_json).collect::<Vec<_>>(),
                "rows": rows.iter().map(|row| self.row_json(row)).collect::<Vec<_>>(),
            });
            print_json_text(&format!("{json}\n"))?;
        }
        for row in rows {
            if row.num_wrong > 0 {
                bail!(
                    "{} of {} bytes on {} ranks gave {} wrong elements",
                    row.operation,
                    row.bytes.get(),
                    row.num_ranks,
                    row.num_wrong
                );
            }
            if row.sent != row.planned {
                bail!(
                    "{} of {} bytes on {} ranks sent {:?} bytes by rank, not {:?}",
                    row.operation,
                    row.bytes.get(),
                    row.num_ranks,
                    row.sent.iter().map(|bytes| bytes.get()).collect::<Vec<_>>(),
                    row.planned.iter().map(|bytes| bytes.get()).collect::<Vec<_>>()
                );
            }
        }
        Ok(())
    }

    /// The row as JSON, with the columns of the table.
    fn row_json(&self, row: &TimedCollective) -> Value {
        let (reduction, root) = self.words_of(row.operation);
        let mut json = json!(row);
        json["type"] = self.type_name().into();
        json["redop"] = reduction.into();
        json["root"] = root.into();
        json["algbw_bytes_per_second"] = row.algorithm_bandwidth().into();
        json["busbw_bytes_per_second"] = row.bus_bandwidth().into();
        json["bus_factor"] = bus_factor(row.operation, row.num_ranks).into();
        json
    }
}

/// The heading of nccl-tests, with one more column: the most bytes that a rank sent.
const HEADING: &str = "\
#       size         count      type   redop    root      time    algbw    busbw  #wrong         sent
#        (B)    (elements)                                (us)   (GB/s)   (GB/s)                  (B)";

fn drawing_json(shown: &Shown) -> Value {
    json!({
        "operation": shown.operation.to_string(),
        "before_by_rank": shown.before,
        "after_by_rank": shown.after,
    })
}
