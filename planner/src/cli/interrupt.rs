//! Ctrl-C: it ends a search with the best plan so far. A file that is being written is completed first.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use command_line::terminal::tell;
use command_line::whole::writing;
use planner_core::search::{Go, StopReason};

use super::progress::Heartbeat;

/// True while a search polls [`INTERRUPTED`]. Signal handlers take no arguments, so both are global.
static SEARCHING: AtomicBool = AtomicBool::new(false);

/// True once the user pressed Ctrl-C.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Exit code of a program ended by Ctrl-C, by convention of shells: 128 plus the number of SIGINT.
const INTERRUPTED_CODE: i32 = 130;

/// Installs the handler of Ctrl-C. The first Ctrl-C during a search ends the search gracefully; any other ends the
/// program, after a file that is being written is complete.
pub(crate) fn handle() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        let is_first = !INTERRUPTED.swap(true, Ordering::Relaxed);
        if is_first && SEARCHING.load(Ordering::Relaxed) {
            tell("interrupted: ending with the best so far");
            return;
        }
        let _whole = writing();
        process::exit(INTERRUPTED_CODE);
    })?;
    Ok(())
}

/// Stop condition of a search: a time limit or Ctrl-C.
pub(crate) struct Limit {
    deadline: Option<Instant>,
    was_reached: AtomicBool,
    heartbeat: Heartbeat,
}

impl Limit {
    /// A limit that is reached when `time_limit` has passed from now, or when the user interrupts.
    #[expect(clippy::disallowed_methods, reason = "the command keeps its user's time limit")]
    pub(crate) fn new(time_limit: Option<Duration>, is_quiet: bool) -> Self {
        SEARCHING.store(true, Ordering::Relaxed);
        let deadline = time_limit.and_then(|limit| Instant::now().checked_add(limit));
        let heartbeat = Heartbeat::new("searching", is_quiet);
        Self { deadline, was_reached: AtomicBool::new(false), heartbeat }
    }

    /// Returns whether the search was stopped.
    pub(crate) fn was_reached(&self) -> bool {
        self.was_reached.load(Ordering::Relaxed)
    }

    /// Returns whether the search continues. Reports on stderr from time to time that it is alive.
    pub(crate) fn go(&self) -> Go {
        self.heartbeat.beat(|| "; Ctrl-C ends it with the best so far".to_owned());
        self.go_in_silence()
    }

    /// Returns whether the search continues, without reports, for a search whose progress is shown elsewhere.
    #[expect(clippy::disallowed_methods, reason = "the command keeps its user's time limit")]
    pub(crate) fn go_in_silence(&self) -> Go {
        let reason = if INTERRUPTED.load(Ordering::Relaxed) {
            StopReason::Interrupted
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            StopReason::TimeLimit
        } else {
            return Go::On;
        };
        self.was_reached.store(true, Ordering::Relaxed);
        Go::Stop(reason)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        SEARCHING.store(false, Ordering::Relaxed);
    }
}
