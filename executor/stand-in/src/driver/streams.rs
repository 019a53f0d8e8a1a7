//! Streams and events.

use std::ffi::c_uint;

use super::call::{exported, put};
use super::codes::Code;
use super::context::current;
use super::state::{Event, State, Stream};
use crate::recording::{Effect, EventId, StreamFacts, StreamId, StreamKind};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;

exported! {
    fn cuStreamCreate(state, stream: *mut usize, flags: c_uint) {
        put(stream, create(state, flags)?)
    }

    fn cuStreamDestroy_v2(state, stream: usize) {
        state.streams.remove(&stream).map(drop).ok_or(Code::INVALID_HANDLE)
    }

    fn cuStreamGetCtx(state, stream: usize, context: *mut usize) {
        put(context, super::device::FIRST_CONTEXT + state.stream(stream)?.device as usize)
    }

    fn cuStreamWaitEvent(state, stream: usize, event: usize, _flags: c_uint) {
        let (to, event) = (state.stream(stream)?, known(state, event)?);
        state.record(Effect::Wait { stream: to.id, event: event.id });
        if let (Some(comm), Some(stream)) = (event.stuck, state.streams.get_mut(&stream)) {
            stream.stuck = Some(comm);
        }
        event.moment.map_or(Ok(()), |moment| state.wait_for(to.id, moment))
    }

    fn cuStreamSynchronize(state, stream: usize) {
        let Stream { id, stuck, .. } = state.stream(stream)?;
        if state.comms.is_stuck(stuck) {
            return Err(Code::AGAIN);
        }
        state.must_be_idle(id)?;
        state.see("cuStreamSynchronize", Effect::SeeStream(id));
        Ok(())
    }

    fn cuEventCreate(state, event: *mut usize, flags: c_uint) {
        let (handle, is_timed) = (state.new_handle(), flags & DISABLE_TIMING == 0);
        let made = Event { id: EventId(handle as u64), is_timed, moment: None, stuck: None };
        state.events.insert(handle, made);
        put(event, handle)
    }

    fn cuEventDestroy_v2(state, event: usize) {
        state.events.remove(&event).map(drop).ok_or(Code::INVALID_HANDLE)
    }

    fn cuEventRecord(state, event: usize, stream: usize) {
        let (id, stream) = (known(state, event)?.id, state.stream(stream)?);
        state.record(Effect::Record { event: id, stream: stream.id });
        let moment = state.queues.now(stream.id);
        if let Some(event) = state.events.get_mut(&event) {
            event.moment = Some(moment);
            event.stuck = stream.stuck;
        }
        Ok(())
    }

    fn cuEventSynchronize(state, event: usize) {
        let Event { id, moment, stuck, .. } = known(state, event)?;
        if state.comms.is_stuck(stuck) {
            return Err(Code::AGAIN);
        }
        if moment.is_some_and(|moment| !state.queues.is_past(moment)) {
            state.advance()?;
            return Err(Code::AGAIN);
        }
        state.see("cuEventSynchronize", Effect::SeeEvent(id));
        Ok(())
    }

    fn cuEventQuery(state, event: usize) {
        let Event { id, moment, stuck, .. } = known(state, event)?;
        let is_past = moment.is_none_or(|moment| state.queues.is_past(moment));
        if state.comms.is_stuck(stuck) || !is_past {
            state.advance()?;
            return Err(Code::NOT_READY);
        }
        state.check_snapshots();
        state.record(Effect::SeeEvent(id));
        Ok(())
    }

    fn cuEventElapsedTime(state, milliseconds: *mut f32, start: usize, end: usize) {
        put(milliseconds, between(state, start, end)?)
    }

    fn cuEventElapsedTime_v2(state, milliseconds: *mut f32, start: usize, end: usize) {
        put(milliseconds, between(state, start, end)?)
    }
}

fn create(state: &mut State, flags: c_uint) -> Result<usize, Code> {
    let device = current()?;
    let kind = match flags {
        NON_BLOCKING => StreamKind::NonBlocking,
        _ => StreamKind::Blocking,
    };
    let id = StreamId(state.recording.streams.len() as u32);
    state.recording.streams.push(StreamFacts { device, kind });
    let handle = state.new_handle();
    state.streams.insert(handle, Stream { id, device, stuck: None });
    Ok(handle)
}

fn known(state: &State, event: usize) -> Result<Event, Code> {
    state.events.get(&event).copied().ok_or(Code::INVALID_HANDLE)
}

/// Milliseconds between two events that have both been reached.
fn between(state: &State, start: usize, end: usize) -> Result<f32, Code> {
    let [start, end] = [known(state, start)?, known(state, end)?];
    if !start.is_timed || !end.is_timed {
        return Err(Code::INVALID_HANDLE);
    }
    let is_past = |event: &Event| event.moment.is_some_and(|it| state.queues.is_past(it));
    if ![start, end].iter().all(is_past) {
        return Err(Code::NOT_READY);
    }
    state.times.between(start.id, end.id).ok_or(Code::INVALID_HANDLE)
}
