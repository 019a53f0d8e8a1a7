//! Small models, layouts in few words, and some steps of training under them.

use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor::array::Element;
use executor::batches::Source;
use executor::checkpoint::{Piece, PieceKind, Values};
use executor::communicator::Communicator;
use executor::data::{Distribution, Samples, Sampling, SyntheticSamples, Tokens};
use executor::ops::Kernels;
use executor::parameters::LocalParameter;
use executor::program::{Parts, Program};
use executor::rank::{Rank, RunError, StepResult};
use executor::settings::{LearningRate, OptimizerSettings, Settings};
use ir::graph::{Adapters, ContextParallelKind, Recompute, WeightFormat};
use ir::layout::{LayoutSpec, Offload, ZeroStage};
use ir::model::{GraphOptions, Model};
use ir::plan::Optimizer;
use ir::replication::{DataParallelMethod, Replication};
use ir::schedule::{ScheduleKind, generate};

pub(crate) const SEQUENCE_LENGTH: u64 = 16;
pub(crate) const GLOBAL_BATCH_SIZE: u64 = 8;
pub(crate) const NUM_STEPS: usize = 8;

/// Llama's kind: root mean square norms, rotated positions, grouped queries, gated feed-forward.
pub(crate) const LLAMA: &str = r#"{"architecture": "llama", "num_hidden_layers": 6, "hidden_size": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 256,
    "max_position_embeddings": 64}"#;

/// GPT-2's kind: layer norms, learned positions, biases, a head tied to the table of tokens.
pub(crate) const GPT: &str = r#"{"architecture": "gpt", "num_hidden_layers": 6, "hidden_size": 32,
    "num_attention_heads": 4, "vocab_size": 259, "max_position_embeddings": 64}"#;

/// Mixtral's kind: four experts, two for each token.
pub(crate) const MIXTRAL: &str = r#"{"model_type": "mixtral", "num_hidden_layers": 6, "hidden_size": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 256,
    "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 64}"#;

/// Adapters in few words: their rank, the layers that have one, and how frozen weights are stored.
pub(crate) type AdapterCase = (u64, &'static str, WeightFormat);

/// A layout in few words; what is left out is 1 or off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) tensor: u32,
    pub(crate) sequence: bool,
    pub(crate) context: u32,
    pub(crate) context_kind: ContextParallelKind,
    pub(crate) expert: u32,
    /// Ranks that share each expert; all tensor-parallel ones if 0.
    pub(crate) expert_tensor: u32,
    pub(crate) pipeline: u32,
    pub(crate) data: u32,
    pub(crate) micro_batch_size: u32,
    pub(crate) zero: ZeroStage,
    /// Ranks that share states; all of them if 0.
    pub(crate) shard: u32,
    pub(crate) recompute: Recompute,
    pub(crate) offload: Offload,
    pub(crate) schedule: ScheduleKind,
    pub(crate) virtual_stages: u32,
    pub(crate) bucket_bytes: u64,
    pub(crate) adapters: Option<AdapterCase>,
    pub(crate) dropout: bool,
    pub(crate) replication: Replication,
}

