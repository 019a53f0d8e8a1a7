//! The tools that plans are written for.

use cost_models::frameworks;
use ir::framework::Framework;

/// A tool that runs training, in the version whose names are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Megatron-LM's `pretrain_gpt.py`.
    Megatron,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 1] = [Self::Megatron];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Megatron => "megatron",
        }
    }

    /// What it is, with the version that names are of.
    pub const fn tool(self) -> &'static str {
        match self {
            Self::Megatron => "Megatron-LM with megatron-core 0.19.2",
        }
    }

    /// The framework whose abilities are its own, and whose habits its steps are predicted with.
    ///
    /// # Panics
    ///
    /// Never: these frameworks ship.
    pub fn framework(self) -> Framework {
        let name = match self {
            Self::Megatron => "megatron-core",
        };
        frameworks::preset(name).expect("the framework of a target ships")
    }
}
