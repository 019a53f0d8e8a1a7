//! What streams have still to do.
//!
//! A stream does at once what it is given, unless it must wait: for another rank that NCCL has to
//! hear from, or for a stream that waits itself. What it is given then stays in line, and is done as
//! soon as it can be: when the program calls again, or by a thread of the stand-in's own.

use super::call::{NAP, Outcome};
use super::codes::Code;
use super::lines::Line;
use super::post::Post;
use super::running::{Ran, run};
use super::state::State;
use super::task::{Moment, Task};
use crate::recording::{StreamId, StreamKind};

impl State {
    /// Gives a stream something to do. If it is done at once, it may fail.
    pub(super) fn give(&mut self, stream: StreamId, task: Task) -> Outcome {
        let waits = self.waits_for(stream);
        if !waits.is_empty() {
            self.put(stream, Task::After(waits));
        }
        self.put(stream, task);
        self.advance()
    }

    fn put(&mut self, stream: StreamId, task: Task) {
        let line = self.queues.streams.entry(stream).or_default();
        line.given += 1;
        line.tasks.push_back(task);
    }

    /// What a stream has to wait for without being told to: a device's default stream for all that
    /// block, and they for it.
    fn waits_for(&self, stream: StreamId) -> Vec<Moment> {
        let facts = &self.recording.streams;
        let Some(own) = facts.get(stream.0 as usize) else { return Vec::new() };
        let kind = match own.kind {
            StreamKind::Default => StreamKind::Blocking,
            StreamKind::Blocking => StreamKind::Default,
            StreamKind::NonBlocking => return Vec::new(),
        };
        let others = (0..).map(StreamId).zip(facts);
        others
            .filter(|(_, other)| other.device == own.device && other.kind == kind)
            .map(|(id, _)| self.queues.now(id))
            .filter(|moment| !self.queues.is_past(*moment))
            .collect()
    }

    /// Does all that can be done, and fails with the first that fails.
    pub(super) fn advance(&mut self) -> Outcome {
        let mut outcome = Ok(());
        loop {
            let mut has_moved = false;
            let streams: Vec<StreamId> = self.queues.streams.keys().copied().collect();
            for stream in streams {
                while let Some(task) = self.front(stream) {
                    match run(task, self) {
                        Ok(Ran::Later(task)) => {
                            self.line(stream).tasks.push_front(task);
                            break;
                        }
                        Ok(Ran::Done) => {}
                        Err(code) => {
                            self.broken = self.broken.or(Some(code));
                            outcome = outcome.and(Err(code));
                        }
                    }
                    self.line(stream).done += 1;
                    has_moved = true;
                }
            }
            if !has_moved {
                break;
            }
        }
        self.look_after();
        outcome
    }

    fn line(&mut self, stream: StreamId) -> &mut Line {
        self.queues.streams.entry(stream).or_default()
    }

    fn front(&mut self, stream: StreamId) -> Option<Task> {
        self.line(stream).tasks.pop_front()
    }

    /// Sees to it that streams go on while the program does not call.
    fn look_after(&mut self) {
        if self.queues.is_looked_after || !self.queues.is_any_waiting() {
            return;
        }
        self.queues.is_looked_after = true;
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(NAP);
                let mut state = super::call::state();
                // Who calls next is told of what went wrong.
                let _ = state.advance();
                if !state.queues.is_any_waiting() {
                    state.queues.is_looked_after = false;
                    return;
                }
            }
        });
    }

    /// Fails with what makes the caller try again, unless a stream has nothing to do.
    pub(super) fn must_be_idle(&mut self, stream: StreamId) -> Outcome {
        if self.queues.is_idle(stream) {
            return Ok(());
        }
        self.advance()?;
        if self.queues.is_idle(stream) { Ok(()) } else { Err(Code::AGAIN) }
    }

    /// The same for all streams of a device.
    pub(super) fn device_must_be_idle(&mut self, device: u32) -> Outcome {
        let all = (0..).map(StreamId).zip(&self.recording.streams);
        let streams: Vec<StreamId> =
            all.filter(|(_, facts)| facts.device == device).map(|(id, _)| id).collect();
        streams.into_iter().try_for_each(|stream| self.must_be_idle(stream))
    }

    /// Puts a stream in line behind a moment, if that has not come.
    pub(super) fn wait_for(&mut self, stream: StreamId, moment: Moment) -> Outcome {
        if self.queues.is_past(moment) {
            return Ok(());
        }
        self.give(stream, Task::After(vec![moment]))
    }

    /// Gives a stream what NCCL has to do for a communicator.
    pub(super) fn give_posts(
        &mut self,
        stream: StreamId,
        comm: usize,
        posts: Vec<Post>,
    ) -> Outcome {
        self.give(stream, Task::Exchange { comm, posts })
    }
}
