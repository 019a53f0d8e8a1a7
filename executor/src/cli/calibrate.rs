//! `executor calibrate`.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{bail, ensure};
use command_line::destination::check_output;
use command_line::terminal::tell;
use executor::calibration::{self, Effort, Machine, Rates};
use executor::collectives::TimedCollective;
use executor_communicators::{Communicator, Reduction};
use executor_kernels::ops::Kernels;
use executor_runtime::settings::compute_element;
use ir::cluster::{Architecture, Cluster, Host, KernelTimes, MeasuredKernels, Precision};
use ir::collective::Collective;
use ir::units::{Bytes, BytesPerSecond, FlopsPerSecond};
use traces::collectives::Operation;

use super::args::{Backend, PrecisionArg};
use super::cluster::{self, Topology};
use super::collectives::{Timing, check_ranks, check_timing};
use super::measuring::CalibrateArgs;
use super::start;
use super::words;
use super::work::RankJob;

pub(crate) fn calibrate(args: &CalibrateArgs) -> anyhow::Result<()> {
    check_timing(&args.timing, &args.ranks)?;
    let base = args.base.as_deref().map(cluster::read).transpose()?;
    if base.is_none() && args.ranks.backend != Backend::Cpu {
        bail!(
            "what is on a GPU's data sheet cannot be measured\nhint: `--base FILE` with a cluster file of \
             its kind, such as `cost-models/clusters/h100.json`"
        );
    }
    for precision in &args.precision {
        args.ranks.backend.check(PrecisionArg::of(precision.precision()))?;
    }
    let inputs: Vec<_> = args.base.iter().map(std::path::PathBuf::as_path).collect();
    check_output(&args.output, &inputs)?;
    start::run(&Job { args, base }, &args.ranks)
}

/// The arguments and the base cluster, shared by all ranks.
struct Job<'a> {
    args: &'a CalibrateArgs,
    base: Option<Cluster>,
}

/// Measurements that rank 0 collects.
struct CalibrationResult {
    rates: BTreeMap<Precision, Rates>,
    kernels: BTreeMap<Precision, KernelTimes>,
    slowdown: f64,
    rows: Vec<Vec<TimedCollective>>,
}

impl CalibrationResult {
    /// The highest rate in a precision: that of a large product, or the limit that fitted products approach as they
    /// grow.
    fn peak(&self, precision: Precision, rates: &Rates) -> FlopsPerSecond {
        let products = self.kernels.get(&precision).map(|times| &times.products);
        let fitted = products
            .into_iter()
            .flat_map(|it| [&it.forward, &it.input_grad, &it.weight_grad].into_iter().flatten());
        let fitted = fitted.map(|times| 1.0 / times.seconds_per_operation);
        let known = fitted.filter(|rate| rate.is_finite());
        FlopsPerSecond::new(known.fold(rates.flops_per_second, f64::max))
    }
}

impl RankJob for Job<'_> {
    fn run<B: Kernels>(
        &self,
        communicator: Arc<dyn Communicator<B>>,
        device: B::Device,
    ) -> anyhow::Result<()> {
        let num_ranks = communicator.num_ranks();
        check_ranks(num_ranks)?;
        let topology = Topology::new(num_ranks, self.args.ranks_per_node)?;
        let is_first = communicator.rank() == 0;
        let say = |text: &str| {
            if is_first {
                tell(text);
            }
        };
        let effort = if self.args.quick { Effort::Quick } else { Effort::Full };
        let (mut rates, mut kernels) = (BTreeMap::new(), BTreeMap::new());
        for argument in &self.args.precision {
            let precision = argument.precision();
            say(&format!("{precision}: what {} reach at once", words::ranks(num_ranks)));
            let found = calibration::rates(&communicator, &device, compute_element(precision))?;
            rates.extend(found.map(|found| (precision, found)));
            let observe = |nth: usize, model: &calibration::TrainedModel| {
                // A line that cannot be printed is not an error, as it only reports progress.
                say(&format!("{precision}: model {}: {}", nth + 1, model.name()));
            };
            let found =
                calibration::kernel_times(&communicator, &device, precision, effort, observe)?;
            kernels.extend(found.map(|found| (precision, found)));
        }
        say("collectives");
        let slowdown = calibration::slowdown(&communicator, &device)?;
        let rows = self.collectives(&*communicator, topology, &device)?;
        if is_first {
            let found = CalibrationResult { rates, kernels, slowdown, rows };
            self.finish(topology, &found)?;
        }
        Ok(())
    }
}

