//! Why a cluster cannot be used, and the ranges of its numbers.

use super::precision::Precision;

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

/// The values that a field may have, and what works in its place. Rates and sizes have a least one that can be meant:
/// what is below was counted in something larger.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    least: f64,
    most: f64,
    works: &'static str,
}

impl Bounds {
    pub(super) const BYTES: Self = Self {
        least: 1e6,
        most: 1e30,
        works: "a positive number of bytes, from 1e6 to 1e30, such as 85899345920, which are 80 GiB",
    };
    pub(super) const BYTES_PER_SECOND: Self = Self {
        least: 1e5,
        most: 1e30,
        works: "bytes a second, from 1e5 to 1e30, such as 4.5e11, which are 450 GB/s; 400 Gb/s are 5e10",
    };
    pub(super) const FLOPS_PER_SECOND: Self = Self {
        least: 1e6,
        most: 1e30,
        works: "operations a second, from 1e6 to 1e30, such as 9.89e14, which are 989 TFLOP/s",
    };
    pub(super) const WATTS: Self =
        Self { least: 1.0, most: 1e30, works: "watts, from 1 to 1e30, such as 700" };
    pub(super) const POSITIVE: Self =
        Self { least: 1.0, most: 1e30, works: "from 1 to 1e30, such as 4.5e11" };
    pub(super) const NOT_NEGATIVE: Self =
        Self { least: 0.0, most: 1e30, works: "from 0 to 1e30, such as 1.5" };
    pub(super) const COUNT: Self =
        Self { least: 1.0, most: f64::MAX, works: "at least 1, such as 8" };
    pub(super) const SECONDS: Self =
        Self { least: 0.0, most: 3600.0, works: "from 0 to 3600 seconds, such as 5e-6" };
    /// The time that a message takes at least: satellites are nearer than half a second.
    pub(super) const LATENCY: Self = Self {
        least: 0.0,
        most: 0.5,
        works: "seconds, from 0 to 0.5, such as 5e-6, which are 5 us",
    };

    pub(super) fn check(self, field: &str, value: f64) -> Result<(), ClusterError> {
        let Self { least, most, works } = self;
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(ClusterError::Unusable { field: field.to_owned(), value: written(value), works })
    }
}

/// A number as a person would write it: 1e300 without its zeros.
pub(super) fn written(value: f64) -> String {
    if value == 0.0 || (1e-6..1e15).contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}
