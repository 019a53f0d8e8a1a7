//! Collectives against their definitions, on ranks that are threads of this process; what happens when a rank fails.

use std::convert::Infallible;
use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{
    Cause, CommunicationError, Communicator, Group, Queue, RankFailure, Reduction, Tag, local,
};
use executor_kernels::array::{Array, Element};
use ir::schedule::Action;
use proptest::prelude::*;
use traces::timeline::Stream;

#[path = "../common/collectives.rs"]
pub(crate) mod definitions;

type Rank = Arc<dyn Communicator<Flex>>;
type Outcome<T> = Result<T, CommunicationError>;

/// What `program` gives on each rank, none of which may fail.
fn run<T: Send>(num_ranks: u32, program: impl Fn(Rank) -> T + Sync) -> Vec<T> {
    local::run(num_ranks, &[FlexDevice], |rank| Ok::<_, Infallible>(program(rank)))
        .expect("a rank fails by a panic alone")
}

/// How a run of `num_ranks` ranks fails.
fn failure(
    num_ranks: u32,
    program: impl Fn(Rank) -> Outcome<()> + Sync,
) -> RankFailure<CommunicationError> {
    local::run(num_ranks, &[FlexDevice], program).expect_err("the run fails")
}

fn array(values: &[f64]) -> Array<Flex> {
    Array::from_f64(values.to_vec(), &[values.len()], Element::F64, &FlexDevice)
}

fn action(text: &str) -> Tag {
    Tag::Message(text.parse::<Action>().expect("an action"))
}

/// All ranks of a run.
fn world(rank: &Rank) -> Group {
    Group::new((0..rank.num_ranks()).collect::<Vec<_>>())
}

#[test]
fn collectives_do_what_their_definitions_say_on_any_group() {
    for num_ranks in 1..=8 {
        run(num_ranks, |rank| definitions::check_all(&*rank));
    }
}

#[test]
fn streams_do_not_disturb_each_other() {
    run(4, |rank| {
        std::thread::scope(|scope| {
            for stream in Stream::ALL {
                let rank = &rank;
                scope.spawn(move || {
                    for size in [3, 40, 7] {
                        let all = world(rank);
                        definitions::check_group(&**rank, &all, stream, size, Element::F32);
                    }
                });
            }
        });
    });
}

