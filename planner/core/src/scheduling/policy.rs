//! Policies: the action that a rank begins when several are ready.

/// For how long a rank waits for what it knows to come before it begins a weight gradient instead, as
/// shares of the weight gradient: none, or as long as a gap that it would not fill.
pub(super) const PATIENCE: [f64; 6] = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5];

/// Preference between a forward and an input gradient that are both ready.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Preference {
    /// The input gradient, so that memory is free early and the stages before go on.
    InputGrad,
    /// The forward, so that the stages after go on.
    Forward,
    /// The other than last time.
    Alternate,
    /// Whichever is due first if micro-batches followed each other at `interval` times the pace of the
    /// slowest rank, with input gradients `ahead` intervals early.
    Due {
        /// In the time of a micro-batch.
        interval: f64,
        /// In intervals.
        ahead: f64,
    },
}

/// The rule by which a rank chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Policy {
    /// Between a forward and an input gradient.
    pub(super) preference: Preference,
    /// See [`PATIENCE`].
    pub(super) patience: f64,
    /// A forward is put off if an input gradient is known to come within this share of its time. A
    /// forward that has begun cannot be interrupted, and the first gradients run back through all
    /// ranks, so each that is held up holds up all before it.
    pub(super) caution: f64,
    /// For so many input gradients of a stage.
    pub(super) cautious_for: u32,
    /// Weight gradients that may wait before one goes ahead of a forward.
    pub(super) most_waiting: u32,
}

impl Policy {
    /// Settings worth a try.
    pub(super) fn grid(with_due: bool) -> impl Iterator<Item = Self> {
        let plain = [Preference::InputGrad, Preference::Forward, Preference::Alternate];
        let cautions = [
            (0.0, 0),
            (0.25, 1),
            (0.5, 1),
            (0.75, 1),
            (1.0, 1),
            (0.5, 4),
            (1.0, 4),
            (0.5, u32::MAX),
            (1.0, u32::MAX),
        ];
        let mut grid = Vec::new();
        let mut add = |preference, (caution, cautious_for), most_waiting| {
            grid.extend(PATIENCE.map(|patience| Self {
                preference,
                patience,
                caution,
                cautious_for,
                most_waiting,
            }));
        };
        for preference in plain {
            for caution in cautions {
                for most_waiting in [u32::MAX, 4] {
                    add(preference, caution, most_waiting);
                }
            }
        }
        if with_due {
            for interval in [0.8, 0.9, 1.0, 1.1, 1.25] {
                for ahead in [-2.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 2.0, 4.0] {
                    add(Preference::Due { interval, ahead }, (0.0, 0), u32::MAX);
                }
            }
        }
        grid.into_iter()
    }
}
