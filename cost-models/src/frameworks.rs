//! The framework presets: the habits and abilities of each, every value with its source or its fit. Fitted values of
//! all of them are in one file, `fitted.json`.
//!
//! Bytes that the loss touches per logit are counted from the frameworks' kernels: Megatron-LM's vocabulary-parallel
//! cross-entropy touches 38 in forward and 14 in backward; Transformer Engine's fuses these; PyTorch's own (20 and 14)
//! is assumed to lie between.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ir::framework::{Framework, FrameworkError, IDEAL};
use serde_json::Value;

use crate::fitted::section;

/// Names and JSON texts of the presets; the first is the default.
const PRESETS: &[(&str, &str)] = &[
    ("megatron-core", include_str!("../frameworks/megatron-core.json")),
    ("torchtitan", include_str!("../frameworks/torchtitan.json")),
    ("fsdp2", include_str!("../frameworks/fsdp2.json")),
    ("deepspeed", include_str!("../frameworks/deepspeed.json")),
    ("megatron-deepspeed", include_str!("../frameworks/megatron-deepspeed.json")),
    ("nanotron", include_str!("../frameworks/nanotron.json")),
    ("internevo", include_str!("../frameworks/internevo.json")),
    ("maxtext", include_str!("../frameworks/maxtext.json")),
    ("megatron-lm", include_str!("../frameworks/megatron-lm.json")),
    ("megatron-lm-2021", include_str!("../frameworks/megatron-lm-2021.json")),
    ("scaling", include_str!("../frameworks/scaling.json")),
    ("fsdp", include_str!("../frameworks/fsdp.json")),
    ("executor", include_str!("../frameworks/executor.json")),
    ("executor-cuda", include_str!("../frameworks/executor-cuda.json")),
    ("unknown", include_str!("../frameworks/unknown.json")),
];

/// Names of the presets, the most used first.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The preset called `name`; `ideal` is the first preset without its limits.
pub fn preset(name: &str) -> Option<Framework> {
    let (known, is_ideal) = if name == IDEAL { (PRESETS[0].0, true) } else { (name, false) };
    let (_, text) = PRESETS.iter().find(|(preset, _)| *preset == known)?;
    let framework = read(text).expect("presets are valid; a test reads each");
    Some(if is_ideal { framework.ideal() } else { framework })
}

/// Reads and checks a framework's JSON. Constants that it leaves out are filled in from the fit of the framework
/// itself, or of the one that it is [measured as](Framework::measured_as).
///
/// # Errors
///
/// As for [`Framework::from_json`].
pub fn read(text: &str) -> Result<Framework, FrameworkError> {
    static FITTED: LazyLock<BTreeMap<String, BTreeMap<String, f64>>> =
        LazyLock::new(|| section("frameworks"));
    let Ok(mut file) = serde_json::from_str::<Value>(text) else {
        return Framework::from_json(text);
    };
    let name = ["measured_as", "name"].into_iter().find_map(|it| file.get(it)?.as_str());
    let Some(fitted) = name.and_then(|name| FITTED.get(name)) else {
        return Framework::from_json(text);
    };
    let mut is_whole = true;
    for (path, value) in fitted {
        let place = path.split_once('.').and_then(|(part, field)| {
            let part = file.get_mut(part)?.as_object_mut()?;
            Some((part, field)).filter(|(part, field)| !part.contains_key(*field))
        });
        if let Some((part, field)) = place {
            part.insert(field.to_owned(), (*value).into());
            is_whole = false;
        }
    }
    // Without additions the original text is read, so that positions in errors are right.
    if is_whole { Framework::from_json(text) } else { Framework::from_json(&file.to_string()) }
}

/// All presets.
pub fn all() -> impl Iterator<Item = Framework> {
    names().filter_map(preset)
}
