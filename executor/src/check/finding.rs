//! Findings of checks, in text and in numbers.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use executor_kernels::clock::now;
use executor_kernels::failure::DeviceFailure;
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

/// Time at which a part of a check is to end.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The deadline `time` from now.
    pub fn after(time: Duration) -> Self {
        Self(now() + time)
    }

    /// Time that is left.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(now())
    }

    /// Returns whether no time is left.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// Catches panics of `run`: the libraries below panic where a device fails.
///
/// # Errors
///
/// The first line of the panic's message.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    // State that a panic leaves inconsistent is not used any more: the result is a failure.
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| first_line(&message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .or_else(|| DeviceFailure::of(panic).map(DeviceFailure::to_string))
        .unwrap_or_default()
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
