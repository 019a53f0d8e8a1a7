//! Adapters (LoRA) in the arguments of PEFT, of TRL, and of scripts that use the Trainer.

use ir::graph::{ALL_LINEAR, Adapters, WeightFormat};

use crate::interchange::adapters::is_pattern;
use crate::interchange::options::{OptionError, ParsedOptions};
use crate::interchange::unread::Unread;

/// Names separated by commas; a regular expression counts as one name.
fn listed(names: &str) -> Vec<&str> {
    if is_pattern(names) { vec![names] } else { names.split(',').collect() }
}

/// Adapters from PEFT's arguments, with PEFT's defaults for those that are not given.
pub(in super::super) fn adapters(given: &ParsedOptions) -> Result<Option<Adapters>, OptionError> {
    if !trains_adapters(given)? {
        return Ok(None);
    }
    let rank = rank(given)?.unwrap_or(usual_rank(given).0);
    let targets = given.values("lora_target_modules")?.unwrap_or_default();
    let names = targets.into_iter().flat_map(listed).map(|it| match it.trim() {
        "all" | "all-linear" => ALL_LINEAR.to_owned(),
        name => name.to_owned(),
    });
    let mut targets: Vec<String> = names.filter(|it| !it.is_empty()).collect();
    if targets.is_empty() {
        targets.push(ALL_LINEAR.to_owned());
    }
    let base_weights = base_weights(given)?;
    let alpha = given.count("lora_alpha")?.unwrap_or(32);
    Ok(Some(Adapters { rank, alpha, targets, base_weights }))
}

/// Options of several scripts for the way of training, of which adapters are one.
const MODES: [&str; 5] = ["train_mode", "training_mode", "tune_type", "tune_type_llm", "peft_type"];

fn is_mode(given: &ParsedOptions, modes: &[&str]) -> bool {
    let value = |name: &&str| given.text_if_known(name).map(str::to_lowercase);
    MODES.iter().filter_map(value).any(|it| modes.contains(&it.as_str()))
}

/// Parts of the names of models whose weights are quantized to few bits.
const QUANTIZED: [&str; 5] = ["-gptq", "-awq", "-aqlm", "bnb-4bit", "bnb-8bit"];

fn base_weights(given: &ParsedOptions) -> Result<WeightFormat, OptionError> {
    let bits = given.text("bits")?;
    let is_4bit = given.is_on("load_in_4bit")?
        || given.is_on("use_qlora")?
        || bits == Some("4")
        || is_mode(given, &["qlora"]);
    let name = given.text_if_known("model_name_or_path").unwrap_or_default().to_lowercase();
    let is_quantized = QUANTIZED.iter().any(|it| name.contains(it));
    let is_named_8bit = is_quantized && (name.contains("int8") || name.contains("8bit"));
    let is_8bit = given.is_on("load_in_8bit")? || bits == Some("8") || is_named_8bit;
    Ok(match (is_4bit, is_8bit) {
        (false, true) => WeightFormat::Int8,
        (false, false) if !is_quantized => WeightFormat::Plain,
        _ => WeightFormat::Nf4,
    })
}

/// Rank of adapters, if one is given; 0 means none.
fn rank(given: &ParsedOptions) -> Result<Option<u64>, OptionError> {
    Ok(given.count_unless_0("lora_r")?.or(given.count_unless_0("lora_dim")?))
}

/// Switches for adapters. Other names of `use_peft` are the same option (`trainer.txt`).
const SWITCHES: [&str; 3] = ["use_peft", "lora_enable", "use_lora"];

/// Rank of adapters where none is given, and whose default it is: the programs of LLaVA, Qwen and their kin have
/// `lora_r: int = 64` next to `lora_enable`, `use_lora` or `tune_type_llm`.
fn usual_rank(given: &ParsedOptions) -> (u64, &'static str) {
    let is_of_llava = ["lora_enable", "use_lora", "tune_type_llm"].iter().any(|it| given.has(it));
    if is_of_llava { (64, "that of LLaVA's and Qwen's programs") } else { (16, "TRL's default") }
}

fn is_switched(given: &ParsedOptions) -> bool {
    SWITCHES.iter().any(|it| given.has(it))
}

/// Returns whether adapters are trained. A switch decides this; without a switch, they are trained if a rank is its own
/// switch or is given with targets, or if the weights have few bits, since such weights are not trained themselves.
fn trains_adapters(given: &ParsedOptions) -> Result<bool, OptionError> {
    let is_qlora = given.is_on("use_qlora")?;
    if is_switched(given) || is_qlora {
        let are_on: Vec<bool> =
            SWITCHES.iter().map(|it| given.is_on(it)).collect::<Result<_, _>>()?;
        return Ok(is_qlora || are_on.contains(&true));
    }
    let is_ranked = given.count_unless_0::<u64>("lora_r")?.is_some();
    let is_own_switch =
        given.count_unless_0::<u64>("lora_dim")?.is_some() || is_mode(given, &["lora", "qlora"]);
    let is_quantized = base_weights(given)? != WeightFormat::Plain;
    Ok(is_own_switch || is_quantized || is_ranked && given.has("lora_target_modules"))
}

/// Note on the rank of adapters: if no setting says to train them, or if they are trained and no rank is given.
pub(super) fn adapters_left_out(given: &ParsedOptions) -> Result<Option<Unread>, OptionError> {
    if trains_adapters(given)? && rank(given)?.is_none() {
        let (rank, whose) = usual_rank(given);
        let why = format!("the rank of adapters is not given: {rank}, {whose}, is planned");
        return Ok(Some(Unread::new("lora_r", why)));
    }
    let is_left_out = !is_switched(given) && rank(given)?.is_some() && !trains_adapters(given)?;
    Ok(is_left_out.then(|| Unread {
        saves_memory: true,
        ..Unread::new(
            "lora_r",
            "the rank of adapters, which no setting switches on: all parameters are planned as trained",
        )
    }))
}
