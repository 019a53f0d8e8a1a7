//! Tools and older versions whose settings are those of the Trainer, of Megatron or of torchtitan in other words: a table of each says which key becomes which.
//!
//! A line of a table is a key, `any`, and what it becomes; a key that ends with `*` stands for all with this prefix:
//!
//! ```text
//! gradient_checkpointing any gradient_checkpointing unsloth=true
//! ```
//!
//! | what it becomes | what that is |
//! |---|---|
//! | an option of the other tool | with the same value; after it words that are changed, `word=other`, of which `word=` takes the option away, and `-=value` for where the key is not given |
//! | `none` | nothing: it changes no step |
//! | `unplanned` | nothing, though it may change a step: it is named, with what it is after ` # `, unless it is off or has a value `word=` |
//! | `must` | nothing, but only settings with one of the values `word=` are read |
//! | `nodes`, `each`, `batch` | the number of nodes, of ranks on each, of sequences in a step |
//! | `pure` | weights and moments in 16 bits alone |
//!
//! Keys that are not in the table, but are the other tool's, are handed on as they are.

use std::collections::BTreeMap;

use ir::cluster::Precision;

use super::super::error::ImportError;
use super::super::file::{basename, has_ending};
use super::super::imported::{Imported, Unread};
use super::super::options::{Leaf, OptionError, ParsedOptions, Vocabulary};
use super::super::shell::Word;
use super::super::source::{Form, Source};
use super::super::target::Target;
use super::super::tool::Tool;
use super::super::tree::Tree;
use super::{accelerate, megatron, torchtitan};
use crate::interchange::launch::Program;

/// A key with its values.
type Setting = (String, Vec<Word>);

/// The tool that settings are handed on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Trainer,
    Megatron,
    Torchtitan,
}

/// A tool that hands its settings on.
struct Wrapper {
    vocabulary: Vocabulary,
    base: Base,
    /// Keys within which the settings are, if not at the top.
    within: &'static [&'static str],
    /// Beginning of keys that are the other tool's after it.
    prefix: &'static str,
    /// Adds what follows from several keys.
    adds: fn(&mut Vec<Setting>),
}

impl Wrapper {
    const fn new(program: &'static str, table: &'static str, base: Base) -> Self {
        Self { vocabulary: Vocabulary::with_own(program, table), base, within: &[], prefix: "", adds: |_| {} }
    }
}

const AXOLOTL: Wrapper = Wrapper {
    adds: shards,
    ..Wrapper::new("axolotl", include_str!("axolotl.txt"), Base::Trainer)
};
const LLAMA_FACTORY: Wrapper =
    Wrapper::new("LLaMA-Factory", include_str!("llama_factory.txt"), Base::Trainer);
const SWIFT: Wrapper = Wrapper::new("ms-swift", include_str!("swift.txt"), Base::Trainer);
const MEGATRON_SWIFT: Wrapper =
    Wrapper::new("ms-swift", include_str!("megatron_swift.txt"), Base::Megatron);
const SLIME: Wrapper = Wrapper::new("slime", include_str!("slime.txt"), Base::Megatron);
const VERL: Wrapper = Wrapper {
    adds: mini_batch,
    ..Wrapper::new("verl", include_str!("verl.txt"), Base::Trainer)
};
const MEGATRON_VERL: Wrapper = Wrapper {
    adds: mini_batch,
    ..Wrapper::new("verl", include_str!("megatron_verl.txt"), Base::Megatron)
};
const PRIMUS: Wrapper = Wrapper {
    within: &["modules", "pre_trainer"],
    prefix: "overrides.",
    ..Wrapper::new("Primus", include_str!("primus.txt"), Base::Megatron)
};
const NEMO: Wrapper = Wrapper::new("NeMo", include_str!("nemo.txt"), Base::Megatron);

const TORCHTUNE: Wrapper = Wrapper {
    adds: recipe,
    ..Wrapper::new("torchtune", include_str!("torchtune.txt"), Base::Trainer)
};
const TORCHTITAN: Wrapper =
    Wrapper::new("torchtitan", include_str!("torchtitan_toml.txt"), Base::Torchtitan);

/// A tool whose settings are read, but not written.
const fn tool(target: Target) -> Tool {
    Tool { is_written: false, ..Tool::new(target, |_, _| Program::default()) }
}

