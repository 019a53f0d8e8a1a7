//! Policies: rules for the action that a rank begins when several are ready.

/// Longest times, as shares of a weight gradient's time, that a rank waits for a pass that is known to become ready,
/// before it begins the weight gradient instead.
pub(super) const PATIENCE: [f64; 6] = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5];

/// Preference between a forward and an input gradient that are both ready.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Preference {
    /// The input gradient, so that memory is freed early and the stages before can go on.
    InputGrad,
    /// The forward, so that the stages after can go on.
    Forward,
    /// The kind that the rank did not begin last.
    Alternate,
    /// Whichever is due first if micro-batches followed each other at `interval` times the rank's own pace, with input
    /// gradients `ahead` intervals early.
    Due {
        /// Interval between micro-batches, in times of one micro-batch on the rank.
        interval: f64,
        /// Lead of input gradients, in intervals.
        ahead: f64,
    },
}

/// Rule by which a rank chooses its next action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Policy {
    /// Preference between a forward and an input gradient.
    pub(super) preference: Preference,
    /// Time to wait before a weight gradient: see [`PATIENCE`].
    pub(super) patience: f64,
    /// A forward waits if an input gradient becomes ready within this share of the forward's time. A forward that has
    /// begun cannot be interrupted. The first gradients run back through all ranks, so a delayed gradient delays all
    /// ranks before it.
    pub(super) caution: f64,
    /// Number of first input gradients of a stage for which `caution` holds.
    pub(super) cautious_for: u32,
    /// Number of waiting weight gradients from which on one of them goes before a forward.
    pub(super) most_waiting: u32,
}

impl Policy {
    /// Settings that are tried.
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
