//! Threads that run the jobs of a rank's streams while the rank computes.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{Builder, JoinHandle};

use executor_kernels::failure::panic_message;
use executor_kernels::lock::lock;
use executor_kernels::streams::on_one_stream;

use super::error::{CommunicationError, Result};

/// A thread that runs jobs one after the other: a stream of a rank.
///
/// Dropping it does not wait: remaining jobs still run, in order. Otherwise a rank that fails while other ranks wait
/// for its queued jobs would wait for the jobs too.
pub struct Queue {
    name: Arc<str>,
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Queue {
    /// An empty queue, whose thread has this name.
    ///
    /// # Panics
    ///
    /// If the thread cannot be started.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let (jobs, incoming) = mpsc::channel::<Job>();
        let thread = Builder::new()
            .name(name.clone())
            .spawn(move || on_one_stream(|| incoming.into_iter().for_each(|job| job())))
            .unwrap_or_else(|error| {
                panic!("the thread of queue `{name}` cannot be started: {error}")
            });
        Self { name: name.into(), jobs, thread }
    }

    /// Runs `job` after all that were started before.
    pub fn start<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> JobHandle<T> {
        let outcome = Arc::new(OnceLock::new());
        let (name, destination) = (Arc::clone(&self.name), Arc::clone(&outcome));
        let job = move || {
            // The job owns its captures, so a panic leaves nothing half changed.
            let result = panic::catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| {
                let message = panic_message(&*panic);
                Err(CommunicationError::Panicked { queue: name.to_string(), message })
            });
            let is_first = destination.set(Mutex::new(Some(result))).is_ok();
            assert!(is_first, "a job runs once");
        };
        self.jobs.send(Box::new(job)).expect("the thread lives as long as its queue");
        JobHandle(outcome)
    }

    /// Waits until all jobs are done.
    pub fn join(self) {
        drop(self.jobs);
        self.thread.join().expect("panics of jobs are caught");
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.name).finish()
    }
}

/// The future result of a queue's job.
#[derive(Debug)]
pub struct JobHandle<T>(Arc<Outcome<T>>);

type Outcome<T> = OnceLock<Mutex<Option<Result<T>>>>;

impl<T> JobHandle<T> {
    /// The result of a job that ran outside a queue.
    pub fn done(result: Result<T>) -> Self {
        Self(Arc::new(Mutex::new(Some(result)).into()))
    }

    /// Returns whether the job is done, with or without an error.
    pub fn is_done(&self) -> bool {
        self.0.get().is_some()
    }

    /// Waits until the job is done, with or without an error.
    pub fn settle(&self) {
        self.0.wait();
    }

    /// The result of the job. Waits for it.
    ///
    /// # Errors
    ///
    /// The job's own; [`CommunicationError::Panicked`] if it panicked.
    pub fn wait(self) -> Result<T> {
        lock(self.0.wait()).take().expect("a handle is waited for once")
    }
}
