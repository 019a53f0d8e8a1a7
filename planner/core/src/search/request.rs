//! The request to a search, and its progress.

use ir::layout::PartialLayout;
use ir::units::Seconds;

/// Request to a search.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked by itself")]
pub struct Request {
    /// Options that the user has fixed.
    pub fixed: PartialLayout,
    /// Number of plans to return.
    pub top: usize,
    /// True to simulate candidates that bounds exclude as well, as tests do.
    pub exhaustive: bool,
    /// True to recompute as few layers of each stage as fit in memory, rather than all.
    pub min_recompute: bool,
    /// True to find the layout that exceeds the memory least, if none fits.
    pub find_closest: bool,
    /// True to look for faster plans that fit only with less headroom.
    pub less_headroom: bool,
}

impl Default for Request {
    fn default() -> Self {
        let fixed = PartialLayout::default();
        Self {
            fixed,
            top: 1,
            exhaustive: false,
            min_recompute: false,
            find_closest: true,
            less_headroom: false,
        }
    }
}

/// Reason why a search stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Every candidate was simulated, excluded by a lower bound, or does not fit: the plans are the best, by the cost
    /// model.
    #[default]
    Exhausted,
    /// A plan that fits was found, and none better was requested.
    FirstFit,
    /// Interrupted: the plans are the best so far.
    Interrupted,
    /// The time limit: the plans are the best so far.
    TimeLimit,
}

/// Progress of a search.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Number of candidates that are settled.
    pub done: u64,
    /// Number of all candidates.
    pub all: u64,
    /// The best step time so far.
    pub best: Option<Seconds>,
}

/// Decision on whether a search goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// Go on.
    On,
    /// Stop for this reason, with the best plans so far.
    Stop(StopReason),
}

/// Callback that receives the progress of a search, and decides whether it goes on.
pub type Observe<'a> = dyn FnMut(Progress) -> Go + Send + 'a;
