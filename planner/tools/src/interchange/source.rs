//! Form of the settings that a user has, and their tool.

use std::collections::BTreeMap;

use ir::text::{Typeset, typeset};

use super::error::{Divided, ImportError};
use super::file::basename;
use super::imported::{Imported, Stated};
use super::ranks::{check_start, ranks};
use super::shell::{self, Command, Script, Word};
use super::target::Target;
use super::tree::{Notation, Tree};

/// A program with its arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct Started {
    /// The program and the words after it.
    pub(super) words: Vec<Word>,
    /// Number of ranks that are started, if the script says.
    pub(super) num_gpus: Option<u32>,
}

/// Form of settings.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// Program with its options.
    Started(Started),
    /// File of keys.
    Tree(Tree),
    /// Python file.
    Python(String),
}

/// Settings of a tool, with the context to read them.
#[derive(Clone, Debug)]
pub(super) struct Source<'a> {
    /// Tool of the settings.
    pub(super) target: Target,
    /// Form of the settings.
    pub(super) form: Form,
    /// Files that the settings name, by their names.
    pub(super) files: &'a BTreeMap<String, String>,
    /// Values that the user states in addition.
    pub(super) stated: Stated,
    /// Layers of the user's model, if it is a transformer.
    pub(super) num_layers: Option<u32>,
    /// True if the user's model has experts.
    pub(super) has_experts: bool,
}

impl Source<'_> {
    /// Settings of a tool with all options at their defaults.
    pub(super) fn defaults(&self, tool: Target) -> Imported {
        let num_gpus = self.started().ok().and_then(|it| it.num_gpus);
        Imported::unset(tool, num_gpus, self.stated)
    }

    /// Text of a file that the settings name; an error if it is missing.
    pub(super) fn file(&self, name: &str) -> Result<&str, ImportError> {
        let name = basename(name);
        self.files.get(name).map(String::as_str).ok_or_else(|| ImportError::Unknown {
            what: format!("the settings are in `{name}`, which is not beside them"),
            works: format!("put `{name}` beside the file that names it"),
        })
    }

    /// Keys of a file that the settings name.
    pub(super) fn tree(&self, name: &str) -> Result<Tree, ImportError> {
        let text = self.file(name)?;
        Tree::read(text, notation(name, text)).map_err(|what| ImportError::Unknown {
            what: format!("`{}`: {what}", basename(name)),
            works: "the whole file, as the tool reads it".to_owned(),
        })
    }

    /// Number of ranks, from the settings or the user.
    pub(super) fn num_gpus(&self) -> Option<u32> {
        let started = match &self.form {
            Form::Started(started) => started.num_gpus,
            _ => None,
        };
        started.or(self.stated.num_gpus)
    }
}

fn has_ending(name: &str, ending: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, last)| last == ending)
}

fn notation(name: &str, text: &str) -> Notation {
    let is_json = has_ending(name, "json") || text.trim_start().starts_with('{');
    if is_json { Notation::Json } else { Notation::Yaml }
}

/// Names of files that settings name and that are read with them.
///
/// # Errors
///
/// [`ImportError`] where a script cannot be read.
pub fn named_files(text: &str, set: &BTreeMap<String, String>) -> Result<Vec<String>, ImportError> {
    if !is_script(text) || is_of_bridge(text) {
        return Ok(Vec::new());
    }
    let commands = commands(&shell::read(text, set)?, set)?;
    let endings = [".json", ".yaml", ".yml", ".py", ".csv"];
    let mut names = Vec::new();
    for words in commands {
        for (place, word) in words.iter().enumerate() {
            let text = word.text.rsplit('=').next().unwrap_or_default();
            if endings.iter().any(|ending| text.ends_with(ending)) {
                names.push(basename(text).to_owned());
            }
            // torchtitan's `--module` has no file ending; no word names DeepSpeed's `pipeline.py`.
            match word.text.as_str() {
                "--module" => {
                    names.extend(words.get(place + 1).map(|word| format!("{}.py", word.text)));
                }
                "--deepspeed_config" => names.push("pipeline.py".to_owned()),
                _ => {}
            }
        }
    }
    Ok(names)
}

