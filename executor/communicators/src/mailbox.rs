//! Messages that wait for their receiver.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use executor_kernels::lock::lock;

use super::error::{CommunicationError, Result};
use super::tag::Tag;

/// Messages of type `M` that one rank has received, first in, first out for each sender and key, such as their tag.
#[derive(Debug)]
pub(super) struct Mailbox<K, M> {
    state: Mutex<State<K, M>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<K, M> {
    messages: BTreeMap<(u32, K), VecDeque<M>>,
    /// Ranks that will send nothing more.
    gone: BTreeSet<u32>,
    stopped: Option<CommunicationError>,
}

impl<K, M> Default for Mailbox<K, M> {
    fn default() -> Self {
        let state = State { messages: BTreeMap::new(), gone: BTreeSet::new(), stopped: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<K: Copy + Ord, M> Mailbox<K, M> {
    /// Adds a message.
    pub(super) fn put(&self, from: u32, key: K, message: M) {
        self.lock().messages.entry((from, key)).or_default().push_back(message);
        self.changed.notify_all();
    }

    /// Removes the next message of a sender with a key. Waits for it; where it cannot come, the error names `tag`.
    pub(super) fn take(&self, owner: u32, from: u32, key: K, tag: Tag) -> Result<M> {
        let key = (from, key);
        let mut state = self.lock();
        loop {
            if let Some(error) = &state.stopped {
                return Err(error.clone());
            }
            if let Some(queue) = state.messages.get_mut(&key) {
                let message = queue.pop_front().expect("empty queues are removed");
                if queue.is_empty() {
                    state.messages.remove(&key);
                }
                return Ok(message);
            }
            if state.gone.contains(&from) {
                return Err(CommunicationError::Gone { rank: from, waiting: owner, tag });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records that a rank sends nothing more.
    pub(super) fn set_gone(&self, rank: u32) {
        self.lock().gone.insert(rank);
        self.changed.notify_all();
    }

    /// Makes all later calls fail, and returns true, unless they fail already.
    pub(super) fn stop(&self, rank: u32, cause: &str) -> bool {
        let mut state = self.lock();
        let is_first = state.stopped.is_none();
        if is_first {
            let cause = cause.to_owned();
            state.stopped = Some(CommunicationError::Stopped { rank, cause });
        }
        drop(state);
        self.changed.notify_all();
        is_first
    }

    /// Makes all later calls fail with another rank's error. If several ranks fail before they hear of each other, the
    /// lowest counts as the first, so all ranks agree.
    pub(super) fn hear_stop(&self, error: CommunicationError) {
        let mut state = self.lock();
        let ended_by = state.stopped.as_ref().and_then(CommunicationError::ended_by);
        if ended_by.is_none_or(|other| error.ended_by() < Some(other)) {
            state.stopped = Some(error);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Checks that the mailbox's owner may still send a message to `to`.
    ///
    /// # Errors
    ///
    /// The mailbox was stopped, or `to` has ended.
    pub(super) fn check(&self, owner: u32, to: u32, tag: Tag) -> Result<()> {
        let state = self.lock();
        if let Some(error) = &state.stopped {
            return Err(error.clone());
        }
        if state.gone.contains(&to) {
            return Err(CommunicationError::Gone { rank: to, waiting: owner, tag });
        }
        Ok(())
    }

    /// The error of the rank that stopped the mailbox.
    pub(super) fn stopped(&self) -> Option<CommunicationError> {
        self.lock().stopped.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State<K, M>> {
        lock(&self.state)
    }
}
