//! The functions of NCCL.
//!
//! Unless kernels are computed, no rank waits for another here: each call ends when it is enqueued, and moves nothing.
//! If kernels are computed, ranks exchange files ([`post`]). Whether ranks agree is checked over all their reports
//! ([`crate::members`]).
//!
//! All communicators are non-blocking, and behave as NCCL documents: a call is enqueued on its stream only by the time
//! that a query of the communicator's state returns success, so an event that is recorded before that query does not
//! include the call.
#![expect(unsafe_code, reason = "these are functions of C")]

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::sync::Arc;

use super::call::{Outcome, exported, put};
use super::codes::{Code, nccl_text};
use super::comms::{Comm, Numbers, POLLS, Start};
use super::context::current;
use super::post;
use super::state::State;
use super::task::Task;
use crate::exchange::NcclDataType;
use crate::members::{Member, MemberCall, MemberState};
use crate::recording::{Access, Effect, NamedAccesses};

/// Identifier of a communicator.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId([u8; 128]);

/// The used fields of `ncclConfig_t`.
#[repr(C)]
pub(crate) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

const CONFIG_MAGIC: u32 = 0xcafe_beef;

/// A call within a group.
struct Queued {
    comm: usize,
    stream: usize,
    part: NamedAccesses,
    call: MemberCall,
}

thread_local! {
    /// Depth of the thread's open groups, and their calls.
    static GROUP: RefCell<(u32, Vec<Queued>)> = const { RefCell::new((0, Vec::new())) };
}

/// Arguments of a collective.
#[derive(Clone, Copy)]
struct Arguments {
    count: usize,
    element: c_int,
    peer: Option<c_int>,
    reduction: Option<c_int>,
    comm: usize,
    stream: usize,
}

exported! {
    fn ncclGetVersion(state, version: *mut c_int) {
        put(version, 22_703)
    }

    fn ncclGetUniqueId(state, id: *mut UniqueId) {
        let mut bytes = [0; 128];
        bytes[..4].copy_from_slice(&std::process::id().to_le_bytes());
        bytes[4..8].copy_from_slice(&(state.new_handle() as u32).to_le_bytes());
        // Processes of two machines may have the same process number, but hardly the same start time.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |time| time.as_nanos() as u64);
        bytes[8..16].copy_from_slice(&now.to_le_bytes());
        put(id, UniqueId(bytes))
    }

    fn ncclCommInitRankConfig(state, comm: *mut usize, num_ranks: c_int, id: UniqueId,
        rank: c_int, config: *const Config) {
        // Without a configuration, communicators are blocking.
        if config.is_null() || (*config).magic != CONFIG_MAGIC || (*config).blocking != 0 {
            return Err(Code::NCCL_INVALID_ARGUMENT);
        }
        put(comm, join(state, num_ranks, &id, rank)?)?;
        Err(Code::NCCL_IN_PROGRESS)
    }

    fn ncclCommAbort(state, comm: usize) {
        let found = state.comms.get(comm)?;
        found.pending.clear();
        found.member.ending = MemberState::Aborted;
        post::close(&found.member.communicator);
        state.queues.drop_posts(comm);
        Ok(())
    }

    fn ncclGroupStart(state) {
        GROUP.with_borrow_mut(|(depth, _)| *depth += 1);
        Ok(())
    }

    fn ncclGroupEnd(state) {
        let queued = GROUP.with_borrow_mut(|(depth, queued)| {
            *depth = depth.checked_sub(1).ok_or(Code::NCCL_INVALID_USAGE)?;
            Ok(if *depth == 0 { std::mem::take(queued) } else { Vec::new() })
        })?;
        start_all(state, queued)
    }

    fn ncclAllReduce(state, from: u64, to: u64, count: usize, element: c_int, reduction: c_int,
        comm: usize, stream: usize) {
        let reduction = Some(reduction);
        let arguments = Arguments { count, element, peer: None, reduction, comm, stream };
        enqueue(state, "ncclAllReduce", arguments, Some((from, 1)), Some((to, 1)))
    }

    fn ncclReduce(state, from: u64, to: u64, count: usize, element: c_int, reduction: c_int,
        root: c_int, comm: usize, stream: usize) {
        let (reduction, peer) = (Some(reduction), Some(root));
        let arguments = Arguments { count, element, peer, reduction, comm, stream };
        let is_root = state.comms.get(comm)?.member.rank as c_int == root;
        enqueue(state, "ncclReduce", arguments, Some((from, 1)), is_root.then_some((to, 1)))
    }

    fn ncclReduceScatter(state, from: u64, to: u64, count: usize, element: c_int,
        reduction: c_int, comm: usize, stream: usize) {
        let reduction = Some(reduction);
        let arguments = Arguments { count, element, peer: None, reduction, comm, stream };
        let parts = state.comms.get(comm)?.member.num_ranks;
        enqueue(state, "ncclReduceScatter", arguments, Some((from, parts)), Some((to, 1)))
    }

    fn ncclAllGather(state, from: u64, to: u64, count: usize, element: c_int, comm: usize,
        stream: usize) {
        let arguments = Arguments { count, element, peer: None, reduction: None, comm, stream };
        let parts = state.comms.get(comm)?.member.num_ranks;
        enqueue(state, "ncclAllGather", arguments, Some((from, 1)), Some((to, parts)))
    }

    fn ncclBroadcast(state, from: u64, to: u64, count: usize, element: c_int, root: c_int,
        comm: usize, stream: usize) {
        let peer = Some(root);
        let arguments = Arguments { count, element, peer, reduction: None, comm, stream };
        let is_root = state.comms.get(comm)?.member.rank as c_int == root;
        let to = (!is_root || from != to).then_some((to, 1));
        enqueue(state, "ncclBroadcast", arguments, is_root.then_some((from, 1)), to)
    }

    fn ncclSend(state, from: u64, count: usize, element: c_int, peer: c_int, comm: usize,
        stream: usize) {
        let peer = Some(peer);
        let arguments = Arguments { count, element, peer, reduction: None, comm, stream };
        enqueue(state, "ncclSend", arguments, Some((from, 1)), None)
    }

    fn ncclRecv(state, to: u64, count: usize, element: c_int, peer: c_int, comm: usize,
        stream: usize) {
        let peer = Some(peer);
        let arguments = Arguments { count, element, peer, reduction: None, comm, stream };
        enqueue(state, "ncclRecv", arguments, None, Some((to, 1)))
    }

    fn ncclCommGetAsyncError(state, comm: usize, result: *mut c_int) {
        put(result, poll(state, comm).map_or_else(|code| code.0, |()| 0))
    }
}

