//! Signs of life on stderr where work takes long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use command_line::said::tell;

/// Time between two signs of life, and before the first.
const INTERVAL: Duration = Duration::from_secs(8);

/// Says now and then that work goes on, and for how long it has.
pub(crate) struct Heartbeat {
    doing: &'static str,
    is_quiet: bool,
    start: Instant,
    /// Signs that were given.
    given: AtomicU64,
}

impl Heartbeat {
    #[expect(clippy::disallowed_methods, reason = "the command tells its user how long it takes")]
    pub(crate) fn new(doing: &'static str, is_quiet: bool) -> Self {
        Self { doing, is_quiet, start: Instant::now(), given: AtomicU64::new(0) }
    }

    /// To be called often: gives a sign where it is time for one, with how far the work is.
    pub(crate) fn beat(&self, how_far: impl FnOnce() -> String) {
        let elapsed = self.start.elapsed();
        let due = elapsed.as_secs() / INTERVAL.as_secs();
        // Of several threads one gives it.
        if self.is_quiet || self.given.fetch_max(due, Ordering::Relaxed) >= due {
            return;
        }
        let (doing, seconds, how_far) = (self.doing, elapsed.as_secs(), how_far());
        tell(&format!("{doing} for {seconds} s{how_far}"));
    }
}
