//! Ctrl-C: a search ends with the best so far; a file that is being written is written whole.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use command_line::said::tell;
use command_line::whole::writing;
use planner_core::search::{Go, StopReason};

use super::progress::Heartbeat;

/// Whether a search looks at [`INTERRUPTED`]. Signals know no values, so these are global.
static SEARCHING: AtomicBool = AtomicBool::new(false);

/// Whether the user wants the search to end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The exit code of a program that Ctrl-C ended, by convention of shells: 128 and the number of SIGINT.
const INTERRUPTED_CODE: i32 = 130;

/// Handles Ctrl-C from now on. The first ends a search gracefully, any other ends the program, though not
/// in the midst of a file.
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

/// When a search ends before it is done.
pub(crate) struct Limit {
    deadline: Option<Instant>,
    was_reached: AtomicBool,
    heartbeat: Heartbeat,
}

impl Limit {
    /// After a time from now on, or when the user interrupts it.
    #[expect(clippy::disallowed_methods, reason = "the command keeps its user's time limit")]
    pub(crate) fn new(time_limit: Option<Duration>, is_quiet: bool) -> Self {
        SEARCHING.store(true, Ordering::Relaxed);
        let deadline = time_limit.and_then(|limit| Instant::now().checked_add(limit));
        let heartbeat = Heartbeat::new("searching", is_quiet);
        Self { deadline, was_reached: AtomicBool::new(false), heartbeat }
    }

    /// Whether a search was told to end.
    pub(crate) fn was_reached(&self) -> bool {
        self.was_reached.load(Ordering::Relaxed)
    }

    /// Whether a search goes on, of which there is a sign of life now and then.
    pub(crate) fn go(&self) -> Go {
        self.heartbeat.beat(|| "; Ctrl-C ends it with the best so far".to_owned());
        self.go_in_silence()
    }

    /// Whether a search goes on whose progress is seen otherwise.
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
