//! Tools, and older versions of tools, whose settings are those of the Trainer, of Megatron or of torchtitan under
//! other names. A table for each states which key becomes which option.
//!
//! A line of a table is a key, `any`, and what the key becomes. A key that ends with `*` stands for all keys with this
//! prefix:
//!
//! ```text
//! gradient_checkpointing any gradient_checkpointing unsloth=true
//! ```
//!
//! | what it becomes | what that is |
//! |---|---|
//! | an option of the other tool | with the same value; after it words that are changed, `word=other`, of which `word=` takes the option away, and `-=value` for where the key is not given |
//! | `none` | nothing: it changes no step |
//! | `unplanned` | nothing, though it may change a step: it is named, with what it is after ` # `, unless it is off or has a value `word=`; `saves-memory` before the ` # ` is for what makes the prediction too large |
//! | `must` | nothing, but only settings with one of the values `word=` are read |
//! | `nodes`, `each`, `batch` | the number of nodes, of ranks on each, of sequences in a step |
//! | `pure` | weights and moments in 16 bits alone |
//!
//! `word` instead of `any` marks a key that is derived from several keys, so that no file has it; `none` marks a switch
//! without a value. Keys that are not in the table but belong to the other tool are passed on unchanged.

use std::collections::BTreeMap;

use ir::cluster::Precision;
use ir::framework::{Abilities, Feature, GradientSum};
use ir::graph::ContextParallelKind;
use ir::layout::ZeroStage;

use super::super::{accelerate, megatron, torchtitan};
use super::hydra;
use super::own::{NO_OPTION, in_own_words};
use super::references::{self, Values};
use super::wrapper::{Base, Same, Setting, Wrapper, base_option};
use crate::interchange::error::ImportError;
use crate::interchange::file::{basename, has_ending};
use crate::interchange::imported::Imported;
use crate::interchange::index::IndexedRow;
use crate::interchange::options::{Leaf, OptionError, ParsedOptions, UnknownPart};
use crate::interchange::shell::Word;
use crate::interchange::source::{Form, Source};
use crate::interchange::tree::Tree;
use crate::interchange::unread::Unread;

pub(super) fn read(source: &Source<'_>, wrapper: &Wrapper) -> Result<Imported, ImportError> {
    let settings = settings(source, wrapper)?;
    imported(source, wrapper, &settings).map_err(|it| in_own_words(it, wrapper, &settings))
}

fn imported(
    source: &Source<'_>,
    wrapper: &Wrapper,
    settings: &[Setting],
) -> Result<Imported, ImportError> {
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
        // If the number of nodes is left to the launcher, the user's number of ranks determines it.
        let is_open = job("nodes").is_none() && source.stated.num_gpus.is_some();
        let ranks = ranks.filter(|_| !is_open).and_then(|it| u32::try_from(it).ok());
        imported.num_gpus = imported.num_gpus.or(ranks);
        imported.ranks_per_node = u32::try_from(each).ok();
    }
    if let Some(batch) = job("batch") {
        imported.training.global_batch_size = Some(batch);
        imported.training.num_micro_batches = None;
    }
    if wrapper.base == Base::Trainer {
        // These tools shard with their own code, or with versions of accelerate that can combine both.
        let excluded = [Feature::Zero2, Feature::Zero3];
        imported.framework.abilities.exclusions.retain(|it| {
            let is_sharded = excluded.iter().any(|zero| it.set().has(*zero));
            !(is_sharded && it.set().has(Feature::TensorParallel))
        });
    }
    if wrapper.reduces_each {
        imported.framework.gradients.sharded_sum = GradientSum::Part;
    }
    with_own_context_parallel(&mut imported.framework.abilities, wrapper.context_parallel);
    let is_replicated =
        imported.layout.zero_stage == ZeroStage::None && imported.adapters.is_none();
    let is_pure = job("pure").is_some() || wrapper.loads_16_bits && is_replicated;
    if is_pure && imported.training.precision == Precision::Bf16 {
        imported.keep_16_bits();
    }
    imported.source = source.target;
    imported.unread.append(&mut translated.unread);
    Ok(imported)
}

