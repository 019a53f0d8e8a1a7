//! Any layout computes what one rank computes: losses and weights after some steps, in float64.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{Communicator, local};
use executor_kernels::array::Element;
use executor_runtime::checkpoint::{ParameterId, Piece, Shard};
use executor_runtime::program::Program;
use executor_runtime::rank::{RunError, StepResult};
use executor_runtime::settings::LearningRate;
use ir::graph::{ContextParallelKind, Recompute};
use ir::layout::ZeroStage;
use ir::schedule::{ScheduleKind, generate, read_csv, write_csv};
use traces::timeline::Stream;

use super::experts::MIXTRAL_OF_MANY_HEADS;
use super::training::{GPT, LLAMA, LayoutCase, MIXTRAL, ONE, parts, program, rank, steps};

/// Result of training: the loss of each step, and every trained parameter at the end.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) losses: Vec<f64>,
    norms: Vec<f64>,
    pub(super) weights: BTreeMap<ParameterId, Vec<f64>>,
}

/// A rank's program, with what it leaves: results of steps, and its pieces of weights.
type RankProgram<'a> =
    &'a (dyn Fn(Arc<dyn Communicator<Flex>>) -> Result<RankOutcome, RunError> + Sync);
pub(super) type RankOutcome = (Vec<StepResult>, Vec<(Piece, Vec<f64>)>);

pub(super) fn train(program: Program) -> Outcome {
    train_by(program, |num_ranks, run| {
        let outcomes = local::run(num_ranks, &[FlexDevice], run);
        outcomes.unwrap_or_else(|failure| panic!("{failure}"))
    })
}

