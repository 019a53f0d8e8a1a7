//! A kernel's time, what bounds it, and what it rests on.

use ir::units::Seconds;

/// What holds a kernel back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bound {
    /// The tensor cores.
    Compute,
    /// The memory's bandwidth.
    Memory,
    /// Starting and ending the kernel.
    Launch,
}

/// What a time rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// Kernels or collectives of this GPU that were measured at sizes around this one.
    Interpolated,
    /// Those that were measured at other sizes only.
    Extrapolated,
    /// Rates of its data sheet, with what others of its kind reach of theirs.
    DataSheet,
}

impl Basis {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Interpolated, Self::Extrapolated, Self::DataSheet];

    pub(super) const fn of(is_own: bool, is_covered: bool) -> Self {
        match (is_own, is_covered) {
            (false, _) => Self::DataSheet,
            (true, true) => Self::Interpolated,
            (true, false) => Self::Extrapolated,
        }
    }

    /// In words, after `rests on`.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Interpolated => "kernels measured around these sizes",
            Self::Extrapolated => "at other sizes",
            Self::DataSheet => "data sheets",
        }
    }
}

/// A kernel's time, and what bounds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// From start to end.
    pub time: Seconds,
    /// The largest of its parts.
    pub bound: Bound,
}
