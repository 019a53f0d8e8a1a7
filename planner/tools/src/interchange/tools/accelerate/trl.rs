//! TRL's command and its defaults.

use crate::interchange::file::basename;
use crate::interchange::options::{OptionError, ParsedOptions};
use crate::interchange::shell::Word;
use crate::interchange::unread::Unread;

/// TRL's command, which starts `accelerate launch` itself.
const TRL: &str = "trl";

/// Returns whether TRL's command for a training begins at `place`.
pub(super) fn is_trl(words: &[Word], place: usize) -> bool {
    let is_training = |it: &Word| it.text == "sft" || OTHER_TRAININGS.contains(&it.text.as_str());
    basename(&words[place].text) == TRL && words.get(place + 1).is_some_and(is_training)
}

/// Name of TRL's loss that processes non-ignored tokens in chunks.
pub(super) const CHUNKED: &str = "chunked_nll";

/// Returns whether the last word before a program is TRL's command.
pub(super) fn starts_trl(before: &[Word]) -> bool {
    before.last().is_some_and(|it| basename(&it.text) == TRL)
}

/// Name of the training if the program is TRL's own script for it, such as `trl/scripts/sft.py`. The script has the
/// same defaults as TRL's command.
pub(super) fn script_of_trl(program: &Word) -> Option<&str> {
    let name = basename(&program.text);
    let folder = program.text.trim_end_matches(name);
    let is_own = ["trl/scripts/", "examples/scripts/"].iter().any(|it| folder.ends_with(it));
    let name = name.strip_suffix(".py").filter(|_| is_own)?;
    (name == "sft" || OTHER_TRAININGS.contains(&name)).then_some(name)
}

/// Words in the names of programs that train with preferences, rewards or answers.
const OTHER_TRAININGS: [&str; 9] =
    ["dpo", "orpo", "kto", "cpo", "simpo", "reward", "grpo", "ppo", "rloo"];

/// Program that, by its name, trains differently from SFT.
pub(super) fn other_training(program: &Word) -> Option<Unread> {
    let name = basename(&program.text);
    let plain = name.to_lowercase();
    let mut words = plain.split(|c: char| !c.is_alphanumeric());
    let why = "another training than SFT, which computes more: SFT is planned";
    words.any(|it| OTHER_TRAININGS.contains(&it)).then(|| Unread::new(name, why))
}

/// Arguments, with the defaults of TRL's own configurations in place of the Trainer's.
///
/// # Source
///
/// TRL 1, `trl/trainer/base_config.py`, `sft_config.py`, `dpo_config.py`, `kto_config.py` and `reward_config.py`.
pub(super) fn with_defaults_of_trl(
    arguments: ParsedOptions,
    command: &str,
    has_length: bool,
) -> Result<ParsedOptions, OptionError> {
    let mut defaults = ParsedOptions::default().with("gradient_checkpointing", "true");
    if !arguments.is_on("fp16")? {
        defaults = defaults.with("bf16", "true");
    }
    if !has_length && ["sft", "dpo", "kto", "reward"].contains(&command) {
        defaults = defaults.with("max_length", "1024");
    }
    if command == "sft" && !arguments.is_on("use_liger_kernel")? {
        defaults = defaults.with("loss_type", CHUNKED);
    }
    Ok(arguments.over(defaults))
}
