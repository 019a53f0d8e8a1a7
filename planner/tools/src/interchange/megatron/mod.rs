//! Megatron-LM: the arguments of `pretrain_gpt.py`.

mod lacks;
mod model;
mod read;
mod recompute;
mod stages;
mod table;

use super::argument::{Argument, Section};
use super::error::Lack;
use super::view::ExportView;

/// What `pretrain_gpt.py` is told, by topic.
pub(super) fn sections(view: &ExportView<'_>) -> Vec<Section> {
    let mut sections = TABLE.sections(&view.run());
    sections.push(Section::new("model", model::arguments(view)));
    sections
}

/// What it is told of a plan's model.
pub(super) fn model_arguments(view: &ExportView<'_>) -> Vec<Argument> {
    model::arguments(view)
}

/// What it cannot be told of a plan's model.
pub(super) fn lacks_of_model(view: &ExportView<'_>) -> Vec<Lack> {
    model::lacks(view)
}

/// Environment variables that the arguments take, each with its reason.
pub(super) use lacks::{environment, lacks};
/// Reads the words after `pretrain_gpt.py`.
pub(super) use read::{read, read_words};
pub(crate) use table::TABLE;

/// Arguments that are the user's own, with values that let a step run at once.
pub(super) fn own() -> Vec<Section> {
    let own = vec![
        Argument::switch("--mock-data", "random tokens, until --data-path says where yours are"),
        Argument::value("--tokenizer-type", "NullTokenizer", "no text is read"),
        Argument::value("--train-iters", 20, "steps"),
        Argument::value("--lr", "3.0e-4", "learning rate"),
        Argument::value("--log-interval", 1, "a line for each step"),
        Argument::switch("--log-throughput", "with its FLOP/s"),
    ];
    vec![Section::new("data, steps, learning rate", own)]
}
