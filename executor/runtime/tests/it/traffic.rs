//! Traffic of tensor-parallel ranks, of activations, statistics and gradients, and between stages, is what the plan
//! says, to the byte.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn_flex::FlexDevice;
use executor_communicators::local;
use executor_kernels::array::Element;
use executor_runtime::program::Program;
use executor_runtime::rank::RunError;
use ir::collective::Collective;
use ir::graph::{
    Axis, ContextParallelKind, Graph, LocalParameters, Pass, Recompute, ShardContext, Sizes,
};
use ir::model::{GraphOptions, Model};
use ir::schedule::{ActionKind, ScheduleKind};
use traces::timeline::{Activity, Stream, Track};

use super::training::{GPT, LLAMA, LayoutCase, ONE, parts, rank};

/// By stage, stream and collective: bytes.
pub(super) type Traffic = BTreeMap<(u32, Stream, Collective), u64>;

/// Embedding, layers and head are a stage each.
const STAGES: usize = 3;

/// Bytes that all ranks of each stage of a program in fp32 exchange in a step: the graph's exchanges, and once a step
/// the gradients of which ranks have summands.
fn planned(program: &Program, stage_sizes: &[usize]) -> Traffic {
    let spec = program.layout;
    let graph = graph(program);
    let all = graph.chain().iter().flat_map(|it| vec![it.class; it.count as usize]);
    let mut blocks = all.enumerate();
    let mut planned = Traffic::new();
    for (stage, size) in (0..).zip(stage_sizes) {
        for (block, class) in blocks.by_ref().take(*size) {
            let setting = ShardContext { compute_bytes: 4, ..setting(program, block == 0) };
            let ranks = u64::from(spec.ranks_per_stage());
            let times = u64::from(spec.num_micro_batches) * ranks;
            let work = graph.class(class).work(&setting);
            let LocalParameters { partial_gradients, copied, .. } = work.parameters;
            if partial_gradients + copied > 0 {
                *planned.entry((stage, Stream::Tensor, Collective::AllReduce)).or_default() +=
                    4 * (partial_gradients + copied) * ranks;
            }
            for exchange in &work.exchanges {
                let is_again = spec.recompute == Recompute::Full
                    && exchange.pass == Pass::Forward
                    && stage == 1;
                let stream = match exchange.axis {
                    Axis::Tensor | Axis::ExpertTensor => Stream::Tensor,
                    Axis::Context => Stream::Context,
                    Axis::Expert => Stream::Expert,
                };
                *planned.entry((stage, stream, exchange.collective)).or_default() +=
                    exchange.bytes.get() * times * if is_again { 2 } else { 1 };
            }
        }
    }
    planned
}

/// The model of a program, with its modules for multi-token prediction.
pub(super) fn graph(program: &Program) -> Graph {
    let model = Model::from_json(&program.description, "test").unwrap();
    let options = GraphOptions { multi_token_prediction: true, ..GraphOptions::default() };
    model.graph(options).unwrap()
}

/// Work of a rank of a program in fp64 on a block, the chain's first or another.
pub(super) fn setting(program: &Program, reads_data: bool) -> ShardContext {
    let spec = program.layout;
    let sizes = Sizes {
        micro_batch_size: spec.micro_batch_size.into(),
        sequence_length: program.sequence_length,
    };
    let plain = ShardContext::plain(sizes, spec.sharding());
    ShardContext { compute_bytes: 8, reads_data, fuses_projections: false, ..plain }
}

/// Tracks of the ranks of a program in its first step.
fn recorded(program: &Arc<Program>) -> Vec<Track> {
    let recorded = local::run(program.num_ranks(), &[FlexDevice], |communicator| {
        let mut rank = rank(program, communicator)?;
        rank.record()?;
        rank.step()?;
        rank.recorded()
    });
    recorded.unwrap_or_else(|failure| panic!("{failure}"))
}

/// A program with a stage each for embedding, layers and head, and what its ranks do in a step.
fn run(model: &str, case: LayoutCase) -> (Arc<Program>, Vec<usize>, Vec<Track>) {
    let mut parts = parts(model, case, Element::F32);
    let blocks: usize = parts.stage_sizes.iter().sum();
    parts.stage_sizes = vec![1, blocks - 2, 1];
    let stage_sizes = parts.stage_sizes.clone();
    let program = Arc::new(Program::new(parts).unwrap());
    let recorded = recorded(&program);
    (program, stage_sizes, recorded)
}

/// Bytes that all ranks of each stage of such a program exchange in a step, and those that are planned.
pub(super) fn exchanged(model: &str, case: LayoutCase) -> (Traffic, Traffic) {
    let (program, stage_sizes, recorded) = run(model, case);
    let mut exchanged = Traffic::new();
    for event in recorded.iter().flat_map(|track| &track.events) {
        if let Activity::Collective { collective, action } = event.activity
            && matches!(event.stream, Stream::Tensor | Stream::Expert)
        {
            let key = (action.stage, event.stream, collective);
            *exchanged.entry(key).or_default() += event.bytes.get();
        }
    }
    (exchanged, planned(&program, &stage_sizes))
}

#[test]
fn traffic_of_tensor_parallelism_is_as_planned() {
    let pipeline = LayoutCase { tensor: 2, pipeline: STAGES as u32, ..ONE };
    for model in [LLAMA, GPT] {
        for case in [
            pipeline,
            LayoutCase { sequence: true, ..pipeline },
            LayoutCase { sequence: true, recompute: Recompute::Full, ..pipeline },
            LayoutCase { micro_batch_size: 2, data: 2, ..pipeline },
        ] {
            let (exchanged, planned) = exchanged(model, case);
            assert_eq!(exchanged, planned, "{case:?}");
        }
    }
}

