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
    read: Some(read::read),
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

/// Number of options that are Megatron's, and of all options.
fn num_known(table: &Table, words: &[Word]) -> (usize, usize) {
    let names = words.iter().filter(|it| it.text.starts_with("--"));
    let names: Vec<&str> = names.filter_map(|it| it.text.split('=').next()).collect();
    (names.iter().filter(|it| table.knows(it)).count(), names.len())
}

/// Least number of Megatron's options by which a program of any name counts as one of a fork.
const MANY: usize = 8;

/// Options of training, which programs that only compute answers do not have.
const OF_TRAINING: [&str; 4] = ["--lr", "--train-iters", "--train-samples", "--global-batch-size"];

/// Words of the program at a place, with dashes in names of options, if it is one of a fork of Megatron: most of its
/// many options are Megatron's, a degree of parallelism and options of training among them.
pub(in super::super) fn fork_words(words: &[Word], place: usize) -> Option<Vec<Word>> {
    let dashed = |word: &Word| {
        let name = word.text.split('=').next().unwrap_or_default();
        let is_option = name.starts_with("--");
        let text = if is_option {
            name.replace('_', "-") + &word.text[name.len()..]
        } else {
            word.text.clone()
        };
        Word { text, unknown: word.unknown.clone() }
    };
    let words: Vec<Word> = words[place..].iter().map(dashed).collect();
    let has = |names: &[&str]| {
        words.iter().any(|it| it.text.split('=').next().is_some_and(|it| names.contains(&it)))
    };
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
