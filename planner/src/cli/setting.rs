//! Arguments on training: the cluster, batch, precision, optimizer, framework, adapters.

use clap::Args;
use ir::cluster::Precision;
use ir::documents::Packing;
use ir::framework::{Compile, KernelChoice};
use ir::graph::{ALL_LINEAR, Adapters, Loss, WeightFormat};
use ir::model::GraphOptions;
use ir::plan::Optimizer;
use ir::replication::{DataParallelMethod, GradientCompression};

use super::values::{
    one_of, parse_batch, parse_count, parse_gib, parse_length, parse_named, parse_optimizer,
};

/// How a model is trained, on what and with what.
#[derive(Clone, Debug, Args)]
pub(crate) struct TrainingArgs {
    /// A preset (see `planner list clusters`), nodes of several, such as `a100:4,h100:2`, or a cluster file.
    #[arg(long, value_name = "NAME|FILE", default_value = "h100")]
    pub(crate) cluster: String,
    /// Topology of the network: Slurm's `topology.conf`, an NCCL topology in XML, or the output of `nvidia-smi topo
    /// -m`. The file decides on the order of nodes, the links and the interfaces.
    #[arg(long, value_name = "FILE")]
    pub(crate) topology: Option<std::path::PathBuf>,
    /// GPUs of each node that the job has [default: all].
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, allow_negative_numbers = true)]
    pub(crate) gpus_per_node: Option<u32>,
    /// Sequences in a step, over all replicas [default: by the number of GPUs].
    #[arg(long, value_name = "B", value_parser = parse_batch, allow_negative_numbers = true)]
    pub(crate) global_batch_size: Option<u64>,
    /// Tokens in a sequence [default: what the model was made for, at most 8192].
    #[arg(long, value_name = "S", value_parser = parse_length, allow_negative_numbers = true)]
    pub(crate) seq_len: Option<u64>,
    /// Precision of linear layers [default: bf16].
    #[arg(long, value_name = "fp32|fp16|bf16|fp8|fp4", hide_possible_values = true, value_parser = one_of(Precision::ALL, Precision::name))]
    pub(crate) precision: Option<Precision>,
    /// What updates the parameters [default: adamw].
    #[arg(long, value_name = "adamw|adamw-8bit|muon|adafactor|lion|momentum|sgd", value_parser = parse_optimizer)]
    pub(crate) optimizer: Option<Optimizer>,
    /// Accumulate gradients in fp32, as Megatron-LM does; torchtitan always does.
    #[arg(long)]
    pub(crate) fp32_gradients: bool,
    /// Keep the optimizer's moments in bf16, as DeepSeek-V3 did.
    #[arg(long)]
    pub(crate) bf16_moments: bool,
    /// Update 16-bit weights themselves, without a copy in fp32.
    #[arg(long)]
    pub(crate) no_master_weights: bool,
    /// The framework that runs the step, with its kernels, its overlap and the layouts that it can run: by name (see
    /// `planner list frameworks`), or a file of your own; `ideal` has no limits [default: the first of
    /// megatron-core, torchtitan, fsdp2 and deepspeed that can run what you name].
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) framework: Option<String>,
    /// What of the model is compiled [default: what the framework's benchmarks compile].
    #[arg(long, value_name = "none|regional|full", hide_possible_values = true, value_parser = one_of(Compile::ALL, Compile::name))]
    pub(crate) compile: Option<Compile>,
    /// How the loss is computed: from all logits at once; with the head in N chunks of the tokens; or fused with the
    /// head, as in Liger's kernels [default: what the framework's benchmarks do].
    #[arg(long, value_name = "plain|chunked:N|fused", value_parser = parse_named::<Loss>)]
    pub(crate) loss: Option<Loss>,
    /// Lengths of documents, of which sequences are made: a file with one in each line, in tokens, or a log-normal
    /// distribution [default: each sequence is one document].
    #[arg(long, value_name = "FILE|lognormal:MEAN,SIGMA")]
    pub(crate) document_lengths: Option<String>,
    /// How documents are packed into sequences: each into the first with room; balanced by the work of attention; or
    /// not at all, each padded to the longest of its micro-batch [default: first-fit].
    #[arg(long, value_name = "first-fit|balanced|none", requires = "document_lengths", hide_possible_values = true, value_parser = one_of(Packing::ALL, Packing::name))]
    pub(crate) packing: Option<Packing>,
    /// How routers spread tokens over experts: evenly, as most benchmarks force them to; with log-normal shares of this
    /// standard deviation; or as a file counts the tokens of each expert, a row for each layer [default:
    /// lognormal:0.79, as seen in runs whose routers are not forced; lognormal:0.02 for routers that correct their
    /// scores by the load, as DeepSeek-V3's].
    #[arg(long, value_name = "balanced|lognormal:SIGMA|FILE")]
    pub(crate) expert_load: Option<String>,
    /// How kernels are chosen on AMD's GPUs: by their libraries, or by measuring all for the shapes of the model
    /// [default: heuristic].
    #[arg(long, value_name = "heuristic|tuned", hide_possible_values = true, value_parser = one_of(KernelChoice::ALL, KernelChoice::name))]
    pub(crate) kernels: Option<KernelChoice>,
    /// Memory of a GPU to leave free, in GiB [default: enough that nine of ten comparable measured runs would have
    /// fit].
    #[arg(long, value_name = "GIB", value_parser = parse_gib::<100_000>, allow_negative_numbers = true)]
    pub(crate) headroom: Option<f64>,
    /// How replicas keep their weights in step: all-reduce (DDP, ZeRO, FSDP), parameter-server
    /// (PyTorch's DataParallel), ring-averaging (gossip), or asynchronous:S, whose gradients are at most S
    /// updates old.
    #[arg(long, value_name = "METHOD", default_value = "all-reduce", value_parser = parse_named::<DataParallelMethod>)]
    pub(crate) data_parallel_method: DataParallelMethod,
    /// What replicas send instead of their gradients: top-k:SHARE, random-k:SHARE, int8, int4 or sign,
    /// each with error feedback [default: the gradients].
    #[arg(long, value_name = "METHOD", value_parser = parse_named::<GradientCompression>)]
    pub(crate) gradient_compression: Option<GradientCompression>,
    /// Read a Hugging Face configuration as one of this family, where its own is not known; fields that are not read
    /// are reported.
    #[arg(long = "as", value_name = "FAMILY")]
    pub(crate) read_as: Option<String>,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    #[command(flatten)]
    pub(crate) adapters: AdapterArgs,
}

