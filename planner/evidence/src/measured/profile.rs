//! What a profiler recorded of a rank: kernels, what each works on where that is known, and steps.

use cost_models::{AttentionShape, MatmulShape};
use ir::cluster::Precision;
use ir::collective::Collective;
use ir::units::{Bytes, Nanos, Seconds};

/// What was recorded of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The rank, where that is said.
    pub rank: Option<u32>,
    /// Its GPU, as the driver calls it.
    pub gpu: Option<String>,
    /// Steps, each from its start to its end on the host; by start.
    pub steps: Vec<[Nanos; 2]>,
    /// Kernels, by start.
    pub kernels: Vec<Kernel>,
    /// Whether operators tell the shapes of what they take.
    pub has_shapes: bool,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// When it starts, and when it ends.
    pub span: [Nanos; 2],
    /// What it does.
    pub class: Class,
    /// In which part of a step.
    pub phase: Phase,
    /// Its operator: kernels of one call of it have the same number, which others have not.
    pub call: u64,
    /// What the operator works on, where that is known.
    pub work: Option<Work>,
}

impl Kernel {
    /// How long it takes.
    pub fn duration(&self) -> Seconds {
        Seconds::from(self.span[1] - self.span[0])
    }
}

/// What a kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Products of matrices.
    Product,
    /// Attention, fused, forward.
    AttentionForward,
    /// Its gradients.
    AttentionBackward,
    /// The optimizer's update.
    Update,
    /// What moves data on the device.
    Memory,
    /// What ranks exchange.
    Exchange,
}

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Forward.
    Forward,
    /// Backward.
    Backward,
    /// The optimizer's update.
    Update,
}

/// What an operator works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// A product.
    Product(MatmulShape, Precision),
    /// Attention forward.
    AttentionForward(AttentionShape, Precision),
    /// Its gradients.
    AttentionBackward(AttentionShape, Precision),
    /// So many bytes are read and written.
    Memory(Bytes),
    /// A collective.
    Collective(Exchange),
}

/// A collective of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exchange {
    /// Which.
    pub collective: Collective,
    /// The whole buffer.
    pub bytes: Bytes,
    /// Ranks of the group.
    pub num_ranks: u32,
    /// The distance between neighbours; none where it is not known which ranks they are.
    pub stride: Option<u32>,
    /// What the group is for, by its name.
    pub purpose: Option<Purpose>,
}

/// What a group of ranks is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Tensor, context or expert parallelism: within blocks.
    WithinBlocks,
    /// Replicas and their shards.
    OverReplicas,
}

impl Purpose {
    /// By a group's description, as PyTorch's device meshes and Megatron-Core name theirs.
    pub fn of(description: &str) -> Option<Self> {
        let name = description.to_ascii_lowercase();
        let words = |words: &[&str]| {
            let mut parts = name.split(|c: char| !c.is_ascii_alphanumeric());
            parts.any(|part| words.contains(&part))
        };
        match () {
            () if words(&["dp", "fsdp", "ddp", "data", "hsdp", "replicate", "shard"]) => {
                Some(Self::OverReplicas)
            }
            () if words(&["tp", "cp", "ep", "etp", "tensor", "context", "expert"]) => {
                Some(Self::WithinBlocks)
            }
            () => None,
        }
    }
}

impl Class {
    /// By a kernel's name.
    ///
    /// # Source
    ///
    /// Names of NCCL, FlashAttention, cuDNN, cuBLAS, CUTLASS, hipBLASLt and PyTorch, as published traces have them.
    pub fn of_kernel(name: &str) -> Self {
        let lower = name.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        match () {
            () if lower.starts_with("nccl") || lower.starts_with("rccl") => Self::Exchange,
            () if has(&["flash", "fmha", "sdpa", "attention_kernel", "attn_fwd", "attn_bwd"]) => {
                if has(&["bwd", "backward", "dot_do_o", "convert_dq"]) {
                    Self::AttentionBackward
                } else {
                    Self::AttentionForward
                }
            }
            () if has(&["multi_tensor_apply", "adam", "fused_optimizer"]) => Self::Update,
            () if has(&["gemm", "nvjet", "xmma", "cijk_", "splitkreduce", "cutlass", "wgmma"]) => {
                Self::Product
            }
            () => Self::Memory,
        }
    }

    /// Whether its kernels can be those of an operator that works on that.
    pub(super) const fn does(self, work: &Work) -> bool {
        match work {
            Work::Collective(_) => matches!(self, Self::Exchange),
            // A product may move data first, or add up what several multiprocessors have of it.
            Work::Product(..) => matches!(self, Self::Product | Self::Memory),
            Work::AttentionForward(..) | Work::AttentionBackward(..) => {
                matches!(self, Self::AttentionForward | Self::AttentionBackward | Self::Memory)
            }
            Work::Memory(_) => matches!(self, Self::Memory),
        }
    }

    /// In words.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Product => "products",
            Self::AttentionForward => "attention forward",
            Self::AttentionBackward => "attention backward",
            Self::Update => "update",
            Self::Memory => "other kernels",
            Self::Exchange => "exchanges",
        }
    }

    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Product,
        Self::AttentionForward,
        Self::AttentionBackward,
        Self::Update,
        Self::Memory,
        Self::Exchange,
    ];
}

impl Profile {
    /// The steps that count: all but the first, which may warm up, where there are several.
    pub fn steady_steps(&self) -> &[[Nanos; 2]] {
        if self.steps.len() > 1 { &self.steps[1..] } else { &self.steps }
    }

    /// The step of middle length of those that count.
    pub fn middle_step(&self) -> Option<[Nanos; 2]> {
        let mut steps = self.steady_steps().to_vec();
        steps.sort_by_key(|[start, end]| *end - *start);
        steps.get(steps.len() / 2).copied()
    }

    /// Kernels that start in a span.
    pub fn kernels_in(&self, [start, end]: [Nanos; 2]) -> impl Iterator<Item = &Kernel> {
        let first = self.kernels.partition_point(|kernel| kernel.span[0] < start);
        self.kernels[first..].iter().take_while(move |kernel| kernel.span[0] < end)
    }
}