/// Settings with their tool, which the user names, or which follows from their words or keys.
pub(super) fn source<'a>(
    text: &str,
    from: Option<Target>,
    set: &BTreeMap<String, String>,
    files: &'a BTreeMap<String, String>,
    stated: Stated,
) -> Result<Source<'a>, ImportError> {
    let made = |target, form| {
        let (num_layers, has_experts) = (None, false);
        Source { target, form, files, stated, num_layers, has_experts }
    };
    if text.trim().is_empty() {
        return Err(ImportError::Unknown {
            what: "the file is empty, so nothing starts a program that is known".to_owned(),
            works: ANY.to_owned(),
        });
    }
    if is_of_bridge(text) && !text.starts_with("#!") {
        return Ok(made(from.unwrap_or(Target::MegatronBridge), Form::Python(text.to_owned())));
    }
    if is_toml(text) {
        return Err(ImportError::Unknown {
            what: "this is TOML, as torchtitan had in older versions, and is not read".to_owned(),
            works: "give the options as the newer ones have them, in a script or alone: `tensor_parallel_degree` of \
                    `[parallelism]` is `--parallelism.tensor_parallel_degree`"
                .to_owned(),
        });
    }
    if !is_script(text) {
        let tree = Tree::read(text, notation("", text)).map_err(|what| ImportError::Unknown {
            what,
            works: "the whole file, as the tool reads it".to_owned(),
        })?;
        let target = match from {
            Some(target) => target,
            None => of_tree(&tree)?,
        };
        return Ok(made(target, Form::Tree(tree)));
    }
    let script = shell::read(text, set)?;
    let commands = commands(&script, set)?;
    let found = commands.iter().find_map(|words| started(words, files));
    // With `--from`, any Python program is taken to be of the user's tool.
    let found = found.or_else(|| commands.iter().find_map(|words| any_program(words, from?)));
    if let Some((target, before, words)) = found {
        check_start(&before, set)?;
        let num_gpus = ranks(&script, &before, set);
        let target = match from {
            Some(from) => from,
            None => of_files(target, &words, files),
        };
        return Ok(made(target, Form::Started(Started { words, num_gpus })));
    }
    // A list of arguments alone, on one line or several; an empty word takes the program's place.
    let all = commands.concat();
    let first = all.first().map_or("", |it| it.text.as_str());
    if first.starts_with("--") {
        let has = |start: &str| all.iter().any(|word| word.text.starts_with(start));
        let target = if has("--parallelism.") || has("--training.") {
            Target::TorchTitan
        } else if has("--per_device_train_batch_size") {
            Target::Trainer
        } else {
            Target::Megatron
        };
        let num_gpus = ranks(&script, &[], set);
        let words = std::iter::once(Word::known("")).chain(all).collect();
        let form = Form::Started(Started { words, num_gpus });
        return Ok(made(from.unwrap_or(target), form));
    }
    let typeset = all.iter().find_map(|word| Some((word, typeset(&word.text)?)));
    if let Some((word, Typeset { what, plain })) = typeset {
        let what = format!("nothing starts a program that is known; of `{}`: {what}", word.text);
        return Err(ImportError::Unknown { what, works: format!("`{plain}`") });
    }
    let programs: Vec<String> =
        commands.iter().filter_map(|words| Some(format!("`{}`", program(words)?.1.text))).collect();
    Err(match programs.as_slice() {
        [] => ImportError::Unknown {
            what: "nothing starts a program that is known".to_owned(),
            works: ANY.to_owned(),
        },
        programs => ImportError::Unknown {
            what: format!("{} is no program that is known", programs.join(" or ")),
            works: format!(
                "`--from megatron` reads its options as Megatron-LM's; `--from` also takes {}",
                options_of()
            ),
        },
    })
}

/// Names of tools that any program's options can be read as.
fn options_of() -> String {
    let told = [
        Target::TorchTitan,
        Target::DeepSpeed,
        Target::Accelerate,
        Target::Trainer,
        Target::Nanotron,
    ];
    told.map(|it| format!("`{}`", it.name())).join(", ")
}

/// Lines of a script that start known training programs; settings are read from the first.
///
/// # Errors
///
/// [`ImportError`] where a script cannot be read.
pub fn launches(text: &str, set: &BTreeMap<String, String>) -> Result<Vec<usize>, ImportError> {
    if !is_script(text) || is_of_bridge(text) {
        return Ok(Vec::new());
    }
    let script = shell::read(text, set)?;
    let all = script.commands.iter().zip(commands(&script, set)?);
    let none = BTreeMap::new();
    let launches = all.filter(|(_, words)| started(words, &none).is_some());
    Ok(launches.map(|(command, _)| command.line).collect())
}

/// Variables at the end of a script whose value is one known word.
pub fn variables(text: &str, set: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    if !is_script(text) || is_of_bridge(text) {
        return BTreeMap::new();
    }
    shell::read(text, set).map_or_else(|_| BTreeMap::new(), |script| script.variables)
}

