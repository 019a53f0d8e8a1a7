//! Collectives on ranks that are processes: the checks of `collectives.rs` under `mpirun -n N`.
//!
//! ```console
//! $ export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="mpirun --oversubscribe -n 4"
//! $ cargo test -p executor-communicators --features mpi --test mpi
//! $ cargo test -p executor-communicators --features mpi --test mpi -- panic
//! ```
//!
//! With the argument `error`, `panic` or `early`, the last rank fails in this way while the others
//! wait for it, and the exit code says whether the failure that each rank sees is the right one.

#![expect(clippy::print_stdout, reason = "a test harness says what it did")]

use std::process::ExitCode;
use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{
    CommunicationError, Communicator, Group, Queue, RankFailure, Reduction, Tag, mpi,
};
use executor_kernels::array::{Array, Element};
use traces::timeline::Stream;

#[path = "common/collectives.rs"]
mod definitions;

type Rank = Arc<dyn Communicator<Flex>>;

/// More than one piece of a message, in f32 elements.
const LARGE: usize = 40 << 20;

fn main() -> ExitCode {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let mut own = 0;
    let outcome = mpi::run(
        |rank| {
            own = rank;
            FlexDevice
        },
        |rank: Rank| match mode.as_str() {
            "" => succeed(&rank),
            mode => fail(&rank, mode),
        },
    );
    let is_right = match (mode.as_str(), &outcome) {
        ("", Ok(())) => true,
        ("", Err(failure)) => {
            println!("rank {own}: {failure}");
            false
        }
        (mode, outcome) => is_expected(mode, own, outcome),
    };
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn succeed(rank: &Rank) -> Result<(), CommunicationError> {
    definitions::check_all(&**rank);
    let all = world(rank);
    std::thread::scope(|scope| {
        for stream in Stream::ALL {
            let all = &all;
            scope.spawn(move || {
                definitions::check_group(&**rank, all, stream, 100, Element::F32);
            });
        }
    });
    large(rank, &all)?;
    let queue = Queue::new("data parallel");
    let own = Arc::clone(rank);
    // Left to itself, the job still ends before its process does.
    let _pending = queue.start(move || own.on(&all, Stream::Data).barrier());
    if rank.rank() == 0 {
        println!("collectives are right on {} ranks", rank.num_ranks());
    }
    Ok(())
}

/// A message to the next rank that goes in several pieces.
fn large(rank: &Rank, all: &Group) -> Result<(), CommunicationError> {
    let n = rank.num_ranks();
    let tag = Tag::Stream(Stream::Context);
    if rank.rank() < 2.min(n) {
        let value = f64::from(rank.rank() + 1);
        let array = Array::ones(&[LARGE], Element::F32, &FlexDevice).scale(value);
        rank.send((rank.rank() + 1) % n, tag, array)?;
        if n == 1 {
            assert_eq!(rank.receive(0, tag)?.size(0), LARGE);
        }
    }
    if n > 1 && (rank.rank() + n - 1) % n < 2 {
        let from = (rank.rank() + n - 1) % n;
        let array = rank.receive(from, tag)?;
        assert_eq!(array.shape(), [LARGE]);
        let largest = array.max_dim(0).to_f64();
        assert_eq!(largest, [f64::from(from + 1)]);
    }
    rank.on(all, Stream::Context).barrier()
}

fn fail(rank: &Rank, mode: &str) -> Result<(), CommunicationError> {
    let all = world(rank);
    let one = Array::ones(&[1], Element::F32, &FlexDevice);
    rank.on(&all, Stream::Data).barrier()?;
    if rank.rank() + 1 == rank.num_ranks() {
        assert!(mode != "panic", "as it was told");
        if mode == "error" {
            let (queue, message) = ("none".to_owned(), "an error".to_owned());
            return Err(CommunicationError::Panicked { queue, message });
        }
        return Ok(());
    }
    rank.on(&all, Stream::Data).all_reduce(one, Reduction::Sum).map(drop)
}

/// Whether a rank sees the failure of the last rank; one that ends early does not fail itself, but
/// some other does for want of it.
fn is_expected(
    mode: &str,
    own: u32,
    outcome: &Result<(), RankFailure<CommunicationError>>,
) -> bool {
    let Err(failure) = outcome else { return false };
    println!("rank {own}: {failure}");
    let says = |text: &str| failure.to_string().contains(text);
    match mode {
        "error" => says("an error"),
        "panic" => says("as it was told"),
        "early" => says("has ended"),
        _ => false,
    }
}

/// All ranks of the job.
fn world(rank: &Rank) -> Group {
    Group::new((0..rank.num_ranks()).collect::<Vec<_>>())
}
