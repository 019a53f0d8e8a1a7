//! Options of a program of the user's own, which only that program knows.

use super::file::basename;
use super::shell::Word;
use super::unread::Unread;

/// Names of options that set the sequence length in tokens.
pub(super) const LENGTHS: [&str; 10] = [
    "max_length",
    "max_seq_length",
    "model_max_length",
    "block_size",
    "max_seq_len",
    "max_seqlen",
    "seq_length",
    "seq_len",
    "cutoff_len",
    "max_len",
];

/// Parts of the names of options that change a step; these options are listed first.
const TELLING: [&str; 9] =
    ["batch", "accum", "seq", "len", "checkpoint", "bf16", "fp16", "precision", "lora"];

/// Words in the names of options that do not change a step.
const IDLE: [&str; 20] = [
    "lr",
    "learning",
    "warmup",
    "decay",
    "seed",
    "dir",
    "path",
    "log",
    "logging",
    "save",
    "epochs",
    "name",
    "dataset",
    "eval",
    "evaluation",
    "report",
    "wandb",
    "workers",
    "steps",
    "output",
];

/// Options of a program that `is_read` does not accept by name and value. The first of the words is the program.
/// Options whose names say that they do not change a step are left out.
pub(super) fn unread(
    program: &[Word],
    mut is_read: impl FnMut(&str, Option<&str>) -> bool,
) -> Vec<Unread> {
    let name = basename(program.first().map_or("", |it| it.text.as_str()));
    let why = format!(
        "options of `{name}`, which are not read: its batch may be another than the planned one"
    );
    let is_telling = |option: &str| TELLING.iter().any(|part| option.contains(part));
    let mut all = Vec::new();
    for words in program.chunk_by(|_, next| !next.text.starts_with("--")) {
        let Some(text) = words[0].text.strip_prefix("--") else { continue };
        let (option, inline) = text.split_once('=').map_or((text, None), |it| (it.0, Some(it.1)));
        let plain = option.replace('-', "_");
        let value = inline.or_else(|| words.get(1).map(|it| it.text.as_str()));
        let is_idle = !is_telling(&plain) && plain.split('_').any(|word| IDLE.contains(&word));
        if !is_idle && !is_read(&plain, value) {
            let option = format!("--{option}");
            all.push(Unread { is_unknown: true, ..Unread::new(&option, why.as_str()) });
        }
    }
    all.sort_by_key(|it| !is_telling(&it.option));
    all
}
