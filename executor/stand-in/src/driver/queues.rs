//! Queues of streams' tasks.

use std::collections::{BTreeMap, VecDeque};

use super::task::{Moment, Task};
use crate::recording::StreamId;

/// The queues of all streams.
#[derive(Default)]
pub(super) struct Queues {
    pub(super) streams: BTreeMap<StreamId, StreamQueue>,
    /// True while a thread runs them in the background.
    pub(super) is_looked_after: bool,
}

/// The queue of a stream.
#[derive(Default)]
pub(super) struct StreamQueue {
    pub(super) tasks: VecDeque<Task>,
    /// Number of enqueued tasks.
    pub(super) given: u64,
    /// Number of ended tasks.
    pub(super) done: u64,
}

impl Queues {
    /// The point after all tasks that were enqueued on a stream so far.
    pub(super) fn now(&self, stream: StreamId) -> Moment {
        let count = self.streams.get(&stream).map_or(0, |queue| queue.given);
        Moment { stream, count }
    }

    /// Returns whether all tasks before a point have ended.
    pub(super) fn is_past(&self, moment: Moment) -> bool {
        self.streams.get(&moment.stream).is_none_or(|queue| queue.done >= moment.count)
    }

    /// Returns whether a stream is idle.
    pub(super) fn is_idle(&self, stream: StreamId) -> bool {
        self.is_past(self.now(stream))
    }

    /// The current tasks of waiting streams, as text.
    pub(super) fn describe(&self) -> String {
        let waiting = self.streams.iter().filter_map(|(stream, queue)| {
            let task = queue.tasks.front()?.describe();
            Some(format!("stream {}: {task}, and {} behind it", stream.0, queue.tasks.len() - 1))
        });
        waiting.collect::<Vec<_>>().join("; ")
    }

    /// Cancels the remaining tasks of a communicator.
    pub(super) fn drop_posts(&mut self, comm: usize) {
        for task in self.streams.values_mut().flat_map(|queue| &mut queue.tasks) {
            if matches!(task, Task::Exchange { comm: own, .. } if *own == comm) {
                *task = Task::After(Vec::new());
            }
        }
    }

    pub(super) fn is_any_waiting(&self) -> bool {
        self.streams.values().any(|queue| !queue.tasks.is_empty())
    }
}
