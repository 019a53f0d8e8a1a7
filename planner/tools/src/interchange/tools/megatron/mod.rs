//! Megatron-LM: the arguments of `pretrain_gpt.py`.

pub(super) mod deepspeed;
mod lacks;
mod model;
mod read;
mod recompute;
mod stages;
mod table;

use crate::interchange::argument::{Argument, Section};
use crate::interchange::launch::Program;
use crate::interchange::target::Target;
use crate::interchange::tool::Tool;
use crate::interchange::view::ExportView;

pub(super) static TOOL: Tool = Tool {
    tables: &[&TABLE],
    read: Some(read::read),
    starts: |words, place, _| words[place].is_python("pretrain_").then_some(place),
    lacks,
    lacks_of_model: model::lacks,
    model_arguments,
    anchors: &table::ANCHORS,
    has_fp32_gradients: true,
    ..Tool::new(Target::MEGATRON, |view, _| program(view))
};

fn program(view: &ExportView<'_>) -> Program {
    Program {
        name: "megatron",
        command: vec!["pretrain_gpt.py".to_owned()],
        environment: environment(view),
        sections: sections(view),
        own: own(),
        ..Program::default()
    }
}

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

/// Environment variables that the arguments need, and parts of a plan that Megatron cannot run.
pub(super) use lacks::{environment, lacks};
/// Reader of the words after `pretrain_gpt.py`.
pub(super) use read::read_words;
pub(super) use table::TABLE;

/// Arguments that the user decides, with values with which a step runs at once.
fn own() -> Vec<Section> {
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
