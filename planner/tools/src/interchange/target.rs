//! Identity of a tool that plans are exported to.

use cost_models::frameworks;
use ir::framework::Framework;

/// A tool that runs training, in the version whose option names are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    name: &'static str,
    tool: &'static str,
    framework: &'static str,
}

impl Target {
    /// Megatron-LM's `pretrain_gpt.py`. A list of arguments alone belongs to it, unless it has another tool's options.
    pub const MEGATRON: Self =
        Self::new("megatron", "Megatron-LM with megatron-core 0.19.2", "megatron-core");

    /// This project's own executor, which runs a plan itself.
    pub const EXECUTOR: Self = Self::new("executor", "this project's executor", "executor");

    pub(super) const fn new(
        name: &'static str,
        tool: &'static str,
        framework: &'static str,
    ) -> Self {
        Self { name, tool, framework }
    }

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Name of the tool with the version of its options.
    pub const fn tool(self) -> &'static str {
        self.tool
    }

    /// Returns whether another tool runs on the same framework.
    pub(crate) fn shares_framework(self, other: Self) -> bool {
        self.framework == other.framework
    }

    /// The framework with the tool's abilities, whose habits are used to predict its steps.
    ///
    /// # Panics
    ///
    /// Never: these frameworks ship.
    pub fn framework(self) -> Framework {
        frameworks::preset(self.framework).expect("the framework of a target ships")
    }
}
