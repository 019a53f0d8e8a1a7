//! The frameworks that run training steps.

use serde::{Deserialize, Serialize};

/// Whose kernels and habits a step is predicted with. What each does is in
/// `cost-models/data/frameworks.json`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Framework {
    /// Megatron-Core with Transformer Engine; NeMo and Megatron-Bridge are built on it.
    #[default]
    MegatronCore,
    /// Megatron-LM before Megatron-Core: 2021 to 2023.
    MegatronLm,
    /// Megatron-DeepSpeed.
    MegatronDeepspeed,
    /// DeepSpeed's ZeRO-3 of 2021, which gathers parameter by parameter.
    Deepspeed,
    /// Nanotron.
    Nanotron,
    /// PyTorch's first FSDP, kernel by kernel; Composer and LLM Foundry are built on it.
    Fsdp,
    /// PyTorch's FSDP2 under `torch.compile`, as torchtitan runs it.
    Torchtitan,
    /// This project's own executor.
    Executor,
}

impl Framework {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::MegatronCore,
        Self::MegatronLm,
        Self::MegatronDeepspeed,
        Self::Deepspeed,
        Self::Nanotron,
        Self::Fsdp,
        Self::Torchtitan,
        Self::Executor,
    ];

    /// The name, as plans and options have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MegatronCore => "megatron-core",
            Self::MegatronLm => "megatron-lm",
            Self::MegatronDeepspeed => "megatron-deepspeed",
            Self::Deepspeed => "deepspeed",
            Self::Nanotron => "nanotron",
            Self::Fsdp => "fsdp",
            Self::Torchtitan => "torchtitan",
            Self::Executor => "executor",
        }
    }
}

impl std::fmt::Display for Framework {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
