//! What to look for, and for how long.

use ir::layout::PartialLayout;
use ir::units::Seconds;

/// What to look for.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked by itself")]
pub struct Request {
    /// What the user has decided.
    pub fixed: PartialLayout,
    /// How many plans to keep.
    pub top: usize,
    /// Whether to play what the bounds would leave out, as tests do.
    pub exhaustive: bool,
    /// Whether full recompute is of as few layers of each stage as fit, rather than of all.
    pub fewest_layers: bool,
    /// Whether to look for what misses by least where nothing fits.
    pub closest: bool,
    /// Whether to look for what is faster with less headroom.
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
    /// It was interrupted: the plans are the best so far.
    Interrupted,
    /// It took as long as it was given: the plans are the best so far.
    TimeLimit,
}

/// How far a search is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Candidates that were dealt with, and all.
    pub done: u64,
    /// All.
    pub all: u64,
    /// The best time so far.
    pub best: Option<Seconds>,
}

/// Whether a search goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// It does.
    On,
    /// It stops for a reason, with the best so far.
    Stop(StopReason),
}

/// Is told how far a search is, and says whether it goes on.
pub type Observe<'a> = dyn FnMut(Progress) -> Go + Send + 'a;
