//! From what a user asks to a plan: defaults, plans, and the least number of GPUs.

use cost_models::states::StateBytes;
use ir::cluster::{Cluster, Gpu, Precision};
use ir::framework::Framework;
use ir::graph::Graph;
use ir::model::{GraphOptions, Model};
use ir::plan::{
    Optimizer, PLAN_VERSION, Plan, PlannedModel, PlannedStage, Prediction, Provenance, RunnerUp,
    Training,
};
use sha2::{Digest, Sha256};

use crate::problem::{MOST_GPUS, Problem, ProblemError};
use crate::search::{
    Found, Go, Request, StopReason, model_flops_utilization, search, tokens_per_second_per_gpu,
};
use crate::step::PipelineRanks;

/// What a user may leave open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// Tokens in a sequence.
    pub sequence_length: Option<u64>,
    /// Sequences in a step.
    pub global_batch_size: Option<u64>,
    /// Precision of linear layers.
    pub precision: Option<Precision>,
    /// What updates the parameters.
    pub optimizer: Option<Optimizer>,
    /// Whether gradients are accumulated in fp32.
    pub fp32_gradients: bool,
    /// Whether moments are kept in bf16.
    pub bf16_moments: bool,
    /// What runs the step.
    pub framework: Option<Framework>,
}

/// The longest sequence that is chosen where none is given; pretraining seldom uses longer ones.
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
    /// What is chosen, with what was left open filled in. A model without a sequence has one token,
    /// the sample.
    pub fn resolve(&self, model: &Model, has_sequence: bool, gpu: &Gpu, num_gpus: u32) -> Training {
        let sequence_length =
            self.sequence_length.unwrap_or_else(|| default_sequence_length(model, has_sequence));
        Training {
            sequence_length,
            global_batch_size: self
                .global_batch_size
                .unwrap_or_else(|| default_batch(sequence_length, has_sequence, num_gpus)),
            precision: self.precision.unwrap_or_else(|| usual_precision(gpu)),
            optimizer: self.optimizer.unwrap_or_default(),
            fp32_gradients: self.fp32_gradients,
            bf16_moments: self.bf16_moments,
            framework: self.framework.unwrap_or_default(),
        }
    }
}

/// What the model was made for, but seldom used whole in pretraining: at most 8192.
pub fn default_sequence_length(model: &Model, has_sequence: bool) -> u64 {
    let longest = model.max_position_embeddings().unwrap_or(DEFAULT_SEQUENCE_LENGTH);
    if has_sequence { longest.min(DEFAULT_SEQUENCE_LENGTH) } else { 1 }
}

/// The precision that people train in on a GPU: bf16, or the best that older ones have.
fn usual_precision(gpu: &Gpu) -> Precision {
    let usual = [Precision::Bf16, Precision::Fp16, Precision::Fp32];
    usual.into_iter().find(|p| gpu.peak.contains_key(p)).unwrap_or(Precision::Bf16)
}

/// Sequences of a step where none are given: as many tokens as is usual for so many GPUs, and a
/// multiple of the odd part of their number, so that data-parallel degrees can divide it.
fn default_batch(sequence_length: u64, has_sequence: bool, num_gpus: u32) -> u64 {
    let gpus = u64::from(num_gpus.max(1));
    if !has_sequence {
        return SAMPLES_PER_GPU * gpus;
    }
    let tokens = (TOKENS_PER_GPU * gpus)
        .clamp(512 << 10, USUAL_TOKENS_PER_STEP)
        .max(LEAST_TOKENS_PER_GPU * gpus);
    let sequences = (tokens / sequence_length.max(1)).max(1);
    let odd = gpus >> gpus.trailing_zeros();
    if odd <= sequences { sequences.next_multiple_of(odd) } else { sequences }
}