pub(crate) const ONE: Case = Case {
    tensor: 1,
    sequence: false,
    context: 1,
    context_kind: ContextParallelKind::Ring,
    expert: 1,
    expert_tensor: 0,
    pipeline: 1,
    data: 1,
    micro_batch_size: 1,
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

fn settings(bucket_bytes: u64, compute: Element) -> Settings {
    let master = if compute == Element::F64 { Element::F64 } else { Element::F32 };
    Settings {
        optimizer: OptimizerSettings::usual(Optimizer::AdamW),
        max_gradient_norm: Some(1.0),
        schedule: LearningRate { peak: 1e-2, warmup_steps: 2, decay_steps: Some(10), least: 1e-3 },
        compute,
        gradients: master,
        master,
        moments: master,
        loss_scaling: None,
        bucket_bytes,
        expert_capacity_factor: None,
        replication: Replication::default(),
        straggler: None,
        seed: 7,
    }
}

pub(crate) fn program(model: &str, case: Case, compute: Element) -> Program {
    Program::new(parts(model, case, compute)).unwrap()
}

pub(crate) fn parts(model: &str, case: Case, compute: Element) -> Parts {
    let replicas = case.context * case.data;
    let num_micro_batches = GLOBAL_BATCH_SIZE as u32 / (case.data * case.micro_batch_size);
    let layout = LayoutSpec {
        tensor_parallel: case.tensor,
        sequence_parallel: case.sequence,
        context_parallel: case.context,
        context_parallel_kind: case.context_kind,
        expert_parallel: case.expert,
        expert_tensor_parallel: match case.expert_tensor {
            0 => case.tensor,
            of_experts => of_experts,
        },
        pipeline_parallel: case.pipeline,
        virtual_stages: case.virtual_stages,
        data_parallel: case.data,
        zero_shard: if case.shard == 0 { replicas } else { case.shard },
        zero_stage: case.zero,
        micro_batch_size: case.micro_batch_size,
        num_micro_batches,
        recompute: case.recompute,
        offload: case.offload,
        schedule: case.schedule,
        switches: ir::graph::Switches::USUAL,
    };
    let schedule =
        generate(case.schedule, case.pipeline, num_micro_batches, case.virtual_stages).unwrap();
    let stages = schedule.num_stages() as usize;
    let graph = Model::from_json(model, "test").unwrap();
    let options = GraphOptions {
        dropout: case.dropout,
        multi_token_prediction: true,
        ..GraphOptions::default()
    };
    let graph = graph.graph(options).unwrap();
    let blocks = graph.num_blocks();
    // As even as can be, the first ones larger.
    let size = |stage| blocks / stages + usize::from(stage < blocks % stages);
    Parts {
        adapters: case.adapters.map(|(rank, target, base_weights)| Adapters {
            rank,
            alpha: 2 * rank,
            targets: vec![target.to_owned()],
            base_weights,
        }),
        description: model.to_owned(),
        options,
        model_name: "test".to_owned(),
        layout,
        schedule,
        stage_sizes: (0..stages).map(size).collect(),
        sequence_length: if graph.has_sequence() { SEQUENCE_LENGTH } else { 1 },
        global_batch_size: GLOBAL_BATCH_SIZE,
        settings: Settings {
            replication: case.replication,
            ..settings(case.bucket_bytes, compute)
        },
    }
}

/// The steps of a rank, and its pieces of the weights with their values.
pub(crate) type Outcome = (Vec<StepResult>, Vec<(Piece, Values)>);

/// The steps of a rank on the CPU, and what it holds of the weights afterwards.
pub(crate) fn steps(
    program: &Arc<Program>,
    communicator: Arc<dyn Communicator<Flex>>,
) -> Result<Outcome, RunError> {
    stepped(rank(program, communicator)?)
}

/// The steps of a rank, and what it holds of the weights afterwards.
pub(crate) fn stepped<B: Kernels>(mut rank: Rank<B>) -> Result<Outcome, RunError> {
    let results = (0..NUM_STEPS).map(|_| rank.step()).collect::<Result<Vec<_>, _>>()?;
    rank.settle()?;
    let pieces = rank.pieces().into_iter();
    Ok((results, pieces.filter(|(piece, _)| piece.kind == PieceKind::Weight).collect()))
}

/// A rank on the CPU that has done no steps.
pub(crate) fn rank(
    program: &Arc<Program>,
    communicator: Arc<dyn Communicator<Flex>>,
) -> Result<Rank<Flex>, RunError> {
    rank_on(program, communicator, FlexDevice)
}

/// The same on a device.
pub(crate) fn rank_on<B: Kernels>(
    program: &Arc<Program>,
    communicator: Arc<dyn Communicator<B>>,
    device: B::Device,
) -> Result<Rank<B>, RunError> {
    let source = if program.vocab_size().is_none() {
        let distribution = Distribution::StandardNormal;
        Source::Synthetic(SyntheticSamples { distribution, seed: 3 })
    } else {
        let sampling = Sampling { sequence_length: SEQUENCE_LENGTH, vocab_size: 256, seed: 3 };
        Source::Tokens(Samples::new(Tokens::built_in(), sampling).unwrap())
    };
    let seed = program.settings.seed;
    let values = |parameter: &LocalParameter| Ok::<_, RunError>(parameter.initial_values(seed));
    Rank::new(Arc::clone(program), Arc::new(source), communicator, device, values)
}
