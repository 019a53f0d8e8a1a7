//! What commands answer.

/// What a command that did its work has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There is a plan.
    Found,
    /// No layout fits.
    NothingFits,
    /// Settings have faults.
    Faults,
    /// The executor ended, with this exit code.
    #[cfg(not(unix))]
    Ended(u8),
}