/// Adds a tool's own context parallelism, which is not part of the framework. Combinations that the framework refuses
/// with context parallelism become possible, except those with tensor or pipeline parallelism.
fn with_own_context_parallel(abilities: &mut Abilities, kinds: &[ContextParallelKind]) {
    if kinds.is_empty() {
        return;
    }
    let added = kinds.iter().filter(|it| !abilities.context_parallel.contains(it)).copied();
    let added: Vec<ContextParallelKind> = added.collect();
    abilities.context_parallel.extend(added);
    let own = [Feature::ContextParallel, Feature::Ring, Feature::AllToAll];
    let others = [Feature::TensorParallel, Feature::PipelineParallel];
    abilities.exclusions.retain(|it| {
        let has = |all: &[Feature]| all.iter().any(|feature| it.set().has(*feature));
        !has(&own) || has(&others)
    });
}

/// Settings of a tool, translated to options of another.
#[derive(Debug, Default)]
struct Translated {
    words: Vec<Word>,
    /// torchtitan's last word: the recompute policy.
    policy: Option<Word>,
    lora: ParsedOptions,
    job: BTreeMap<&'static str, u64>,
    unread: Vec<Unread>,
}

/// PEFT's options, for tools whose own adapter options Megatron does not have.
const LORA: [&str; 6] =
    ["use_peft", "lora_r", "lora_alpha", "lora_target_modules", "load_in_4bit", "load_in_8bit"];

/// Prefix of the name for unknown words that follow an option which has its value.
const FOLLOWS: &str = "what follows ";

/// torchtitan's word for the recompute policy, before its value.
const POLICY: &str = "activation-checkpoint:";

