//! Attributes of nodes and edges in a file.

use crate::graph::DimName;

/// A list of dimension names.
pub(super) type DimNames = Vec<DimName>;

/// The size of a dimension.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(
    untagged,
    expecting = "a size is an integer, \"b\" for the batch or \"s\" for the sequence"
)]
pub(super) enum Extent {
    Symbol(Symbol),
    Fixed(Size),
}

/// A size that depends on the step.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) enum Symbol {
    /// The micro-batch size.
    #[serde(rename = "b")]
    Batch,
    /// The sequence length.
    #[serde(rename = "s")]
    Sequence,
}

/// A number of elements, channels, rows.
#[derive(Clone, Copy, Debug, serde::Deserialize, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub(super) struct Size(
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_099_511_627_776_u64)))]
    pub(super) u64,
);

/// One number for both rows and columns, or one for each.
#[derive(Clone, Copy, Debug, serde::Deserialize, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "a window's sizes are an integer or two, as in 7 or [7, 7]")]
#[cfg_attr(feature = "schema", schemars(rename = "PairOf_{T}"))]
pub(super) enum Pair<T> {
    Both(T),
    Each([T; 2]),
}

impl<T: Copy> Pair<T> {
    /// For rows and for columns.
    pub(super) fn each(self) -> [T; 2] {
        match self {
            Self::Both(one) => [one, one],
            Self::Each(two) => two,
        }
    }
}

/// The size of one dimension, or of several.
#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "`out_features` is an integer or a list, as in 512 or [8, 64]")]
pub(super) enum OutFeatures {
    One(Size),
    Several(Vec<Size>),
}

/// A function for the gate of a gated activation.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Function {
    Gelu,
    GeluTanh,
    Relu,
    Silu,
    Tanh,
    Sigmoid,
}

/// Type of the elements of an input.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum InputElement {
    /// Numbers in the precision of the step.
    #[default]
    Number,
    /// Indices: token ids.
    Index,
}

/// Which positions a query looks at.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Mask {
    /// All positions.
    #[default]
    Full,
    /// The position itself and all earlier ones.
    Causal,
    /// The position itself and earlier ones, this number in total.
    SlidingWindow(Size),
}
