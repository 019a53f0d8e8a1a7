//! Small models, and layouts in a short form.

use executor_kernels::array::Element;
use ir::graph::{Adapters, ContextParallelKind, Recompute, Switches, WeightFormat};
use ir::layout::{LayoutSpec, MicroBatchesByGroup, Offload, ZeroStage};
use ir::model::GraphOptions;
use ir::plan::Optimizer;
use ir::replication::{DataParallelMethod, Replication};
use ir::schedule::ScheduleKind;

use crate::batches::Source;
use crate::data::{DataError, Samples, Sampling, SyntheticSamples, Tokens};
use crate::program::{Parts, Program, ProgramError};
use crate::settings::{LearningRate, Settings};

/// Tokens in a sequence.
pub const SEQUENCE_LENGTH: u64 = 16;

/// Sequences in a step.
pub const GLOBAL_BATCH_SIZE: u64 = 8;

/// Steps whose losses are compared.
pub const NUM_STEPS: usize = 8;

/// Llama's architecture: root mean square norms, rotary positions, grouped queries, gated feed-forward.
pub const LLAMA: &str = r#"{"architecture": "llama", "num_hidden_layers": 6, "hidden_size": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 256,
    "max_position_embeddings": 64}"#;

/// GPT-2's architecture: layer norms, learned positions, biases, a head tied to the token embedding.
pub const GPT: &str = r#"{"architecture": "gpt", "num_hidden_layers": 6, "hidden_size": 32,
    "num_attention_heads": 4, "vocab_size": 259, "max_position_embeddings": 64}"#;

/// Mixtral's architecture: four experts, two for each token.
pub const MIXTRAL: &str = r#"{"model_type": "mixtral", "num_hidden_layers": 6, "hidden_size": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 256,
    "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 64}"#;

