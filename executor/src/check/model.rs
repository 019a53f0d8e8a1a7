//! Speed of training a model on one device, and its share of the device's peak.

use crate::alone;
use executor_kernels::array::{Array, Element};
use executor_kernels::clock::{Deadline, now};
use executor_kernels::ops::Kernels;
use executor_runtime::parameters::LocalParameter;
use executor_runtime::program::{Program, ProgramError};
use executor_runtime::rank::RunError;
use executor_runtime::settings::compute_element;
use ir::cluster::Precision;
use ir::units::{Bytes, Seconds};
use traces::statistics::{MEDIAN, quantile};

use super::finding::{CheckFinding, caught, first_line};
use super::products::REPEATS;
use super::speeds::least;

/// A Llama, and the length of the sequence that it is trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedModel {
    /// Name of the model.
    pub name: &'static str,
    /// Number of layers.
    pub layers: u64,
    /// Number of features.
    pub hidden_size: u64,
    /// Number of query heads; there are a quarter as many key-value heads, at least one.
    pub heads: u64,
    /// Number of features within a feed-forward.
    pub intermediate_size: u64,
    /// Size of the vocabulary.
    pub vocab_size: u64,
    /// Tokens of a sequence; a step has one sequence.
    pub sequence_length: u64,
}

/// The models, largest first. The first is Llama 3.2 1B.
pub const MODELS: [CheckedModel; 6] = [
    sized("llama-1b", [16, 2048, 32, 8192], 128_256, 4096),
    sized("llama-300m", [16, 1024, 16, 4096], 32_000, 2048),
    sized("llama-50m", [8, 512, 8, 2048], 32_000, 1024),
    sized("llama-10m", [6, 256, 8, 1024], 8192, 512),
    sized("llama-1m", [4, 128, 4, 512], 2048, 256),
    sized("llama-tiny", [2, 64, 4, 256], 512, 128),
];

const fn sized(
    name: &'static str,
    [layers, hidden_size, heads, intermediate_size]: [u64; 4],
    vocab_size: u64,
    sequence_length: u64,
) -> CheckedModel {
    CheckedModel {
        name,
        layers,
        hidden_size,
        heads,
        intermediate_size,
        vocab_size,
        sequence_length,
    }
}

/// Timed steps, after one that is not timed.
const STEPS: usize = 5;

/// Limit of a step's time, in seconds; longer steps tell no more about a device.
const LONGEST_STEP: f64 = 4.0;

/// Assumed rate of a step before it has run, as a share of the rate of a large product.
const ASSUMED_SHARE: f64 = 0.15;

/// Rows and columns of the products from which a step's time is estimated. The second is used where it takes less than
/// [`LONG_PRODUCT`] at the rate of the first: on a fast device, the launch of the first takes longer than its
/// operations.
const LARGE_PRODUCTS: [usize; 2] = [512, 4096];

/// Limit of a product's expected time, in seconds.
const LONG_PRODUCT: f64 = 0.1;

/// Largest difference between the first loss and the logarithm of the vocabulary size.
const FIRST_LOSS_OFF: f64 = 1.0;

impl CheckedModel {
    /// The description as a Hugging Face configuration.
    pub fn description(&self) -> String {
        let Self { layers, hidden_size, heads, intermediate_size, vocab_size, .. } = self;
        let (kv_heads, positions) = ((heads / 4).max(1), self.sequence_length);
        format!(
            r#"{{"model_type": "llama", "num_hidden_layers": {layers}, "hidden_size": {hidden_size},
"num_attention_heads": {heads}, "num_key_value_heads": {kv_heads}, "intermediate_size": {intermediate_size},
"vocab_size": {vocab_size}, "max_position_embeddings": {positions}, "tie_word_embeddings": true}}"#
        )
    }

    /// Minimum memory of training: states of 16 bytes per parameter, saved activations of each token (34 bytes per
    /// feature and layer in 16 bits, twice that in 32), and logits twice in fp32.
    ///
    /// # Source
    ///
    /// Korthikanti et al. 2022, *Reducing Activation Recomputation*, section 4.1, <https://arxiv.org/abs/2205.05198>,
    /// without the matrix of scores.
    fn memory(&self, parameters: u64, compute: Element) -> Bytes {
        let width = if compute == Element::F32 { 2 } else { 1 };
        let kept = self.sequence_length * self.hidden_size * self.layers * 34 * width;
        Bytes::new(parameters * 16 + kept + self.sequence_length * self.vocab_size * 8)
    }

    fn program(&self, compute: Element) -> Result<Program, ProgramError> {
        alone::program(self.description(), self.name, [1, self.sequence_length], compute, 1e-5)
    }
}

