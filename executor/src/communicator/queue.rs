//! Communication beside computation.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use super::error::{CommunicationError, panic_message};
use crate::lock::lock;
use crate::streams::on_one_stream;

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
        job: impl FnOnce() -> Result<T, CommunicationError> + Send + 'static,
    ) -> Pending<T> {
        let outcome = Arc::new(Outcome { timed: Mutex::new(None), done: Condvar::new() });
        let (name, destination) = (Arc::clone(&self.name), Arc::clone(&outcome));
        let job = move || {
            let started = now();
            // The job took what it uses with it, so a panic leaves nothing half done.
            let value = panic::catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| {
                let message = panic_message(&*panic);
                Err(CommunicationError::Panicked { queue: name.to_string(), message })
            });
            let timed = Timed { value, started, ended: now() };
            *lock(&destination.timed) = Some(timed);
            destination.done.notify_all();
        };
        self.jobs.send(Box::new(job)).expect("the thread lives as long as its queue");
        Pending(outcome)
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

/// What a job of a queue will give.
#[derive(Debug)]
pub struct Pending<T>(Arc<Outcome<T>>);

#[derive(Debug)]
struct Outcome<T> {
    timed: Mutex<Option<Timed<Result<T, CommunicationError>>>>,
    done: Condvar,
}

impl<T> Pending<T> {
    /// What a job gives that is done here and now.
    pub fn done(job: impl FnOnce() -> Result<T, CommunicationError>) -> Self {
        let started = now();
        let value = job();
        let timed = Timed { value, started, ended: now() };
        Self(Arc::new(Outcome { timed: Mutex::new(Some(timed)), done: Condvar::new() }))
    }

    /// Whether the job is done, well or not.
    pub fn is_done(&self) -> bool {
        lock(&self.0.timed).is_some()
    }

    /// Waits until the job is done, well or not.
    pub fn settle(&self) {
        let mut timed = lock(&self.0.timed);
        while timed.is_none() {
            timed = self.0.done.wait(timed).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What the job gave. Waits for it.
    ///
    /// # Errors
    ///
    /// Those of the job; [`CommunicationError::Panicked`] if it panicked.
    pub fn wait(self) -> Result<T, CommunicationError> {
        self.wait_timed().value
    }

    /// What the job gave, and when it ran. Waits for it.
    pub fn wait_timed(self) -> Timed<Result<T, CommunicationError>> {
        let mut timed = lock(&self.0.timed);
        loop {
            match timed.take() {
                Some(timed) => return timed,
                None => timed = self.0.done.wait(timed).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// Something, and when it was made.
#[derive(Clone, Copy, Debug)]
pub struct Timed<T> {
    /// The thing.
    pub value: T,
    /// When its making started: when the queue came to the job.
    pub started: Instant,
    /// When it had ended.
    pub ended: Instant,
}

#[expect(clippy::disallowed_methods, reason = "the executor measures what it runs")]
fn now() -> Instant {
    Instant::now()
}
