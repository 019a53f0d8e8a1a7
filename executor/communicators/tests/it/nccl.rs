//! Which calls to a library the collectives are, on ranks that meet over a socket. The library here
//! is one of the tests: it moves arrays between threads.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::nccl;
use executor_communicators::rendezvous::{Connection, Launch};
use executor_communicators::{Cause, CommunicationError, Group, Reduction, Tag};
use executor_kernels::array::{Array, Element};
use ir::schedule::{Action, ActionKind};
use traces::timeline::Stream;

use super::collectives::definitions;
use super::threads::{LIMIT, Rank, free_port, outcomes};

fn run<T: Send>(num_ranks: u32, program: impl Fn(Rank) -> T + Sync) -> Vec<T> {
    let outcomes = outcomes(num_ranks, |rank| Ok::<_, Infallible>(program(rank)));
    outcomes
        .into_iter()
        .map(|outcome| outcome.map_err(|error| error.to_string()).unwrap())
        .collect()
}

#[test]
fn collectives_do_what_their_definitions_say_on_any_group() {
    for num_ranks in [1, 2, 3, 4] {
        run(num_ranks, |rank| definitions::check_all(&*rank));
    }
}

fn message(micro_batch: u32) -> Tag {
    Tag::Message(Action { stage: 0, kind: ActionKind::SendForward, micro_batch })
}

fn array(value: f64, size: usize) -> Array<Flex> {
    Array::from_f64(vec![value; size], &[1, size], Element::F32, &FlexDevice)
}

#[test]
fn messages_are_received_in_any_order_of_tags_and_in_their_order_within_one() {
    run(3, |rank| {
        let (own, n) = (rank.rank(), rank.num_ranks());
        for to in 0..n {
            for (place, tag) in [message(0), message(1), message(0)].into_iter().enumerate() {
                rank.send(to, tag, array(f64::from(own * 10 + place as u32), 5)).unwrap();
            }
        }
        for from in 0..n {
            let found = [message(1), message(0), message(0)]
                .map(|tag| rank.receive(from, tag).unwrap().to_f64()[0].to_string());
            assert_eq!(found, [1, 0, 2].map(|place| (from * 10 + place).to_string()));
        }
    });
}

#[test]
fn threads_of_a_rank_wait_for_different_messages_of_one_sender() {
    run(2, |rank| {
        if rank.rank() == 0 {
            for micro_batch in [2, 0, 1] {
                rank.send(1, message(micro_batch), array(f64::from(micro_batch), 1)).unwrap();
            }
            return;
        }
        thread::scope(|scope| {
            for micro_batch in 0..3 {
                let rank = Arc::clone(&rank);
                scope.spawn(move || {
                    let found = rank.receive(0, message(micro_batch)).unwrap();
                    assert_eq!(found.item().to_string(), micro_batch.to_string());
                });
            }
        });
    });
}

#[test]
fn what_is_sent_arrives_though_its_sender_has_returned() {
    run(2, |rank| {
        if rank.rank() == 0 {
            for _ in 0..20 {
                rank.send(1, message(0), array(1.0, 1000)).unwrap();
            }
            // Nothing: there is no library to call for it.
            rank.send(1, message(0), array(1.0, 0)).unwrap();
            return;
        }
        for _ in 0..20 {
            assert_eq!(rank.receive(0, message(0)).unwrap().shape(), [1, 1000]);
        }
        assert_eq!(rank.receive(0, message(0)).unwrap().shape(), [1, 0]);
    });
}

#[test]
fn streams_of_a_group_do_not_disturb_each_other() {
    run(2, |rank| {
        let all = Group::new(vec![0, 1]);
        let streams = [Stream::Tensor, Stream::Data];
        thread::scope(|scope| {
            // In one order on one rank, in the other on the other.
            for index in 0..2 {
                let stream = streams[(index + rank.rank() as usize) % 2];
                let (rank, all) = (Arc::clone(&rank), &all);
                scope.spawn(move || {
                    for _ in 0..20 {
                        let sum = rank.on(all, stream).all_reduce(array(1.0, 3), Reduction::Sum);
                        assert_eq!(sum.unwrap().to_f64(), [2.0; 3]);
                    }
                });
            }
        });
    });
}

#[test]
fn arrays_that_differ_are_not_reduced() {
    let failures = outcomes(3, |rank| {
        let all = Group::new(vec![0, 1, 2]);
        let size = if rank.rank() == 1 { 4 } else { 3 };
        rank.on(&all, Stream::Data).all_reduce(array(1.0, size), Reduction::Sum)
    });
    let failure = failures.into_iter().next().unwrap().unwrap_err();
    assert!(
        failure.to_string().contains("array of F32 and shape [1, 4] to reduce")
            || failure.to_string().contains("one of F32 and shape [1, 4]"),
        "{failure}"
    );
}

#[test]
fn a_rank_that_fails_stops_those_that_wait_for_it() {
    let program = |rank: Rank| -> Result<(), CommunicationError> {
        let all = Group::new(vec![0, 1, 2]);
        rank.on(&all, Stream::Data).all_reduce(array(1.0, 3), Reduction::Sum)?;
        match rank.rank() {
            0 => rank.receive(1, message(0)).map(drop),
            1 => panic!("out of numbers"),
            _ => {
                let sum = rank.on(&all, Stream::Data).all_reduce(array(1.0, 3), Reduction::Sum);
                sum.map(drop)
            }
        }
    };
    for outcome in outcomes(3, program) {
        let failure = outcome.unwrap_err();
        assert_eq!(failure.rank, 1);
        assert_eq!(failure.to_string(), "rank 1 failed: it panicked: out of numbers");
    }
}

#[test]
fn a_rank_that_has_ended_is_missed_by_who_waits_for_it() {
    let program = |rank: Rank| match rank.rank() {
        0 => rank.receive(1, message(7)).map(drop),
        _ => Ok(()),
    };
    let failure = outcomes(2, program).swap_remove(0).unwrap_err();
    let Cause::Error(error) = failure.cause else { panic!("it has an error of its own") };
    assert_eq!(error, CommunicationError::Gone { rank: 1, waiting: 0, tag: message(7) });
}

#[test]
fn ranks_on_one_device_are_found() {
    let port = free_port();
    let run = |rank| {
        let launch =
            Launch { rank, num_ranks: 3, local_rank: rank, host: "127.0.0.1".to_owned(), port };
        let (connection, shutdown) = Connection::join(&launch, LIMIT).unwrap();
        let device = if rank == 1 { b"gpu 1" } else { b"gpu 0" };
        let found = nccl::check_devices(&connection, device).unwrap_err().to_string();
        drop(connection);
        shutdown.wait();
        found
    };
    let texts: Vec<String> = thread::scope(|scope| {
        let ranks: Vec<_> = (0..3).map(|rank| scope.spawn(move || run(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    for text in texts {
        assert!(text.starts_with("ranks 0 and 2 are on one GPU"), "{text}");
    }
}
