//! Ways for replicas to come to their weights, each against plain mathematics or what it must equal.

use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{Communicator, local};
use executor_kernels::array::Element;
use executor_runtime::program::Program;
use executor_runtime::rank::RunError;
use executor_runtime::settings::LossScaling;
use executor_runtime::training::Staleness;
use ir::replication::{DataParallelMethod, Replication, Straggler};
use ir::schedule::ScheduleKind;
use traces::timeline::Stream;

use super::parity::{check_against, train};
use super::training::{GPT, LLAMA, LayoutCase, NUM_STEPS, ONE, parts, program, rank};

fn by(method: &str) -> Replication {
    Replication { method: method.parse().unwrap(), compression: None }
}

fn compressed(compression: &str) -> Replication {
    let compression = Some(compression.parse().unwrap());
    Replication { method: DataParallelMethod::AllReduce, compression }
}

/// One rank updates for all, which is what each would have done.
#[test]
fn a_parameter_server_trains_as_one_rank_does() {
    let server = LayoutCase { replication: by("parameter-server"), ..ONE };
    let cases = [
        LayoutCase { data: 2, ..server },
        LayoutCase { data: 4, ..server },
        LayoutCase { data: 2, tensor: 2, sequence: true, ..server },
        LayoutCase { data: 2, pipeline: 2, schedule: ScheduleKind::ZbH1, ..server },
    ];
    check_against(LLAMA, ONE, &cases);
    check_against(GPT, ONE, &cases);
}

/// All elements of a gradient are the gradient.
#[test]
fn compression_that_leaves_nothing_out_changes_nothing() {
    for compression in ["top-k:1", "random-k:1"] {
        let case = LayoutCase { data: 2, replication: compressed(compression), ..ONE };
        check_against(
            LLAMA,
            ONE,
            &[case, LayoutCase { pipeline: 2, ..case }, LayoutCase { tensor: 2, ..case }],
        );
    }
}

/// What is left out is made up for later: after some steps the loss is near that of whole gradients, and far
/// from where it began.
#[test]
fn compressed_gradients_learn() {
    let whole = train(program(LLAMA, LayoutCase { data: 2, ..ONE }, Element::F32)).losses;
    let learned = whole[0] - whole[NUM_STEPS - 1];
    for compression in ["top-k:0.1", "random-k:0.5", "int8", "int4", "sign"] {
        let case = LayoutCase { data: 2, replication: compressed(compression), ..ONE };
        let losses = train(program(LLAMA, case, Element::F32)).losses;
        let share = (losses[0] - losses[NUM_STEPS - 1]) / learned;
        assert!(share > 0.5, "{compression}: {losses:?} against {whole:?}");
    }
    let int8 = LayoutCase { data: 2, replication: compressed("int8"), ..ONE };
    let last = train(program(LLAMA, int8, Element::F32)).losses[NUM_STEPS - 1];
    assert!((last - whole[NUM_STEPS - 1]).abs() < 0.02 * learned, "{last} {whole:?}");
}

