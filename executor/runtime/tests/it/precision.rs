//! Half precision: how near it comes to single precision, and the scaling of the loss that float16 needs.

use std::num::NonZeroUsize;
use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{Communicator, local};
use executor_kernels::array::Element;
use executor_runtime::checkpoint::{OptimizerState, PieceKind, State};
use executor_runtime::program::Program;
use executor_runtime::rank::{RunError, StepResult};
use executor_runtime::settings::{LearningRate, LossScaling};
use ir::layout::ZeroStage;

use super::training::{GPT, LLAMA, LayoutCase, MIXTRAL, NUM_STEPS, ONE, program, rank};

/// Result of training, on rank 0.
struct Outcome {
    results: Vec<StepResult>,
    /// All weights that the rank holds.
    weights: Vec<f64>,
    optimizer: OptimizerState,
}

impl Outcome {
    fn skipped(&self) -> Vec<bool> {
        self.results.iter().map(|result| result.is_skipped).collect()
    }

    fn losses(&self) -> Vec<f64> {
        self.results.iter().map(|result| result.loss).collect()
    }
}

fn train(program: Program) -> Outcome {
    let program = Arc::new(program);
    let folder = tempfile::tempdir().unwrap();
    let run = |communicator: Arc<dyn Communicator<Flex>>| {
        let mut rank = rank(&program, communicator)?;
        let results = (0..NUM_STEPS).map(|_| rank.step()).collect::<Result<Vec<_>, _>>()?;
        let written = rank.save(folder.path(), NonZeroUsize::MIN)?;
        let mut weights = Vec::new();
        for (piece, values) in rank.pieces() {
            if piece.kind == PieceKind::Weight {
                weights.extend(values);
            }
        }
        Ok::<_, RunError>((results, weights, written))
    };
    let outcomes = local::run(program.num_ranks(), &[FlexDevice], run);
    let mut outcomes = outcomes.unwrap_or_else(|failure| panic!("{failure}"));
    for (results, _, _) in &outcomes {
        // As text, since norms that are no numbers are not equal.
        assert_eq!(format!("{results:?}"), format!("{:?}", outcomes[0].0), "ranks differ");
    }
    let (results, weights, written) = outcomes.swap_remove(0);
    let state = State::open(&written.expect("rank 0 completes the checkpoint")).unwrap();
    Outcome { results, weights, optimizer: state.training().optimizer.clone() }
}

fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn half_precision_learns_what_single_precision_learns() {
    let scaling = LossScaling { initial: 1024.0, ..LossScaling::default() };
    for model in [LLAMA, GPT, MIXTRAL] {
        let single = train(program(model, ONE, Element::F32)).losses();
        let learned = single[0] - single[NUM_STEPS - 1];
        for (element, scaling) in [(Element::BF16, None), (Element::F16, Some(scaling))] {
            let mut program = program(model, ONE, element);
            program.settings.loss_scaling = scaling;
            let half = train(program);
            assert_eq!(half.skipped(), [false; NUM_STEPS], "{element:?}");
            let most = largest_difference(&half.losses(), &single);
            // Rounding is amplified by steps, and by tokens that another expert takes.
            assert!(most < learned / 20.0, "{element:?}: off by {most:.1e} of {learned}");
        }
    }
}

#[test]
fn layouts_agree_in_half_precision() {
    let one = train(program(LLAMA, ONE, Element::BF16)).losses();
    let zero = ZeroStage::Parameters;
    for case in [
        LayoutCase { tensor: 2, sequence: true, pipeline: 2, ..ONE },
        LayoutCase { data: 4, zero, ..ONE },
        LayoutCase { context: 2, data: 2, ..ONE },
    ] {
        let losses = train(program(LLAMA, case, Element::BF16)).losses();
        let most = largest_difference(&losses, &one);
        assert!(most < 0.04, "{most:.1e}: {case:?}");
    }
}

/// Moments in bfloat16 train about as those in single precision do, in every layout alike.
#[test]
fn moments_in_half_precision_learn_as_well() {
    let with = |case, moments| {
        let mut program = program(LLAMA, case, Element::F32);
        program.settings.moments = moments;
        train(program).losses()
    };
    let single = with(ONE, Element::F32);
    let half = with(ONE, Element::BF16);
    let learned = single[0] - single[NUM_STEPS - 1];
    let most = largest_difference(&half, &single);
    assert!(most > 0.0 && most < learned / 20.0, "off by {most:.1e} of {learned}");
    let sharded = LayoutCase { data: 2, tensor: 2, zero: ZeroStage::OptimizerState, ..ONE };
    let most = largest_difference(&with(sharded, Element::BF16), &half);
    assert!(most < learned / 100.0, "layouts are {most:.1e} apart");
}

/// Updates that are too small for bfloat16 count in the weights that are held in single precision.
#[test]
fn small_updates_add_up() {
    let train = |element| {
        let mut program = program(LLAMA, ONE, element);
        program.settings.schedule = LearningRate::constant(1e-5);
        program.settings.optimizer.weight_decay = 0.0;
        train(program).weights
    };
    let (single, half) = (train(Element::F32), train(Element::BF16));
    // The gains of norms are 1 at first; next to 1, numbers of bfloat16 are 2^-7 apart.
    let gains = single.iter().zip(&half).filter(|(weight, _)| (**weight - 1.0).abs() < 1e-3);
    let moves: Vec<(f64, f64)> = gains.map(|(single, half)| (single - 1.0, half - 1.0)).collect();
    assert!(moves.len() >= 32 * 13, "{} gains", moves.len());
    let mean = |which: fn(&(f64, f64)) -> f64| {
        moves.iter().map(|it| which(it).abs()).sum::<f64>() / moves.len() as f64
    };
    let (single, half) = (mean(|it| it.0), mean(|it| it.1));
    assert!(single > 2e-5 && (half / single - 1.0).abs() < 0.1, "{half:e}, not {single:e}");
}

