//! The lines in which streams' tasks stand.

use std::collections::{BTreeMap, VecDeque};

use super::task::{Moment, Task};
use crate::recording::StreamId;

/// All streams' lines.
#[derive(Default)]
pub(super) struct Queues {
    pub(super) streams: BTreeMap<StreamId, Line>,
    /// Whether a thread looks after them.
    pub(super) is_looked_after: bool,
}

/// The line of a stream.
#[derive(Default)]
pub(super) struct Line {
    pub(super) tasks: VecDeque<Task>,
    /// How many it was given.
    pub(super) given: u64,
    /// How many of them have ended.
    pub(super) done: u64,
}

impl Queues {
    /// What a stream has been given so far.
    pub(super) fn now(&self, stream: StreamId) -> Moment {
        let count = self.streams.get(&stream).map_or(0, |line| line.given);
        Moment { stream, count }
    }

    /// Whether all of that has ended.
    pub(super) fn is_past(&self, moment: Moment) -> bool {
        self.streams.get(&moment.stream).is_none_or(|line| line.done >= moment.count)
    }

    /// Whether a stream has nothing to do.
    pub(super) fn is_idle(&self, stream: StreamId) -> bool {
        self.is_past(self.now(stream))
    }

    /// Whether anything of a communicator is still in line.
    pub(super) fn has_posts(&self, comm: usize) -> bool {
        let mut tasks = self.streams.values().flat_map(|line| &line.tasks);
        tasks.any(|task| matches!(task, Task::Exchange { comm: own, .. } if *own == comm))
    }

    /// What each stream that waits is waiting to do, in words.
    pub(super) fn told(&self) -> String {
        let waiting = self.streams.iter().filter_map(|(stream, line)| {
            let task = line.tasks.front()?.told();
            Some(format!("stream {}: {task}, and {} behind it", stream.0, line.tasks.len() - 1))
        });
        waiting.collect::<Vec<_>>().join("; ")
    }

    /// Leaves out what a communicator had still to do.
    pub(super) fn drop_posts(&mut self, comm: usize) {
        for task in self.streams.values_mut().flat_map(|line| &mut line.tasks) {
            if matches!(task, Task::Exchange { comm: own, .. } if *own == comm) {
                *task = Task::After(Vec::new());
            }
        }
    }

    pub(super) fn is_any_waiting(&self) -> bool {
        self.streams.values().any(|line| !line.tasks.is_empty())
    }
}
