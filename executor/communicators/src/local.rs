//! Ranks as threads of one process.
//!
//! A message is the array itself, which is moved or shared: nothing is copied between ranks on the same device.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::{Builder, ScopedJoinHandle};

use burn::tensor::backend::Backend;
use executor_kernels::streams::on_one_stream;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::error::{Cause, CommunicationError, RankFailure, Result, attempt};
use super::mailbox::Mailbox;
use super::tag::Tag;
use super::transport::{Message, Transport};
use super::{Communicator, MessagePassing};

/// Stack of a rank's thread, in bytes: a deep model's graph is walked by recursion in places. Only the pages in use
/// take memory.
const STACK_BYTES: usize = 64 << 20;

/// The transport of one rank among the threads of a process. When it is dropped, other ranks see the rank as ended.
pub struct LocalTransport<B: Backend> {
    rank: u32,
    device: B::Device,
    mailboxes: Mailboxes<B>,
}

type Mailboxes<B> = Arc<[Mailbox<Tag, Message<B>>]>;

/// The communicators of `num_ranks` connected ranks; rank `r` is on device `r`, modulo the number of devices.
pub fn communicators<B: Backend>(
    num_ranks: u32,
    devices: &[B::Device],
) -> Vec<Arc<MessagePassing<LocalTransport<B>>>> {
    assert!(!devices.is_empty(), "ranks need a device");
    let mailboxes: Mailboxes<B> = (0..num_ranks).map(|_| Mailbox::default()).collect();
    (0..num_ranks)
        .zip(devices.iter().cycle())
        .map(|(rank, device)| {
            let (device, mailboxes) = (device.clone(), Arc::clone(&mailboxes));
            let transport = LocalTransport { rank, device, mailboxes };
            Arc::new(MessagePassing::new(rank, num_ranks, transport))
        })
        .collect()
}

impl<B: Backend> Transport<B> for LocalTransport<B> {
    fn deliver(&self, to: u32, tag: Tag, message: Message<B>) -> Result<()> {
        self.mailboxes[self.rank as usize].check(self.rank, to, tag)?;
        self.mailboxes[to as usize].put(self.rank, tag.of_sender(), message);
        Ok(())
    }

    fn wait(&self, from: u32, tag: Tag) -> Result<Message<B>> {
        let mailbox = &self.mailboxes[self.rank as usize];
        let message = mailbox.take(self.rank, from, tag.of_sender(), tag)?;
        Ok(match message {
            Message::Array(array) => Message::Array(array.to_device(&self.device)),
            Message::Signal => Message::Signal,
        })
    }

    fn stop(&self, cause: &str) {
        // The first mailbox decides which rank stopped first, so that all ranks agree.
        self.mailboxes[0].stop(self.rank, cause);
        let Some(CommunicationError::Stopped { rank, cause }) = self.mailboxes[0].stopped() else {
            unreachable!("it was just stopped")
        };
        for mailbox in &*self.mailboxes {
            mailbox.stop(rank, &cause);
        }
    }
}

impl<B: Backend> Drop for LocalTransport<B> {
    fn drop(&mut self) {
        for mailbox in &*self.mailboxes {
            mailbox.set_gone(self.rank);
        }
    }
}

/// Results of `program` on `num_ranks` ranks, run as threads.
///
/// Devices are assigned as by [`communicators`]. A rank has ended once its program and all jobs that it left in queues
/// have ended. So the result of a program must not hold the program's communicator.
///
/// # Errors
///
/// The failure that came first. It stops all other ranks, whose errors are consequences.
pub fn run<B: Backend, T: Send, E: fmt::Display + Send>(
    num_ranks: u32,
    devices: &[B::Device],
    program: impl Fn(Arc<dyn Communicator<B>>) -> Result<T, E> + Sync,
) -> Result<Vec<T>, RankFailure<E>> {
    run_on(num_ranks, devices, None, program)
}

/// [`run`] with `threads` threads for the kernels of each rank on the CPU; by default all ranks share the threads of
/// the process, one for each core.
///
/// # Errors
///
/// As [`run`], or the threads cannot be started.
pub fn run_on<B: Backend, T: Send, E: fmt::Display + Send>(
    num_ranks: u32,
    devices: &[B::Device],
    threads: Option<NonZeroUsize>,
    program: impl Fn(Arc<dyn Communicator<B>>) -> Result<T, E> + Sync,
) -> Result<Vec<T>, RankFailure<E>> {
    let communicators = communicators::<B>(num_ranks, devices);
    let Some(first) = communicators.first() else { return Ok(Vec::new()) };
    let mailboxes = Arc::clone(&first.transport.mailboxes);
    let program = &program;
    let mut outcomes: Vec<_> = std::thread::scope(|scope| {
        let start = |communicator: Arc<MessagePassing<LocalTransport<B>>>| {
            let thread = Builder::new()
                .name(format!("rank {}", communicator.transport.rank))
                .stack_size(STACK_BYTES);
            let own = Arc::clone(&communicator);
            let started = thread.spawn_scoped(scope, move || run_rank(&own, threads, program));
            if let Err(error) = &started {
                communicator.stop(&error.to_string());
            }
            started
        };
        let threads: Vec<_> = communicators.into_iter().map(start).collect();
        let outcome = |thread: io::Result<ScopedJoinHandle<'_, _>>| {
            thread.map_err(Cause::Start)?.join().expect("a rank's thread catches panics")
        };
        threads.into_iter().map(outcome).collect()
    });
    if let Some(CommunicationError::Stopped { rank, cause }) = mailboxes[0].stopped() {
        let cause = outcomes.swap_remove(rank as usize).err().unwrap_or(Cause::Stopped(cause));
        return Err(RankFailure { rank, cause });
    }
    let value = |outcome: Result<T, _>| outcome.ok().expect("a rank that fails stops the run");
    Ok(outcomes.into_iter().map(value).collect())
}

/// Result of `program` on the rank of `communicator`, on a separate pool of threads if `threads` is given. If it fails,
/// all ranks are stopped before they can see that this one has ended.
fn run_rank<B: Backend, T: Send, E: fmt::Display + Send>(
    communicator: &Arc<MessagePassing<LocalTransport<B>>>,
    threads: Option<NonZeroUsize>,
    program: impl Fn(Arc<dyn Communicator<B>>) -> Result<T, E> + Sync,
) -> Result<T, Cause<E>> {
    let given: Arc<dyn Communicator<B>> = Arc::clone(communicator) as _;
    let run = || on_one_stream(|| attempt(|| program(given)));
    let outcome = match threads {
        None => run(),
        Some(threads) => pool(communicator.transport.rank, threads)
            .map_err(|error| Cause::Start(io::Error::other(error)))
            .and_then(|pool| pool.install(run)),
    };
    if let Err(cause) = &outcome {
        communicator.stop(&cause.to_string());
    }
    outcome
}

/// Threads for the kernels of a rank.
fn pool(rank: u32, threads: NonZeroUsize) -> Result<ThreadPool, ThreadPoolBuildError> {
    ThreadPoolBuilder::new()
        .num_threads(threads.get())
        .thread_name(move |nth| format!("rank {rank}, thread {nth}"))
        .stack_size(STACK_BYTES)
        .build()
}
