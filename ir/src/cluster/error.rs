//! Errors in descriptions of clusters, and the valid ranges of their numbers.

use crate::text::json::JsonError;

/// Reason why a description of a cluster cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The text is not JSON, or not a cluster.
    #[error("cluster file, {0}")]
    Json(JsonError),
    /// A rate, size or time out of range.
    #[error("`{field}` is {value}, but must be {works}")]
    Unusable {
        /// Path of the field.
        field: String,
        /// Value of the field.
        value: String,
        /// Valid values, with an example.
        works: &'static str,
    },
    /// Network levels that do not widen outward.
    #[error(
        "`levels[{index}].ranks` is {ranks}, but level {} inside it already has {inner}; list levels innermost first, each with more ranks than the last",
        index - 1
    )]
    LevelsNotIncreasing {
        /// Index of the level.
        index: usize,
        /// Ranks of the level.
        ranks: u32,
        /// Ranks of the next inner level.
        inner: u32,
    },
    /// Network levels none of which reaches all ranks.
    #[error(
        "no level reaches all ranks: the last, `{name}`, ends at {ranks}; leave out its `ranks`, or add a level without `ranks`"
    )]
    NoOutermostLevel {
        /// Name of the last level.
        name: String,
        /// Ranks of the last level.
        ranks: u32,
    },
    /// An inner level that reaches all ranks; only the outermost level may.
    #[error("`levels[{index}]` reaches all ranks but is not the last; give it `ranks`, such as 8")]
    UnboundedInnerLevel {
        /// Index of the level.
        index: usize,
    },
    /// A group whose cluster is not known.
    #[error(
        "`groups[{index}].cluster` is `{name}`, which is no preset\nhint: a name of `planner list clusters`, or a cluster's description in its place"
    )]
    UnknownGroup {
        /// Index of the group.
        index: usize,
        /// The given name.
        name: String,
    },
    /// A group whose cluster has groups itself.
    #[error(
        "`groups[{index}].cluster` has groups itself\nhint: list all groups in one `groups`, and what joins them in `levels`"
    )]
    GroupWithinGroup {
        /// Index of the group.
        index: usize,
    },
    /// Groups whose first group does not have the cluster's own GPU and node.
    #[error(
        "`groups` are not two or more of which the first has the cluster's own `gpu` and `gpus_per_node`\nhint: leave out all but `groups` and the `levels` that join them"
    )]
    GroupsDisagree,
}

impl ClusterError {
    pub(super) fn unusable(
        field: impl Into<String>,
        value: impl Into<String>,
        works: &'static str,
    ) -> Self {
        Self::Unusable { field: field.into(), value: value.into(), works }
    }
}

/// Valid range of a field, with a description. The lower bounds of rates and sizes catch values in a wrong unit, such
/// as GB instead of bytes.
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
    /// Range of the latency of a message; even satellite links take less than half a second.
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
        Err(ClusterError::unusable(field, written(value), works))
    }
}

/// A number in the shorter of two notations: 1e300 without its zeros.
pub(super) fn written(value: f64) -> String {
    if value == 0.0 || (1e-6..1e15).contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}