/// A tool that hands its settings on to Megatron.
const fn of_megatron(target: Target) -> Tool {
    Tool { model_arguments: megatron::model_arguments, has_fp32_gradients: true, ..tool(target) }
}

/// Start of a program that is one of some modules or scripts, wherever in a command its name is.
fn started(words: &[Word], place: usize, is_it: impl Fn(&[Word], usize) -> bool) -> Option<usize> {
    if place > 0 {
        return None;
    }
    (0..words.len()).find(|at| is_it(words, *at))
}

/// Returns whether a word is one of some names, and the next, if one is given, is one of its commands.
fn is_command(words: &[Word], at: usize, names: &[&str], commands: &[&str]) -> bool {
    let next = words.get(at + 1).map_or("", |it| it.text.as_str());
    names.contains(&basename(&words[at].text)) && commands.contains(&next)
}

fn has_option(words: &[Word], names: &[&str]) -> bool {
    words.iter().any(|word| {
        let name = word.text.split('=').next().unwrap_or_default().replace('-', "_");
        names.contains(&name.trim_start_matches('_'))
    })
}

/// axolotl: its YAML.
pub(super) static AXOLOTL_TOOL: Tool = Tool {
    read: Some(|source| read(source, &AXOLOTL)),
    starts: |words, place, _| {
        started(words, place, |words, at| {
            is_command(words, at, &["axolotl"], &["train", "preprocess"])
                || words[at].text == "axolotl.cli.train"
        })
    },
    has_keys: |tree| {
        tree.has("base_model")
            && tree.has_any(&["sequence_len", "micro_batch_size", "datasets", "adapter"])
    },
    ..tool(Target::new("axolotl", "axolotl 0.21", "fsdp2"))
};

/// LLaMA-Factory: its YAML or options.
pub(super) static LLAMA_FACTORY_TOOL: Tool = Tool {
    read: Some(|source| read(source, &LLAMA_FACTORY)),
    starts: |words, place, _| {
        started(words, place, |words, at| {
            is_command(words, at, &["llamafactory-cli", "lmf"], &["train"])
                || words[at].is_python("") && has_option(words, &["finetuning_type"])
        })
    },
    has_keys: |tree| {
        tree.has("model_name_or_path")
            && tree.has_any(&["finetuning_type", "cutoff_len", "template"])
    },
    ..tool(Target::new("llama-factory", "LLaMA-Factory 0.9", "fsdp2"))
};

/// ms-swift: options of `swift sft` and its sisters.
pub(super) static SWIFT_TOOL: Tool = Tool {
    read: Some(|source| read(source, &SWIFT)),
    starts: |words, place, _| {
        started(words, place, |words, at| {
            is_command(words, at, &["swift"], &["sft", "pt", "rlhf"])
                || ["swift.cli.sft", "swift.cli.pt", "swift.cli.rlhf"].contains(&words[at].text.as_str())
                || words[at].text.ends_with("swift/cli/sft.py")
        })
    },
    ..tool(Target::new("ms-swift", "ms-swift 4", "fsdp2"))
};

/// ms-swift with Megatron: options of `megatron sft` and its sisters.
pub(super) static MEGATRON_SWIFT_TOOL: Tool = Tool {
    read: Some(|source| read(source, &MEGATRON_SWIFT)),
    starts: |words, place, _| {
        started(words, place, |words, at| {
            is_command(words, at, &["megatron"], &["sft", "pt", "rlhf"])
        })
    },
    ..of_megatron(Target::new("megatron-swift", "ms-swift 4 with Megatron", "megatron-core"))
};

/// slime: options of `train.py`, Megatron's among them.
pub(super) static SLIME_TOOL: Tool = Tool {
    read: Some(|source| read(source, &SLIME)),
    starts: |words, place, _| {
        started(words, place, |words, at| {
            let is_own = has_option(words, &["actor_num_nodes", "actor_num_gpus_per_node"]);
            words[at].is_python("train") && is_own
        })
    },
    ..of_megatron(Target::new("slime", "slime", "megatron-core"))
};

fn is_verl(words: &[Word], at: usize) -> bool {
    words[at].text.starts_with("verl.trainer.")
}

fn is_megatron(words: &[Word]) -> bool {
    words.iter().any(|word| {
        word.text.contains("megatron_trainer")
            || word.text.starts_with("actor_rollout_ref.actor.megatron.")
            || word.text.starts_with("actor_rollout_ref.actor.strategy=megatron")
    })
}

