//! Messages of ranks over the rendezvous before a library moves arrays: none, once a step has shown what comes.

use std::sync::Arc;

use burn_flex::FlexDevice;
use executor_communicators::nccl::{Checks, NcclCommunicator};
use executor_communicators::rendezvous::Connection;
use executor_kernels::array::Element;
use ir::graph::ContextParallelKind;
use ir::layout::ZeroStage;
use ir::schedule::ScheduleKind as K;

use super::threads::{Rank, connected};
use super::training::{GPT, LLAMA, LayoutCase, MIXTRAL, ONE, program, rank};

/// What `program` returns on each of `num_ranks` ranks, whose communicator reduces unchecked and sends its control
/// messages on the connection that is given too.
fn with_connections<T: Send>(
    num_ranks: u32,
    program: impl Fn(Rank, &Connection) -> T + Sync,
) -> Vec<T> {
    connected(num_ranks, |(connection, shutdown), engine| {
        let connection = Arc::new(connection);
        let rank = NcclCommunicator::new(Arc::clone(&connection), engine, FlexDevice, Checks::None);
        let value = program(Arc::new(rank), &connection);
        drop(connection);
        shutdown.wait();
        value
    })
}

/// How many messages all ranks together send in each of three steps.
fn messages(model: &str, case: LayoutCase) -> Vec<u64> {
    let program = Arc::new(program(model, case, Element::F64));
    let of_ranks = with_connections(program.num_ranks(), |communicator, connection| {
        let mut rank = rank(&program, communicator).unwrap();
        let step = |_| {
            let before = connection.num_messages();
            rank.step().unwrap();
            connection.num_messages() - before
        };
        (0..3).map(step).collect::<Vec<u64>>()
    });
    let of_step = |step: usize| of_ranks.iter().map(|messages| messages[step]).sum();
    (0..3).map(of_step).collect()
}

#[test]
fn only_the_first_step_needs_them() {
    let zero = ZeroStage::Parameters;
    let by_heads = ContextParallelKind::AllToAll;
    let cases = [
        (LLAMA, LayoutCase { data: 2, ..ONE }),
        (LLAMA, LayoutCase { tensor: 2, sequence: true, data: 2, zero, ..ONE }),
        (GPT, LayoutCase { context: 2, ..ONE }),
        (GPT, LayoutCase { context: 4, context_kind: by_heads, ..ONE }),
        (LLAMA, LayoutCase { pipeline: 4, schedule: K::OneFOneB, ..ONE }),
        (LLAMA, LayoutCase { pipeline: 2, virtual_stages: 2, schedule: K::Interleaved, ..ONE }),
        (LLAMA, LayoutCase { pipeline: 2, virtual_stages: 2, schedule: K::Zbv, context: 2, ..ONE }),
        (LLAMA, LayoutCase { pipeline: 4, schedule: K::DualPipe, ..ONE }),
        (MIXTRAL, LayoutCase { expert: 2, data: 2, ..ONE }),
        (MIXTRAL, LayoutCase { expert: 2, data: 2, tensor: 2, sequence: true, ..ONE }),
    ];
    for (model, case) in cases {
        let messages = messages(model, case);
        assert!(messages[0] > 0, "ranks meet by messages: {case:?}");
        assert_eq!(messages[1..], [0, 0], "{case:?}");
    }
}
