//! Options that several commands share: backend, communicator and precision.

use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use command_line::numbers::seconds;
use executor_kernels::array::Element;
use ir::cluster::Precision;

/// Where tensors are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// This machine's processor.
    Cpu,
    /// NVIDIA GPUs. Needs the cargo feature `cuda`.
    #[value(alias = "nvidia")]
    Cuda,
    /// A GPU of any make, or a software one, through Vulkan or Metal; all ranks share it; in fp32 or fp16. Needs the
    /// cargo feature `wgpu`.
    #[value(
        alias = "vulkan",
        alias = "metal",
        alias = "mps",
        alias = "webgpu",
        alias = "rocm",
        alias = "hip"
    )]
    Wgpu,
}

impl Backend {
    /// Refuses a precision that the backend does not support.
    pub(crate) fn check(self, precision: PrecisionArg) -> anyhow::Result<()> {
        match self {
            Self::Cuda if precision == PrecisionArg::Fp64 => {
                bail!(
                    "the CUDA backend has no fp64\nhint: `--precision fp32`, or compare layouts in fp64 on the CPU"
                )
            }
            #[cfg(feature = "wgpu")]
            Self::Wgpu => check_wgpu(precision),
            _ => Ok(()),
        }
    }
}

/// How ranks communicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommunicatorKind {
    /// Ranks are threads of this process.
    #[value(alias = "threads")]
    Local,
    /// Ranks are processes started by `mpirun` or `srun`. Needs the cargo feature `mpi`.
    Mpi,
    /// As `mpi`, or with a rendezvous address; tensors go from GPU to GPU. Needs the cargo feature `cuda`.
    Nccl,
}

/// Precision of computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrecisionArg {
    /// 64-bit floats.
    Fp64,
    /// 32-bit floats.
    Fp32,
    /// 16-bit floats: half precision.
    Fp16,
    /// 16-bit floats with the range of fp32.
    Bf16,
}

impl PrecisionArg {
    /// The precision in which a plan of this precision runs.
    pub(crate) const fn of(precision: Precision) -> Self {
        match precision {
            Precision::Fp32 => Self::Fp32,
            Precision::Fp16 => Self::Fp16,
            Precision::Bf16 | Precision::Fp8 | Precision::Fp4 => Self::Bf16,
        }
    }

    /// The element type of computation.
    pub(crate) const fn element(self) -> Element {
        match self {
            Self::Fp64 => Element::F64,
            Self::Fp32 => Element::F32,
            Self::Fp16 => Element::F16,
            Self::Bf16 => Element::BF16,
        }
    }
}

/// The name of a choice on the command line.
pub(crate) fn word(choice: &impl ValueEnum) -> String {
    let value = choice.to_possible_value().expect("no choice is left out");
    value.get_name().to_owned()
}

/// Describes ranks and devices in words.
pub(crate) const fn ranks_and_devices(
    backend: Backend,
    communicator: CommunicatorKind,
) -> &'static str {
    match (backend, communicator) {
        (Backend::Cpu, CommunicatorKind::Local) => "threads, CPU",
        (Backend::Cpu, _) => "processes, CPU",
        (Backend::Cuda, CommunicatorKind::Local) => "threads, CUDA",
        (Backend::Cuda, _) => "processes, CUDA",
        (Backend::Wgpu, _) => "threads, wgpu",
    }
}

/// Parses a whole number from `LEAST` to `MOST`.
pub(crate) fn whole_within<T, const LEAST: u64, const MOST: u64>(text: &str) -> Result<T, String>
where
    T: FromStr + Copy + Into<u64>,
{
    let number = text.parse().ok().filter(|number: &T| (LEAST..=MOST).contains(&(*number).into()));
    number.ok_or_else(|| format!("must be a whole number from {LEAST} to {MOST}"))
}

/// Maximum number of threads: more than any machine has cores.
const MOST_THREADS: u64 = 4096;

pub(crate) fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    let count = whole_within::<u32, 1, MOST_THREADS>(text)?;
    Ok(NonZeroUsize::new(count as usize).unwrap_or(NonZeroUsize::MIN))
}

/// Maximum time limit, in seconds: a day.
const LONGEST_SECONDS: f64 = 86_400.0;

pub(crate) fn parse_timeout(text: &str) -> Result<Duration, String> {
    let time = seconds(text).filter(|time| (0.1..=LONGEST_SECONDS).contains(time));
    let problem = || {
        format!(
            "must be seconds from 0.1 to {LONGEST_SECONDS}, or a time such as `90s`, `10min` or `1h`"
        )
    };
    time.map(Duration::from_secs_f64).ok_or_else(problem)
}

/// Refuses a precision that kernels are not compiled for, or that the device does not support.
#[cfg(feature = "wgpu")]
fn check_wgpu(precision: PrecisionArg) -> anyhow::Result<()> {
    use executor_kernels::wgpu::{check_element, device};

    let name = match precision {
        PrecisionArg::Fp32 => return Ok(()),
        PrecisionArg::Fp16 => return Ok(check_element(&device()?, Element::F16)?),
        PrecisionArg::Fp64 => "fp64",
        PrecisionArg::Bf16 => "bf16",
    };
    bail!("the wgpu backend has no {name}\nhint: `--precision fp32` or `--precision fp16`")
}
