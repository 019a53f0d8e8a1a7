//! Outcomes of commands.

/// Outcome of a command, which becomes its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A plan was found, or the command did its work.
    Found,
    /// No layout fits.
    NothingFits,
    /// The settings have faults.
    Faults,
    /// The executor ended with this exit code.
    #[cfg(not(unix))]
    Ended(u8),
}
