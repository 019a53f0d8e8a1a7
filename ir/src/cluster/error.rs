//! Why a cluster cannot be used, and the checks that find out.

use super::precision::Precision;
use crate::units::Seconds;

/// Why a description of a cluster cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The text is not JSON, or not a cluster.
    #[error("cluster file, line {line}, column {column}: {message}")]
    Json {
        /// Line of the error, from one.
        line: usize,
        /// Column of the error, from one.
        column: usize,
        /// What serde found.
        message: String,
    },
    /// A rate, size or time is zero, negative or not finite.
    #[error("`{field}` is {value}, but must be {works}")]
    Unusable {
        /// The field's path.
        field: String,
        /// What it holds.
        value: String,
        /// What it could hold instead, with an example.
        works: &'static str,
    },
    /// Network levels do not widen outward.
    #[error(
        "`levels[{index}].ranks` is {ranks}, but level {} inside it already has {inner}; list levels innermost first, each with more ranks than the last",
        index - 1
    )]
    LevelsNotIncreasing {
        /// The offending level.
        index: usize,
        /// Its ranks.
        ranks: u32,
        /// The ranks of the level inside it.
        inner: u32,
    },
    /// No level connects every rank.
    #[error(
        "no level reaches all ranks: the last, `{name}`, ends at {ranks}; leave out its `ranks`, or add a level without `ranks`"
    )]
    NoOutermostLevel {
        /// The last level's name.
        name: String,
        /// Its ranks.
        ranks: u32,
    },
    /// Only the outermost level may reach all ranks.
    #[error("`levels[{index}]` reaches all ranks but is not the last; give it `ranks`, such as 8")]
    UnboundedInnerLevel {
        /// The offending level.
        index: usize,
    },
    /// The GPU has no rate for a precision.
    #[error("`{gpu}` has no peak rate for `{precision}`; it has {known}")]
    MissingPrecision {
        /// The GPU's name.
        gpu: String,
        /// The precision asked for.
        precision: Precision,
        /// The precisions that it has.
        known: String,
    },
    /// A name is none of the precisions.
    #[error("`{name}` is not a precision; `fp32`, `fp16`, `bf16`, `fp8` and `fp4` are")]
    UnknownPrecision {
        /// The name given.
        name: String,
    },
}

pub(super) const POSITIVE: &str = "from 1 to 1e30, such as 4.5e11";
pub(super) const NOT_NEGATIVE: &str = "from 0 to 3600 seconds, such as 5e-6";
pub(super) const COUNT: &str = "at least 1, such as 8";

/// What a quantity is counted in, and from which size on it can be meant: what is below was counted in something larger.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Bytes,
    BytesPerSecond,
    FlopsPerSecond,
    Watts,
}

impl Unit {
    const fn least(self) -> (f64, &'static str) {
        match self {
            Self::Bytes => (
                1e6,
                "a positive number of bytes, from 1e6 to 1e30, such as 85899345920, which are 80 GiB",
            ),
            Self::BytesPerSecond => (
                1e5,
                "bytes a second, from 1e5 to 1e30, such as 4.5e11, which are 450 GB/s; 400 Gb/s are 5e10",
            ),
            Self::FlopsPerSecond => (
                1e6,
                "operations a second, from 1e6 to 1e30, such as 9.89e14, which are 989 TFLOP/s",
            ),
            Self::Watts => (1.0, "watts, from 1 to 1e30, such as 700"),
        }
    }
}

pub(super) fn check_quantity(field: &str, value: f64, unit: Unit) -> Result<(), ClusterError> {
    let (least, works) = unit.least();
    if (least..=1e30).contains(&value) {
        return Ok(());
    }
    Err(ClusterError::Unusable { field: field.to_owned(), value: written(value), works })
}

pub(super) fn check_positive(field: &str, value: f64) -> Result<(), ClusterError> {
    if (1.0..=1e30).contains(&value) {
        return Ok(());
    }
    Err(ClusterError::Unusable { field: field.to_owned(), value: written(value), works: POSITIVE })
}

/// A number as a person would write it: 1e300 without its zeros.
pub(super) fn written(value: f64) -> String {
    if value == 0.0 || (1e-6..1e15).contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

pub(super) fn check_count(field: &str, value: u32) -> Result<(), ClusterError> {
    if value > 0 {
        return Ok(());
    }
    Err(ClusterError::Unusable { field: field.to_owned(), value: value.to_string(), works: COUNT })
}

/// A time from nothing to an hour.
pub(super) fn check_seconds(field: &str, time: Seconds) -> Result<(), ClusterError> {
    if (0.0..=3600.0).contains(&time.get()) {
        return Ok(());
    }
    Err(ClusterError::Unusable {
        field: field.to_owned(),
        value: written(time.get()),
        works: NOT_NEGATIVE,
    })
}

/// The time that a message takes at least, at most half a second: satellites are nearer.
pub(super) fn check_latency(field: &str, time: Seconds) -> Result<(), ClusterError> {
    if (0.0..=0.5).contains(&time.get()) {
        return Ok(());
    }
    let works = "seconds, from 0 to 0.5, such as 5e-6, which are 5 us";
    Err(ClusterError::Unusable { field: field.to_owned(), value: written(time.get()), works })
}

/// A number that is not negative.
pub(super) fn check_number(field: &str, value: f64) -> Result<(), ClusterError> {
    if (0.0..=1e30).contains(&value) {
        return Ok(());
    }
    let works = "from 0 to 1e30, such as 1.5";
    Err(ClusterError::Unusable { field: field.to_owned(), value: written(value), works })
}
