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

/// Arguments of `pretrain_gpt.py` that the plan decides, by topic.
pub(super) fn sections(view: &ExportView<'_>) -> Vec<Section> {
    let mut sections = TABLE.sections(&view.run());
    sections.push(Section::new("model", model::arguments(view)));
    sections
}

/// Arguments that describe a plan's model.
pub(super) fn model_arguments(view: &ExportView<'_>) -> Vec<Argument> {
    model::arguments(view)
}

/// Parts of a plan's model that Megatron has no option for.
pub(super) fn lacks_of_model(view: &ExportView<'_>) -> Vec<Lack> {
    model::lacks(view)
}

/// Environment variables that the arguments need, and parts of a plan that Megatron cannot run.
pub(super) use lacks::{environment, lacks};
/// Readers of the words after `pretrain_gpt.py`.
pub(super) use read::{read, read_words};
pub(crate) use table::TABLE;

/// Arguments that the user decides, with values with which a step runs at once.
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
