//! Profile of a rank: its kernels, with the work of each if known, and its steps.

use cost_models::{MatmulShape, SelfAttentionShape};
use ir::cluster::Precision;
use ir::collective::Collective;
use ir::units::{Bytes, Nanos, Seconds};

/// Profile of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The rank, if recorded.
    pub rank: Option<u32>,
    /// Name of its GPU, as the driver gives it.
    pub gpu: Option<String>,
    /// Start and end of each step on the host; ordered by start.
    pub steps: Vec<[Nanos; 2]>,
    /// Kernels, ordered by start.
    pub kernels: Vec<ProfiledKernel>,
    /// True if operators were recorded with the shapes of their inputs.
    pub has_shapes: bool,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfiledKernel {
    /// Start and end.
    pub span: [Nanos; 2],
    /// Class of the kernel.
    pub class: Class,
    /// Part of a step in which it runs.
    pub phase: Phase,
    /// Id of the operator call that launched it: the same for all kernels of one call.
    pub call: u64,
    /// Work of the operator, where known.
    pub work: Option<ProfiledWork>,
}

impl ProfiledKernel {
    /// Duration of the kernel.
    pub fn duration(&self) -> Seconds {
        Seconds::from(self.span[1] - self.span[0])
    }
}

/// Class of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Products of matrices.
    Product,
    /// Forward of fused attention.
    AttentionForward,
    /// Backward of fused attention.
    AttentionBackward,
    /// The optimizer's update.
    Update,
    /// Kernels bound by memory bandwidth, and all others.
    Memory,
    /// Communication between ranks.
    Exchange,
}

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Forward.
    Forward,
    /// Backward.
    Backward,
    /// Update by the optimizer.
    Update,
}

/// Work of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProfiledWork {
    /// A matrix product.
    Product(MatmulShape, Precision),
    /// The forward of an attention.
    AttentionForward(SelfAttentionShape, Precision),
    /// The backward of an attention.
    AttentionBackward(SelfAttentionShape, Precision),
    /// Bytes that are read and written.
    Memory(Bytes),
    /// A collective between ranks.
    Collective(ProfiledCollective),
}

/// A collective that was recorded in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfiledCollective {
    /// The collective operation.
    pub collective: Collective,
    /// Bytes of the whole buffer.
    pub bytes: Bytes,
    /// Number of ranks in the group.
    pub num_ranks: u32,
    /// Distance between neighbouring ranks; `None` where the ranks are not known.
    pub stride: Option<u32>,
    /// Purpose of the group, by its name.
    pub purpose: Option<Purpose>,
}

/// Purpose of a group of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Tensor, context or expert parallelism: within blocks.
    WithinBlocks,
    /// Replicas and their shards.
    OverReplicas,
}

impl Purpose {
    /// The purpose, from a group's description in PyTorch's device meshes and Megatron-Core.
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
    /// The class, from a kernel's name.
    ///
    /// # Source
    ///
    /// Names of kernels of NCCL, FlashAttention, cuDNN, cuBLAS, CUTLASS, hipBLASLt and PyTorch in published traces.
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

    /// Returns whether kernels of the class may belong to an operator with the given work.
    pub(super) const fn does(self, work: &ProfiledWork) -> bool {
        match work {
            ProfiledWork::Collective(_) => matches!(self, Self::Exchange),
            // A product may include kernels that move data first, or that sum the partial results of several
            // multiprocessors.
            ProfiledWork::Product(..) => matches!(self, Self::Product | Self::Memory),
            ProfiledWork::AttentionForward(..) | ProfiledWork::AttentionBackward(..) => {
                matches!(self, Self::AttentionForward | Self::AttentionBackward | Self::Memory)
            }
            ProfiledWork::Memory(_) => matches!(self, Self::Memory),
        }
    }

    /// Name of the class, in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Product => "products",
            Self::AttentionForward => "attention forward",
            Self::AttentionBackward => "attention backward",
            Self::Update => "update",
            Self::Memory => "other kernels",
            Self::Exchange => "exchanges",
        }
    }

    /// All classes.
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
    /// The steady steps: if there are several, all but the first, which may include warm-up.
    pub fn steady_steps(&self) -> &[[Nanos; 2]] {
        if self.steps.len() > 1 { &self.steps[1..] } else { &self.steps }
    }

    /// The steady step of median length.
    pub fn middle_step(&self) -> Option<[Nanos; 2]> {
        let mut steps = self.steady_steps().to_vec();
        steps.sort_by_key(|[start, end]| *end - *start);
        steps.get(steps.len() / 2).copied()
    }

    /// Kernels that start within a span.
    pub fn kernels_in(&self, [start, end]: [Nanos; 2]) -> impl Iterator<Item = &ProfiledKernel> {
        let first = self.kernels.partition_point(|kernel| kernel.span[0] < start);
        self.kernels[first..].iter().take_while(move |kernel| kernel.span[0] < end)
    }
}
