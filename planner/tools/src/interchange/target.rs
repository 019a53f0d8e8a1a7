//! Tools that plans are exported to.

use cost_models::frameworks;
use ir::framework::Framework;

/// A tool that runs training, in the version whose option names are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Megatron-LM's `pretrain_gpt.py`.
    Megatron,
    /// Megatron-Bridge's Python.
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
    /// All tools.
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

    /// Tools whose settings can be imported.
    pub const IMPORTED: [Self; 7] = [
        Self::Megatron,
        Self::MegatronBridge,
        Self::TorchTitan,
        Self::DeepSpeed,
        Self::Accelerate,
        Self::Trainer,
        Self::Nanotron,
    ];

    /// Name on the command line.
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

    /// Name of the tool with the version of its options.
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

    /// The framework with the tool's abilities, whose habits are used to predict its steps.
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
