//! One part of a check, in a separate process: findings as JSON, one on a line, as soon as they are known.

use std::sync::Arc;

use command_line::terminal::print_bytes;
use executor::calibration;
use executor::check::{self, CheckFinding};
use executor_communicators::Communicator;
use executor_kernels::clock::Deadline;
use executor_kernels::ops::Kernels;
use ir::cluster::{Cluster, Precision};
use ir::units::Bytes;

use super::args::{CheckPart, PartArgs};
use super::devices;
use crate::cli::choices::{Backend, CommunicatorKind};
use crate::cli::cluster;
use crate::cli::start;
use crate::cli::work::{OnDevices, RankJob};

pub(crate) fn part(args: &PartArgs) -> anyhow::Result<()> {
    let sheet = args.sheet.as_deref().map(cluster::read).transpose()?;
    let deadline = Deadline::after(args.seconds);
    match (args.part, args.communicator) {
        (CheckPart::Device, _) => devices::devices(args.backend, &mut tell),
        (CheckPart::Nccl, CommunicatorKind::Nccl) => start::run(&OfRanks, &args.ranks()),
        _ => start::run_on_devices(&Job { args, sheet, deadline }, args.backend),
    }
}

/// Writes a finding to stdout.
#[expect(clippy::needless_pass_by_value, reason = "findings are handed over to whoever is told")]
fn tell(finding: CheckFinding) {
    let line = serde_json::to_string(&finding).expect("findings print as JSON");
    // An error is ignored, as it means that nobody reads the findings any more.
    let _ = print_bytes(format!("{line}\n").as_bytes());
}

struct Job<'a> {
    args: &'a PartArgs,
    sheet: Option<Cluster>,
    deadline: Deadline,
}

impl OnDevices for Job<'_> {
    fn run<B: Kernels>(&self, devices: &[B::Device]) {
        let (sheet, deadline, first) = (self.sheet.as_ref(), self.deadline, &devices[0]);
        match self.args.part {
            CheckPart::Speeds => {
                let is_host = self.args.backend == Backend::Cpu;
                check::speeds::<B>(first, sheet, is_host, deadline, &mut tell);
            }
            CheckPart::Products => check::products::<B>(first, sheet, deadline, &mut tell),
            CheckPart::Kernels => check::kernels::<B>(first, deadline, &mut tell),
            CheckPart::Layouts => check::layouts::<B>(devices, deadline, &mut tell),
            CheckPart::Training => {
                let precision = training_precision(self.args.backend);
                let of_sheet = sheet.and_then(|it| it.gpu.peak.get(&precision));
                let of_sheet = of_sheet.map(|it| (it.get(), "peak"));
                let of_products = self.args.peak.map(|it| (it, "the fastest product's rate"));
                let (memory, peak) = (self.memory(), of_sheet.or(of_products));
                check::model::<B>(first, precision, memory, peak, deadline, &mut tell);
            }
            CheckPart::Device | CheckPart::Collectives | CheckPart::Nccl => {}
        }
    }
}

impl Job<'_> {
    /// Memory that a model may use; none where it is not known.
    fn memory(&self) -> Option<Bytes> {
        match self.args.backend {
            // Other processes use the host's memory too.
            Backend::Cpu => calibration::machine().memory.map(|it| Bytes::new(it.get() / 2)),
            // Graphics interfaces do not report free memory.
            Backend::Wgpu => Some(Bytes::new(WGPU_MEMORY)),
            Backend::Cuda => devices::free_memory(),
        }
    }
}

/// Free memory, in bytes, that any recent GPU is assumed to have.
const WGPU_MEMORY: u64 = 4 << 30;

/// Precision in which a model is trained: bf16 where it is fast.
pub(super) const fn training_precision(backend: Backend) -> Precision {
    match backend {
        Backend::Cuda => Precision::Bf16,
        Backend::Cpu | Backend::Wgpu => Precision::Fp32,
    }
}

/// The layouts with as many ranks as were started.
struct OfRanks;

impl RankJob for OfRanks {
    fn run<B: Kernels>(
        &self,
        communicator: Arc<dyn Communicator<B>>,
        device: B::Device,
    ) -> anyhow::Result<()> {
        // The parent process writes a line to each rank for every layout that there is time for.
        let mut goes_on = || std::io::stdin().read_line(&mut String::new()).is_ok_and(|it| it > 0);
        Ok(check::layouts_of_ranks(&communicator, &device, &mut goes_on, &mut tell)?)
    }
}