/// Arguments of the first known training program of a script.
pub(super) fn arguments(text: &str, set: &BTreeMap<String, String>) -> Option<Vec<String>> {
    let script = shell::read(text, set).ok()?;
    let none = BTreeMap::new();
    let mut commands = commands(&script, set).ok()?.into_iter();
    let (.., words) = commands.find_map(|words| started(&words, &none))?;
    Some(words.into_iter().skip(1).map(|word| word.text).collect())
}

/// Index and word of the Python program that a command starts: a file, or the module after `-m`.
fn program(words: &[Word]) -> Option<(usize, &Word)> {
    let place = words.iter().position(|word| has_ending(&word.text, "py") || word.text == "-m")?;
    let place = place + usize::from(words[place].text == "-m");
    Some((place, words.get(place)?))
}

/// Python program of a command with the words before it, for the tool that the user names.
fn any_program(words: &[Word], target: Target) -> Option<(Target, Vec<Word>, Vec<Word>)> {
    let (place, _) = program(words)?;
    Some((target, words[..place].to_vec(), words[place..].to_vec()))
}

/// Returns whether a text is Python of Megatron-Bridge.
fn is_of_bridge(text: &str) -> bool {
    text.contains("import AutoBridge") || text.contains("ConfigContainer")
}

/// Forms of settings that can be read, for hints.
const ANY: &str = "a script that runs Megatron-LM's `pretrain_gpt.py`, `torchtitan.train`, `accelerate launch`, a \
    Trainer, or a program with `--deepspeed_config`; their arguments alone; a manifest of Kubernetes that \
    runs them; DeepSpeed's JSON, accelerate's YAML, the Trainer's arguments in a file; `--from` says which it is";

/// Returns whether a text is a script or a list of arguments: neither JSON nor YAML with a key in its first line.
pub(crate) fn is_script(text: &str) -> bool {
    if text.starts_with("#!") {
        return true;
    }
    let mut lines = text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'));
    let first = lines.next().unwrap_or_default();
    let is_key = |word: &str| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "_-.\"'".contains(c);
        !word.is_empty() && !word.starts_with('-') && word.chars().all(is_letter)
    };
    let key = first.split_once(':').filter(|(_, rest)| rest.is_empty() || rest.starts_with(' '));
    if ["[[ ", "[ -", "[ !", "[ \"", "[ $"].iter().any(|it| first.starts_with(it)) {
        return true;
    }
    !(first.starts_with(['{', '[']) || first == "---" || key.is_some_and(|(key, _)| is_key(key)))
}

/// Returns whether a text begins with a TOML table.
fn is_toml(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'));
    let table = lines.next().and_then(|first| first.strip_prefix('[')?.strip_suffix(']'));
    let is_key = |c: char| c.is_ascii_alphanumeric() || "_-.[]".contains(c);
    table.is_some_and(|it| {
        it.starts_with(|c: char| c.is_ascii_alphabetic()) && it.chars().all(is_key)
    })
}

/// Returns whether a text has the form, and keys if any, of settings of a tool that can be read.
pub fn is_read(text: &str) -> bool {
    is_of_bridge(text)
        || is_script(text)
        || Tree::read(text, notation("", text)).is_ok_and(|tree| of_tree(&tree).is_ok())
}

/// Tool to which the keys of a file belong.
fn of_tree(tree: &Tree) -> Result<Target, ImportError> {
    let has = |keys: &[&str]| keys.iter().any(|key| tree.get(key).is_some());
    let other = |what: &str, works: &str| {
        Err(ImportError::Unknown { what: what.to_owned(), works: works.to_owned() })
    };
    if has(&["layout"]) && has(&["breakdown", "prediction"]) {
        return other("this is a plan already", "`planner explain` reads it");
    }
    if has(&["num_hidden_layers", "model_type", "architectures"]) {
        return other("this is a model, not how it is trained", "give it as `--model`");
    }
    if has(&["per_device_train_batch_size", "output_dir"]) {
        return Ok(Target::Trainer);
    }
    if has(&["compute_environment", "distributed_type", "fsdp_config", "parallelism_config"]) {
        return Ok(Target::Accelerate);
    }
    if has(&["parallelism"]) && has(&["tokens", "optimizer", "general"]) {
        return Ok(Target::Nanotron);
    }
    let of_deepspeed = [
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "zero_optimization",
        "tensor_parallel",
        "activation_checkpointing",
    ];
    // Other tools use this key for gradient accumulation too, next to the model that they train.
    let is_others = has(&["base_model", "model", "model_name_or_path", "datasets"]);
    if has(&of_deepspeed) || has(&["gradient_accumulation_steps"]) && !is_others {
        return Ok(Target::DeepSpeed);
    }
    other("these are the keys of no tool that is known", ANY)
}

