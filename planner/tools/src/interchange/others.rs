//! Tools that are known but whose settings are not read.

use super::file::{basename, has_ending};
use super::shell::Word;
use super::tree::Tree;

/// Each line is the name of a tool with keys that all occur in each of its files (`NAME: a b`), or with prefixes of its
/// modules' names and suffixes of its scripts' paths (`NAME = a b.py`).
const OTHERS: &str = include_str!("others.txt");

/// Known tool, not read, to which the keys of a file belong.
pub(super) fn of_keys(tree: &Tree) -> Option<&'static str> {
    let has = |path: &str| path.split('.').try_fold(tree, |tree, key| tree.get(key)).is_some();
    let rows = OTHERS.lines().filter_map(|line| line.split_once(": "));
    let mut rows = rows.filter(|(_, keys)| keys.split(' ').all(has));
    rows.next().map(|(name, _)| name)
}

/// Known tool, not read, to which a program belongs: a module, or the path of a script.
pub(super) fn of_program(program: &str) -> Option<&'static str> {
    let is_it = |name: &str| {
        let is_path =
            program.strip_suffix(name).is_some_and(|it| it.is_empty() || it.ends_with('/'));
        if has_ending(name, "py") { is_path } else { program.starts_with(name) }
    };
    let mut rows = OTHERS.lines().filter_map(|line| line.split_once(" = "));
    rows.find(|(_, names)| names.split(' ').any(is_it)).map(|(name, _)| name)
}

/// Beginnings of words in the names of programs that train nothing.
const UNTRAINED: [&str; 9] = [
    "eval",
    "infer",
    "generat",
    "predict",
    "chatbot",
    "benchmark",
    "preprocess",
    "tokenize",
    "convert",
];

/// Beginnings of words in the names of programs that train, whatever else they do.
const TRAINED: [&str; 6] = ["train", "pretrain", "finetun", "tun", "sft", "distill"];

/// Options that only a training has.
const OF_TRAINING: [&str; 7] = [
    "--per_device_train_batch_size",
    "--learning_rate",
    "--lr",
    "--train_iters",
    "--train_samples",
    "--num_train_epochs",
    "--do_train",
];

/// Returns whether a command with a program trains nothing, by the words of the program's name and by its options.
pub(super) fn trains_nothing(program: &str, words: &[Word]) -> bool {
    let name = basename(program).to_lowercase();
    let has = |beginnings: &[&str]| {
        let mut parts = name.split(|c: char| !c.is_ascii_alphanumeric());
        parts.any(|part| beginnings.iter().any(|it| part.starts_with(it)))
    };
    let is_option = |it: &Word| OF_TRAINING.contains(&it.underscored().name());
    has(&UNTRAINED) && !has(&TRAINED) && !words.iter().any(is_option)
}

/// Known tool, not read, that a Python file imports.
pub(super) fn of_python(text: &str) -> Option<&'static str> {
    const TOOLS: [(&str, &str); 8] = [
        ("nemo.collections", "NeMo"),
        ("nemo_run", "NeMo"),
        ("megatron.bridge", "Megatron-Bridge"),
        ("torchtitan", "torchtitan"),
        ("transformers", "the Trainer"),
        ("deepspeed", "DeepSpeed"),
        ("lightning", "Lightning"),
        ("torch", "PyTorch"),
    ];
    let is_import = |line: &&str| {
        line.starts_with("import ") || line.starts_with("from ") && line.contains(" import ")
    };
    let imports: Vec<&str> = text.lines().filter(is_import).collect();
    let has = |name: &str| {
        imports
            .iter()
            .any(|line| line.split_whitespace().nth(1).is_some_and(|it| it.starts_with(name)))
    };
    TOOLS.into_iter().find(|(name, _)| has(name)).map(|(_, tool)| tool)
}
