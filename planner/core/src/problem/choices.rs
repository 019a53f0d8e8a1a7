//! Settings that a user may leave open, and their defaults.

use ir::cluster::{Cluster, Precision};
use ir::framework::Framework;
use ir::model::Model;
use ir::plan::{Optimizer, Training};
use ir::replication::{DataParallelMethod, GradientCompression};

/// Settings that a user may leave open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// Tokens in a sequence.
    pub sequence_length: Option<u64>,
    /// Sequences in a step.
    pub global_batch_size: Option<u64>,
    /// Precision of linear layers.
    pub precision: Option<Precision>,
    /// The optimizer.
    pub optimizer: Option<Optimizer>,
    /// True if gradients are accumulated in fp32.
    pub fp32_gradients: bool,
    /// True if moments are stored in bf16.
    pub bf16_moments: bool,
    /// True if 16-bit weights are updated without a copy in fp32.
    pub no_master_weights: bool,
    /// The method by which replicas bring their weights together.
    pub data_parallel_method: DataParallelMethod,
    /// The compression of gradients that replicas send.
    pub gradient_compression: Option<GradientCompression>,
}

/// The longest sequence that is chosen by default, in tokens; pretraining seldom uses longer ones.
const DEFAULT_SEQUENCE_LENGTH: u64 = 8192;

/// Tokens of a step for each GPU, where no batch is given: many micro-batches on a few GPUs, up to
/// [`USUAL_TOKENS_PER_STEP`].
const TOKENS_PER_GPU: u64 = 64 << 10;

/// Tokens of a step that published recipes use on hundreds of GPUs (Llama 2 and 3: 4 M).
const USUAL_TOKENS_PER_STEP: u64 = 4 << 20;

/// Tokens of a step for each GPU on thousands (Llama 3.1 405B: 16 M on 16,384).
const LEAST_TOKENS_PER_GPU: u64 = 1 << 10;

/// Samples of a step for each GPU, of models without a sequence (ResNet-50 on ImageNet: 32 to 256,
/// Goyal et al. 2017, arXiv 1706.02677).
const SAMPLES_PER_GPU: u64 = 32;

impl Choices {
    /// The training, with defaults for what was left open. A model without a sequence has one token, the sample.
    pub fn resolve(
        &self,
        model: &Model,
        has_sequence: bool,
        cluster: &Cluster,
        num_gpus: u32,
    ) -> Training {
        let sequence_length =
            self.sequence_length.unwrap_or_else(|| default_sequence_length(model, has_sequence));
        Training {
            sequence_length,
            global_batch_size: self
                .global_batch_size
                .unwrap_or_else(|| default_batch(sequence_length, has_sequence, num_gpus)),
            precision: self.precision.unwrap_or_else(|| usual_precision(cluster)),
            optimizer: self.optimizer.unwrap_or_default(),
            fp32_gradients: self.fp32_gradients,
            bf16_moments: self.bf16_moments,
            no_master_weights: self.no_master_weights,
            data_parallel_method: self.data_parallel_method,
            gradient_compression: self.gradient_compression,
        }
    }
}

/// The default sequence length: the longest that the model was made for, but at most 8192.
pub fn default_sequence_length(model: &Model, has_sequence: bool) -> u64 {
    let longest = model.max_position_embeddings().unwrap_or(DEFAULT_SEQUENCE_LENGTH);
    if has_sequence { longest.min(DEFAULT_SEQUENCE_LENGTH) } else { 1 }
}

/// The default precision on a cluster: bf16, or the best that all its GPUs have.
fn usual_precision(cluster: &Cluster) -> Precision {
    usual(|precision| all_have(cluster, precision)).unwrap_or(Precision::Bf16)
}

/// The default precision with a framework; `None` if GPUs and framework have none in common.
pub fn usual_precision_with(cluster: &Cluster, framework: &Framework) -> Option<Precision> {
    let able = &framework.abilities.precisions;
    usual(|precision| all_have(cluster, precision) && able.contains(&precision))
}

fn all_have(cluster: &Cluster, precision: Precision) -> bool {
    cluster.gpus().all(|gpu| gpu.peak.contains_key(&precision))
}

fn usual(has: impl Fn(Precision) -> bool) -> Option<Precision> {
    [Precision::Bf16, Precision::Fp16, Precision::Fp32].into_iter().find(|it| has(*it))
}

/// Default number of sequences in a step: about as many tokens as is usual on that number of GPUs. The number is a
/// power of two times the odd part of the number of GPUs, so that data-parallel degrees divide it. It is at least that
/// odd part, as a large prime factor may divide no other degree. For a model without a sequence it is a fixed number of
/// samples for each GPU.
fn default_batch(sequence_length: u64, has_sequence: bool, num_gpus: u32) -> u64 {
    let gpus = u64::from(num_gpus.max(1));
    if !has_sequence {
        return SAMPLES_PER_GPU * gpus;
    }
    let tokens = (TOKENS_PER_GPU * gpus)
        .clamp(512 << 10, USUAL_TOKENS_PER_STEP)
        .max(LEAST_TOKENS_PER_GPU * gpus);
    let sequences = tokens as f64 / sequence_length.max(1) as f64;
    let odd = gpus >> gpus.trailing_zeros();
    let times = sequences / odd as f64;
    odd << times.log2().round().max(0.0) as u32
}