/// verl: options of its trainers, as Hydra takes them.
pub(super) static VERL_TOOL: Tool = Tool {
    read: Some(|source| read(source, &VERL)),
    starts: |words, place, _| {
        started(words, place, |words, at| is_verl(words, at) && !is_megatron(words))
    },
    has_keys: |tree| tree.has("actor_rollout_ref"),
    ..tool(Target::new("verl", "verl", "fsdp2"))
};

/// verl whose actor is trained with Megatron.
pub(super) static MEGATRON_VERL_TOOL: Tool = Tool {
    read: Some(|source| read(source, &MEGATRON_VERL)),
    starts: |words, place, _| {
        started(words, place, |words, at| is_verl(words, at) && is_megatron(words))
    },
    ..of_megatron(Target::new("megatron-verl", "verl with Megatron", "megatron-core"))
};

/// Primus: its YAML with Megatron's options.
pub(super) static PRIMUS_TOOL: Tool = Tool {
    read: Some(|source| read(source, &PRIMUS)),
    has_keys: |tree| tree.get("modules").is_some_and(|it| it.has_any(&["pre_trainer", "post_trainer"])),
    ..of_megatron(Target::new("primus", "Primus", "megatron-core"))
};

/// NeMo: the YAML of its Megatron models.
pub(super) static NEMO_TOOL: Tool = Tool {
    read: Some(|source| read(source, &NEMO)),
    has_keys: |tree| {
        tree.has("trainer")
            && tree.get("model").is_some_and(|it| it.has_any(&["micro_batch_size", "tensor_model_parallel_size"]))
    },
    ..of_megatron(Target::new("nemo", "NeMo 1", "megatron-core"))
};

/// torchtune: the YAML of its recipes.
pub(super) static TORCHTUNE_TOOL: Tool = Tool {
    read: Some(|source| read(source, &TORCHTUNE)),
    starts: |words, place, _| {
        started(words, place, |words, at| is_command(words, at, &["tune"], &["run"]))
    },
    has_keys: |tree| {
        let has = |key: &str| tree.get(key).is_some_and(|it| it.has("_component_"));
        has("model") || has("tokenizer")
    },
    ..tool(Target::new("torchtune", "torchtune 0.6", "fsdp2"))
};

/// torchtitan: the TOML of its older versions.
pub(super) static TORCHTITAN_TOOL: Tool = Tool {
    read: Some(|source| read(source, &TORCHTITAN)),
    has_keys: |tree| {
        tree.has("training")
            && tree.has_any(&["job", "parallelism", "activation_checkpoint", "experimental", "comm"])
            && !tree.has("distributed")
    },
    states_loss: true,
    has_fp32_gradients: true,
    ..tool(Target::new("torchtitan-toml", "torchtitan 0.2 and older", "torchtitan"))
};

fn read(source: &Source<'_>, wrapper: &Wrapper) -> Result<Imported, ImportError> {
    let settings = settings(source, wrapper)?;
    let mut translated = translated(wrapper, settings)?;
    let lora = &translated.lora;
    let mut imported = match wrapper.base {
        Base::Trainer => accelerate::read_words(source, &translated.words)?,
        Base::Torchtitan => {
            translated.words.extend(translated.policy.take());
            torchtitan::read_words(source, &translated.words)?
        }
        Base::Megatron => {
            let mut imported = megatron::read_words(source, &translated.words)?;
            imported.adapters = accelerate::adapters(lora)?;
            imported
        }
    };
    let job = |name: &str| translated.job.get(name).copied();
    if let Some(each) = job("each") {
        let ranks = each.checked_mul(job("nodes").unwrap_or(1));
        let ranks = ranks.and_then(|it| u32::try_from(it).ok());
        imported.num_gpus = imported.num_gpus.or(ranks);
        imported.ranks_per_node = u32::try_from(each).ok();
    }
    if let Some(batch) = job("batch") {
        imported.training.global_batch_size = Some(batch);
        imported.training.num_micro_batches = None;
    }
    if job("pure").is_some() && imported.training.precision == Precision::Bf16 {
        imported.training.no_master_weights = true;
        imported.training.bf16_moments = true;
    }
    imported.source = source.target;
    imported.unread.append(&mut translated.unread);
    Ok(imported)
}

/// Settings of a tool in the words of another.
#[derive(Debug, Default)]
struct Translated {
    words: Vec<Word>,
    /// torchtitan's last word: what is computed again.
    policy: Option<Word>,
    lora: ParsedOptions,
    job: BTreeMap<&'static str, u64>,
    unread: Vec<Unread>,
}