/// The text of a result code.
// SAFETY: NCCL, which alone defines this name too, is not loaded together with this library.
#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    nccl_text(code).as_ptr()
}

fn join(state: &mut State, num_ranks: c_int, id: &UniqueId, rank: c_int) -> Result<usize, Code> {
    let (Ok(rank), Ok(num_ranks)) = (u32::try_from(rank), u32::try_from(num_ranks)) else {
        return Err(Code::NCCL_INVALID_ARGUMENT);
    };
    if rank >= num_ranks {
        return Err(Code::NCCL_INVALID_ARGUMENT);
    }
    let is_left_alone = state.config.failures.count("join").is_some();
    let number = u128::from_be_bytes(id.0[..16].try_into().expect("sixteen bytes"));
    let communicator = format!("{number:032x}");
    let polls_left = if is_left_alone { None } else { Some(POLLS) };
    let member =
        Member { communicator, rank, num_ranks, ending: MemberState::Open, calls: Vec::new() };
    // The communicator is on the device of the thread's context.
    current()?;
    let handle = state.new_handle();
    let comm =
        Comm { member, polls_left, pending: Vec::new(), error: None, numbers: Numbers::default() };
    state.comms.insert(handle, comm);
    Ok(handle)
}

/// Fails if a communicator is not ready for another call.
fn ready(state: &mut State, comm: usize, function: &str) -> Outcome {
    let comm = state.comms.get(comm)?;
    if let Some(error) = comm.error {
        return Err(error);
    }
    if comm.polls_left != Some(0) {
        state.misuse(format!("{function} while the communicator is in progress"));
        return Err(Code::NCCL_INVALID_USAGE);
    }
    Ok(())
}