/// Bytes that each rank sends over replicas in a step.
fn sent(case: LayoutCase) -> Vec<u64> {
    let program = Arc::new(program(LLAMA, case, Element::F32));
    let run = |communicator: Arc<dyn Communicator<Flex>>| {
        let mut rank = rank(&program, Arc::clone(&communicator))?;
        let before = communicator.traffic();
        rank.step()?;
        Ok::<_, RunError>(communicator.traffic().since(&before).bytes(Stream::Data).get())
    };
    let num_ranks = program.num_ranks();
    local::run(num_ranks, &[FlexDevice], run).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Parameters of each block of the model.
fn block_sizes() -> Vec<u64> {
    let program = program(LLAMA, ONE, Element::F32);
    let mut sizes: Vec<u64> = Vec::new();
    for parameter in program.parameters() {
        let block = parameter.id.block as usize;
        sizes.resize(sizes.len().max(block + 1), 0);
        sizes[block] += parameter.num_elements() as u64;
    }
    sizes
}

/// All ranks together reduce the loss and the norm, two numbers of 8 bytes.
fn norm_bytes(num_ranks: u64) -> u64 {
    2 * (num_ranks - 1) * 16
}

#[test]
fn what_is_sent_is_what_was_planned() {
    let sizes = block_sizes();
    for text in ["top-k:0.01", "random-k:0.25", "int8", "int4", "sign"] {
        let replication = compressed(text);
        let compression = replication.compression.unwrap();
        for data in [2u32, 4] {
            let n = u64::from(data);
            let payload: u64 = sizes.iter().map(|size| compression.bytes(*size, 4)).sum();
            // An all-reduce, or what each rank sends to each other.
            let times = if compression.is_reducible() { 2 } else { n };
            let measured: u64 = sent(LayoutCase { data, replication, ..ONE }).iter().sum();
            assert_eq!(measured, times * (n - 1) * payload + norm_bytes(n), "{text} {data}");
        }
    }
    let all = 4 * sizes.iter().sum::<u64>();
    let measured = |method: &str| -> u64 {
        sent(LayoutCase { data: 4, replication: by(method), ..ONE }).iter().sum()
    };
    // Three send gradients, and weights come to three.
    assert_eq!(measured("parameter-server"), 6 * all + norm_bytes(4));
    // Each sends its weights to two.
    assert_eq!(measured("ring-averaging"), 8 * all + norm_bytes(4));
}

/// Replicas learn and stay near each other, the farther on a ring the less.
#[test]
fn replicas_that_average_with_their_neighbours_agree_and_learn() {
    let mut distances = Vec::new();
    for data in [2u32, 4, 8] {
        let case = LayoutCase { data, replication: by("ring-averaging"), ..ONE };
        let program = Arc::new(program(LLAMA, case, Element::F64));
        let run = |communicator: Arc<dyn Communicator<Flex>>| {
            let mut rank = rank(&program, communicator)?;
            let step = |_| Ok::<_, RunError>((rank.step()?.loss, rank.consensus_distance()?));
            (0..NUM_STEPS).map(step).collect::<Result<Vec<_>, _>>()
        };
        let all =
            local::run(data, &[FlexDevice], run).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(all.iter().all(|steps| steps == &all[0]), "all ranks report the same");
        let (first, last) = (all[0][0], all[0][NUM_STEPS - 1]);
        assert!(last.0 < first.0 - 0.1, "{all:?}");
        distances.push(last.1.unwrap());
    }
    // Of two, both have the same mean.
    assert!(
        distances[0] < 1e-12 && 1e-6 < distances[1] && distances[1] < distances[2],
        "{distances:?}"
    );
}

/// Losses of the first replica, and how old gradients were until it was done and until all were, where each of
/// `data` replicas does all steps and the last takes `factor` times as long for them.
fn run(staleness: u64, data: u32, factor: f64) -> (Vec<f64>, [Staleness; 2]) {
    let replication = by(&format!("asynchronous:{staleness}"));
    let mut parts = parts(LLAMA, LayoutCase { data, replication, ..ONE }, Element::F32);
    parts.settings.straggler = Some(Straggler { rank: data - 1, factor });
    let program = Arc::new(Program::new(parts).unwrap());
    let run = |communicator: Arc<dyn Communicator<Flex>>| {
        let mut rank = rank(&program, communicator)?;
        let losses = (0..NUM_STEPS).map(|_| Ok(rank.step()?.loss));
        let losses = losses.collect::<Result<Vec<f64>, RunError>>()?;
        let when_done = rank.staleness();
        rank.settle()?;
        Ok::<_, RunError>((losses, [when_done, rank.staleness()]))
    };
    let mut all =
        local::run(data, &[FlexDevice], run).unwrap_or_else(|failure| panic!("{failure}"));
    let (losses, seen) = all.swap_remove(0);
    (losses, seen.map(|seen| seen.unwrap()))
}

/// No gradient is older than is allowed, and all are applied.
#[test]
fn stale_gradients_keep_their_bound() {
    for (data, staleness) in [(2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 8)] {
        let (losses, [_, seen]) = run(staleness, data, 1.0);
        assert_eq!(seen.num_updates, u64::from(data) * NUM_STEPS as u64);
        assert!(seen.most <= staleness, "{data} {staleness}: {seen:?}");
        assert!(losses[NUM_STEPS - 1] < losses[0] - 0.1, "{data} {staleness}: {losses:?}");
    }
}

/// A replica that is alone with shared weights does what it does without.
#[test]
fn one_asynchronous_replica_trains_as_one_rank_does() {
    check_against(LLAMA, ONE, &[LayoutCase { replication: by("asynchronous:3"), ..ONE }]);
}

/// A replica that waits for no other is done while a slow one has done a part of its steps; where no gradient may
/// be older than one update, it makes two for each of the slow one's.
#[test]
fn a_straggler_holds_up_only_those_that_wait_for_it() {
    let (losses, [when_done, at_last]) = run(100, 2, 15.0);
    let all = 2 * NUM_STEPS as u64;
    assert!(when_done.num_updates < all * 3 / 4, "{when_done:?}");
    assert_eq!(at_last.num_updates, all);
    assert!(at_last.most > 1, "the slow replica's gradients are old: {at_last:?}");
    assert!(losses[NUM_STEPS - 1] < losses[0], "{losses:?}");
    let (_, [when_done, _]) = run(1, 2, 8.0);
    // The slow one's last update may come after.
    assert!(when_done.num_updates >= all * 3 / 4 - 1, "{when_done:?}");
}

/// A gradient that overflowed would be left out for ever, and no two replicas skip the same steps.
#[test]
fn scaled_losses_are_refused_where_they_would_do_harm() {
    for replication in [compressed("int8"), by("ring-averaging"), by("asynchronous:2")] {
        let mut parts = parts(LLAMA, LayoutCase { data: 2, replication, ..ONE }, Element::F16);
        parts.settings.loss_scaling = Some(LossScaling::default());
        let error = Program::new(parts).unwrap_err().to_string();
        assert!(error.contains("scaling of the loss with"), "{error}");
        assert!(error.contains("bf16"), "{error}");
    }
}
