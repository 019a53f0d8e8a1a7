//! The request to a search, and its progress.

use ir::layout::PartialLayout;
use ir::units::Seconds;

/// Request to a search.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked by itself")]
pub struct Request {
    /// Options that the user has fixed.
    pub fixed: PartialLayout,
    /// Number of plans to keep.
    pub top: usize,
    /// True to simulate what the bounds would leave out as well, as tests do.
    pub exhaustive: bool,
    /// True if full recompute is of as few layers of each stage as memory allows, rather than of all.
    pub fewest_layers: bool,
    /// True to look for the layout that exceeds the memory by least, if nothing fits.
    pub closest: bool,
    /// True to look for plans that are faster with less headroom.
    pub less_headroom: bool,
}

impl Default for Request {
    fn default() -> Self {
        let fixed = PartialLayout::default();
        Self {
            fixed,
            top: 1,
            exhaustive: false,
            fewest_layers: false,
            closest: true,
            less_headroom: false,
        }
    }
}

/// Why the search stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Every candidate was played through, or left out by a bound that is never above its time, or does
    /// not fit: the plans are the best within the model.
    Exhausted,
    /// A plan that fits was found, and no better one was asked for.
    FirstFit,
    /// Interrupted: the plans are the best so far.
    Interrupted,
    /// The time limit: the plans are the best so far.
    TimeLimit,
}

/// Progress of a search.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Candidates that were dealt with, and all.
    pub done: u64,
    /// All.
    pub all: u64,
    /// The best time so far.
    pub best: Option<Seconds>,
}

/// Answer to a search that asks whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// Go on.
    On,
    /// Stop for a reason, with the best so far.
    Stop(StopReason),
}

/// Is told how far a search is, and says whether it goes on.
pub type Observe<'a> = dyn FnMut(Progress) -> Go + Send + 'a;