/// Low-rank adapters that are trained instead of the model's own parameters.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Adapters (LoRA)")]
pub(crate) struct AdapterArgs {
    /// Freeze the model and train low-rank adapters of this rank beside its linear layers.
    #[arg(long, value_name = "R", value_parser = parse_count::<u64>, allow_negative_numbers = true)]
    lora_rank: Option<u64>,
    /// Outputs of adapters are scaled by ALPHA / rank [default: the rank, a scale of 1].
    #[arg(long, value_name = "ALPHA", requires = "lora_rank", value_parser = parse_count::<u64>, allow_negative_numbers = true)]
    lora_alpha: Option<u64>,
    /// Layers that have an adapter, such as `q_proj,v_proj` or `attention.query,mlp.down`.
    #[arg(long, value_name = "NAMES", requires = "lora_rank", value_delimiter = ',', default_value = ALL_LINEAR)]
    lora_targets: Vec<String>,
    /// How the frozen weights of linear layers are stored; in 8 or 4 bits with a scale for each 64, as QLoRA does.
    #[arg(long, value_name = "FORMAT", requires = "lora_rank", default_value = "plain", value_parser = one_of(WeightFormat::ALL, WeightFormat::name))]
    base_weights: WeightFormat,
}

impl AdapterArgs {
    /// Adapters of the model, if requested.
    pub(crate) fn adapters(&self) -> Option<Adapters> {
        self.lora_rank.map(|rank| Adapters {
            rank,
            alpha: self.lora_alpha.unwrap_or(rank),
            targets: self.lora_targets.clone(),
            base_weights: self.base_weights,
        })
    }
}

/// Parts of a model that a run may do without.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PartArgs {
    /// Train the multi-token prediction modules too, where the model has them.
    #[arg(long)]
    pub(crate) multi_token_prediction: bool,
    /// Apply dropout where the model's description has it. A native graph's is always applied.
    #[arg(long)]
    pub(crate) dropout: bool,
}

impl PartArgs {
    pub(crate) fn options(self) -> GraphOptions {
        let Self { multi_token_prediction, dropout } = self;
        GraphOptions { multi_token_prediction, dropout, ..GraphOptions::default() }
    }
}
