//! A guard of a communicator: aborts calls that fail, take too long, or belong to a stopped run.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

use cudarc::driver::CudaEvent;
use executor_kernels::clock::now;
use executor_kernels::lock::lock;

use super::engine::Membership;
use super::library::{RawCommunicator, of_driver};
use crate::CommunicationError;
use crate::error::Result;
use crate::rendezvous::Connection;

/// Period with which a guard's thread checks calls.
const ROUND: Duration = Duration::from_millis(200);

/// Polling period of a thread that waits for NCCL's own progress: connecting members takes milliseconds.
const NAP: Duration = Duration::from_micros(50);

/// A communicator with its unfinished calls.
pub(super) struct Guard {
    raw: RawCommunicator,
    /// The communicator's name in errors, as in `ranks [0, 1] on the tensor stream`.
    name: String,
    /// A weak reference: other ranks see the rank as ended when no part of its program holds the connection any more.
    run: Weak<Connection>,
    limit: Duration,
    calls: Mutex<VecDeque<RunningCall>>,
}

/// A call that was started.
struct RunningCall {
    /// The function.
    call: &'static str,
    since: Instant,
    over: Arc<CudaEvent>,
}

impl Guard {
    pub(super) fn new(
        raw: RawCommunicator,
        membership: &Membership,
        run: &Arc<Connection>,
        limit: Duration,
    ) -> Self {
        let Membership { ranks, stream, .. } = membership;
        let name = match stream {
            Some(stream) => format!("ranks {ranks:?} on the {stream} stream"),
            None => format!("what rank {} sends to {}", ranks[0], ranks[1]),
        };
        Self { raw, name, run: Arc::downgrade(run), limit, calls: Mutex::default() }
    }

    /// Starts the thread that checks calls. Threads that need the calls' results wait for the device, and do not learn
    /// of a failure unless the calls are aborted.
    pub(super) fn start(guard: &Arc<Self>) -> Result<()> {
        let watched = Arc::downgrade(guard);
        let look = move || {
            while let Some(guard) = watched.upgrade() {
                if let Err(error) = guard.look() {
                    if let Some(run) = guard.run.upgrade() {
                        run.stop(&error.to_string());
                    }
                    guard.raw.abort();
                    return;
                }
                drop(guard);
                std::thread::sleep(ROUND);
            }
        };
        let started = Builder::new().name(format!("guard of {}", guard.name)).spawn(look);
        started.map(drop).map_err(|error| CommunicationError::Library {
            call: "thread::spawn",
            message: error.to_string(),
        })
    }

    /// Starts a call by `start`, whose end on the device is the event that `end` returns.
    pub(super) fn call(
        &self,
        call: &'static str,
        start: impl FnOnce(&RawCommunicator) -> Result<()>,
        end: impl FnOnce() -> Result<Arc<CudaEvent>>,
    ) -> Result<Arc<CudaEvent>> {
        self.check_run()?;
        let started = start(&self.raw).and_then(|()| self.wait_for_progress(call));
        let over = started.and_then(|()| end()).inspect_err(|_| self.raw.abort())?;
        let since = now();
        lock(&self.calls).push_back(RunningCall { call, since, over: Arc::clone(&over) });
        Ok(over)
    }

    /// Waits until all members have joined.
    pub(super) fn wait_for_members(&self) -> Result<()> {
        self.wait_for_progress("ncclCommInitRankConfig").inspect_err(|_| self.raw.abort())
    }

    /// Waits until all calls have ended.
    pub(super) fn wait_for_calls(&self) -> Result<()> {
        while !self.look()? {
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// Aborts all calls, and releases the communicator.
    pub(super) fn abort(&self) {
        self.raw.abort();
    }

    /// Waits until NCCL has finished its asynchronous work.
    fn wait_for_progress(&self, call: &'static str) -> Result<()> {
        let since = now();
        while self.raw.is_in_progress()? {
            self.check_run()?;
            self.check_time(call, since)?;
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// Returns whether all calls have ended. Fails if one has failed or takes too long, or the run was stopped.
    fn look(&self) -> Result<bool> {
        self.check_run()?;
        self.raw.is_in_progress()?;
        let mut calls = lock(&self.calls);
        while let Some(first) = calls.front() {
            if !first.over.try_is_complete().map_err(of_driver("cuEventQuery"))? {
                self.check_time(first.call, first.since)?;
                return Ok(false);
            }
            calls.pop_front();
        }
        Ok(true)
    }

    /// Fails if a rank has stopped the run.
    fn check_run(&self) -> Result<()> {
        self.run.upgrade().map_or(Ok(()), |run| run.check())
    }

    fn check_time(&self, call: &'static str, since: Instant) -> Result<()> {
        if since.elapsed() < self.limit {
            return Ok(());
        }
        Err(CommunicationError::Stalled {
            call,
            communicator: self.name.clone(),
            seconds: self.limit.as_secs_f64(),
        })
    }
}
