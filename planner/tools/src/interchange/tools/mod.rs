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

/// Tools with tables of their own, after those whose settings are another tool's under other names.
static OTHERS: [&Tool; 9] = [
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

/// All tools, in the order in which they are listed and recognised.
pub(crate) fn tools() -> impl DoubleEndedIterator<Item = &'static Tool> {
    wrapped::WRAPPED.into_iter().chain(OTHERS)
}

/// Code and data of a tool.
///
/// # Panics
///
/// Never: every target is in the list.
pub(crate) fn tool(target: Target) -> &'static Tool {
    tools().find(|tool| tool.target == target).expect("a target is of the list")
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
        tools().filter(|tool| tool.is_written).map(|tool| tool.target)
    }

    /// Tools whose settings can be imported.
    pub fn imported() -> impl Iterator<Item = Self> {
        tools().filter(|tool| tool.read.is_some()).map(|tool| tool.target)
    }
}