/// Words of PEFT, for tools whose own options Megatron does not have.
const LORA: [&str; 6] =
    ["use_peft", "lora_r", "lora_alpha", "lora_target_modules", "load_in_4bit", "load_in_8bit"];

fn translated(wrapper: &Wrapper, settings: Vec<Setting>) -> Result<Translated, ImportError> {
    let Wrapper { vocabulary, base, .. } = wrapper;
    let mut all = Translated::default();
    let mut rest = Vec::new();
    for (key, words) in &settings {
        let Some(row) = row(vocabulary, key) else {
            match base_option(*base, key.strip_prefix(wrapper.prefix).unwrap_or(key)) {
                Some(option) => all.hand_on(*base, &option, words.clone())?,
                None => rest.push((key.clone(), leaf(words))),
            }
            continue;
        };
        let mut forms = row.split(" # ").next().unwrap_or_default().split_whitespace().skip(2);
        let becomes = forms.next().unwrap_or("none");
        match becomes {
            "none" => {}
            "unplanned" => {
                let why = row.split_once(" # ").map_or("", |it| it.1);
                if forms.any(|form| form.strip_suffix('=') == words.first().map(|it| it.text.as_str())) {
                    continue;
                }
                let given = ParsedOptions::default().with_words(key, words.clone());
                all.unread.extend(given.unread(std::iter::once((key.as_str(), why)), ""));
            }
            "must" => {
                let value = words.first().map_or("", |it| it.text.as_str());
                let known: Vec<&str> = forms.filter_map(|form| form.strip_suffix('=')).collect();
                if !known.contains(&value) {
                    return Err(ImportError::unknown(
                        format!("`{key}` is `{value}`, with which settings of {} are not read", vocabulary.program()),
                        known.join(", "),
                    ));
                }
            }
            "nodes" | "each" | "batch" | "pure" => {
                let given = ParsedOptions::default().with_words(key, words.clone());
                all.job.extend(given.count(key)?.map(|it| (becomes, it)));
            }
            option => {
                let is_it = |form: &(&str, &str)| words.first().is_some_and(|it| it.text == form.0);
                let changed = forms.filter_map(|form| form.split_once('=')).find(is_it);
                let words = match changed {
                    Some((_, "")) => continue,
                    Some((_, other)) => vec![Word::known(other)],
                    None => words.clone(),
                };
                all.hand_on(*base, option, words)?;
            }
        }
    }
    for line in vocabulary.table.lines() {
        let mut words = line.split(" # ").next().unwrap_or_default().split_whitespace();
        let (Some(key), Some(option)) = (words.next(), words.nth(1)) else { continue };
        let usual = words.find_map(|form| form.strip_prefix("-="));
        let is_given = settings.iter().any(|(given, _)| given == key) || all.has(option);
        if let Some(usual) = usual.filter(|_| !is_given) {
            all.hand_on(*base, option, vec![Word::known(usual)])?;
        }
    }
    let others = vocabulary.of_leaves(&rest)?;
    all.unread.extend(others.unread(std::iter::empty(), vocabulary.program()));
    Ok(all)
}

impl Translated {
    fn has(&self, option: &str) -> bool {
        self.words.iter().any(|it| it.text.trim_start_matches("--") == option.trim_start_matches("--"))
    }

    /// Adds an option of the other tool, as its parser takes it.
    fn hand_on(&mut self, base: Base, option: &str, words: Vec<Word>) -> Result<(), OptionError> {
        if base == Base::Megatron && LORA.contains(&option) {
            self.lora = std::mem::take(&mut self.lora).with_words(option, words);
            return Ok(());
        }
        if base == Base::Torchtitan && option == "activation-checkpoint:" {
            let mode = words.first().map_or("", |it| it.text.as_str());
            self.policy = Some(Word::known(&format!("{option}{mode}")));
            return Ok(());
        }
        let vocabulary = match base {
            Base::Trainer => None,
            Base::Megatron => Some(megatron::TABLE.vocabulary),
            Base::Torchtitan => Some(torchtitan::TABLE.vocabulary),
        };
        let is_switch = vocabulary.is_some_and(|it| it.takes(option) == Some("none"));
        if is_switch {
            let given = ParsedOptions::default().with_words(option, words);
            let is_on = given.flag(option)?.unwrap_or(false);
            self.words.extend(is_on.then(|| Word::known(option)));
            return Ok(());
        }
        if words.iter().all(|it| it.text.is_empty() && it.unknown.is_empty()) && base != Base::Trainer {
            return Ok(());
        }
        // Of two keys that become one option, the later counts.
        let name = format!("--{}", option.trim_start_matches("--"));
        if let Some(at) = self.words.iter().position(|it| it.text == name) {
            let end = self.words[at + 1..].iter().position(|it| it.text.starts_with("--"));
            self.words.drain(at..end.map_or(self.words.len(), |end| at + 1 + end));
        }
        self.words.push(Word::known(&name));
        self.words.extend(words);
        Ok(())
    }
}