#[test]
fn shapes_and_layouts_survive() {
    run(3, |rank| {
        let values = (0..12).map(f64::from).collect();
        let matrix = Array::<Flex>::from_f64(values, &[3, 4], Element::F64, &FlexDevice);
        let transposed = matrix.transpose();
        let all = world(&rank);
        let sum =
            rank.on(&all, Stream::Tensor).all_reduce(transposed.clone(), Reduction::Sum).unwrap();
        assert_eq!(sum.shape(), [4, 3]);
        assert_eq!(sum.to_f64(), transposed.clone().scale(3.0).to_f64());
        let gathered = rank.on(&all, Stream::Tensor).all_gather(transposed.clone(), None).unwrap();
        assert_eq!(gathered[2].to_f64(), transposed.to_f64());
        let number = Array::from_f64(vec![1.0], &[], Element::F64, &FlexDevice);
        let sum = rank.on(&all, Stream::Tensor).all_reduce(number, Reduction::Sum).unwrap();
        assert_eq!((sum.shape(), sum.item()), (vec![], 3.0));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Sums of numbers that do not add exactly: from the first rank of the group to its last, whatever the cut.
    #[test]
    fn sums_are_in_the_order_of_the_group(
        (num_ranks, values) in (1usize..6, 0usize..40).prop_flat_map(|(n, size)| {
            (Just(n), prop::collection::vec(prop::collection::vec(-1e3..1e3, size), n))
        }),
        element in prop::sample::select(vec![Element::F32, Element::F64, Element::BF16]),
        order in Just((0..6_u32).collect::<Vec<_>>()).prop_shuffle(),
        at in 0.0..1.0,
    ) {
        let order: Vec<u32> = order.into_iter().filter(|r| (*r as usize) < num_ranks).collect();
        let of = |rank: u32| array(&values[rank as usize]).cast(element);
        let in_order = order.iter().map(|rank| of(*rank)).reduce(|a, b| a + b).unwrap().to_f64();
        let cut = (values[0].len() as f64 * at) as usize;
        let found = run(num_ranks as u32, |rank| {
            let group = Group::new(order.clone());
            let sum = |array| {
                rank.on(&group, Stream::Data).all_reduce(array, Reduction::Sum).unwrap().to_f64()
            };
            let whole = of(rank.rank());
            let parts = whole.split(0, &[cut, values[0].len() - cut]);
            (sum(whole), parts.into_iter().flat_map(sum).collect::<Vec<_>>())
        });
        for (whole, in_parts) in found {
            prop_assert_eq!(&whole, &in_order);
            prop_assert_eq!(&in_parts, &in_order);
        }
    }
}

/// A receive may come long after the send, in another order, and be named by either side's action.
#[test]
fn messages_are_told_apart_by_their_tags() {
    run(2, |rank| match rank.rank() {
        0 => {
            for (tag, value) in [("0SEND_F0", 1.0), ("0SEND_F1", 2.0), ("0SEND_F0", 3.0)] {
                rank.send(1, action(tag), array(&[value])).unwrap();
            }
            rank.send(0, Tag::Stream(Stream::Context), array(&[4.0])).unwrap();
            assert_eq!(rank.receive(0, Tag::Stream(Stream::Context)).unwrap().to_f64(), [4.0]);
            // What a rank sends to itself does not count.
            let sent = rank.traffic();
            assert_eq!((sent.bytes(Stream::Send).get(), sent.total().get()), (24, 24));
        }
        _ => {
            for (tag, value) in [("1RECV_F1", 2.0), ("1RECV_F0", 1.0), ("0SEND_F0", 3.0)] {
                assert_eq!(rank.receive(0, action(tag)).unwrap().to_f64(), [value]);
            }
        }
    });
}

#[test]
fn queues_communicate_in_order_beside_their_rank() {
    run(2, |rank| {
        let queue = Queue::new(format!("data parallel of rank {}", rank.rank()));
        let start = |value: f64| {
            let (rank, all) = (Arc::clone(&rank), world(&rank));
            queue.start(move || {
                rank.on(&all, Stream::Data).all_reduce(array(&[value]), Reduction::Sum)
            })
        };
        let pending: Vec<_> = (0..20).map(|value| start(f64::from(value))).collect();
        let all = world(&rank);
        let other = rank.on(&all, Stream::Tensor).all_gather(array(&[1.0]), None).unwrap();
        assert_eq!(other.len(), 2);
        for (value, pending) in (0..).zip(pending) {
            assert_eq!(pending.wait().unwrap().to_f64(), [2.0 * f64::from(value)]);
        }
        let done = queue.start(|| Ok(7));
        queue.join();
        assert!(done.is_done());
        assert_eq!(done.wait(), Ok(7));
    });
}

#[test]
fn a_panic_in_a_queue_is_an_error_there() {
    let queue = Queue::new("host");
    let failed = queue.start(|| -> Outcome<()> { panic!("no {}", "space") });
    let error = failed.wait().unwrap_err();
    assert_eq!(error.to_string(), "a job of queue `host` panicked: no space");
    assert_eq!(queue.start(|| Ok(1)).wait(), Ok(1));
}

/// Waits for a rank that never sends.
fn wait_for(rank: &Rank, other: u32) -> Outcome<()> {
    rank.receive(other, action("1RECV_F0")).map(drop)
}

#[test]
fn an_error_ends_all_ranks_and_names_its_own() {
    let failure = local::run(8, &[FlexDevice], |rank: Rank| match rank.rank() {
        5 => Err("the loss is NaN".to_owned()),
        other => wait_for(&rank, (other + 1) % 8).map_err(|error| error.to_string()),
    });
    let failure = failure.map(|_: Vec<()>| ()).unwrap_err();
    assert_eq!(failure.to_string(), "rank 5 failed: the loss is NaN");
    assert!(matches!(failure.cause, Cause::Error(_)));
}

#[test]
fn a_panic_ends_all_ranks_and_names_its_own() {
    let failure = failure(4, |rank| {
        let all = world(&rank);
        match rank.rank() {
            2 => panic!("out of {}", "range"),
            // The others wait inside a collective.
            _ => rank.on(&all, Stream::Tensor).all_reduce(array(&[1.0]), Reduction::Sum).map(drop),
        }
    });
    assert_eq!(failure.to_string(), "rank 2 failed: it panicked: out of range");
}

#[test]
fn who_waits_for_a_rank_that_has_ended_fails() {
    let failure = failure(3, |rank| match rank.rank() {
        0 => wait_for(&rank, 2),
        1 => wait_for(&rank, 0),
        _ => Ok(()),
    });
    assert_eq!(
        failure.to_string(),
        "rank 0 failed: rank 2 has ended, but rank 0 still needs it for 1RECV_F0"
    );
}

#[test]
fn what_a_rank_sent_before_it_ended_arrives() {
    run(2, |rank| {
        if rank.rank() == 0 {
            return rank.send(1, action("0SEND_F0"), array(&[2.0])).unwrap();
        }
        // Only after the rank has ended does a wait for more fail.
        let gone = rank.receive(0, action("1RECV_F1")).unwrap_err();
        assert!(matches!(gone, CommunicationError::Gone { rank: 0, waiting: 1, .. }));
        assert_eq!(rank.receive(0, action("1RECV_F0")).unwrap().to_f64(), [2.0]);
    });
}

#[test]
fn jobs_that_wait_in_a_queue_end_with_the_run() {
    let failure = failure(2, |rank| {
        let (all, own) = (world(&rank), Arc::clone(&rank));
        let queue = Queue::new("data parallel");
        let reduce = move || own.on(&all, Stream::Data).all_reduce(array(&[1.0]), Reduction::Sum);
        match rank.rank() {
            // Its job waits for rank 1, which never comes to it.
            0 => {
                let _pending = queue.start(reduce);
                Err(CommunicationError::Panicked { queue: "a".into(), message: "b".into() })
            }
            _ => wait_for(&rank, 0),
        }
    });
    assert_eq!(failure.rank, 0);
}

#[test]
fn a_rank_may_stop_the_run() {
    let failure = failure(3, |rank| {
        if rank.rank() == 1 {
            rank.stop("interrupted");
            rank.stop("again");
        }
        let stopped = wait_for(&rank, (rank.rank() + 1) % 3).unwrap_err();
        let cause = "interrupted".to_owned();
        assert_eq!(stopped, CommunicationError::Stopped { rank: 1, cause });
        let later = rank.send(0, action("0SEND_F0"), array(&[1.0])).unwrap_err();
        assert_eq!(later, stopped);
        Ok(())
    });
    assert_eq!(failure.to_string(), "rank 1 failed: interrupted");
}

#[test]
fn arrays_that_are_not_alike_are_not_reduced() {
    let failure = failure(2, |rank| {
        let size = 4 + rank.rank() as usize;
        let all = world(&rank);
        rank.on(&all, Stream::Tensor).all_reduce(array(&vec![1.0; size]), Reduction::Sum).map(drop)
    });
    let Cause::Error(CommunicationError::Mismatch { spec, other_spec, .. }) = failure.cause else {
        panic!("{failure}")
    };
    assert_ne!(spec.shape, other_spec.shape);
}

#[test]
fn calls_that_differ_are_found() {
    let failure = failure(2, |rank| {
        let all = world(&rank);
        match rank.rank() {
            0 => rank.on(&all, Stream::Tensor).barrier(),
            _ => rank.on(&all, Stream::Tensor).all_gather(array(&[1.0]), None).map(drop),
        }
    });
    assert!(matches!(failure.cause, Cause::Error(CommunicationError::Confused { .. })));
}
