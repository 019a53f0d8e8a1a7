//! Rules of lint, each with a stable name.

use serde::{Serialize, Serializer};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A remark: the loss, if any, is below the noise.
    Note,
    /// Waste or risk beyond the model's resolution.
    Warning,
    /// The settings cannot run.
    Error,
}

impl Severity {
    /// Name of the severity.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

macro_rules! rules {
    ($($(#[doc = $text:literal])+ $variant:ident = $id:literal, $severity:ident;)+) => {
        /// A rule, which looks for one kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[doc = $text])+ $variant,)+
        }

        impl Serialize for Rule {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.id())
            }
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Stable name.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id),+ }
            }

            /// Description of what the rule looks for, in a sentence.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$variant => concat!($($text),+).trim_ascii()),+ }
            }

            /// Most severe finding of the rule.
            pub const fn most_severe(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity),+ }
            }
        }
    };
}

rules! {
    /// An option that the tool does not know, or a misspelt one.
    UnknownOption = "unknown-option", Error;
    /// Settings that may change a step and are no part of the prediction.
    NotRead = "not-read", Note;
    /// An option that is given twice with two values, of which the tool takes the last.
    OptionGivenTwice = "option-given-twice", Warning;
    /// Options that cannot be given together, or one without another.
    OptionsContradict = "options-contradict", Error;
    /// A value that an option cannot have, or a word that belongs to no option.
    OptionValue = "option-value", Error;
    /// An option without which the tool does not start.
    OptionMissing = "option-missing", Error;
    /// Sizes that are not those of the model.
    ModelDiffers = "model-differs", Error;
    /// Degrees whose product does not divide the number of GPUs.
    NodesDoNotDivide = "nodes-do-not-divide", Error;
    /// A global batch that is no number of micro-batches on all replicas.
    BatchDoesNotDivide = "batch-does-not-divide", Error;
    /// Layers that do not divide over stages, or stages of which one holds up all others.
    StagesUneven = "stages-uneven", Error;
    /// More stages than there are layers for.
    TooManyStages = "too-many-stages", Error;
    /// Heads, or inner widths, that do not divide over tensor-parallel ranks.
    HeadsDoNotDivide = "heads-do-not-divide", Error;
    /// A sequence that does not divide over the ranks that share it.
    SequenceDoesNotDivide = "sequence-does-not-divide", Error;
    /// Experts that do not divide over expert-parallel ranks, or ranks over these.
    ExpertParallelDoesNotDivide = "expert-parallel-does-not-divide", Error;
    /// Expert parallelism of a model without experts.
    ExpertParallelWithoutExperts = "expert-parallel-without-experts", Error;
    /// Replicas that do not divide into the groups over which states are sharded.
    ShardGroupsDoNotDivide = "shard-groups-do-not-divide", Error;
    /// Micro-batches that are no multiple of the stages, which interleaved 1F1B takes.
    MicroBatchesForInterleaving = "micro-batches-not-multiple-of-stages-for-interleaving", Error;
    /// Several stages a rank without pipeline parallelism.
    InterleavingWithoutPipeline = "interleaving-without-pipeline", Error;
    /// A number format that the GPU does not have.
    PrecisionNotSupported = "precision-not-supported", Error;
    /// Something that the tool cannot run together.
    NotSupported = "not-supported", Error;
    /// Anything else that makes the layout impossible.
    LayoutImpossible = "layout-impossible", Error;
    /// More memory than a GPU has.
    OutOfMemory = "out-of-memory", Error;
    /// Memory that fits with so little to spare that comparable runs did not.
    MemoryTight = "memory-tight", Note;
    /// Tensor parallelism over more GPUs than share a fast network.
    TensorParallelAcrossNodes = "tensor-parallel-across-nodes", Warning;
    /// Fewer micro-batches than pipeline ranks, so that most of a step is bubble.
    FewerMicroBatchesThanStages = "fewer-micro-batches-than-stages", Warning;
    /// Activations computed again that would have had room.
    RecomputeNotNeeded = "recompute-not-needed", Warning;
    /// States on the host that would have had room on the GPU.
    OffloadNotNeeded = "offload-not-needed", Warning;
    /// A vocabulary that is padded at a loss, or to a size that kernels are slow with.
    VocabularyPadding = "vocabulary-padding", Warning;
    /// Tensor parallelism without sequence parallelism.
    SequenceParallelMissing = "sequence-parallel-missing", Error;
    /// Sequence parallelism without tensor parallelism.
    SequenceParallelAlone = "sequence-parallel-without-tensor-parallel", Note;
    /// Context parallelism of sequences that one rank has room for.
    ContextParallelWithoutLongSequence = "cp-without-long-sequence", Warning;
    /// More tensor parallelism than model and memory need.
    TensorParallelNotNeeded = "tensor-parallel-not-needed", Warning;
    /// Sharding of states without replicas to shard over.
    ZeroWithoutDataParallelism = "zero-without-data-parallelism", Note;
    /// Optimizer states that every replica holds whole, where sharding would free memory.
    DistributedOptimizerUnused = "distributed-optimizer-unused", Warning;
    /// Parameters gathered for every pass that would have had room.
    ShardingNotNeeded = "sharding-not-needed", Warning;
    /// Exchanges between replicas that wait, where the tool can hide them.
    OverlapOff = "overlap-off", Warning;
    /// Tokens gathered on all ranks, where they could be sent to their experts alone.
    DispatcherGathers = "dispatcher-gathers", Warning;
    /// 16-bit floats of small range on GPUs that have bfloat16.
    Fp16WhereBf16 = "fp16-where-bf16", Warning;
    /// Products in 32 bits on GPUs that are faster in 16.
    Fp32WhereBf16 = "fp32-where-bf16", Warning;
    /// A sequence beyond the positions that the model was made for.
    SequenceLongerThanModel = "sequence-longer-than-model", Note;
}
