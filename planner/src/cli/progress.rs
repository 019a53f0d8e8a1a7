//! Progress messages on stderr during long work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use command_line::terminal::tell;

/// Time between two messages, and before the first.
const INTERVAL: Duration = Duration::from_secs(8);

/// Reports from time to time that work continues, and the elapsed time.
pub(crate) struct Heartbeat {
    doing: &'static str,
    is_quiet: bool,
    start: Instant,
    /// Number of messages that were due so far.
    given: AtomicU64,
}

impl Heartbeat {
    #[expect(clippy::disallowed_methods, reason = "the command tells its user how long it takes")]
    pub(crate) fn new(doing: &'static str, is_quiet: bool) -> Self {
        Self { doing, is_quiet, start: Instant::now(), given: AtomicU64::new(0) }
    }

    /// To be called often. Prints a message when one is due, with the progress that `how_far` returns.
    pub(crate) fn beat(&self, how_far: impl FnOnce() -> String) {
        let elapsed = self.start.elapsed();
        let due = elapsed.as_secs() / INTERVAL.as_secs();
        // Only one of several threads prints it.
        if self.is_quiet || self.given.fetch_max(due, Ordering::Relaxed) >= due {
            return;
        }
        let (doing, seconds, how_far) = (self.doing, elapsed.as_secs(), how_far());
        tell(&format!("{doing} for {seconds} s{how_far}"));
    }
}