fn scaled(case: LayoutCase, scaling: LossScaling) -> Outcome {
    let mut program = program(LLAMA, case, Element::F16);
    program.settings.loss_scaling = Some(scaling);
    train(program)
}

#[test]
fn the_scale_grows_while_gradients_are_finite() {
    let scaling = LossScaling { initial: 1024.0, growth: 2.0, backoff: 0.5, growth_interval: 3 };
    let outcome = scaled(ONE, scaling);
    assert_eq!(outcome.skipped(), [false; NUM_STEPS]);
    let scale = outcome.optimizer.loss_scale.unwrap();
    // Eight good steps: it grew after three and after six.
    assert_eq!((scale.scale.log2().round() as i64, scale.num_good_steps), (12, 2));
    assert_eq!(outcome.optimizer.num_updates, NUM_STEPS as u64);
}

#[test]
fn steps_that_overflow_are_skipped_by_all_ranks() {
    // The scale starts where gradients overflow, and falls fast.
    let backoff = 2.0_f64.powi(-20);
    let scaling =
        LossScaling { initial: 2.0_f64.powi(60), growth: 2.0, backoff, growth_interval: 100 };
    let one = scaled(ONE, scaling);
    let num_skipped = one.skipped().iter().filter(|skipped| **skipped).count();
    assert!((1..NUM_STEPS).contains(&num_skipped), "{:?}", one.skipped());
    let expected: Vec<bool> = (0..NUM_STEPS).map(|step| step < num_skipped).collect();
    assert_eq!(one.skipped(), expected, "once the scale has fallen, no step is skipped");
    let scale = one.optimizer.loss_scale.unwrap();
    assert_eq!(60 - scale.scale.log2().round() as usize, 20 * num_skipped);
    assert_eq!(scale.num_good_steps as usize, NUM_STEPS - num_skipped);
    assert_eq!(one.optimizer.num_updates as usize, NUM_STEPS - num_skipped);
    assert!(
        one.results.iter().all(|result| result.loss.is_finite()),
        "the loss itself is not scaled"
    );

    for case in [
        LayoutCase { pipeline: 2, ..ONE },
        LayoutCase { data: 2, zero: ZeroStage::Gradients, ..ONE },
        LayoutCase { tensor: 2, sequence: true, ..ONE },
    ] {
        let outcome = scaled(case, scaling);
        assert_eq!(outcome.skipped(), one.skipped(), "{case:?}");
        assert_eq!(outcome.optimizer, one.optimizer, "{case:?}");
        let most = largest_difference(&outcome.losses(), &one.losses());
        assert!(most < 0.005, "{most:.1e}: {case:?}");
    }
}

/// A step that is skipped leaves weights and moments as they were.
#[test]
fn skipped_steps_change_nothing() {
    let scaling =
        LossScaling { initial: 2.0_f64.powi(60), growth: 2.0, backoff: 1.0, growth_interval: 100 };
    let outcome = scaled(ONE, scaling);
    assert_eq!(outcome.skipped(), [true; NUM_STEPS]);
    assert_eq!(outcome.optimizer.num_updates, 0);
    let mut program = program(LLAMA, ONE, Element::F16);
    program.settings.loss_scaling = Some(scaling);
    let program = Arc::new(program);
    let initial = local::run(1, &[FlexDevice], |communicator| {
        rank(&program, communicator).map(|rank| rank.pieces())
    });
    let initial = initial.unwrap_or_else(|failure| panic!("{failure}")).swap_remove(0);
    let weights = initial.into_iter().filter(|(piece, _)| piece.kind == PieceKind::Weight);
    let weights = weights.flat_map(|(_, values)| values);
    assert!(weights.eq(outcome.weights), "weights moved");
}

#[test]
fn the_learning_rate_rises_in_a_line_and_falls_along_a_cosine() {
    let schedule = LearningRate { peak: 4e-3, warmup_steps: 4, decay_steps: Some(12), least: 4e-4 };
    let close = |step: u64, expected: f64| {
        let found = schedule.at(step);
        assert!((found - expected).abs() < 1e-15, "step {step}: {found}, not {expected}");
    };
    for (step, expected) in (0..).zip([1e-3, 2e-3, 3e-3, 4e-3, 4e-3]) {
        close(step, expected);
    }
    // Half way down, and a third: cos(pi / 3) is a half.
    close(8, 2.2e-3);
    let third = LearningRate { decay_steps: Some(16), ..schedule }.at(8);
    assert!((third - (4e-4 + 3.6e-3 * 0.75)).abs() < 1e-15, "{third}");
    close(12, 4e-4);
    close(1000, 4e-4);
    let constant = LearningRate { decay_steps: None, warmup_steps: 0, ..schedule };
    assert_eq!(constant.at(0).to_bits(), constant.at(1 << 40).to_bits());
}
