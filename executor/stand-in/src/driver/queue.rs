//! Execution of streams' tasks.
//!
//! A stream executes a task at once, unless it must wait for another rank's message in NCCL, or for a stream that
//! itself waits. The task is then queued, and executed as soon as possible: at a later call of the program, or by a
//! background thread of the fake driver.

use super::call::{NAP, Outcome};
use super::codes::Code;
use super::queues::StreamQueue;
use super::running::{Ran, run};
use super::state::State;
use super::task::{Moment, Task};
use crate::recording::StreamId;

impl State {
    /// Enqueues a task on a stream. If it is executed at once, it may fail.
    pub(super) fn give(&mut self, stream: StreamId, task: Task) -> Outcome {
        let waits = self.waits_for(stream);
        if !waits.is_empty() {
            self.put(stream, Task::After(waits));
        }
        self.put(stream, task);
        self.advance()
    }

    fn put(&mut self, stream: StreamId, task: Task) {
        let stream_queue = self.stream_queue(stream);
        stream_queue.given += 1;
        stream_queue.tasks.push_back(task);
    }

    /// The points that a stream waits for implicitly.
    fn waits_for(&self, stream: StreamId) -> Vec<Moment> {
        let others = self.recording.implicitly_ordered_with(stream).into_iter();
        let moments = others.map(|other| self.queues.now(other));
        moments.filter(|moment| !self.queues.is_past(*moment)).collect()
    }

    /// Executes all tasks that can be executed, and returns the first error.
    pub(super) fn advance(&mut self) -> Outcome {
        let mut outcome = Ok(());
        loop {
            let mut has_moved = false;
            let streams: Vec<StreamId> = self.queues.streams.keys().copied().collect();
            for stream in streams {
                while let Some(task) = self.stream_queue(stream).tasks.pop_front() {
                    match run(task, self) {
                        Ok(Ran::Later(task)) => {
                            self.stream_queue(stream).tasks.push_front(task);
                            break;
                        }
                        Ok(Ran::Done) => {}
                        Err(code) => {
                            self.broken = self.broken.or(Some(code));
                            outcome = outcome.and(Err(code));
                        }
                    }
                    self.stream_queue(stream).done += 1;
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

    fn stream_queue(&mut self, stream: StreamId) -> &mut StreamQueue {
        self.queues.streams.entry(stream).or_default()
    }

    /// Starts a thread that executes tasks while the program does not call.
    fn look_after(&mut self) {
        if self.queues.is_looked_after || !self.queues.is_any_waiting() {
            return;
        }
        self.queues.is_looked_after = true;
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(NAP);
                let mut state = super::call::state();
                // The next call returns the error.
                let _ = state.advance();
                if !state.queues.is_any_waiting() {
                    state.queues.is_looked_after = false;
                    return;
                }
            }
        });
    }

    /// Fails with the code for a repeated call, unless a stream is idle.
    pub(super) fn must_be_idle(&mut self, stream: StreamId) -> Outcome {
        if self.queues.is_idle(stream) {
            return Ok(());
        }
        self.advance()?;
        if self.queues.is_idle(stream) { Ok(()) } else { Err(Code::AGAIN) }
    }

    /// [`Self::must_be_idle`] for all streams of a device.
    pub(super) fn device_must_be_idle(&mut self, device: u32) -> Outcome {
        let all = (0..).map(StreamId).zip(&self.recording.streams);
        let streams: Vec<StreamId> =
            all.filter(|(_, facts)| facts.device == device).map(|(id, _)| id).collect();
        streams.into_iter().try_for_each(|stream| self.must_be_idle(stream))
    }

    /// Makes a stream wait for a point, if it has not been reached.
    pub(super) fn wait_for(&mut self, stream: StreamId, moment: Moment) -> Outcome {
        if self.queues.is_past(moment) {
            return Ok(());
        }
        self.give(stream, Task::After(vec![moment]))
    }
}