impl Job<'_> {
    /// Times of the collectives that plans have, level by level; empty on ranks other than 0.
    fn collectives<B: Kernels>(
        &self,
        communicator: &dyn Communicator<B>,
        topology: Topology,
        device: &B::Device,
    ) -> anyhow::Result<Vec<Vec<TimedCollective>>> {
        let first = self.args.precision.first().expect("a precision is always given");
        let timing = Timing {
            args: &self.args.timing,
            reduction: Reduction::Sum,
            element: compute_element(first.precision()),
        };
        let mut levels = Vec::new();
        for ways in topology.levels() {
            let mut rows = Vec::new();
            for groups in &ways {
                for collective in Collective::ALL {
                    let operation = Operation::Collective(collective);
                    let observe = |_: &TimedCollective| Ok(());
                    rows.extend(timing.rows(communicator, device, groups, operation, observe)?);
                }
            }
            levels.push(rows);
        }
        Ok(levels)
    }

    /// Writes the cluster file.
    fn finish(&self, topology: Topology, found: &CalibrationResult) -> anyhow::Result<()> {
        let wrong = found.rows.iter().flatten().find(|row| row.num_wrong > 0);
        if let Some(row) = wrong {
            bail!("{} of {} bytes gave wrong elements", row.operation, row.bytes.get());
        }
        let machine = calibration::machine();
        let mut made = match &self.base {
            Some(base) => base.clone(),
            None => self.cluster(&machine, topology, found)?,
        };
        if let Some(name) = &self.args.cluster_name {
            made.name.clone_from(name);
        }
        made.gpus_per_node = topology.ranks_per_node;
        made.communication_slowdown = Some(found.slowdown);
        let is_cpu = self.args.ranks.backend == Backend::Cpu;
        let threads = is_cpu.then(|| self.args.ranks.threads(topology.num_ranks).get() as u32);
        made.gpu.measured = Some(MeasuredKernels {
            ranks: topology.num_ranks,
            threads_per_rank: threads,
            by_precision: found.kernels.clone(),
        });
        let levels = cluster::fit_levels(topology, self.args.ranks.communicator, &found.rows);
        let how = format!("`executor calibrate` on {}", words::ranks(topology.num_ranks));
        cluster::set_levels(&mut made, &levels, &how);
        let source = |text: &str| format!("{how}: {text}");
        let kernels = "costs fitted to operators in steps of small models, means of the middle half of all ranks' times";
        made.sources.insert("gpu.measured".to_owned(), source(kernels));
        let slowdown = "what products take longer beside an all-reduce, over its time";
        made.sources.insert("communication_slowdown".to_owned(), source(slowdown));
        cluster::write(&self.args.output, &made)?;
        self.tell(&made, &levels)
    }

    /// The cluster of a machine without a data sheet, from measurements.
    fn cluster(
        &self,
        machine: &Machine,
        topology: Topology,
        found: &CalibrationResult,
    ) -> anyhow::Result<Cluster> {
        let ranks = u64::from(topology.ranks_per_node);
        let threads = self.args.ranks.threads(topology.num_ranks);
        let Some(memory) = machine.memory else {
            bail!(
                "the system does not tell how much memory there is\nhint: `--base FILE` with a cluster \
                 file that does"
            );
        };
        let Some(bandwidth) = found.rates.values().next().map(|rates| rates.bytes_per_second)
        else {
            bail!("no precision was measured");
        };
        let bandwidth = BytesPerSecond::new(bandwidth);
        let peak = found.rates.iter();
        let peak = peak.map(|(precision, rates)| (*precision, found.peak(*precision, rates)));
        let name = format!("{} of {} cores of {}", threads, machine.cores, machine.processor);
        let of_rank = Bytes::new(memory.get() / ranks);
        let (cpu, peak) = (Architecture::Cpu, peak.collect());
        let mut made = cluster::unlisted(name, cpu, of_rank, bandwidth, peak, bandwidth);
        let sources = [
            ("gpu.memory_bytes", "what the system has, shared by the ranks"),
            ("gpu.memory_bandwidth_bytes_per_second", "sums of 8 Mi elements on all ranks at once"),
            (
                "gpu.peak_flops_per_second",
                "products of 1024 x 1024 on all ranks at once, or what those of steps tend to",
            ),
            ("host_link_bandwidth_bytes_per_second", "the memory's: ranks compute in the host's"),
            ("host", "what the system has, and what the bandwidths of its ranks add up to"),
        ];
        let sources = sources.map(|(field, text)| (field.to_owned(), text.to_owned()));
        made.sources = sources.into();
        let (ranks, processor) = (words::ranks(topology.num_ranks), &machine.processor);
        made.description = format!("{ranks} of {threads} threads each on {processor}");
        let memory_bandwidth = bandwidth * f64::from(topology.ranks_per_node);
        made.host = Some(Host { memory, memory_bandwidth });
        Ok(made)
    }

    /// Reports the results.
    fn tell(
        &self,
        made: &Cluster,
        levels: &[executor::collectives::FittedLevel],
    ) -> anyhow::Result<()> {
        ensure!(!levels.is_empty(), "no collective was measured");
        for (precision, peak) in &made.gpu.peak {
            let bandwidth = made.gpu.memory_bandwidth;
            tell(&format!(
                "{precision}: a rank reaches {:.1} GFLOP/s, and {:.1} GB/s",
                peak.get() / 1e9,
                bandwidth.get() / 1e9
            ));
        }
        for (precision, times) in made.gpu.measured.iter().flat_map(|it| &it.by_precision) {
            let percent = times.mean_error * 100.0;
            tell(&format!("{precision}: steps are fitted with a mean error of {percent:.1} %"));
        }
        for level in levels {
            let errors = cluster::errors(level);
            tell(&format!("`{}` is fitted with mean errors of {errors}", level.level.name));
        }
        let path = self.args.output.display();
        tell(&format!(
            "wrote `{path}`; `planner search MODEL --gpus {} --cluster {path} --framework executor --precision {}` \
             plans for it",
            self.args.ranks.num_ranks(),
            made.gpu
                .measured
                .iter()
                .flat_map(|it| it.by_precision.keys())
                .next()
                .map_or("fp32", |it| it.name())
        ));
        Ok(())
    }
}
