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
use crate::interchange::shell::Word;
use crate::interchange::table::Table;
use crate::interchange::target::Target;
use crate::interchange::tool::Tool;
use crate::interchange::view::ExportView;

pub(super) static TOOL: Tool = Tool {
    tables: &[&TABLE],
    read: Some(|source| read_words(source, source.arguments()?)),
    starts: |words, place, _| {
        let (known, all) = num_known(&TABLE, &words[place..]);
        (words[place].is_python("pretrain_") && 2 * known >= all).then_some(place)
    },
    lacks,
    lacks_of_model: model::lacks,
    model_arguments,
    anchors: &table::ANCHORS,
    has_fp32_gradients: true,
    ..Tool::new(Target::MEGATRON, |view, _| program(view))
};

/// Number of options that Megatron knows, and number of all options.
fn num_known(table: &Table, words: &[Word]) -> (usize, usize) {
    let names = words.iter().map(Word::name).filter(|it| it.starts_with("--"));
    let names: Vec<&str> = names.collect();
    (names.iter().filter(|it| table.knows(it)).count(), names.len())
}

/// Least number of Megatron's options for a program of any name to count as a fork of Megatron.
const MANY: usize = 8;

/// Options of training, which inference programs do not have.
const OF_TRAINING: [&str; 4] = ["--lr", "--train-iters", "--train-samples", "--global-batch-size"];

/// Words of the program at `place`, with dashes in the names of options, if it is a fork of Megatron: it has many
/// options, most of them Megatron's, including a degree of parallelism and options of training.
pub(in super::super) fn fork_words(words: &[Word], place: usize) -> Option<Vec<Word>> {
    let words: Vec<Word> = words[place..].iter().map(Word::dashed).collect();
    let has = |names: &[&str]| words.iter().any(|it| names.contains(&it.name()));
    let is_training = has(&["--tensor-model-parallel-size"]) && has(&OF_TRAINING);
    let (known, all) = num_known(&TABLE, &words);
    (is_training && known >= MANY && 3 * all <= 4 * known).then_some(words)
}

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

/// Arguments that the user decides, with values that let a step run at once.
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
