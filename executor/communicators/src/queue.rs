//! Threads that do the jobs of a rank's streams while the rank computes.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{Builder, JoinHandle};

use executor_kernels::lock::lock;
use executor_kernels::streams::on_one_stream;

use super::error::{CommunicationError, Result, panic_message};

/// A thread that does jobs one after the other: a stream of a rank.
///
/// Dropping it does not wait: jobs that are left still run, in order. A rank that fails while
/// others wait for what is next in its queue would else wait for them too.
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
    /// If the system gives no thread.
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

    /// Does `job` after all that were started before.
    pub fn start<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> JobHandle<T> {
        let outcome = Arc::new(OnceLock::new());
        let (name, destination) = (Arc::clone(&self.name), Arc::clone(&outcome));
        let job = move || {
            // The job took what it uses with it, so a panic leaves nothing half done.
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

/// The result that a job of a queue will have.
#[derive(Debug)]
pub struct JobHandle<T>(Arc<Outcome<T>>);

type Outcome<T> = OnceLock<Mutex<Option<Result<T>>>>;

impl<T> JobHandle<T> {
    /// The result of a job that has run outside a queue.
    pub fn done(result: Result<T>) -> Self {
        Self(Arc::new(Mutex::new(Some(result)).into()))
    }

    /// Whether the job is done, well or not.
    pub fn is_done(&self) -> bool {
        self.0.get().is_some()
    }

    /// Waits until the job is done, well or not.
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
