//! One rank computes what PyTorch computes: runs of Hugging Face's models, made once by
//! `tests/reference/make.py`, on the same weights and tokens.

use std::path::PathBuf;
use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{Communicator, local};
use executor_kernels::array::Element;
use executor_runtime::batches::Source;
use executor_runtime::checkpoint::{Naming, PieceKind, Weights};
use executor_runtime::parameters::LocalParameter;
use executor_runtime::program::{Parts, Program};
use executor_runtime::rank::{Rank, RunError, StepResult};
use executor_runtime::settings::{LearningRate, OptimizerSettings, Settings};
use ir::layout::LayoutSpec;
use ir::model::GraphOptions;
use ir::plan::Optimizer;
use serde_json::Value;

const BATCH: u32 = 4;
const SEQUENCE_LENGTH: u64 = 32;

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "reference", name].iter().collect()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

/// The batches of 20 steps, `[4][33]` each.
fn windows() -> Vec<Vec<u32>> {
    let steps: Vec<Vec<Vec<u32>>> = serde_json::from_str(&read("tokens.json")).unwrap();
    steps.into_iter().flatten().collect()
}

fn settings(run: &Value, element: Element) -> Settings {
    let optimizer = &run["optimizer"];
    let number = |name: &str| optimizer[name].as_f64().unwrap();
    let is_sgd = optimizer["kind"] == "sgd";
    let kind = if is_sgd { Optimizer::Momentum } else { Optimizer::AdamW };
    let betas = &optimizer["betas"];
    let beta1 = if is_sgd { number("momentum") } else { betas[0].as_f64().unwrap() };
    Settings {
        optimizer: OptimizerSettings {
            kind,
            beta1,
            beta2: betas[1].as_f64().unwrap_or(0.0),
            epsilon: optimizer["epsilon"].as_f64().unwrap_or(0.0),
            weight_decay: number("weight_decay"),
        },
        max_gradient_norm: run["max_gradient_norm"].as_f64(),
        schedule: LearningRate::constant(number("learning_rate")),
        ..settings_of(element)
    }
}

fn program(model: &str, run: &Value, element: Element) -> Program {
    let description = read(&format!("{model}/config.json"));
    alone(description, model, BATCH, SEQUENCE_LENGTH, settings(run, element))
}

/// Settings of a run whose numbers are all of this type, without an optimizer that would change anything.
pub(super) fn settings_of(element: Element) -> Settings {
    Settings {
        max_gradient_norm: None,
        master: element,
        moments: element,
        bucket_bytes: 1 << 20,
        ..Settings::usual(Optimizer::Sgd, element)
    }
}

/// A model on one rank, with its modules for multi-token prediction where it has some.
pub(super) fn alone(
    description: String,
    model: &str,
    batch: u32,
    sequence_length: u64,
    settings: Settings,
) -> Program {
    let options = GraphOptions { multi_token_prediction: true, ..GraphOptions::default() };
    let layout = LayoutSpec { micro_batch_size: batch, ..LayoutSpec::ONE_RANK };
    let sizes = [batch.into(), sequence_length];
    let parts = Parts::even(description, model, options, layout, sizes, settings).unwrap();
    Program::new(parts).unwrap()
}

/// The steps of a run, and the norm of each parameter at its end.
fn train(program: Program, folder: &str, steps: usize) -> (Vec<StepResult>, Vec<(String, f64)>) {
    let parameters = program.parameters();
    let architecture = ir::model::Model::from_json(&program.description, "m").unwrap().architecture;
    let naming = Naming::of(&architecture, &parameters);
    let weights = Weights::open(&path(folder), &naming, &parameters).unwrap();
    let (program, source) = (Arc::new(program), Arc::new(Source::Windows(windows())));
    let run = |communicator: Arc<dyn Communicator<Flex>>| -> Result<_, RunError> {
        let values = |p: &LocalParameter| Ok::<_, RunError>(weights.read(&p.id, &p.part)?);
        let (program, source) = (Arc::clone(&program), Arc::clone(&source));
        let mut rank = Rank::new(program, source, communicator, FlexDevice, values)?;
        let results = (0..steps).map(|_| rank.step()).collect::<Result<Vec<_>, _>>()?;
        let pieces = rank.pieces().into_iter();
        let pieces = pieces.filter(|(piece, _)| piece.kind == PieceKind::Weight);
        let norms = pieces.map(|(piece, values)| {
            let parameter = parameters.iter().find(|p| p.id == piece.parameter).unwrap();
            let name = naming.stored(parameter).unwrap().tensors.join(", ");
            (name, values.iter().map(|v| v * v).sum::<f64>().sqrt())
        });
        Ok((results, norms.collect()))
    };
    local::run(1, &[FlexDevice], run).unwrap_or_else(|failure| panic!("{failure}")).remove(0)
}

/// Losses and gradient norms of all 20 steps, to these relative differences.
fn check(model: &str, dtype: &str, losses_within: f64, norms_within: f64) {
    let recorded: Value = serde_json::from_str(&read(&format!("{model}/losses.json"))).unwrap();
    let element = if dtype == "float64" { Element::F64 } else { Element::F32 };
    let runs = recorded["runs"].as_array().unwrap().iter();
    // Hugging Face balances experts over all layers at once, which stages of a pipeline cannot.
    let runs = runs.filter(|run| {
        run["dtype"] == dtype && run["auxiliary_loss_coefficient"].as_f64() == Some(0.0)
    });
    let mut num_runs = 0;
    for run in runs {
        num_runs += 1;
        let steps = run["steps"].as_array().unwrap();
        let (results, parameters) = train(program(model, run, element), model, steps.len());
        for (step, (result, expected)) in results.iter().zip(steps).enumerate() {
            for (what, found, within) in [
                ("cross_entropy", result.loss, losses_within),
                ("gradient_norm", result.gradient_norm, norms_within),
            ] {
                let expected = expected[what].as_f64().unwrap();
                let difference = (found / expected - 1.0).abs();
                assert!(
                    difference < within,
                    "{model} {dtype} {}, step {step}: {what} {found}, PyTorch {expected}, \
                     relative difference {difference:.1e}",
                    run["optimizer"]["kind"]
                );
            }
        }
        // Of tensors that are ours alone; parts of fused ones are compared through the losses.
        let mut num_compared = 0;
        for (name, norm) in parameters {
            if dtype != "float64" || name.contains("c_attn") {
                continue;
            }
            let Some(expected) = run["final_parameters"][&name]["norm"].as_f64() else { continue };
            num_compared += 1;
            assert!((norm / expected - 1.0).abs() < 1e-9, "{model}: {name} {norm}, {expected}");
        }
        assert!(dtype != "float64" || num_compared > 5, "{num_compared} parameters compared");
    }
    assert!(num_runs > 0, "there are runs in {dtype}");
}

#[test]
fn llama() {
    check("llama", "float32", 1e-6, 1e-5);
    check("llama", "float64", 1e-11, 1e-10);
}

#[test]
fn llama_3() {
    check("llama3", "float32", 1e-6, 1e-5);
    check("llama3", "float64", 1e-11, 1e-10);
}

#[test]
fn gpt_2() {
    check("gpt2", "float32", 1e-6, 1e-5);
    check("gpt2", "float64", 1e-11, 1e-10);
}

#[test]
fn mixtral() {
    check("mixtral", "float32", 1e-6, 1e-5);
    check("mixtral", "float64", 1e-11, 1e-10);
}