/// A plan with all that it depends on.
pub fn plan(
    problem: &Problem,
    cluster: &Cluster,
    model: PlannedModel,
    best: &Found,
    runners_up: &[Found],
    provenance: Provenance,
) -> Plan {
    let ranks = PipelineRanks::of(&best.layout);
    let starts = std::iter::once(0).chain(best.stage_ends.iter().copied());
    let stages = starts.zip(&best.stage_ends).zip(0..).map(|((start, end), stage)| PlannedStage {
        stage,
        pipeline_rank: ranks.first_with(stage as usize) as u32,
        first_block: start as u32,
        num_blocks: (end - start) as u32,
    });
    Plan {
        version: PLAN_VERSION,
        model,
        training: problem.training,
        cluster: cluster.clone(),
        num_gpus: problem.limits.num_gpus,
        layout: *best.layout,
        stages: stages.collect(),
        prediction: prediction(problem, best),
        runners_up: runners_up
            .iter()
            .map(|found| RunnerUp {
                layout: *found.layout,
                step_time_seconds: found.evaluation.step_time.get(),
                peak_memory_bytes: found.evaluation.memory.total(),
                breakdown: found.evaluation.breakdown,
            })
            .collect(),
        provenance,
    }
}

/// What is expected of a layout.
pub fn prediction(problem: &Problem, found: &Found) -> Prediction {
    let step_time = found.evaluation.step_time;
    Prediction {
        step_time_seconds: step_time.get(),
        tokens_per_second_per_gpu: tokens_per_second_per_gpu(problem, step_time),
        mfu: model_flops_utilization(problem, step_time),
        peak_memory_bytes: found.evaluation.memory.total(),
        breakdown: found.evaluation.breakdown,
        memory: found.evaluation.memory,
    }
}

/// SHA-256 of a text, in hexadecimal.
pub fn sha256(text: &str) -> String {
    format!("{:x}", Sha256::digest(text.as_bytes()))
}

/// The graph of a model in training.
///
/// # Errors
///
/// As [`Model::graph`].
pub fn training_graph(
    model: &Model,
    multi_token_prediction: bool,
) -> Result<Graph, ir::graph::GraphError> {
    model.graph(GraphOptions { multi_token_prediction, ..GraphOptions::default() })
}

/// Numbers of GPUs that are tried beyond those that are too few, before giving up.
const MOST_PROBES: usize = 64;

/// The least number of GPUs on which some layout fits, of those that fill nodes (or a power of two
/// within one). `None` if none of them is found to do for as long as `go` says to go on.
///
/// # Errors
///
/// [`ProblemError`] where the problem itself cannot be posed.
pub fn least_gpus(
    model: &Model,
    graph: &Graph,
    choices: &Choices,
    cluster: &Cluster,
    request: &Request,
    go: &mut (dyn FnMut() -> Go + Send),
) -> Result<Option<u32>, ProblemError> {
    let has_sequence = graph.has_sequence();
    let bytes = StateBytes::new(&choices.resolve(model, has_sequence, &cluster.gpu, 1));
    let all = bytes.parameter + bytes.gradient + bytes.optimizer;
    let states = graph.parameter_counts().total.saturating_mul(all);
    let fewest = states.div_ceil(cluster.gpu.memory.get().max(1));
    let node = cluster.gpus_per_node;
    let within = (0..32).map(|power| 1u32 << power).take_while(|gpus| *gpus < node);
    let nodes = (1..=MOST_GPUS / node.max(1)).map(|nodes| nodes * node);
    let enough = within.chain(nodes).filter(|gpus| u64::from(*gpus) >= fewest);
    for num_gpus in enough.take(MOST_PROBES) {
        let training = choices.resolve(model, has_sequence, &cluster.gpu, num_gpus);
        let problem = Problem::new(graph.clone(), training, cluster, num_gpus)?;
        let request = Request { top: 1, closest: false, ..*request };
        let outcome = search(&problem, &request, &mut |progress| match progress.best {
            Some(_) => Go::Stop(StopReason::FirstFit),
            None => go(),
        });
        if !outcome.plans.is_empty() {
            return Ok(Some(num_gpus));
        }
        if outcome.stop_reason != StopReason::Exhausted {
            break;
        }
    }
    Ok(None)
}
