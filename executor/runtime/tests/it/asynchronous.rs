//! Asynchronous 1F1B against plain mathematics: a chain of linear layers whose gradients are written out here.
//!
//! A stage updates after each backward pass, so a micro-batch meets stages that have seen different numbers of updates.
//! Its gradient is that of the loss at those weights, in forward and in backward (weight stashing, Harlap et al. 2018).

use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{Communicator, local};
use executor_kernels::array::Element;
use executor_runtime::batches::Source;
use executor_runtime::checkpoint::PieceKind;
use executor_runtime::data::SyntheticSamples;
use executor_runtime::parameters::LocalParameter;
use executor_runtime::program::{Parts, Program};
use executor_runtime::rank::{Rank, RunError};
use executor_runtime::settings::{LearningRate, OptimizerSettings, Settings};
use ir::layout::LayoutSpec;
use ir::model::GraphOptions;
use ir::plan::Optimizer;
use ir::schedule::{ActionKind, ScheduleKind, generate};

use super::reference::settings_of;

/// Widths of each layer's input, and of the last output.
const WIDTHS: [usize; 5] = [6, 5, 4, 5, 3];
const NUM_LAYERS: usize = WIDTHS.len() - 1;
const RATE: f64 = 0.05;
const NUM_STEPS: u64 = 3;
const SAMPLES: SyntheticSamples = SyntheticSamples { seed: 11 };