/// Line of a key; one with its whole name counts before one with a prefix.
fn row(vocabulary: &Vocabulary, key: &str) -> Option<&'static str> {
    let is_within = |line: &&str| {
        let name = line.split_whitespace().next().unwrap_or_default();
        name.strip_suffix('*').is_some_and(|start| key.starts_with(start))
    };
    let is_it = |line: &&str| line.split_whitespace().next() == Some(key);
    let mut lines = vocabulary.table.lines();
    vocabulary.table.lines().find(is_it).or_else(|| lines.find(is_within))
}

/// The other tool's option of the same name.
fn base_option(base: Base, key: &str) -> Option<String> {
    match base {
        Base::Trainer => accelerate::TRAINER.vocabulary.takes(key).map(|_| key.to_owned()),
        Base::Megatron => {
            let flag = |key: &str| format!("--{}", key.replace('_', "-"));
            let plain = flag(key);
            megatron::TABLE.vocabulary.takes(&plain).map(|_| plain)
        }
        Base::Torchtitan => {
            let plain = format!("--{key}");
            torchtitan::TABLE.vocabulary.takes(&plain).map(|_| plain)
        }
    }
}

fn leaf(words: &[Word]) -> Leaf {
    Leaf::Values(words.iter().map(|it| it.text.clone()).collect())
}

/// Every key of a file or option of a command, with its values.
fn settings(source: &Source<'_>, wrapper: &Wrapper) -> Result<Vec<Setting>, ImportError> {
    let mut all: Vec<Setting> = Vec::new();
    match &source.form {
        Form::Tree(tree) => all.extend(of_tree(tree, wrapper)),
        Form::Started(started) => {
            let mut words = started.words.get(1..).unwrap_or_default();
            // The name of a command, such as `train`.
            if words.first().is_some_and(|it| !it.text.starts_with('-') && !it.text.contains(['.', '='])) {
                words = &words[1..];
            }
            if let [first, rest @ ..] = words
                && ["yaml", "yml", "json"].iter().any(|it| has_ending(&first.text, it))
            {
                all.extend(of_tree(&source.tree(&first.text)?, wrapper));
                words = rest;
            }
            let options = of_words(words);
            let file = options.iter().find(|it| it.0 == "config").and_then(|it| it.1.first());
            if let Some(file) = file.filter(|it| has_ending(&it.text, "yaml")) {
                all.extend(of_tree(&source.tree(&file.text)?, wrapper));
            }
            for option in options {
                all.retain(|known| known.0 != option.0);
                all.push(option);
            }
        }
        Form::Python(_) => drop(source.started()?),
    }
    (wrapper.adds)(&mut all);
    Ok(all)
}

fn of_tree(tree: &Tree, wrapper: &Wrapper) -> Vec<Setting> {
    let inner = wrapper.within.iter().try_fold(tree, |tree, key| tree.get(key)).unwrap_or(tree);
    let setting = |(key, leaf): (String, Leaf)| {
        let values = match leaf {
            Leaf::Null => return None,
            Leaf::NoKeys => Vec::new(),
            Leaf::Values(values) => values,
        };
        Some((key, values.iter().map(|it| of_value(it)).collect()))
    };
    inner.leaves().into_iter().filter_map(setting).collect()
}

/// Value of a key: of `${NAME:default}` the default, and of `${NAME}` none that is known.
fn of_value(text: &str) -> Word {
    let variable = text.strip_prefix("${").and_then(|it| it.strip_suffix('}'));
    match variable.map(|it| it.split_once(':').map_or((it, None), |(name, usual)| (name, Some(usual)))) {
        Some((_, Some(usual))) => Word::known(usual),
        Some((name, None)) => {
            Word { text: String::new(), unknown: std::iter::once(name.to_owned()).collect() }
        }
        None => Word::known(text),
    }
}