/// Adds a call to the thread's group, or starts it if there is none. Each read or write is given by an address and the
/// multiple of `count` elements that is accessed there.
fn enqueue(
    state: &mut State,
    function: &str,
    arguments: Arguments,
    reads: Option<(u64, u32)>,
    writes: Option<(u64, u32)>,
) -> Outcome {
    let Arguments { count, element, peer, reduction, comm, stream } = arguments;
    let size = element_bytes(element).ok_or(Code::NCCL_INVALID_ARGUMENT)?;
    ready(state, comm, function)?;
    let num_ranks = state.comms.get(comm)?.member.num_ranks as c_int;
    if peer.is_some_and(|peer| !(0..num_ranks).contains(&peer)) {
        return Err(Code::NCCL_INVALID_ARGUMENT);
    }
    let len = |parts: u32| count as u64 * size * u64::from(parts);
    let reads = reads.map(|(start, parts)| Access::read(start, len(parts)));
    let writes = writes.map(|(start, parts)| Access::write(start, len(parts)));
    let accesses: Vec<Access> = reads.into_iter().chain(writes).collect();
    for access in &accesses {
        if !state.space.holds(access.range) {
            state.misuse(format!("{function} beyond what is allocated"));
        }
    }
    let call =
        MemberCall { function: function.to_owned(), count: count as u64, element, peer, reduction };
    let part = NamedAccesses { name: Arc::from(function), accesses };
    let queued = Queued { comm, stream, part, call };
    let alone = GROUP.with_borrow_mut(|(depth, group)| {
        if *depth == 0 {
            return Some(queued);
        }
        group.push(queued);
        None
    });
    alone.map_or(Ok(()), |queued| start_all(state, vec![queued]))
}

/// Starts the calls of a group once the communicator's state is queried. Calls with the same communicator and stream
/// start as one.
fn start_all(state: &mut State, queued: Vec<Queued>) -> Outcome {
    let mut starts: Vec<(usize, Start)> = Vec::new();
    for Queued { comm, stream, part, call } in queued {
        let same = |(other, start): &(usize, Start)| *other == comm && start.stream == stream;
        let index = starts.iter().position(same).unwrap_or_else(|| {
            let (parts, calls) = (Vec::new(), Vec::new());
            starts.push((comm, Start { stream, parts, calls, is_stuck: false }));
            starts.len() - 1
        });
        starts[index].1.parts.push(part);
        starts[index].1.calls.push(call);
    }
    if starts.is_empty() {
        return Ok(());
    }
    for (comm, mut start) in starts {
        start.is_stuck = state.config.failures.count("peer").is_some();
        let comm = state.comms.get(comm)?;
        comm.pending.push(start);
        comm.polls_left = Some(POLLS);
    }
    Err(Code::NCCL_IN_PROGRESS)
}

/// Enqueues calls on their stream.
fn give(state: &mut State, handle: usize, start: Start) -> Result<(), Code> {
    let Start { stream, parts, calls, is_stuck } = start;
    let id = state.stream(stream)?.id;
    let posts = if state.config.computes && !is_stuck {
        let comm = state.comms.get(handle)?;
        let pairs = parts.iter().zip(&calls);
        pairs.map(|(part, call)| comm.post(call, &part.accesses)).collect::<Result<Vec<_>, _>>()?
    } else {
        for access in parts.iter().flat_map(|part| &part.accesses).filter(|a| a.usage.writes()) {
            state.space.blank(access.range);
        }
        Vec::new()
    };
    state.record(Effect::Work { stream: id, parts });
    state.comms.get(handle)?.member.calls.extend(calls);
    if let Some(stream) = state.streams.get_mut(&stream).filter(|_| is_stuck) {
        stream.stuck = Some(handle);
    }
    if posts.is_empty() { Ok(()) } else { state.give(id, Task::Exchange { comm: handle, posts }) }
}

/// The state of a communicator: success, in progress, or an error.
fn poll(state: &mut State, handle: usize) -> Outcome {
    let planned = state.config.failures.count("async");
    let comm = state.comms.get(handle)?;
    comm.error = comm.error.or(planned);
    if let Some(error) = comm.error {
        return Err(error);
    }
    match comm.polls_left {
        Some(0) => {}
        Some(left) => {
            comm.polls_left = Some(left - 1);
            return Err(Code::NCCL_IN_PROGRESS);
        }
        None => return Err(Code::NCCL_IN_PROGRESS),
    }
    for start in std::mem::take(&mut comm.pending) {
        give(state, handle, start)?;
    }
    Ok(())
}

/// Bytes of an element, by the numbers of `ncclDataType_t`.
fn element_bytes(element: c_int) -> Option<u64> {
    match element {
        // Numbers of 8 bits, which are moved, but not reduced.
        10 | 11 => Some(1),
        _ => NcclDataType::of(element).map(|element| element.bytes() as u64),
    }
}
