//! Low-rank adapters: any layout trains them as one rank does, and merged they are the model that was trained.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{Communicator, local};
use executor_kernels::array::Element;
use executor_runtime::batches::Source;
use executor_runtime::case::SEQUENCE_LENGTH;
use executor_runtime::checkpoint::ParameterId;
use executor_runtime::data::{Samples, Sampling, Tokens};
use executor_runtime::merge::merged;
use executor_runtime::parameters::LocalParameter;
use executor_runtime::program::Program;
use executor_runtime::rank::{Rank, RunError};
use executor_runtime::settings::LearningRate;
use ir::graph::{Learning, Recompute, WeightFormat};
use ir::layout::ZeroStage;
use ir::schedule::ScheduleKind;

use super::experts::MIXTRAL_OF_MANY_HEADS;
use super::parity::{check_against, train};
use super::training::{GPT, LLAMA, LayoutCase, MIXTRAL, NUM_STEPS, ONE, parts, program, rank};

const ALL: LayoutCase =
    LayoutCase { adapters: Some((4, "all-linear", WeightFormat::Plain)), ..ONE };

fn with_format(format: WeightFormat) -> LayoutCase {
    LayoutCase { adapters: Some((4, "all-linear", format)), ..ONE }
}

fn check_layouts(model: &str, one: LayoutCase) {
    use ScheduleKind as K;
    let (zero1, zero2, zero3) =
        (ZeroStage::OptimizerState, ZeroStage::Gradients, ZeroStage::Parameters);
    let cases = [
        LayoutCase { tensor: 2, ..one },
        LayoutCase { tensor: 2, sequence: true, data: 2, zero: zero3, ..one },
        LayoutCase { data: 4, zero: zero3, shard: 2, ..one },
        LayoutCase { data: 2, zero: zero1, recompute: Recompute::Full, ..one },
        LayoutCase {
            context: 2,
            tensor: 2,
            sequence: true,
            recompute: Recompute::Selective,
            ..one
        },
        LayoutCase { pipeline: 2, data: 2, zero: zero2, schedule: K::ZbH1, ..one },
        LayoutCase { pipeline: 4, virtual_stages: 2, schedule: K::Zbv, ..one },
        LayoutCase { pipeline: 2, tensor: 2, data: 2, schedule: K::DualPipe, ..one },
    ];
    check_against(model, one, &cases);
}

#[test]
fn adapters_of_llama_train_alike_under_any_layout() {
    check_layouts(LLAMA, ALL);
}

#[test]
fn adapters_beside_quantised_weights_of_llama_train_alike_under_any_layout() {
    check_layouts(LLAMA, with_format(WeightFormat::Nf4));
}

#[test]
fn adapters_of_gpt_train_alike_under_any_layout() {
    check_layouts(GPT, ALL);
}

#[test]
fn adapters_beside_quantised_weights_of_gpt_train_alike_under_any_layout() {
    check_layouts(GPT, with_format(WeightFormat::Int4));
}

#[test]
fn adapters_of_experts_train_alike_under_any_layout() {
    for format in [WeightFormat::Plain, WeightFormat::Int8] {
        let one = with_format(format);
        let (zero2, zero3) = (ZeroStage::Gradients, ZeroStage::Parameters);
        let folded = LayoutCase { sequence: true, ..one };
        let cases = [
            LayoutCase { expert: 2, data: 2, ..one },
            LayoutCase { tensor: 2, ..one },
            LayoutCase { tensor: 2, sequence: true, expert: 2, data: 2, ..one },
            LayoutCase { expert: 4, data: 4, zero: zero3, ..one },
            LayoutCase { tensor: 2, expert_tensor: 1, expert: 4, data: 2, ..folded },
            LayoutCase { tensor: 4, expert_tensor: 2, expert: 4, data: 2, zero: zero2, ..folded },
            LayoutCase { tensor: 4, expert_tensor: 2, expert: 1, context: 2, ..folded },
        ];
        check_against(MIXTRAL_OF_MANY_HEADS, one, &cases);
    }
}