fn translated(wrapper: &Wrapper, settings: &[Setting]) -> Result<Translated, ImportError> {
    let Wrapper { vocabulary, base, .. } = wrapper;
    let mut all = Translated::default();
    let mut rest = Vec::new();
    for (key, words) in settings {
        if let Some(after) = key.strip_prefix(FOLLOWS) {
            let unknown = words.iter().flat_map(|it| it.unknown.iter().cloned()).collect();
            let of = UnknownPart::After(after.to_owned());
            return Err(OptionError::unresolved(of, unknown).into());
        }
        let Some(row) = vocabulary.index().of_key(key) else {
            if let Some(option) = base_option(*base, wrapper.bare(key)) {
                all.hand_on(*base, &option, words.clone())?;
            } else {
                refuse_misspelt(wrapper, key, words)?;
                rest.push((key.clone(), leaf(words)));
            }
            continue;
        };
        let becomes = row.becomes.unwrap_or("none");
        match becomes {
            "none" => {}
            "unplanned" => {
                let given = ParsedOptions::default().with_words(key, words.clone());
                all.unread.extend(given.unread(std::iter::once((key.as_str(), row)), ""));
            }
            "must" => {
                let value = words.first().map_or("", |it| it.text.as_str());
                let known = row.words.iter().filter_map(|form| form.strip_suffix('='));
                let known: Vec<&str> = known.collect();
                if !known.contains(&value) {
                    return Err(ImportError::unknown(
                        format!(
                            "`{key}` is `{value}`, with which settings of {} are not read",
                            vocabulary.program()
                        ),
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
                let forms = row.words.iter().filter_map(|form| form.split_once('='));
                refuse_other_word(key, words, forms.clone())?;
                let changed = forms.clone().find(is_it);
                let words = match changed {
                    Some((_, "")) => continue,
                    Some((_, other)) => vec![Word::known(other)],
                    None => words.clone(),
                };
                if option == POLICY {
                    let policies = [("none", ()), ("selective", ()), ("full", ())];
                    ParsedOptions::default()
                        .with_words(key, words.clone())
                        .one_of(key, &policies)?;
                }
                all.hand_on(*base, option, words)?;
            }
        }
    }
    let becomes: Vec<Option<&str>> = settings
        .iter()
        .map(|(given, _)| vocabulary.index().of_key(given).and_then(|row| row.becomes))
        .collect();
    for row in &vocabulary.index().rows {
        let IndexedRow { name: key, becomes: Some(option), .. } = *row else { continue };
        let usual = row.words.iter().find_map(|form| form.strip_prefix("-="));
        let usual = usual.filter(|_| !NO_OPTION.contains(&option));
        let is_given = settings.iter().any(|it| it.0 == key)
            || becomes.contains(&Some(option))
            || all.has(option);
        if let Some(usual) = usual.filter(|_| !is_given) {
            all.hand_on(*base, option, vec![Word::known(usual)])?;
        }
    }
    let others = vocabulary.of_leaves(&rest)?;
    all.unread.extend(others.unread(std::iter::empty(), vocabulary.program()));
    Ok(all)
}

/// Refuses a key that is certainly a misspelt option of Megatron's, as Megatron's own parser does. A key that is an
/// option without its `no-` is not misspelt: Megatron's parser names the value of such a switch so.
fn refuse_misspelt(wrapper: &Wrapper, key: &str, words: &[Word]) -> Result<(), OptionError> {
    let Wrapper { vocabulary, base, same, .. } = wrapper;
    let bare = wrapper.bare(key);
    let plain = bare.replace('_', "-");
    let is_own = base.vocabulary().arity(&format!("--no-{plain}")).is_some() || bare.contains('.');
    if *base != Base::Megatron || *same == Same::Never || is_own {
        return Ok(());
    }
    let read = base.vocabulary().of_leaves(&[(format!("--{plain}"), leaf(words))]);
    read.map(drop).map_err(|error| match error {
        OptionError::Unknown { nearest, .. } => {
            let before = key.strip_suffix(bare).unwrap_or_default();
            let own =
                |it: String| before.to_owned() + &it.trim_start_matches('-').replace('-', "_");
            let nearest = nearest.map(own);
            OptionError::Unknown { name: key.to_owned(), program: vocabulary.program(), nearest }
        }
        other => other,
    })
}

/// Words for on and off in YAML and on command lines.
const SWITCHED: [&str; 2] = ["true", "false"];

/// Refuses an unknown word for a switch that has its own words for on or off.
fn refuse_other_word<'a>(
    key: &str,
    words: &[Word],
    forms: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), OptionError> {
    let forms: Vec<(&str, &str)> = forms.filter(|(word, _)| *word != "-").collect();
    let own = |word: &&str| !SWITCHED.contains(&word.to_lowercase().as_str());
    let known: Vec<&str> = forms.iter().map(|it| it.0).filter(own).collect();
    let is_switch = forms.iter().all(|(_, value)| value.is_empty() || SWITCHED.contains(value))
        && forms.iter().any(|(word, value)| SWITCHED.contains(value) && own(word));
    let other = words.first().filter(|it| it.unknown.is_empty() && !it.text.is_empty());
    match other.map(|it| it.text.as_str()) {
        Some(word) if is_switch && own(&word) && !known.contains(&word) => {
            let works = format!("one of {} is expected", known.join(", "));
            Err(OptionError::value(key, word, works))
        }
        _ => Ok(()),
    }
}

impl Translated {
    fn has(&self, option: &str) -> bool {
        self.words
            .iter()
            .any(|it| it.text.trim_start_matches("--") == option.trim_start_matches("--"))
    }

    /// Adds an option of the other tool, in the form that its parser accepts.
    fn hand_on(&mut self, base: Base, option: &str, words: Vec<Word>) -> Result<(), OptionError> {
        if base == Base::Megatron && LORA.contains(&option) {
            self.lora = std::mem::take(&mut self.lora).with_words(option, words);
            return Ok(());
        }
        if base == Base::Torchtitan && option == POLICY {
            let mode = words.first().map_or("", |it| it.text.as_str());
            self.policy = Some(Word::known(&format!("{option}{mode}")));
            return Ok(());
        }
        if base != Base::Trainer && base.vocabulary().arity(option) == Some("none") {
            let given = ParsedOptions::default().with_words(option, words);
            let is_on = given.flag(option)?.unwrap_or(false);
            self.words.extend(is_on.then(|| Word::known(option)));
            return Ok(());
        }
        if words.iter().all(|it| it.text.is_empty() && it.unknown.is_empty())
            && base != Base::Trainer
        {
            return Ok(());
        }
        let is_one = base != Base::Trainer && base.vocabulary().arity(option) == Some("one");
        let words = if is_one && words.len() > 1 { joined(&words) } else { words };
        // If two keys become the same option, the later one counts.
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

/// A list as one word.
fn joined(words: &[Word]) -> Vec<Word> {
    let texts: Vec<&str> = words.iter().map(|it| it.text.as_str()).collect();
    let unknown = words.iter().flat_map(|it| it.unknown.iter().cloned()).collect();
    vec![Word { text: texts.join(","), unknown }]
}

fn leaf(words: &[Word]) -> Leaf {
    Leaf::Values(words.iter().map(|it| it.text.clone()).collect())
}

/// Every key of a file or option of a command, with its values.
fn settings(source: &Source<'_>, wrapper: &Wrapper) -> Result<Vec<Setting>, ImportError> {
    let mut all: Vec<Setting> = Vec::new();
    match &source.form {
        Form::Tree(tree) => all.extend(of_tree(source, tree, wrapper, &[])?),
        Form::Program(started) => {
            let mut words = started.words.get(1..).unwrap_or_default();
            // Skips the name of a command, such as `train`.
            if words
                .first()
                .is_some_and(|it| !it.text.starts_with('-') && !it.text.contains(['.', '=']))
            {
                words = &words[1..];
            }
            if let [first, rest @ ..] = words
                && !first.text.starts_with('-')
                && ["yaml", "yml", "json"].iter().any(|it| has_ending(&first.text, it))
            {
                all.extend(of_tree(source, &source.tree(&first.text)?, wrapper, &[])?);
                words = rest;
            }
            let mut options = of_words(words);
            if wrapper.is_hydra
                && let Some(tree) = hydra::named(source, &mut options)?
            {
                all.extend(of_tree(source, &tree, wrapper, &options)?);
            }
            let file = options.iter().find(|it| it.0 == "config").and_then(|it| it.1.first());
            if let Some(Word { text, .. }) = file {
                // torchtune names the configurations that it ships without an ending; `tune cp` writes them to files.
                let is_shipped = !text.is_empty() && !basename(text).contains('.');
                let name = if is_shipped { format!("{text}.yaml") } else { text.clone() };
                all.extend(of_tree(source, &source.tree(&name)?, wrapper, &[])?);
            }
            for option in options {
                all.retain(|known| known.0 != option.0);
                all.push(option);
            }
        }
        Form::Python(_) => drop(source.launched()?),
    }
    (wrapper.adds)(&mut all, source);
    Ok(all)
}

/// Every key of a file with its values. In references, the options `over` override the file's keys.
fn of_tree(
    source: &Source<'_>,
    tree: &Tree,
    wrapper: &Wrapper,
    over: &[Setting],
) -> Result<Vec<Setting>, ImportError> {
    let composed = wrapper.is_hydra.then(|| hydra::composed(source, tree)).transpose()?;
    let tree = composed.as_ref().unwrap_or(tree);
    let within = |path: &[&str]| path.iter().try_fold(tree, |tree, key| tree.get(key));
    let paths = [wrapper.within, wrapper.or_within];
    let inner = paths.into_iter().find_map(within).unwrap_or(tree);
    let mut all: Values = tree.values().into_iter().collect();
    for (key, words) in over {
        all.remove(key);
        if words.iter().all(|it| it.unknown.is_empty()) {
            all.insert(key.clone(), words.iter().map(|it| it.text.clone()).collect());
        }
    }
    let setting = |(key, texts): (String, Vec<String>)| {
        let words = texts.iter().map(|it| references::value(it, &key, &all)).collect();
        (key, words)
    };
    Ok(inner.values().into_iter().map(setting).collect())
}

/// Options `--key value`, `--key=value` and `key=value`, as keys with their values.
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
            // The script's own arguments are skipped. Next: an unknown list of options, such as `${MODEL_ARGS[@]}`,
            // after an option that has its value.
            _ if word.text.is_empty() && is_of_script(word) => {}
            _ if word.text.is_empty() && all.last().is_some_and(|it| it.1.len() == 1) => {
                let after = &all[all.len() - 1].0;
                all.push((format!("{FOLLOWS}{after}"), vec![word.clone()]));
            }
            _ => {
                if let Some(last) = all.last_mut() {
                    last.1.push(word.clone());
                }
            }
        }
    }
    all
}

/// Returns whether a word is the script's own arguments, `$@` or a part of them; the script is read without any.
fn is_of_script(word: &Word) -> bool {
    !word.unknown.is_empty() && word.unknown.iter().all(|it| it.starts_with('@'))
}

fn is_key(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c))
}

fn key(name: &str, is_option: bool) -> String {
    if is_option { name.replace('-', "_") } else { name.to_owned() }
}