/// Linear layers without biases, a rectifier between each two.
fn model() -> String {
    let mut nodes = vec![format!(
        r#"{{"name": "x", "kind": "input", "dims": ["batch", "features"], "shape": ["b", {}]}}"#,
        WIDTHS[0]
    )];
    let mut edges = Vec::new();
    let (mut last, mut width) = ("x".to_owned(), WIDTHS[0]);
    let mut add = |name: String, node: String, out: usize| {
        edges.push(format!(r#"{{"from": "{last}", "to": "{name}", "shape": ["b", {width}]}}"#));
        nodes.push(node);
        (last, width) = (name, out);
    };
    for layer in 0..NUM_LAYERS {
        let (name, out) = (format!("linear{layer}"), WIDTHS[layer + 1]);
        let node = format!(
            r#"{{"name": "{name}", "kind": "linear", "out_features": {out}, "bias": false}}"#
        );
        add(name, node, out);
        if layer + 1 < NUM_LAYERS {
            let name = format!("relu{layer}");
            add(name.clone(), format!(r#"{{"name": "{name}", "kind": "relu"}}"#), out);
        }
    }
    add("loss".to_owned(), r#"{"name": "loss", "kind": "mean_squared_error"}"#.to_owned(), 0);
    format!(
        r#"{{"format": "planner-graph", "version": 1, "name": "chain", "nodes": [{}], "edges": [{}]}}"#,
        nodes.join(", "),
        edges.join(", ")
    )
}

/// A layer's weight `[in, out]` at first, row after row.
fn initial(layer: usize) -> Vec<f64> {
    let len = WIDTHS[layer] * WIDTHS[layer + 1];
    (0..len).map(|place| 0.6 * ((place * 7 + layer * 3) as f64).sin()).collect()
}

/// The layer of a parameter.
fn layer(parameter: &str) -> usize {
    let name = parameter.split('.').find_map(|part| part.strip_prefix("linear"));
    name.expect("only linear layers have parameters").parse().unwrap()
}

/// Where the layers are: for each, its stage.
type Stages = [u32; NUM_LAYERS];

/// Result of training: the loss of each step, and each layer's weight.
struct Outcome {
    losses: Vec<f64>,
    weights: Vec<Vec<f64>>,
}

struct Case {
    num_stages: u32,
    num_micro_batches: u32,
    micro_batch_size: u32,
    optimizer: OptimizerSettings,
}

/// What the executor makes of it, and where it put the layers.
fn executed(case: &Case) -> (Outcome, Stages) {
    let Case { num_stages, num_micro_batches, micro_batch_size, optimizer } = *case;
    let layout = LayoutSpec {
        pipeline_parallel: num_stages,
        micro_batch_size,
        num_micro_batches,
        schedule: ScheduleKind::AsyncOneFOneB,
        ..LayoutSpec::ONE_RANK
    };
    let settings = Settings {
        optimizer,
        schedule: LearningRate::constant(RATE),
        bucket_bytes: 1,
        ..settings_of(Element::F64)
    };
    let sizes = [u64::from(num_micro_batches * micro_batch_size), 1];
    let options = GraphOptions::default();
    let parts = Parts::even(model(), "chain", options, layout, sizes, settings).unwrap();
    let program = Arc::new(Program::new(parts).unwrap());
    let run = |communicator: Arc<dyn Communicator<Flex>>| {
        let values = |parameter: &LocalParameter| {
            Ok::<_, RunError>(initial(layer(&parameter.id.to_string())))
        };
        let source = Arc::new(Source::Synthetic(SAMPLES));
        let mut rank = Rank::new(Arc::clone(&program), source, communicator, FlexDevice, values)?;
        let losses = (0..NUM_STEPS).map(|_| Ok(rank.step()?.loss));
        let losses = losses.collect::<Result<Vec<_>, RunError>>()?;
        Ok::<_, RunError>((losses, rank.pieces()))
    };
    let outcomes = local::run(num_stages, &[FlexDevice], run);
    let outcomes = outcomes.unwrap_or_else(|failure| panic!("{failure}"));
    let mut weights = vec![Vec::new(); NUM_LAYERS];
    let mut places = [0; NUM_LAYERS];
    for (stage, (_, pieces)) in (0..).zip(&outcomes) {
        for (piece, values) in pieces.iter().filter(|(piece, _)| piece.kind == PieceKind::Weight) {
            let layer = layer(&piece.parameter.to_string());
            (weights[layer], places[layer]) = (values.clone(), stage);
        }
    }
    (Outcome { losses: outcomes[0].0.clone(), weights }, places)
}

/// The same in plain mathematics.
fn expected(case: &Case, stages: &Stages) -> Outcome {
    let versions = versions(case);
    let mut history: Vec<Vec<Vec<f64>>> = vec![(0..NUM_LAYERS).map(initial).collect()];
    let mut moments: Vec<[Vec<f64>; 2]> =
        (0..NUM_LAYERS).map(|layer| [(); 2].map(|()| vec![0.0; initial(layer).len()])).collect();
    let (mut losses, mut num_updates) = (Vec::new(), 0);
    let size = case.micro_batch_size as usize;
    for step in 0..NUM_STEPS as usize {
        let mut loss = 0.0;
        for (micro_batch, versions) in versions.iter().enumerate() {
            // Updates go on over the steps; within one they are counted from its beginning.
            let begin = step * case.num_micro_batches as usize;
            let version = |layer: usize| versions[stages[layer] as usize] + begin;
            let weights: Vec<Vec<f64>> =
                (0..NUM_LAYERS).map(|layer| history[version(layer)][layer].clone()).collect();
            let first = (begin + micro_batch) * size;
            let (own, gradients) = loss_and_gradients(&weights, first..first + size);
            loss += own;
            num_updates += 1;
            let mut next = history.last().unwrap().clone();
            for ((weight, gradient), moments) in next.iter_mut().zip(gradients).zip(&mut moments) {
                update(&case.optimizer, num_updates, weight, moments, &gradient);
            }
            history.push(next);
        }
        losses.push(loss / f64::from(case.num_micro_batches));
    }
    Outcome { losses, weights: history.pop().unwrap() }
}

/// For each micro-batch and stage, how often the stage has been updated when it takes the micro-batch.
fn versions(case: &Case) -> Vec<Vec<usize>> {
    let kind = ScheduleKind::AsyncOneFOneB;
    let schedule = generate(kind, case.num_stages, case.num_micro_batches, 1).unwrap();
    let mut versions = vec![vec![0; case.num_stages as usize]; case.num_micro_batches as usize];
    for (stage, steps) in schedule.ranks().iter().enumerate() {
        let mut num_updates = 0;
        for action in steps.iter().flat_map(|step| step.actions()) {
            match action.kind {
                ActionKind::Forward => versions[action.micro_batch as usize][stage] = num_updates,
                ActionKind::Backward => num_updates += 1,
                _ => {}
            }
        }
    }
    versions
}

/// The mean squared error over some samples, and its gradients.
fn loss_and_gradients(
    weights: &[Vec<f64>],
    samples: std::ops::Range<usize>,
) -> (f64, Vec<Vec<f64>>) {
    let mut gradients: Vec<Vec<f64>> = weights.iter().map(|it| vec![0.0; it.len()]).collect();
    let (mut loss, out) = (0.0, WIDTHS[NUM_LAYERS]);
    let count = (samples.len() * out) as f64;
    for sample in samples {
        // What each layer takes.
        let mut taken = vec![SAMPLES.input(sample as u64, WIDTHS[0])];
        for (layer, weight) in weights.iter().enumerate() {
            let columns = WIDTHS[layer + 1];
            let product = |column: usize| -> f64 {
                let row = taken[layer].iter().enumerate();
                row.map(|(place, value)| value * weight[place * columns + column]).sum()
            };
            let given: Vec<f64> = (0..columns).map(product).collect();
            let is_last = layer + 1 == NUM_LAYERS;
            taken.push(given.into_iter().map(|v| if is_last { v } else { v.max(0.0) }).collect());
        }
        let target = SAMPLES.target(sample as u64, out);
        let errors: Vec<f64> = taken[NUM_LAYERS].iter().zip(target).map(|(a, b)| a - b).collect();
        loss += errors.iter().map(|error| error * error).sum::<f64>() / count;
        let mut backward: Vec<f64> = errors.iter().map(|error| 2.0 * error / count).collect();
        for layer in (0..NUM_LAYERS).rev() {
            let columns = WIDTHS[layer + 1];
            for (row, value) in taken[layer].iter().enumerate() {
                for (column, gradient) in backward.iter().enumerate() {
                    gradients[layer][row * columns + column] += value * gradient;
                }
            }
            let before = |row: usize| -> f64 {
                // The rectifier lets through what was above zero; the samples have none.
                if layer > 0 && taken[layer][row] <= 0.0 {
                    return 0.0;
                }
                let weight = &weights[layer][row * columns..(row + 1) * columns];
                weight.iter().zip(&backward).map(|(weight, gradient)| weight * gradient).sum()
            };
            backward = (0..WIDTHS[layer]).map(before).collect();
        }
    }
    (loss, gradients)
}

/// An update as its papers have it.
fn update(
    settings: &OptimizerSettings,
    count: i32,
    weights: &mut [f64],
    [first, second]: &mut [Vec<f64>; 2],
    gradient: &[f64],
) {
    let OptimizerSettings { kind, beta1, beta2, epsilon, weight_decay } = *settings;
    for (place, g) in gradient.iter().enumerate() {
        let weight = &mut weights[place];
        *weight -= RATE * weight_decay * *weight;
        let change = match kind {
            Optimizer::Sgd => *g,
            Optimizer::Momentum => {
                first[place] = beta1 * first[place] + g;
                first[place]
            }
            Optimizer::AdamW => {
                first[place] = beta1 * first[place] + (1.0 - beta1) * g;
                second[place] = beta2 * second[place] + (1.0 - beta2) * g * g;
                let mean = first[place] / (1.0 - beta1.powi(count));
                mean / ((second[place] / (1.0 - beta2.powi(count))).sqrt() + epsilon)
            }
            other => unreachable!("{other} is not run"),
        };
        *weight -= RATE * change;
    }
}

#[test]
fn stages_compute_with_the_weights_that_they_stashed() {
    for kind in [Optimizer::Sgd, Optimizer::Momentum, Optimizer::AdamW] {
        for (num_stages, num_micro_batches, micro_batch_size) in
            [(1, 4, 2), (2, 4, 1), (2, 6, 2), (3, 5, 1), (4, 8, 1), (4, 3, 2)]
        {
            let optimizer = OptimizerSettings::usual(kind);
            let case = Case { num_stages, num_micro_batches, micro_batch_size, optimizer };
            let (found, stages) = executed(&case);
            let expected = expected(&case, &stages);
            let differences = found.losses.iter().zip(&expected.losses);
            let weights = found.weights.iter().flatten().zip(expected.weights.iter().flatten());
            let most = differences.chain(weights).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(
                most < 1e-12,
                "{kind:?}, {num_stages} stages, {num_micro_batches} micro-batches of {micro_batch_size}: \
                 {most:e}; losses {:?}, not {:?}",
                found.losses,
                expected.losses
            );
            let last = versions(&case).pop().unwrap();
            assert!(num_stages == 1 || last[0] < last[num_stages as usize - 1], "ages differ");
        }
    }
}
