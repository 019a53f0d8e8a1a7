//! Time of a kernel, its bound, and the evidence for it.

use ir::units::Seconds;

/// The resource that bounds a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bound {
    /// Tensor cores.
    Compute,
    /// Memory bandwidth.
    Memory,
    /// Launch: starting and ending the kernel.
    Launch,
}

/// Evidence on which a time is based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// Kernels or collectives measured on this GPU at sizes around this one.
    Interpolated,
    /// Kernels or collectives measured on this GPU, but at other sizes only.
    Extrapolated,
    /// Rates of the data sheet, with the share of theirs that GPUs of its kind reach.
    DataSheet,
}

impl Basis {
    /// All kinds of evidence.
    pub const ALL: [Self; 3] = [Self::Interpolated, Self::Extrapolated, Self::DataSheet];

    pub(super) const fn of(is_own: bool, is_covered: bool) -> Self {
        match (is_own, is_covered) {
            (false, _) => Self::DataSheet,
            (true, true) => Self::Interpolated,
            (true, false) => Self::Extrapolated,
        }
    }

    /// Text that follows `rests on`.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Interpolated => "kernels measured around these sizes",
            Self::Extrapolated => "at other sizes",
            Self::DataSheet => "data sheets",
        }
    }
}

/// Time of a kernel, and its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Time from start to end.
    pub time: Seconds,
    /// The largest part of the time.
    pub bound: Bound,
}
