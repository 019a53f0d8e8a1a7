//! Findings of checks, in text and in numbers.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use executor_kernels::failure::panic_message;
use serde::{Deserialize, Serialize};

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The check passed.
    Pass,
    /// The check failed.
    Fail,
    /// The check did not run.
    Skip,
}

/// Finding of one check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckFinding {
    /// Name of the check.
    pub name: String,
    /// Outcome of the check.
    pub verdict: Verdict,
    /// Description of the result, or of the reason why there is none.
    pub said: String,
    /// Hint: what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Measured values; keys carry the unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, f64>,
}

impl CheckFinding {
    /// A check that passed.
    pub fn pass(name: impl Into<String>, said: impl Into<String>) -> Self {
        Self::new(Verdict::Pass, name.into(), said.into(), None)
    }

    /// A check that failed, with a hint.
    pub fn fail(name: impl Into<String>, said: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Verdict::Fail, name.into(), said.into(), Some(hint.into()))
    }

    /// A check that passed if `is_right`, and else failed, with a hint.
    pub fn judged(
        name: impl Into<String>,
        said: impl Into<String>,
        is_right: bool,
        hint: impl Into<String>,
    ) -> Self {
        if is_right { Self::pass(name, said) } else { Self::fail(name, said, hint) }
    }

    /// A check that was skipped, with the reason.
    pub fn skip(name: impl Into<String>, said: impl Into<String>) -> Self {
        Self::new(Verdict::Skip, name.into(), said.into(), None)
    }

    /// A check that was skipped for lack of time.
    pub fn out_of_time(name: impl Into<String>) -> Self {
        let hint = "more `--minutes`".to_owned();
        Self::new(Verdict::Skip, name.into(), "no time was left".to_owned(), Some(hint))
    }

    fn new(verdict: Verdict, name: String, said: String, hint: Option<String>) -> Self {
        Self { name, verdict, said, hint, numbers: BTreeMap::new() }
    }

    /// Adds a measured value, unless it is not finite.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: f64) -> Self {
        if value.is_finite() {
            self.numbers.insert(key.into(), value);
        }
        self
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Catches panics of `run`: the libraries that it calls panic where a device fails.
///
/// # Errors
///
/// The first line of the panic's message.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    // State that a panic leaves inconsistent is not used any more: the result is a failure.
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| first_line(&panic_message(&*panic)))
}

/// The first line of a message that is not empty, cut to 160 characters.
pub fn first_line(text: &str) -> String {
    const MOST: usize = 160;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no message");
    if line.chars().count() <= MOST {
        return line.to_owned();
    }
    line.chars().take(MOST).chain("..".chars()).collect()
}