/// Adapters in a short form: their rank, the layers that have one, and the format of frozen weights.
pub type AdapterCase = (u64, &'static str, WeightFormat);

/// A layout in a short form; a degree that is left out is 1, an option that is left out is off.
#[derive(Clone, Copy, Debug)]
pub struct LayoutCase {
    /// Tensor-parallel ranks.
    pub tensor: u32,
    /// True where tensor-parallel ranks shard sequences between operators (sequence parallelism).
    pub sequence: bool,
    /// Context-parallel ranks.
    pub context: u32,
    /// The kind of context parallelism.
    pub context_kind: ContextParallelKind,
    /// Expert-parallel ranks.
    pub expert: u32,
    /// Expert-tensor-parallel ranks; if 0, the number of tensor-parallel ranks.
    pub expert_tensor: u32,
    /// Pipeline ranks.
    pub pipeline: u32,
    /// Replicas.
    pub data: u32,
    /// Sequences of a micro-batch.
    pub micro_batch_size: u32,
    /// For each group of GPUs, the number of replicas and of their micro-batches; if there are no groups, all replicas
    /// have the same number of micro-batches.
    pub groups: &'static [[u32; 2]],
    /// The states that replicas shard.
    pub zero: ZeroStage,
    /// Ranks that shard states; all replicas if 0.
    pub shard: u32,
    /// Activations that backward recomputes.
    pub recompute: Recompute,
    /// Tensors that are offloaded to the host.
    pub offload: Offload,
    /// The pipeline schedule.
    pub schedule: ScheduleKind,
    /// Virtual stages of a pipeline rank.
    pub virtual_stages: u32,
    /// Bytes of gradients at which a bucket is reduced.
    pub bucket_bytes: u64,
    /// Adapters, if there are any.
    pub adapters: Option<AdapterCase>,
    /// True where the model's dropout is applied.
    pub dropout: bool,
    /// The way in which replicas synchronize their weights.
    pub replication: Replication,
}

/// One rank.
pub const ONE: LayoutCase = LayoutCase {
    tensor: 1,
    sequence: false,
    context: 1,
    context_kind: ContextParallelKind::Ring,
    expert: 1,
    expert_tensor: 0,
    pipeline: 1,
    data: 1,
    micro_batch_size: 1,
    groups: &[],
    zero: ZeroStage::None,
    shard: 0,
    recompute: Recompute::None,
    offload: Offload::NONE,
    schedule: ScheduleKind::OneFOneB,
    virtual_stages: 1,
    bucket_bytes: 4 << 10,
    adapters: None,
    dropout: false,
    replication: Replication { method: DataParallelMethod::AllReduce, compression: None },
};

impl LayoutCase {
    /// Number of ranks of the layout.
    pub const fn num_ranks(&self) -> u32 {
        self.tensor * self.context * self.pipeline * self.data
    }

    /// The layout of a step of [`GLOBAL_BATCH_SIZE`] sequences.
    fn layout(&self) -> LayoutSpec {
        let replicas = self.context * self.data;
        let numbers: Vec<u32> = self.groups.iter().map(|[_, number]| *number).collect();
        let equal = GLOBAL_BATCH_SIZE as u32 / (self.data * self.micro_batch_size);
        LayoutSpec {
            tensor_parallel: self.tensor,
            sequence_parallel: self.sequence,
            context_parallel: self.context,
            context_parallel_kind: self.context_kind,
            expert_parallel: self.expert,
            expert_tensor_parallel: match self.expert_tensor {
                0 => self.tensor,
                of_experts => of_experts,
            },
            pipeline_parallel: self.pipeline,
            virtual_stages: self.virtual_stages,
            data_parallel: self.data,
            zero_shard: if self.shard == 0 { replicas } else { self.shard },
            zero_stage: self.zero,
            micro_batch_size: self.micro_batch_size,
            num_micro_batches: numbers.iter().copied().max().unwrap_or(equal),
            micro_batches_by_group: MicroBatchesByGroup::new(&numbers).unwrap_or_default(),
            recompute: self.recompute,
            offload: self.offload,
            schedule: self.schedule,
            switches: Switches::USUAL,
        }
    }
}

/// A model in a layout, with stages as equal as possible; the first stages are the larger ones.
///
/// # Errors
///
/// [`ProgramError`] where the model cannot be read, or the schedule cannot be generated.
pub fn parts(model: &str, case: LayoutCase, compute: Element) -> Result<Parts, ProgramError> {
    let master = if compute == Element::F64 { Element::F64 } else { Element::F32 };
    let settings = Settings {
        schedule: LearningRate { peak: 1e-2, warmup_steps: 2, decay_steps: Some(10), least: 1e-3 },
        gradients: master,
        bucket_bytes: case.bucket_bytes,
        replication: case.replication,
        seed: 7,
        ..Settings::usual(Optimizer::AdamW, compute)
    };
    let options = GraphOptions {
        dropout: case.dropout,
        multi_token_prediction: true,
        ..GraphOptions::default()
    };
    let sizes = [GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH];
    let parts = Parts::even(model.to_owned(), "test", options, case.layout(), sizes, settings)?;
    let adapters = case.adapters.map(|(rank, target, base_weights)| Adapters {
        rank,
        alpha: 2 * rank,
        targets: vec![target.to_owned()],
        base_weights,
    });
    let replicas_by_group = case.groups.iter().map(|[replicas, _]| *replicas).collect();
    Ok(Parts { adapters, replicas_by_group, ..parts })
}

/// Training data of a program: the built-in book, or synthetic samples.
///
/// # Errors
///
/// [`DataError`], if the book is shorter than a sequence.
pub fn source(program: &Program) -> Result<Source, DataError> {
    if program.vocab_size().is_none() {
        return Ok(Source::Synthetic(SyntheticSamples { seed: 3 }));
    }
    let sampling = Sampling { sequence_length: SEQUENCE_LENGTH, vocab_size: 256, seed: 3 };
    Ok(Source::Tokens(Samples::new(Tokens::built_in(), sampling)?))
}