/// Options `--key value`, `--key=value` and `key=value`, by the names of keys.
fn of_words(words: &[Word]) -> Vec<Setting> {
    let mut all: Vec<Setting> = Vec::new();
    for word in words {
        let name = word.text.trim_start_matches(['-', '+']);
        let is_option = word.text.starts_with("--");
        match (name.split_once('='), is_option) {
            (Some((name, value)), _) if is_option || is_key(name) => {
                let value = value.trim_matches(['\'', '"']).to_owned();
                let value = Word { text: value, unknown: word.unknown.clone() };
                all.push((key(name, is_option), vec![value]));
            }
            (_, true) => all.push((key(name, true), Vec::new())),
            _ => {
                if let Some(last) = all.last_mut() {
                    last.1.push(word.clone());
                }
            }
        }
    }
    all
}

fn is_key(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c))
}

fn key(name: &str, is_option: bool) -> String {
    if is_option { name.replace('-', "_") } else { name.to_owned() }
}

fn value<'a>(all: &'a [Setting], key: &str) -> Option<&'a str> {
    let (_, words) = all.iter().find(|it| it.0 == key)?;
    words.first().map(|it| it.text.as_str())
}

fn number(all: &[Setting], key: &str) -> Option<u64> {
    value(all, key)?.parse().ok()
}

fn add(all: &mut Vec<Setting>, key: &str, value: impl ToString) {
    all.push((key.to_owned(), vec![Word::known(&value.to_string())]));
}

/// axolotl shards where a degree or FSDP's keys say so, without the Trainer's `fsdp`.
fn shards(all: &mut Vec<Setting>) {
    let is_parted = ["dp_shard_size", "tensor_parallel_size", "context_parallel_size"]
        .iter()
        .any(|key| number(all, key).is_some_and(|it| it > 1));
    let has_keys = all.iter().any(|it| it.0.starts_with("fsdp_config.") || it.0 == "fsdp_version");
    if (is_parted || has_keys) && value(all, "fsdp").is_none() && value(all, "deepspeed").is_none() {
        add(all, "fsdp", "full_shard");
    }
}

/// torchtune's recipes shard as FSDP does, in the number format of the weights; LoRA is in the model's arguments.
fn recipe(all: &mut Vec<Setting>) {
    if value(all, "dtype") == Some("bf16") {
        add(all, "pure", 1);
    }
    if value(all, "model.lora_rank").is_none() {
        return;
    }
    add(all, "use_peft", true);
    let is_on = |key: &str| value(all, key).is_some_and(|it| it.eq_ignore_ascii_case("true"));
    let of_mlp = if is_on("model.apply_lora_to_mlp") { &["gate_proj", "up_proj", "down_proj"][..] } else { &[] };
    let of_attention = all.iter().find(|it| it.0 == "model.lora_attn_modules");
    let of_attention = of_attention.map_or(&[][..], |it| it.1.as_slice());
    let plain = |word: &Word| Word::known(if word.text == "output_proj" { "o_proj" } else { &word.text });
    let targets = of_attention.iter().map(plain).chain(of_mlp.iter().map(|it| Word::known(it)));
    let targets = targets.collect();
    all.push(("targets".to_owned(), targets));
}

/// verl updates the actor once for each mini-batch, of so many prompts with `n` answers each.
fn mini_batch(all: &mut Vec<Setting>) {
    let of = |key: &str| number(all, key);
    if let Some(prompts) = of("actor_rollout_ref.actor.ppo_mini_batch_size") {
        let answers = of("actor_rollout_ref.rollout.n").unwrap_or(1);
        add(all, "global_batch_size", prompts.saturating_mul(answers));
    } else if let Some(batch) = of("data.train_batch_size") {
        add(all, "global_batch_size", batch);
    }
    let of = |key: &str| number(all, key);
    let length = match [of("data.max_prompt_length"), of("data.max_response_length")] {
        [Some(prompt), Some(answer)] => Some(prompt.saturating_add(answer)),
        _ => of("data.max_length"),
    };
    if let Some(length) = length {
        add(all, "sequence_length", length);
    }
    if value(all, "actor_rollout_ref.model.lora_rank").is_some_and(|it| it != "0") {
        add(all, "use_peft", true);
    }
}
