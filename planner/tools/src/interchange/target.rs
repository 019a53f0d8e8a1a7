//! The tools that plans are written for.

use cost_models::frameworks;
use ir::framework::Framework;

/// A tool that runs training, in the version whose names are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Megatron-LM's `pretrain_gpt.py`.
    Megatron,
    /// Megatron-Bridge, in Python.
    MegatronBridge,
    /// PyTorch's torchtitan.
    TorchTitan,
    /// DeepSpeed's configuration.
    DeepSpeed,
    /// Hugging Face accelerate's configuration.
    Accelerate,
    /// Arguments of Hugging Face's Trainer.
    Trainer,
    /// nanotron's YAML.
    Nanotron,
    /// This project's own executor.
    Executor,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Megatron,
        Self::MegatronBridge,
        Self::TorchTitan,
        Self::DeepSpeed,
        Self::Accelerate,
        Self::Trainer,
        Self::Nanotron,
        Self::Executor,
    ];

    /// Those whose settings are read.
    pub const IMPORTED: [Self; 7] = [
        Self::Megatron,
        Self::MegatronBridge,
        Self::TorchTitan,
        Self::DeepSpeed,
        Self::Accelerate,
        Self::Trainer,
        Self::Nanotron,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Megatron => "megatron",
            Self::MegatronBridge => "megatron-bridge",
            Self::TorchTitan => "torchtitan",
            Self::DeepSpeed => "deepspeed",
            Self::Accelerate => "accelerate",
            Self::Trainer => "trainer",
            Self::Nanotron => "nanotron",
            Self::Executor => "executor",
        }
    }

    /// What it is, with the version that names are of.
    pub const fn tool(self) -> &'static str {
        match self {
            Self::Megatron => "Megatron-LM with megatron-core 0.19.2",
            Self::MegatronBridge => "Megatron-Bridge 0.6.2 with megatron-core 0.19.2",
            Self::TorchTitan => "torchtitan 0.3.0",
            Self::DeepSpeed => "DeepSpeed 0.19.8",
            Self::Accelerate => "accelerate 1.15.0",
            Self::Trainer => "transformers 5.23.0 with accelerate 1.15.0",
            Self::Nanotron => "nanotron 0.4",
            Self::Executor => "this project's executor",
        }
    }

    /// The framework whose abilities are its own, and whose habits its steps are predicted with.
    ///
    /// # Panics
    ///
    /// Never: these frameworks ship.
    pub fn framework(self) -> Framework {
        let name = match self {
            Self::Megatron | Self::MegatronBridge => "megatron-core",
            Self::TorchTitan => "torchtitan",
            Self::DeepSpeed => "deepspeed",
            Self::Accelerate | Self::Trainer => "fsdp2",
            Self::Nanotron => "nanotron",
            Self::Executor => "executor",
        };
        frameworks::preset(name).expect("the framework of a target ships")
    }
}