#[test]
fn only_adapters_are_trained_and_all_of_those_that_were_asked_for() {
    let case = LayoutCase { adapters: Some((2, "q_proj", WeightFormat::Plain)), ..ONE };
    let outcome = train(program(LLAMA, case, Element::F64));
    let names: Vec<String> = outcome.weights.keys().map(ToString::to_string).collect();
    let expected = (1..7).flat_map(|block| {
        ["lora_a", "lora_b"].map(|part| format!("{block}.attention.query.{part}.weight"))
    });
    assert_eq!(names, expected.collect::<Vec<_>>());
    let up = outcome.weights.iter().filter(|(id, _)| id.op.ends_with("lora_b"));
    let sum: f64 = up.flat_map(|(_, values)| values).map(|weight| weight.abs()).sum();
    assert!(sum > 0.0, "B is zero at first");
}

/// Without gradients and optimizer state of the model, and with its weights in few bits, less is held.
#[test]
fn frozen_and_quantised_weights_take_less_memory() {
    let peak = |case: LayoutCase| {
        let program = Arc::new(program(LLAMA, case, Element::F32));
        let run = |communicator: Arc<dyn Communicator<Flex>>| {
            let mut rank = rank(&program, communicator)?;
            rank.step()?;
            Ok::<_, RunError>(rank.peak_memory().get())
        };
        local::run(1, &[FlexDevice], run).unwrap_or_else(|failure| panic!("{failure}"))[0]
    };
    let [whole, plain, int8, nf4] = [
        peak(ONE),
        peak(ALL),
        peak(with_format(WeightFormat::Int8)),
        peak(with_format(WeightFormat::Nf4)),
    ];
    assert!(whole > plain && plain > int8 && int8 > nf4, "{whole} {plain} {int8} {nf4}");
}

/// The loss of each step of a program whose weights stay, from weights that are given.
fn losses(program: Program, weights: &BTreeMap<ParameterId, Vec<f64>>) -> Vec<f64> {
    let program = Arc::new(program);
    let run = |communicator: Arc<dyn Communicator<Flex>>| {
        let sampling = Sampling { sequence_length: SEQUENCE_LENGTH, vocab_size: 256, seed: 3 };
        let source = Source::Tokens(Samples::new(Tokens::built_in(), sampling).unwrap());
        let values = |parameter: &LocalParameter| Ok::<_, RunError>(weights[&parameter.id].clone());
        let program = Arc::clone(&program);
        let mut rank = Rank::new(program, Arc::new(source), communicator, FlexDevice, values)?;
        (0..NUM_STEPS).map(|_| Ok(rank.step()?.loss)).collect::<Result<Vec<f64>, RunError>>()
    };
    let mut all = local::run(1, &[FlexDevice], run).unwrap_or_else(|failure| panic!("{failure}"));
    all.swap_remove(0)
}

#[test]
fn a_merged_model_is_the_base_with_its_adapters() {
    for (model, format) in [
        (LLAMA, WeightFormat::Plain),
        (GPT, WeightFormat::Int4),
        (MIXTRAL, WeightFormat::Nf4),
        (LLAMA, WeightFormat::Int8),
    ] {
        let still = |case: LayoutCase| {
            let mut parts = parts(model, case, Element::F64);
            parts.settings.schedule = LearningRate::constant(0.0);
            Program::new(parts).unwrap()
        };
        let case = with_format(format);
        let adapted = still(case);
        let seed = adapted.settings.seed;
        let trained = train(program(model, case, Element::F64)).weights;
        let (mut base, mut whole) = (trained.clone(), BTreeMap::new());
        for parameter in adapted.whole_parameters() {
            if parameter.learning == Learning::Adapter {
                continue;
            }
            let before = parameter.initial_values(seed);
            base.insert(parameter.id.clone(), before.clone());
            let read = |id: &ParameterId| Ok::<_, RunError>(trained[id].clone());
            let after = merged(&adapted, &parameter, before, read).unwrap();
            whole.insert(parameter.id.clone(), after);
        }
        let (apart, together) = (losses(adapted, &base), losses(still(ONE), &whole));
        for (apart, together) in apart.iter().zip(&together) {
            assert!((apart - together).abs() < 1e-12, "{model}: {apart} {together}");
        }
        let untrained = train(still(ONE)).losses;
        assert!((apart[0] - untrained[0]).abs() > 1e-3, "adapters have learned something");
    }
}