/// The Trainer instead of accelerate if the script's words, or a file that they name, have the Trainer's arguments.
fn of_files(target: Target, words: &[Word], files: &BTreeMap<String, String>) -> Target {
    if target != Target::Accelerate {
        return target;
    }
    let is_trainers = |word: &Word| {
        let keys = ["\"per_device_train_batch_size\"", "per_device_train_batch_size:"];
        let of_file = |text: &String| keys.iter().any(|key| text.contains(key));
        word.text.starts_with("--per_device_train_batch_size")
            || files.get(basename(&word.text)).is_some_and(of_file)
    };
    if words.iter().any(is_trainers) { Target::Trainer } else { target }
}

/// Commands of a script, where `bash -c` is replaced by the command that it runs.
fn commands(
    script: &Script,
    set: &BTreeMap<String, String>,
) -> Result<Vec<Vec<Word>>, ImportError> {
    let mut all = Vec::new();
    for Command { words, variables, .. } in &script.commands {
        let place = words.windows(3).position(|it| it[0].text == "bash" && it[1].text == "-c");
        let Some(place) = place else {
            all.push(words.clone());
            continue;
        };
        // Variables count even if they are not exported: a missing export is no matter of the settings.
        let mut known = variables.clone();
        known.extend(set.clone());
        known.extend(passed(&words[..place]));
        let inner = shell::read(&words[place + 2].text, &known)?;
        // The next word is `$0` of the inner script; the others are its `$@`.
        let rest = words.iter().skip(place + 4).cloned();
        let mut command = words[..place].to_vec();
        command.extend(inner.commands.last().cloned().unwrap_or_default().words);
        command.extend(rest);
        all.push(command);
    }
    Ok(all)
}

/// Variables that `srun --export` passes.
fn passed(words: &[Word]) -> BTreeMap<String, String> {
    let lists = words.iter().filter_map(|word| word.text.strip_prefix("--export="));
    let of_one =
        |it: &str| it.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    lists.flat_map(|list| list.split(',')).filter_map(of_one).collect()
}

/// Training program of a command: its tool, the words before it, and the words from it on.
fn started(
    words: &[Word],
    files: &BTreeMap<String, String>,
) -> Option<(Target, Vec<Word>, Vec<Word>)> {
    let text = |place: usize| words.get(place).map_or("", |it| it.text.as_str());
    let at =
        |place: usize, target| Some((target, words[..place].to_vec(), words[place..].to_vec()));
    for place in 0..words.len() {
        let (word, name) = (text(place), basename(text(place)));
        let is_python = has_ending(name, "py");
        if is_python && name.starts_with("pretrain_") {
            return at(place, Target::Megatron);
        }
        if word == "torchtitan.train" && text(place.wrapping_sub(1)) == "-m"
            || word.ends_with("torchtitan/train.py")
        {
            return at(place, Target::TorchTitan);
        }
        if name == "accelerate" && text(place + 1) == "launch" {
            return at(place + 1, Target::Accelerate);
        }
        if !is_python {
            continue;
        }
        let has = |start: &str| words[place..].iter().any(|it| it.text.starts_with(start));
        if name == "run_train.py" && has("--config-file") {
            return at(place, Target::Nanotron);
        }
        if files.get(name).is_some_and(|text| is_of_bridge(text)) {
            return at(place, Target::MegatronBridge);
        }
        if has("--per_device_train_batch_size") {
            return at(place, Target::Trainer);
        }
        if has("--deepspeed_config") {
            return at(place, Target::DeepSpeed);
        }
    }
    None
}

impl Source<'_> {
    /// Program with its words; an error if the settings are a file.
    pub(super) fn started(&self) -> Result<&Started, ImportError> {
        match &self.form {
            Form::Started(started) => Ok(started),
            _ => Err(ImportError::Unknown {
                what: format!("{} is told by options, not by such a file", self.target.tool()),
                works: "the script that starts it, or its arguments".to_owned(),
            }),
        }
    }
}

/// Value of the settings, else of the user; an error if both state different values.
pub(super) fn agreed<T: Copy + PartialEq + std::fmt::Display>(
    said: Option<T>,
    name: &str,
    stated: Option<T>,
    option: &str,
) -> Result<Option<T>, ImportError> {
    match (said, stated) {
        (Some(said), Some(stated)) if said != stated => Err(ImportError::Divides {
            of: Divided::Stated,
            instead: None,
            what: format!("the settings have `{name}` {said}, not {stated}"),
            works: format!("leave out `{option}`"),
        }),
        _ => Ok(said.or(stated)),
    }
}
