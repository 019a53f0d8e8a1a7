//! A library in the place of NCCL, which moves arrays between threads that have met over a socket.

use std::collections::BTreeMap;
use std::fmt;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::nccl::{
    self, Checks, Engine, LibraryCall, LibraryCommunicator, LibraryFunction, Membership,
};
use executor_communicators::rendezvous::{Connection, Launch, Shutdown};
use executor_communicators::{
    CollectiveCall, CommunicationError, Communicator, Group, InFlight, RankFailure, Tag, local,
};
use executor_kernels::array::Array;
use traces::timeline::Stream;

pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// A port of this host that nobody listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) type Rank = Arc<dyn Communicator<Flex>>;

/// A library for the ranks of one run.
#[derive(Default)]
struct Threads {
    communicators: Mutex<BTreeMap<u64, Vec<Option<Rank>>>>,
    num_communicators: Mutex<u64>,
}

struct Member {
    rank: Rank,
    all: Group,
    run: Arc<Connection>,
}

impl Engine<Flex> for Threads {
    fn new_id(&self) -> Result<Vec<u8>, CommunicationError> {
        let mut num_communicators = self.num_communicators.lock().unwrap();
        *num_communicators += 1;
        Ok(num_communicators.to_le_bytes().to_vec())
    }

    fn join(
        &self,
        id: &[u8],
        membership: Membership,
        run: Arc<Connection>,
    ) -> Result<Box<dyn LibraryCommunicator<Flex>>, CommunicationError> {
        let id = u64::from_le_bytes(id.try_into().unwrap());
        let (position, len) = (membership.position, membership.ranks.len());
        let new = || {
            let ranks = local::communicators(len as u32, &[FlexDevice]);
            ranks.into_iter().map(|rank| Some(rank as Rank)).collect()
        };
        let mut communicators = self.communicators.lock().unwrap();
        let rank = communicators.entry(id).or_insert_with(new)[position].take().unwrap();
        let (weak, asked): (Weak<_>, _) = (Arc::downgrade(&rank), Arc::clone(&run));
        thread::spawn(move || {
            while let Some(rank) = weak.upgrade() {
                if asked.check().is_err() {
                    rank.stop("the run has stopped");
                }
                drop(rank);
                thread::sleep(Duration::from_millis(2));
            }
        });
        let all = Group::new((0..len as u32).collect::<Vec<_>>());
        Ok(Box::new(Member { rank, all, run }))
    }
}

impl LibraryCommunicator<Flex> for Member {
    fn start(
        &mut self,
        calls: Vec<LibraryCall<Flex>>,
    ) -> Result<InFlight<Vec<Array<Flex>>>, CommunicationError> {
        // Sends and receives of one call are made at once, in no order.
        for call in &calls {
            if let (LibraryFunction::Send { to }, Some(array)) = (call.function, &call.array) {
                self.rank.send(to as u32, Tag::Stream(Stream::Send), array.clone()).unwrap();
            }
        }
        let left = calls.into_iter().filter_map(|call| self.one(call).transpose());
        let left = left.collect::<Result<_, _>>();
        self.run.check()?;
        left.map(InFlight::done)
    }
}

impl Member {
    fn one(&self, call: LibraryCall<Flex>) -> Result<Option<Array<Flex>>, CommunicationError> {
        let Self { rank, all, .. } = self;
        let stream = Stream::Compute;
        let LibraryCall { function, array, result, pieces, .. } = call;
        let array = array.map(filled);
        let given = || array.clone().expect("the function reads an array");
        let of_pieces = |of: &dyn Fn(Array<Flex>) -> CollectiveCall<Flex>| {
            let pieces = in_pieces(&given().flatten(), pieces).into_iter();
            let left = pieces.map(|piece| rank.on(all, stream).start(of(piece))?.wait());
            Ok(Array::concat(left.collect::<Result<_, CommunicationError>>()?, 0))
        };
        let left = match function {
            LibraryFunction::AllReduce(reduction) => {
                rank.on(all, stream).all_reduce(given(), reduction)?
            }
            LibraryFunction::Reduce { root, reduction } => {
                match rank.on(all, stream).reduce(root as u32, given(), reduction)? {
                    Some(array) => array,
                    None => return Ok(None),
                }
            }
            LibraryFunction::ReduceScatter(reduction) => of_pieces(&|array| {
                let sizes = vec![array.num_elements() / all.len(); all.len()];
                CollectiveCall::ReduceScatter { array, dim: 0, sizes, reduction }
            })?,
            LibraryFunction::AllGather => {
                of_pieces(&|array| CollectiveCall::AllGather { array, dim: 0 })?
            }
            LibraryFunction::Broadcast { root } => {
                rank.on(all, stream).broadcast(root as u32, array)?
            }
            LibraryFunction::Send { .. } => return Ok(None),
            LibraryFunction::Receive { from } => {
                rank.receive(from as u32, Tag::Stream(Stream::Send))?
            }
        };
        let spec = result.expect("a function that leaves an array says of what spec");
        assert_eq!((left.dtype(), left.num_elements()), (spec.element, spec.num_elements()));
        Ok(Some(filled(left).reshape(&spec.shape)))
    }
}

/// Equal pieces of a flat array.
fn in_pieces(array: &Array<Flex>, pieces: usize) -> Vec<Array<Flex>> {
    let len = array.num_elements() / pieces;
    array.split(0, &vec![len; pieces])
}

fn filled(array: Array<Flex>) -> Array<Flex> {
    assert!(array.num_elements() > 0, "the library is not called for nothing");
    array
}

/// Results of `program` on each of `num_ranks` ranks, or how each fails.
pub(crate) fn outcomes<T: Send, E: fmt::Display + Send>(
    num_ranks: u32,
    program: impl Fn(Rank) -> Result<T, E> + Sync,
) -> Vec<Result<T, RankFailure<E>>> {
    connected(num_ranks, |connection, engine| {
        let opened = |_: &Connection| Ok((engine, FlexDevice));
        nccl::run(connection, opened, Checks::Reductions, |rank, _| program(rank))
    })
}

/// Result of `run` on threads that have met over a socket.
pub(crate) fn connected<T: Send>(
    num_ranks: u32,
    run: impl Fn((Connection, Shutdown), Arc<dyn Engine<Flex>>) -> T + Sync,
) -> Vec<T> {
    let (port, threads) = (free_port(), Arc::new(Threads::default()));
    let run = |rank| {
        let launch =
            Launch { rank, num_ranks, local_rank: rank, host: "127.0.0.1".to_owned(), port };
        let connection = Connection::join(&launch, LIMIT).unwrap();
        run(connection, Arc::clone(&threads) as Arc<dyn Engine<Flex>>)
    };
    let run = &run;
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..num_ranks).map(|rank| scope.spawn(move || run(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}