/// What training comes to on ranks that `start` runs.
fn train_by(
    program: Program,
    start: impl FnOnce(u32, RankProgram<'_>) -> Vec<RankOutcome>,
) -> Outcome {
    let program = Arc::new(program);
    let run = |communicator: Arc<dyn Communicator<Flex>>| steps(&program, communicator);
    let outcomes = start(program.num_ranks(), &run);
    gathered(&program, &outcomes)
}

/// Result of training by what every rank left.
pub(super) fn gathered(program: &Program, outcomes: &[RankOutcome]) -> Outcome {
    let shapes: BTreeMap<ParameterId, Vec<usize>> =
        program.trained_parameters().into_iter().map(|p| (p.id, p.shape)).collect();
    let mut weights: BTreeMap<ParameterId, Vec<f64>> = BTreeMap::new();
    let losses = outcomes[0].0.iter().map(|result| result.loss).collect();
    let norms = outcomes[0].0.iter().map(|result| result.gradient_norm).collect();
    for (results, pieces) in outcomes {
        assert_eq!(results, &outcomes[0].0, "all ranks report the same");
        for (piece, values) in pieces {
            let shape = &shapes[&piece.parameter];
            let whole = weights
                .entry(piece.parameter.clone())
                .or_insert_with(|| vec![f64::NAN; shape.iter().product()]);
            for (place, value) in elements(&piece.shard, shape).into_iter().zip(values.clone()) {
                let known = whole[place];
                assert!(
                    known.is_nan() || (known - value).abs() < 1e-9,
                    "replicas of {} differ: {known} and {value}",
                    piece.parameter
                );
                whole[place] = value;
            }
        }
    }
    Outcome { losses, norms, weights }
}

/// Places of a shard's elements in the whole parameter, both in row-major order.
fn elements(shard: &Shard, shape: &[usize]) -> Vec<usize> {
    let place = |mut local: usize| {
        let (mut place, mut stride) = (0, 1);
        for (part, size) in shard.part.iter().zip(shape).rev() {
            place += (part.start + local % part.len()) * stride;
            local /= part.len();
            stride *= size;
        }
        place
    };
    shard.flat.clone().map(place).collect()
}

/// The largest difference of losses, and of weights.
pub(super) fn difference(a: &Outcome, b: &Outcome) -> (f64, f64, f64) {
    let most = |a: &[f64], b: &[f64]| {
        assert_eq!(a.len(), b.len());
        let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
        differences.fold(0.0, |most: f64, d| if d.is_nan() { f64::INFINITY } else { most.max(d) })
    };
    assert!(a.weights.keys().eq(b.weights.keys()), "the same parameters");
    let weights = a.weights.iter().map(|(id, values)| most(values, &b.weights[id]));
    (most(&a.losses, &b.losses), most(&a.norms, &b.norms), weights.fold(0.0, f64::max))
}

pub(crate) fn check(model: &str, cases: &[LayoutCase]) {
    check_against(model, ONE, cases);
}

pub(crate) fn check_against(model: &str, one: LayoutCase, cases: &[LayoutCase]) {
    let norms = alone(model, one).norms.clone();
    assert!(norms.iter().all(|norm| *norm > 0.0), "it has gradients: {norms:?}");
    check_alike(model, one, cases);
}

/// The same of a model that may have no gradients in some step.
pub(super) fn check_alike(model: &str, one: LayoutCase, cases: &[LayoutCase]) {
    let one = alone(model, one);
    let failures = cases.iter().filter_map(|case| {
        let failure = disagreement(&one, &train(program(model, *case, Element::F64)))?;
        Some(format!("{case:?}: {failure}"))
    });
    let failures: Vec<String> = failures.collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What one rank trains, once for all tests.
pub(super) fn alone(model: &str, one: LayoutCase) -> Arc<Outcome> {
    static KNOWN: Mutex<BTreeMap<String, Arc<Outcome>>> = Mutex::new(BTreeMap::new());
    let key = format!("{one:?} {model}");
    let known = KNOWN.lock().unwrap().get(&key).cloned();
    known.unwrap_or_else(|| {
        let outcome = Arc::new(train(program(model, one, Element::F64)));
        KNOWN.lock().unwrap().insert(key, Arc::clone(&outcome));
        outcome
    })
}

/// How losses or weights differ by more than rounding, if they do.
pub(super) fn disagreement(one: &Outcome, this: &Outcome) -> Option<String> {
    let (losses, norms, weights) = difference(one, this);
    let numbers = format!("losses {losses:.1e} norms {norms:.1e} weights {weights:.1e}");
    let all = || format!("{numbers}\n one {:?}\nthis {:?}", one.losses, this.losses);
    (losses > 1e-9 || weights > 1e-9).then(all)
}

/// Where a library moves arrays, which asks for another order of calls: on ranks that meet over a socket.
#[test]
fn collectives_of_a_library() {
    let zero = ZeroStage::Parameters;
    let (zbv, interleaved) = (ScheduleKind::Zbv, ScheduleKind::Interleaved);
    let cases = [
        (LLAMA, LayoutCase { tensor: 2, sequence: true, data: 2, zero, ..ONE }),
        (GPT, LayoutCase { context: 2, pipeline: 2, schedule: zbv, virtual_stages: 2, ..ONE }),
        (GPT, LayoutCase { context: 4, context_kind: ContextParallelKind::AllToAll, ..ONE }),
        (LLAMA, LayoutCase { pipeline: 2, schedule: interleaved, virtual_stages: 2, ..ONE }),
        (LLAMA, LayoutCase { pipeline: 4, schedule: ScheduleKind::DualPipe, ..ONE }),
        (MIXTRAL, LayoutCase { expert: 2, data: 2, tensor: 2, sequence: true, ..ONE }),
        (
            MIXTRAL_OF_MANY_HEADS,
            LayoutCase { expert: 2, tensor: 4, expert_tensor: 2, sequence: true, ..ONE },
        ),
    ];
    for (model, case) in cases {
        let outcome = train_by(program(model, case, Element::F64), |num_ranks, run| {
            let outcomes = super::threads::outcomes(num_ranks, run).into_iter();
            outcomes.map(|outcome| outcome.unwrap_or_else(|failure| panic!("{failure}"))).collect()
        });
        assert_eq!(disagreement(&alone(model, ONE), &outcome), None, "{case:?}");
    }
}

#[test]
fn micro_batches_of_any_size() {
    let sizes = [2, 4, 8].map(|micro_batch_size| LayoutCase { micro_batch_size, ..ONE });
    check(LLAMA, &sizes);
}

#[test]
fn data_parallel() {
    let mut cases = Vec::new();
    for zero in ZeroStage::ALL {
        cases.push(LayoutCase { data: 2, zero, ..ONE });
        cases.push(LayoutCase { data: 4, zero, micro_batch_size: 2, ..ONE });
        cases.push(LayoutCase { data: 4, zero, shard: 2, ..ONE });
    }
    check(LLAMA, &cases);
    check(GPT, &cases);
}

#[test]
fn replicas_with_shares_of_the_batch_of_their_own() {
    let (zero, interleaved) = (ZeroStage::OptimizerState, ScheduleKind::Interleaved);
    let cases = [
        LayoutCase { data: 2, groups: &[[1, 5], [1, 3]], ..ONE },
        LayoutCase { data: 3, groups: &[[1, 2], [2, 1]], micro_batch_size: 2, zero, ..ONE },
        LayoutCase { pipeline: 2, data: 3, groups: &[[2, 1], [1, 6]], tensor: 2, ..ONE },
        LayoutCase {
            pipeline: 2,
            virtual_stages: 2,
            schedule: interleaved,
            data: 3,
            groups: &[[1, 4], [2, 2]],
            zero,
            ..ONE
        },
    ];
    check(LLAMA, &cases);
    let experts = LayoutCase { expert: 2, data: 4, groups: &[[2, 1], [2, 3]], ..ONE };
    check(MIXTRAL, &[experts]);
}

#[test]
fn recompute() {
    let cases =
        [Recompute::Selective, Recompute::Full].map(|recompute| LayoutCase { recompute, ..ONE });
    for model in [LLAMA, GPT, MIXTRAL] {
        check(model, &cases);
    }
}

#[test]
fn tensor_parallel() {
    let cases = [
        LayoutCase { tensor: 2, ..ONE },
        LayoutCase { tensor: 2, sequence: true, ..ONE },
        LayoutCase { tensor: 2, sequence: true, recompute: Recompute::Selective, ..ONE },
        LayoutCase { tensor: 2, sequence: true, data: 2, zero: ZeroStage::Parameters, ..ONE },
    ];
    for model in [LLAMA, GPT, MIXTRAL] {
        check(model, &cases);
    }
    check(GPT, &[LayoutCase { tensor: 4, sequence: true, ..ONE }]);
}

/// Norms of queries and keys, head by head, of which each tensor-parallel rank has some.
#[test]
fn norms_of_heads() {
    let model =
        LLAMA.replace(r#""architecture": "llama""#, r#""model_type": "qwen3", "head_dim": 8"#);
    let cases = [
        LayoutCase { tensor: 2, ..ONE },
        LayoutCase { tensor: 2, sequence: true, data: 2, zero: ZeroStage::Gradients, ..ONE },
    ];
    check(&model, &cases);
}

#[test]
fn context_parallel() {
    let cases = [
        LayoutCase { context: 2, ..ONE },
        LayoutCase { context: 4, ..ONE },
        LayoutCase { context: 2, tensor: 2, sequence: true, ..ONE },
        LayoutCase { context: 2, data: 2, zero: ZeroStage::Gradients, ..ONE },
    ];
    for model in [LLAMA, GPT, MIXTRAL] {
        check(model, &cases);
    }
}

#[test]
fn expert_parallel() {
    let cases = [
        LayoutCase { expert: 2, data: 2, ..ONE },
        LayoutCase { expert: 4, data: 4, ..ONE },
        LayoutCase { expert: 2, data: 4, zero: ZeroStage::Parameters, ..ONE },
        LayoutCase { expert: 2, data: 2, tensor: 2, sequence: true, ..ONE },
        LayoutCase { expert: 2, data: 2, tensor: 2, ..ONE },
        LayoutCase { expert: 2, context: 2, ..ONE },
    ];
    check(MIXTRAL, &cases);
}

#[test]
fn pipelines() {
    use ScheduleKind as K;
    let plain = [K::Sequential, K::GPipe, K::OneFOneB, K::ZbH1, K::ZbH2];
    let mut cases: Vec<LayoutCase> =
        plain.map(|schedule| LayoutCase { pipeline: 4, schedule, ..ONE }).into();
    for schedule in [K::Interleaved, K::LoopedBfs, K::InterleavedZb] {
        cases.push(LayoutCase { pipeline: 2, virtual_stages: 2, schedule, ..ONE });
    }
    for schedule in [K::Zbv, K::VHalf, K::VMin, K::DualPipeV] {
        cases.push(LayoutCase { pipeline: 4, virtual_stages: 2, schedule, ..ONE });
    }
    cases.push(LayoutCase { pipeline: 4, schedule: K::DualPipe, ..ONE });
    check(LLAMA, &cases);
    check(GPT, &cases);
}

/// Stages as a user may give them: an embedding alone, a head with the layer before it.
#[test]
fn uneven_stages() {
    let one = alone(LLAMA, ONE);
    for (sizes, schedule, virtual_stages) in [
        ([1, 4, 1, 2], ScheduleKind::OneFOneB, 1),
        ([3, 1, 1, 3], ScheduleKind::Interleaved, 2),
        ([2, 1, 4, 1], ScheduleKind::Zbv, 2),
    ] {
        let pipeline = 4 / virtual_stages;
        let case = LayoutCase { pipeline, schedule, virtual_stages, ..ONE };
        let mut parts = parts(LLAMA, case, Element::F64);
        parts.stage_sizes = sizes.to_vec();
        let outcome = train(Program::new(parts).unwrap());
        assert_eq!(disagreement(&one, &outcome), None, "{sizes:?}");
    }
}

/// Everything at once: each line crosses axes that meet in different places.
#[test]
fn axes_composed() {
    use ScheduleKind as K;
    let full = Recompute::Full;
    let selective = Recompute::Selective;
    let (zero1, zero2, zero3) =
        (ZeroStage::OptimizerState, ZeroStage::Gradients, ZeroStage::Parameters);
    let dense = [
        LayoutCase { tensor: 2, pipeline: 2, data: 2, ..ONE },
        LayoutCase { tensor: 2, sequence: true, pipeline: 2, data: 2, zero: zero1, ..ONE },
        LayoutCase { tensor: 2, pipeline: 2, data: 2, zero: zero2, schedule: K::ZbH1, ..ONE },
        LayoutCase { pipeline: 2, data: 4, zero: zero3, recompute: full, ..ONE },
        LayoutCase { pipeline: 2, data: 4, zero: zero3, shard: 2, schedule: K::ZbH2, ..ONE },
        LayoutCase {
            pipeline: 2,
            data: 2,
            zero: zero3,
            virtual_stages: 2,
            schedule: K::Interleaved,
            ..ONE
        },
        LayoutCase {
            pipeline: 2,
            data: 2,
            zero: zero2,
            virtual_stages: 2,
            schedule: K::Zbv,
            ..ONE
        },
        LayoutCase { pipeline: 2, data: 2, schedule: K::DualPipe, ..ONE },
        LayoutCase { pipeline: 2, tensor: 2, sequence: true, schedule: K::DualPipe, ..ONE },
        LayoutCase {
            pipeline: 2,
            context: 2,
            data: 2,
            virtual_stages: 2,
            schedule: K::VHalf,
            ..ONE
        },
        LayoutCase { context: 2, tensor: 2, data: 2, zero: zero3, recompute: selective, ..ONE },
        LayoutCase { context: 2, pipeline: 2, micro_batch_size: 2, recompute: full, ..ONE },
        LayoutCase {
            context: 2,
            pipeline: 2,
            micro_batch_size: 2,
            schedule: K::ZbH1,
            recompute: selective,
            ..ONE
        },
        LayoutCase { tensor: 4, sequence: false, pipeline: 2, ..ONE },
        LayoutCase { micro_batch_size: 2, data: 2, zero: zero1, recompute: selective, ..ONE },
    ];
    check(GPT, &dense);
    let llama: Vec<LayoutCase> = dense.into_iter().filter(|case| case.tensor < 4).collect();
    check(LLAMA, &llama);
    check(
        MIXTRAL,
        &[
            LayoutCase { expert: 2, data: 2, pipeline: 2, ..ONE },
            LayoutCase { expert: 2, data: 2, pipeline: 2, zero: zero3, schedule: K::ZbH1, ..ONE },
            LayoutCase { expert: 2, data: 2, tensor: 2, sequence: true, pipeline: 2, ..ONE },
            LayoutCase { expert: 4, data: 2, context: 2, zero: zero1, ..ONE },
            LayoutCase { expert: 2, data: 4, zero: zero2, shard: 2, recompute: full, ..ONE },
            LayoutCase {
                expert: 2,
                data: 2,
                virtual_stages: 2,
                pipeline: 2,
                schedule: K::Zbv,
                ..ONE
            },
            LayoutCase { expert: 2, data: 2, pipeline: 2, schedule: K::DualPipe, ..ONE },
        ],
    );
}

/// Experts that take no more than their places: which tokens go without them depends on their order in the
/// micro-batch, not on the ranks that have them.
#[test]
fn experts_with_few_places() {
    for (factor, micro_batch_size) in [(1.0, 2), (0.5, 1)] {
        let with = |case: LayoutCase| {
            let mut parts = parts(MIXTRAL, LayoutCase { micro_batch_size, ..case }, Element::F64);
            parts.settings.expert_capacity_factor = Some(factor);
            train(Program::new(parts).unwrap())
        };
        let one = with(ONE);
        let all = alone(MIXTRAL, LayoutCase { micro_batch_size, ..ONE });
        assert!(difference(&one, &all).0 > 1e-3, "some tokens find no place");
        for case in [
            LayoutCase { expert: 2, data: 2, ..ONE },
            LayoutCase { context: 2, expert: 2, ..ONE },
            LayoutCase { tensor: 2, sequence: true, ..ONE },
            LayoutCase { tensor: 2, ..ONE },
            LayoutCase { tensor: 2, sequence: true, expert_tensor: 1, expert: 2, ..ONE },
            LayoutCase { tensor: 2, sequence: true, context: 2, recompute: Recompute::Full, ..ONE },
            LayoutCase { pipeline: 2, data: 2, expert: 2, schedule: ScheduleKind::ZbH1, ..ONE },
        ] {
            assert_eq!(disagreement(&one, &with(case)), None, "factor {factor}, {case:?}");
        }
    }
}

/// A schedule that says itself when the parameters of a stage are gathered and freed: the same results, with
/// fewer bytes sent, as they are not gathered again for each micro-batch.
#[test]
fn parameters_are_gathered_when_the_schedule_says() {
    let case = LayoutCase { pipeline: 2, data: 2, zero: ZeroStage::Parameters, ..ONE };
    let sent = |program: &Arc<Program>| {
        let outcomes = local::run(program.num_ranks(), &[FlexDevice], |communicator| {
            let mut rank = rank(program, communicator)?;
            let before = rank.communicator().traffic();
            rank.step()?;
            let sent = rank.communicator().traffic().since(&before).bytes(Stream::Data);
            Ok::<_, RunError>(sent.get())
        });
        outcomes.unwrap_or_else(|failure| panic!("{failure}")).into_iter().sum::<u64>()
    };
    let by_block = program(LLAMA, case, Element::F64);
    let mut parts = parts(LLAMA, case, Element::F64);
    let rows = write_csv(&parts.schedule);
    let rows = rows.lines().zip(0..);
    let rows = rows.map(|(steps, stage)| format!("{stage}UNSHARD,{steps},{stage}RESHARD"));
    let text = rows.collect::<Vec<_>>().join("\n");
    parts.schedule = read_csv(&text).unwrap();
    let by_stage = Program::new(parts.clone()).unwrap();
    let (less, more) =
        (sent(&Arc::new(by_stage)), sent(&Arc::new(program(LLAMA, case, Element::F64))));
    // Four micro-batches a rank gather twice each, in forward and in backward; gradients are reduced
    // as often in both.
    assert!(less * 3 < more * 2, "{less} bytes, {more} without");
    for program in [Program::new(parts).unwrap(), by_block] {
        assert_eq!(disagreement(&alone(LLAMA, ONE), &train(program)), None);
    }
}

/// How gradients are cut into buckets changes nothing, to the last bit.
#[test]
fn buckets_change_nothing() {
    for zero in [ZeroStage::None, ZeroStage::Gradients] {
        let with = |bucket_bytes| {
            train(program(LLAMA, LayoutCase { data: 4, zero, bucket_bytes, ..ONE }, Element::F32))
        };
        let (small, large) = (with(1), with(1 << 30));
        assert_eq!(difference(&small, &large), (0.0, 0.0, 0.0));
    }
}

/// In float32 layouts differ by its rounding.
#[test]
fn float32() {
    let one = train(program(LLAMA, ONE, Element::F32));
    for case in [
        LayoutCase { tensor: 2, sequence: true, pipeline: 2, ..ONE },
        LayoutCase { data: 4, zero: ZeroStage::Parameters, ..ONE },
        LayoutCase { context: 4, ..ONE },
    ] {
        let (losses, _, _) = difference(&one, &train(program(LLAMA, case, Element::F32)));
        assert!(losses < 1e-4, "losses differ by {losses:.1e}: {case:?}");
    }
}

/// Models that take no tokens: convolutions, pooling, batch norms, residual sums.
#[test]
fn other_models() {
    let read = |name: &str| {
        let path = format!("{}/../../models/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let toy = read("toy-mlp.json");
    check(
        &toy,
        &[
            LayoutCase { data: 2, ..ONE },
            LayoutCase { data: 4, zero: ZeroStage::Parameters, ..ONE },
            LayoutCase { pipeline: 2, schedule: ScheduleKind::Sequential, ..ONE },
            LayoutCase { pipeline: 2, schedule: ScheduleKind::ZbH1, data: 2, ..ONE },
        ],
    );
    // Batch norms take the statistics of a micro-batch, so its size is part of the model.
    let one = LayoutCase { micro_batch_size: 2, ..ONE };
    let cases = [
        LayoutCase { data: 2, ..one },
        LayoutCase { pipeline: 2, ..one },
        LayoutCase { pipeline: 3, schedule: ScheduleKind::ZbH2, ..one },
        LayoutCase { pipeline: 2, data: 2, zero: ZeroStage::Parameters, ..one },
        LayoutCase { pipeline: 2, recompute: Recompute::Full, ..one },
        LayoutCase { recompute: Recompute::Selective, ..one },
    ];
    check_against(IMAGES, one, &cases);
}

/// The models of images that ship, as large as they are, cut into stages: four minutes.
#[test]
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn images_at_full_size() {
    if !super::runs_slow_tests() {
        eprintln!("skipped: set RUN_SLOW_TESTS=1 to train ResNet-50, AlexNet and VGG-19");
        return;
    }
    for name in ["alexnet", "vgg-19", "resnet-50"] {
        let path = format!("{}/../../models/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let model = std::fs::read_to_string(path).unwrap();
        let losses = |case: LayoutCase| {
            let mut parts = parts(&model, case, Element::F32);
            parts.global_batch_size = 4;
            parts.layout.num_micro_batches = 2;
            parts.schedule = generate(case.schedule, case.pipeline, 2, 1).unwrap();
            parts.settings.schedule = LearningRate::constant(1e-4);
            let program = Arc::new(Program::new(parts).unwrap());
            let outcomes = local::run(program.num_ranks(), &[FlexDevice], |communicator| {
                let mut rank = rank(&program, communicator)?;
                Ok::<_, RunError>([rank.step()?.loss, rank.step()?.loss])
            });
            outcomes.unwrap_or_else(|failure| panic!("{failure}")).swap_remove(0)
        };
        let one = losses(LayoutCase { micro_batch_size: 2, ..ONE });
        let cut = losses(LayoutCase { micro_batch_size: 2, pipeline: 2, ..ONE });
        // A thousand classes: the loss begins near ln 1000.
        assert!((one[0] - 6.9).abs() < 1.5, "{name}: {one:?}");
        for (one, cut) in one.iter().zip(cut) {
            assert!((one / cut - 1.0).abs() < 1e-4, "{name}: {cut}, not {one}");
        }
    }
}

/// Experts whose load is balanced by a loss, with the same micro-batches everywhere.
#[test]
fn balanced_experts() {
    let model =
        MIXTRAL.replace('{', r#"{"output_router_logits": true, "router_aux_loss_coef": 0.1, "#);
    let one = LayoutCase { micro_batch_size: 2, ..ONE };
    let cases = [
        LayoutCase { expert: 2, data: 2, ..one },
        LayoutCase { tensor: 2, ..one },
        LayoutCase { tensor: 2, sequence: true, expert: 2, data: 2, ..one },
        LayoutCase { context: 2, expert: 2, ..one },
        LayoutCase { pipeline: 2, schedule: ScheduleKind::ZbH1, recompute: Recompute::Full, ..one },
        LayoutCase { pipeline: 2, schedule: ScheduleKind::DualPipe, ..one },
    ];
    check_against(&model, one, &cases);
}

/// Operators of ResNet-50, AlexNet and VGG-19, small.
const IMAGES: &str = r#"{"format": "planner-graph", "version": 1, "name": "images", "nodes": [
    {"name": "image", "kind": "input", "dims": ["batch", "channels", "height", "width"], "shape": ["b", 3, 12, 12]},
    {"name": "stem", "kind": "conv2d", "out_channels": 6, "kernel": 3, "padding": 1, "bias": false},
    {"name": "stem_norm", "kind": "batch_norm"},
    {"name": "stem_relu", "kind": "relu"},
    {"name": "pool", "kind": "max_pool2d", "kernel": 3, "stride": 2, "padding": 1},
    {"name": "conv1", "kind": "conv2d", "out_channels": 6, "kernel": 3, "padding": 1, "groups": 2},
    {"name": "norm1", "kind": "batch_norm"},
    {"name": "sum", "kind": "add"},
    {"name": "sum_relu", "kind": "relu"},
    {"name": "conv2", "kind": "conv2d", "out_channels": 8, "kernel": 3, "stride": 2, "padding": 1},
    {"name": "relu2", "kind": "relu"},
    {"name": "average", "kind": "average_pool2d", "kernel": 2, "stride": 1},
    {"name": "adaptive", "kind": "adaptive_average_pool2d", "output": 1},
    {"name": "flatten", "kind": "flatten"},
    {"name": "dropout", "kind": "dropout"},
    {"name": "hidden", "kind": "linear", "out_features": 12},
    {"name": "hidden_relu", "kind": "relu"},
    {"name": "hidden_dropout", "kind": "dropout"},
    {"name": "classes", "kind": "linear", "out_features": 10},
    {"name": "loss", "kind": "cross_entropy"}],
  "edges": [
    {"from": "image", "to": "stem"}, {"from": "stem", "to": "stem_norm"},
    {"from": "stem_norm", "to": "stem_relu"}, {"from": "stem_relu", "to": "pool"},
    {"from": "pool", "to": "conv1"}, {"from": "conv1", "to": "norm1"}, {"from": "norm1", "to": "sum"},
    {"from": "pool", "to": "sum"}, {"from": "sum", "to": "sum_relu"}, {"from": "sum_relu", "to": "conv2"},
    {"from": "conv2", "to": "relu2"}, {"from": "relu2", "to": "average"}, {"from": "average", "to": "adaptive"},
    {"from": "adaptive", "to": "flatten"}, {"from": "flatten", "to": "dropout"},
    {"from": "dropout", "to": "hidden"}, {"from": "hidden", "to": "hidden_relu"},
    {"from": "hidden_relu", "to": "hidden_dropout"}, {"from": "hidden_dropout", "to": "classes"}, {"from": "classes", "to": "loss"}]}"#;

/// A column-parallel layer alone, whose output every rank gathers.
#[test]
fn a_lone_linear_layer() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/lone-linear.json");
    let model = std::fs::read_to_string(path).unwrap().replace("1024", "24");
    let cases = [
        LayoutCase { tensor: 2, ..ONE },
        LayoutCase { tensor: 4, data: 2, zero: ZeroStage::Parameters, ..ONE },
    ];
    check_alike(&model, ONE, &cases);
}
