//! Optimizers by the Trainer's names.

use ir::plan::Optimizer;

use crate::interchange::options::{OptionError, ParsedOptions};
use crate::interchange::unread::Unread;

/// The Trainer's names of optimizers that are planned as themselves, each with that optimizer.
const OPTIMIZERS: [(&str, Optimizer); 16] = [
    ("adamw_torch", Optimizer::AdamW),
    ("adamw_torch_fused", Optimizer::AdamW),
    ("adamw_apex_fused", Optimizer::AdamW),
    ("adamw_hf", Optimizer::AdamW),
    ("paged_adamw_32bit", Optimizer::AdamW),
    ("paged_adamw", Optimizer::AdamW),
    ("adamw_torch_8bit", Optimizer::AdamW8bit),
    ("adamw_bnb_8bit", Optimizer::AdamW8bit),
    ("adamw_8bit", Optimizer::AdamW8bit),
    ("paged_adamw_8bit", Optimizer::AdamW8bit),
    ("adafactor", Optimizer::Adafactor),
    ("lion_32bit", Optimizer::Lion),
    ("paged_lion_32bit", Optimizer::Lion),
    ("muon", Optimizer::Muon),
    ("momentum", Optimizer::Momentum),
    ("sgd", Optimizer::Sgd),
];

/// Optimizers of the Trainer that plans do not have.
const OTHER_OPTIMIZERS: [&str; 24] = [
    "adamw_torch_4bit",
    "adamw_torch_xla",
    "adamw_torch_npu_fused",
    "adamw_anyprecision",
    "adagrad",
    "ademamix",
    "ademamix_8bit",
    "paged_ademamix_32bit",
    "paged_ademamix_8bit",
    "lion_8bit",
    "paged_lion_8bit",
    "rmsprop",
    "rmsprop_bnb",
    "galore_adamw",
    "galore_adamw_8bit",
    "galore_adafactor",
    "apollo_adamw",
    "lomo",
    "adalomo",
    "grokadamw",
    "schedule_free_adamw",
    "schedule_free_sgd",
    "schedule_free_radam",
    "stable_adamw",
];

/// The Trainer's name for an optimizer.
pub(super) fn name_of(optimizer: Optimizer) -> Option<&'static str> {
    match optimizer {
        Optimizer::AdamW => Some("adamw_torch_fused"),
        Optimizer::AdamW8bit => Some("adamw_bnb_8bit"),
        Optimizer::Adafactor => Some("adafactor"),
        Optimizer::Lion => Some("lion_32bit"),
        Optimizer::Sgd => Some("sgd"),
        _ => None,
    }
}

/// Least similarity at which the name of an optimizer counts as misspelt.
const LIKENESS: f64 = 0.9;

/// Optimizer; and its name as unread if it is planned as another optimizer.
pub(super) fn optimizer(given: &ParsedOptions) -> Result<(Optimizer, Vec<Unread>), OptionError> {
    let Some(name) = given.text("optim")? else { return Ok((Optimizer::AdamW, Vec::new())) };
    let is_like =
        |(known, _): &(&str, _)| strsim::normalized_damerau_levenshtein(known, name) >= LIKENESS;
    let is_other = OTHER_OPTIMIZERS.contains(&name) || !OPTIMIZERS.iter().any(is_like);
    if is_other {
        let why = format!("`{name}` is planned as AdamW");
        return Ok((Optimizer::AdamW, vec![Unread::new("optim", why)]));
    }
    let optimizer = given.one_of("optim", &OPTIMIZERS)?.unwrap_or(Optimizer::AdamW);
    Ok((optimizer, Vec::new()))
}
