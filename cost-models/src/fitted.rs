//! Constants that were fitted to measured steps: `frameworks/fitted.json`, written by `fit/fit_steps.py`.
//!
//! Its sections are:
//!
//! - `gpus`: training rates of each kind of GPU;
//! - `all_gpus` and `network`: constants of all GPUs and of all networks;
//! - `frameworks`: values by their path in a framework's file, which leaves them out;
//! - `residuals`: the distributions of measured over predicted steps;
//! - `left_out`: for each source of the fit, the constants that differ without it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a section of the file.
pub(crate) fn section<T: DeserializeOwned>(name: &str) -> T {
    static FILE: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
        let text = include_str!("../frameworks/fitted.json");
        serde_json::from_str(text).expect("what ships is valid; a test reads it")
    });
    T::deserialize(&FILE[name]).expect("each section is of its form; tests read all of them")
}