/// Trains the largest of [`MODELS`] that fits `memory` and the time left, in bf16 or fp32. `peak` is the device's peak
/// rate in that precision, in operations per second, with its source: the data sheet, or products.
pub fn model<B: Kernels>(
    device: &B::Device,
    precision: Precision,
    memory: Option<Bytes>,
    peak: Option<(f64, &str)>,
    deadline: Deadline,
    found: &mut dyn FnMut(CheckFinding),
) {
    let compute = compute_element(precision);
    let rate = rate_of_products::<B>(compute, device);
    // Half of the time left is for all steps, the other half for preparation.
    let longest = (deadline.left().as_secs_f64() / (2 * (1 + STEPS)) as f64).min(LONGEST_STEP);
    for (place, model) in MODELS.iter().enumerate() {
        let is_last = place + 1 == MODELS.len();
        let program = match model.program(compute) {
            Ok(program) => program,
            Err(error) => {
                let hint = "this is a bug: report it";
                return found(CheckFinding::fail(model.name, first_line(&error.to_string()), hint));
            }
        };
        let estimate = program.operations_per_step().get() / (ASSUMED_SHARE * rate);
        let needed = model.memory(program.num_trained_parameters(), compute);
        let fits = memory.is_none_or(|there| needed <= there);
        if (estimate > longest || !fits) && !is_last {
            continue;
        }
        let name = format!("{}, {precision}, {} tokens", model.name, model.sequence_length);
        if deadline.is_over() {
            return found(CheckFinding::out_of_time(name));
        }
        let operations = program.operations_per_step().get();
        let outcome = caught(|| steps::<B>(program, device, deadline));
        return found(match outcome {
            Ok(Ok(outcome)) => step_finding(model, name, &outcome, operations, peak),
            Ok(Err(error)) => failed(name, &error.to_string()),
            Err(said) => failed(name, &said),
        });
    }
}

/// The rate of large matrix products, in operations per second.
fn rate_of_products<B: Kernels>(compute: Element, device: &B::Device) -> f64 {
    let rate = |size: usize| {
        let one = Array::<B>::ones(&[size, size], compute, device);
        operations(size) / least::<B, _>(device, REPEATS, || one.clone().matmul(one.clone()))
    };
    let [small, large] = LARGE_PRODUCTS;
    let estimate = rate(small);
    if operations(large) < LONG_PRODUCT * estimate { rate(large) } else { estimate }
}

/// The operations of a product of square matrices of this size.
fn operations(size: usize) -> f64 {
    2.0 * (size as f64).powi(3)
}

fn failed(name: String, said: &str) -> CheckFinding {
    let hint = "where it lacks memory, something else uses the device: `nvidia-smi`";
    CheckFinding::fail(name, first_line(said), hint)
}

/// Result of training: the times of timed steps, in seconds, all losses, and the peak memory of tensors.
struct Trained {
    times: Vec<f64>,
    losses: Vec<f64>,
    peak_memory: Bytes,
}

fn steps<B: Kernels>(
    program: Program,
    device: &B::Device,
    deadline: Deadline,
) -> Result<Trained, RunError> {
    let mut rank = alone::rank::<B>(program, device, quick_values)?;
    let (mut times, mut losses) = (Vec::new(), Vec::new());
    for step in 0..=STEPS {
        let start = now();
        losses.push(rank.step()?.loss);
        rank.settle()?;
        if step > 0 {
            times.push(start.elapsed().as_secs_f64());
            if deadline.is_over() {
                break;
            }
        }
    }
    Ok(Trained { times, losses, peak_memory: rank.peak_memory() })
}

/// Approximate number of elements that are drawn for a large parameter.
const DRAWN: usize = 1 << 16;

/// Initial values of a parameter. For a large one a few rows are drawn and repeated: a billion draws take long where
/// a host has few cores.
fn quick_values(parameter: &LocalParameter) -> Vec<f64> {
    let count = parameter.num_elements();
    let Some(first) = parameter.part.first().filter(|_| count > DRAWN) else {
        return parameter.initial_values(0);
    };
    let rows = (DRAWN / (count / first.len()).max(1)).clamp(1, first.len());
    let mut drawn = parameter.clone();
    drawn.part[0] = first.start..first.start + rows;
    drawn.initial_values(0).into_iter().cycle().take(count).collect()
}

fn step_finding(
    model: &CheckedModel,
    name: String,
    outcome: &Trained,
    operations: f64,
    peak: Option<(f64, &str)>,
) -> CheckFinding {
    let Trained { times, losses, peak_memory } = outcome;
    let time = quantile(times, MEDIAN);
    let tokens = model.sequence_length as f64 / time;
    let rate = operations / time;
    let share = peak.map(|(peak, _)| rate / peak);
    let of_peak = peak.map_or_else(String::new, |(peak, what)| {
        format!(", {:.1} % of {what}", rate / peak * 100.0)
    });
    let first = losses.first().copied().unwrap_or(f64::NAN);
    let said = format!(
        "{tokens:.0} tokens/s, {} a step{of_peak}, tensors of {peak_memory}, first loss {first:.3}",
        Seconds::new(time)
    );
    let expected = (model.vocab_size as f64).ln();
    let is_right =
        (first - expected).abs() < FIRST_LOSS_OFF && losses.iter().all(|it| it.is_finite());
    let wrong = format!(", but random weights give about {expected:.3}");
    let said = if is_right { said } else { said + &wrong };
    let finding = CheckFinding::judged(name, said, is_right, "see which kernels are wrong above")
        .with("tokens_per_second", tokens)
        .with("step_time_seconds", time)
        .with("flops_per_second", rate)
        .with("peak_memory_bytes", peak_memory.as_f64())
        .with("first_loss", first);
    share.into_iter().fold(finding, |finding, share| finding.with("mfu", share))
}