/// Of every family: what tensor parallelism, expert parallelism and context parallelism move. Experts take different
/// numbers of rows, but all together as many as planned. In one layout each, in all with `RUN_SLOW_TESTS=1`.
#[test]
fn traffic_of_families_is_as_planned() {
    let pipeline = LayoutCase { tensor: 2, sequence: true, pipeline: STAGES as u32, ..ONE };
    let ring = LayoutCase { context: 2, ..ONE };
    let cases = [
        pipeline,
        LayoutCase { sequence: false, ..pipeline },
        LayoutCase { tensor: 4, expert: 2, expert_tensor: 2, ..pipeline },
        ring,
        LayoutCase {
            context_kind: ContextParallelKind::AllToAll,
            recompute: Recompute::Full,
            ..ring
        },
    ];
    let (mut wrong, mut compared) = (Vec::new(), [0; 5]);
    let all = super::runs_slow_tests();
    for (place, (name, model)) in super::drawn::models().into_iter().enumerate() {
        for (turn, (case, compared)) in cases.into_iter().zip(&mut compared).enumerate() {
            // Experts have a turn of their own: few families have them.
            if !all && case.expert == 1 && place % cases.len() != turn {
                continue;
            }
            let Ok(program) = Program::new(parts(&model, case, Element::F64)) else { continue };
            *compared += 1;
            if case.context > 1 {
                let (sent, planned) = sent_for_attention(program);
                if planned == 0 || sent.iter().any(|sent| *sent != planned) {
                    wrong.push(format!("{name}: {sent:?} instead of {planned}: {case:?}"));
                }
                continue;
            }
            let (exchanged, planned) = exchanged(&model, case);
            if exchanged != planned {
                wrong.push(format!("{name}: {exchanged:?} instead of {planned:?}: {case:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Nearly all take tensor parallelism and a ring; fewer have experts, or enough key-value heads to exchange.
    let least = if all { [65, 66, 15, 65, 62] } else { [11; 5] };
    assert!(compared.iter().zip(least).all(|(count, least)| *count >= least), "{compared:?}");
}

/// Bytes that each rank of a program sends along context parallelism in a step, and those by the graph's exchanges.
pub(super) fn sent_for_attention(program: Program) -> (Vec<u64>, u64) {
    let program = Arc::new(program);
    let sent = local::run(program.num_ranks(), &[FlexDevice], |communicator| {
        let mut rank = rank(&program, communicator)?;
        let before = rank.communicator().traffic();
        rank.step()?;
        let sent = rank.communicator().traffic().since(&before).bytes(Stream::Context);
        Ok::<_, RunError>(sent.get())
    });
    let sent = sent.unwrap_or_else(|failure| panic!("{failure}"));
    let spec = program.layout;
    let mut planned = 0;
    let graph = graph(&program);
    for (run, position) in graph.chain().iter().zip(0..) {
        for exchange in &graph.class(run.class).work(&setting(&program, position == 0)).exchanges {
            let bytes = exchange.bytes.get();
            let sent = match (exchange.axis, exchange.collective) {
                (Axis::Context, Collective::AllToAll) => {
                    bytes - bytes / u64::from(spec.context_parallel)
                }
                (Axis::Context, _) => bytes,
                _ => 0,
            };
            let is_again = exchange.pass == Pass::Forward && spec.recompute == Recompute::Full;
            planned += sent * u64::from(run.count) * if is_again { 2 } else { 1 };
        }
    }
    (sent, planned * u64::from(spec.num_micro_batches))
}

/// Between stages goes what the last block of one puts out, as often as there are micro-batches, and its gradient
/// comes back.
#[test]
fn messages_between_stages_are_as_planned() {
    let pipeline = LayoutCase { pipeline: STAGES as u32, ..ONE };
    for case in [
        pipeline,
        LayoutCase { micro_batch_size: 2, data: 2, ..pipeline },
        LayoutCase { context: 2, schedule: ScheduleKind::ZbH1, ..pipeline },
        LayoutCase { tensor: 2, sequence: true, schedule: ScheduleKind::GPipe, ..pipeline },
        LayoutCase { tensor: 2, ..pipeline },
    ] {
        let (program, _, recorded) = run(LLAMA, case);
        let mut sent: BTreeMap<(u32, ActionKind), u64> = BTreeMap::new();
        for event in recorded.iter().flat_map(|track| &track.events) {
            if let (Stream::Send, Activity::Action(action)) = (event.stream, event.activity) {
                *sent.entry((action.stage, action.kind)).or_default() += event.bytes.get();
            }
        }
        // Hidden states of the tokens that a rank has: whole where tensor parallelism does not cut the sequence.
        let spec = program.layout;
        let cut =
            spec.context_parallel * if spec.sequence_parallel { spec.tensor_parallel } else { 1 };
        let tokens = u64::from(spec.micro_batch_size) * program.sequence_length / u64::from(cut);
        let each = tokens * 32 * 4;
        let all = each * u64::from(spec.num_micro_batches * spec.ranks_per_stage());
        let (forward, backward) = (ActionKind::SendForward, ActionKind::SendBackward);
        let expected = BTreeMap::from([
            ((0, forward), all),
            ((1, forward), all),
            ((1, backward), all),
            ((2, backward), all),
        ]);
        assert_eq!(sent, expected, "{case:?}");
    }
}
