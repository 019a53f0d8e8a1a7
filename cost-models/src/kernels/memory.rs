//! Times of memory-bound kernels: norms, activations, dropout, residuals, optimizer steps.

use ir::cluster::{Architecture, Gpu};
use ir::units::{Bytes, BytesPerSecond, Seconds};

/// Seconds of an empty kernel.
///
/// The smallest products measured take 2.5 us on A100, H100 and H200 and 1.7 us on B200.
const LAUNCH_SECONDS: f64 = 2.5e-6;

/// Memory bandwidth that elementwise kernels reach on a GPU, and the launch time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rates {
    bandwidth: BytesPerSecond,
    launch: Seconds,
}

impl Rates {
    pub(super) fn new(gpu: &Gpu) -> Self {
        Self {
            bandwidth: gpu.memory_bandwidth * achieved_share(gpu.architecture),
            launch: Seconds::new(LAUNCH_SECONDS),
        }
    }

    /// Time of a kernel at a share of the bandwidth that kernels reach alone.
    ///
    /// ```text
    /// t = launch + bytes / (share W)
    /// ```
    ///
    /// The launch and the drain of the last wave are the ramp: a kernel of launch x W bytes (8 MB on an H100) reaches
    /// half the bandwidth, as in STREAM curves over size.
    pub(super) fn time(&self, bytes: Bytes, share: f64) -> Seconds {
        if bytes == Bytes::ZERO {
            return Seconds::ZERO;
        }
        self.launch + bytes / (self.bandwidth * share)
    }

    pub(super) fn launch_floor(&self) -> Seconds {
        self.launch
    }
}

/// Share of peak memory bandwidth that large elementwise kernels reach.
///
/// | family | share | source |
/// |---|---|---|
/// | Ampere | 0.88 | 0.91 of 1.6 TB/s to 0.88 of 2.04 (SimuMax, A100; BabelStream on A100) |
/// | Hopper | 0.90 | BabelStream triad on H100 SXM: about 3.0 of 3.35 TB/s |
/// | Blackwell | 0.80 | between SimuMax's 0.67 for PyTorch kernels and BabelStream's 0.92 |
/// | Volta | 0.90 | STREAM: 790 to 830 of 900 GB/s (Jia et al. 2018) |
/// | others | 0.80 | assumed |
fn achieved_share(architecture: Architecture) -> f64 {
    match architecture {
        Architecture::Volta | Architecture::Hopper => 0.90,
        Architecture::Ampere => 0.88,
        _ => 0.80,
    }
}
