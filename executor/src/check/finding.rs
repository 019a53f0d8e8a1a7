//! What a check finds, in words and in numbers.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use executor_kernels::clock::now;
use executor_kernels::failure::DeviceFailure;
use serde::{Deserialize, Serialize};

/// How something came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should.
    Pass,
    /// Not as it should.
    Fail,
    /// It was not looked at.
    Skip,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckFinding {
    /// What was looked at.
    pub name: String,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found, or why nothing was.
    pub said: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What was measured; keys carry the unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, f64>,
}

impl CheckFinding {
    /// Something that is as it should be.
    pub fn pass(name: impl Into<String>, said: impl Into<String>) -> Self {
        Self::new(Verdict::Pass, name.into(), said.into(), None)
    }

    /// Something that is not, and what to do.
    pub fn fail(name: impl Into<String>, said: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Verdict::Fail, name.into(), said.into(), Some(hint.into()))
    }

    /// Something that either is as it should be, or is not, and then what to do.
    pub fn judged(
        name: impl Into<String>,
        said: impl Into<String>,
        is_right: bool,
        hint: impl Into<String>,
    ) -> Self {
        if is_right { Self::pass(name, said) } else { Self::fail(name, said, hint) }
    }

    /// Something that was left out, and why.
    pub fn skip(name: impl Into<String>, said: impl Into<String>) -> Self {
        Self::new(Verdict::Skip, name.into(), said.into(), None)
    }

    /// What has no time left.
    pub fn out_of_time(name: impl Into<String>) -> Self {
        let hint = "more `--minutes`".to_owned();
        Self::new(Verdict::Skip, name.into(), "no time was left".to_owned(), Some(hint))
    }

    fn new(verdict: Verdict, name: String, said: String, hint: Option<String>) -> Self {
        Self { name, verdict, said, hint, numbers: BTreeMap::new() }
    }

    /// The same with a number more; what is not finite is none.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: f64) -> Self {
        if value.is_finite() {
            self.numbers.insert(key.into(), value);
        }
        self
    }

    /// The same with something to do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// When a part of a check is to end.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// So long from now.
    pub fn after(time: Duration) -> Self {
        Self(now() + time)
    }

    /// What is left.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(now())
    }

    /// Whether nothing is left.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// What `run` returns, or what it said when it panicked: the libraries below panic where a device fails.
///
/// # Errors
///
/// What it said, in a line.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    // What a panic leaves half done is not looked at again: what it was to come to is a failure.
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| first_line(&message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .or_else(|| DeviceFailure::of(panic).map(DeviceFailure::to_string))
        .unwrap_or_default()
}

/// Enough of a message to stand in a line.
pub fn first_line(text: &str) -> String {
    const MOST: usize = 160;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no message");
    if line.chars().count() <= MOST {
        return line.to_owned();
    }
    line.chars().take(MOST).chain("..".chars()).collect()
}
