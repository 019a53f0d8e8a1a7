//! The single list of the tools that settings are exported to and imported from.

mod accelerate;
mod bridge;
mod deepspeed;
mod executor;
mod megatron;
mod nanotron;
mod torchtitan;
mod wrapped;

use super::target::Target;
use super::tool::Tool;
pub(crate) use accelerate::built_in_stage;
pub(crate) use bridge::{setting as bridge_setting, settings as bridge_settings};
pub(super) use megatron::fork_words;

/// All tools, in the order in which they are listed and recognised.
pub(crate) static TOOLS: [&Tool; 23] = [
    &wrapped::AXOLOTL_TOOL,
    &wrapped::LLAMA_FACTORY_TOOL,
    &wrapped::DEEPSPEED_CHAT_TOOL,
    &wrapped::SWIFT_TOOL,
    &wrapped::MEGATRON_SWIFT_TOOL,
    &wrapped::SLIME_TOOL,
    &wrapped::VERL_TOOL,
    &wrapped::MEGATRON_VERL_TOOL,
    &wrapped::PRIMUS_TOOL,
    &wrapped::FLAGSCALE_TOOL,
    &wrapped::MEGATRON_YAML_TOOL,
    &wrapped::NEMO_TOOL,
    &wrapped::TORCHTUNE_TOOL,
    &wrapped::TORCHTITAN_TOOL,
    &megatron::deepspeed::TOOL,
    &megatron::TOOL,
    &bridge::TOOL,
    &torchtitan::TOOL,
    &deepspeed::TOOL,
    &accelerate::TOOL,
    &accelerate::TRAINER_TOOL,
    &nanotron::TOOL,
    &executor::TOOL,
];

/// Code and data of a tool.
///
/// # Panics
///
/// Never: every target is in the list.
pub(crate) fn tool(target: Target) -> &'static Tool {
    TOOLS.into_iter().find(|tool| tool.target == target).expect("a target is of the list")
}

/// Options that name a file of keys; options of the same command override its values.
pub(super) const FILES_OF_KEYS: [&str; 1] = [torchtitan::CONFIG_FILE];

/// Tool whose settings a text contains as Python.
pub(super) fn of_python(text: &str) -> Option<Target> {
    bridge::is_of_bridge(text).then_some(bridge::TOOL.target)
}

impl Target {
    /// Tools that plans are exported to.
    pub fn all() -> impl Iterator<Item = Self> {
        TOOLS.into_iter().filter(|tool| tool.is_written).map(|tool| tool.target)
    }

    /// Tools whose settings can be imported.
    pub fn imported() -> impl Iterator<Item = Self> {
        TOOLS.into_iter().filter(|tool| tool.read.is_some()).map(|tool| tool.target)
    }
}
