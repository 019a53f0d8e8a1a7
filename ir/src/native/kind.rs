//! Kinds of nodes with their attributes, as in a file.

use super::attributes::{DimNames, Extent, Function, InputElement, Mask, OutFeatures, Pair, Size};
use crate::graph::{DimName, Elementwise, ReduceFunction, Upsampling};

/// Operation of a node. Inputs are in brackets, in the order of their slots.
// A kind without attributes is an empty struct, not a unit: serde would let a unit have any.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum NodeKind {
    /// Data that the model is given: images, features, tokens.
    Input {
        /// What each dimension counts, outermost first. The batch has extent "b"; a sequence may have "s".
        dims: DimNames,
        /// The extent of each of `dims`.
        shape: Vec<Extent>,
        /// What the elements are.
        #[serde(default)]
        element: InputElement,
    },
    /// `y = x W + b` [x].
    Linear {
        /// The sizes of the dimensions that come in the place of those summed over.
        out_features: OutFeatures,
        /// What those dimensions count; `features` if there is one and this is left out.
        out_dims: Option<DimNames>,
        /// The dimensions summed over; the last if left out.
        over: Option<DimNames>,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// A linear layer that each expert has its own of, applied to the tokens sent to it [x].
    GroupedLinear {
        /// How many experts there are.
        num_experts: Size,
        /// As for `linear`.
        out_features: OutFeatures,
        /// As for `linear`.
        out_dims: Option<DimNames>,
        /// As for `linear`.
        over: Option<DimNames>,
        /// As for `linear`.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Two-dimensional convolution [x].
    Conv2d {
        /// Channels that come out.
        out_channels: Size,
        /// Rows and columns of the kernel.
        kernel: Pair<Size>,
        /// Rows and columns between two applications.
        #[serde(default = "one_each")]
        stride: Pair<Size>,
        /// Rows and columns of zeros on each side.
        #[serde(default = "none_each")]
        padding: Pair<u64>,
        /// Rows and columns from one element of the kernel to the next.
        #[serde(default = "one_each")]
        dilation: Pair<Size>,
        /// Groups of channels that see only each other.
        #[serde(default = "one")]
        groups: Size,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Transposed two-dimensional convolution [x].
    ConvTranspose2d {
        /// Channels that come out.
        out_channels: Size,
        /// Rows and columns of the kernel.
        kernel: Pair<Size>,
        /// Rows and columns of the output between two rows and columns of the input.
        #[serde(default = "one_each")]
        stride: Pair<Size>,
        /// Rows and columns taken off the output on each side.
        #[serde(default = "none_each")]
        padding: Pair<u64>,
        /// Rows and columns added to the output at its end.
        #[serde(default = "none_each")]
        output_padding: Pair<u64>,
        /// Rows and columns from one element of the kernel to the next.
        #[serde(default = "one_each")]
        dilation: Pair<Size>,
        /// Groups of channels that see only each other.
        #[serde(default = "one")]
        groups: Size,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Rows and columns put between those of an image [x].
    Upsample2d {
        /// Rows and columns that come out.
        output: Pair<Size>,
        /// How they are interpolated.
        #[serde(default = "nearest")]
        mode: Upsampling,
    },
    /// The largest of each window [x].
    MaxPool2d {
        /// Rows and columns of the window.
        kernel: Pair<Size>,
        /// Rows and columns between two windows; those of the window if left out.
        stride: Option<Pair<Size>>,
        /// Rows and columns of padding on each side.
        #[serde(default = "none_each")]
        padding: Pair<u64>,
        /// Whether a last window may reach beyond the padding.
        #[serde(default)]
        ceil_mode: bool,
    },
    /// The mean of each window [x].
    AveragePool2d {
        /// Rows and columns of the window.
        kernel: Pair<Size>,
        /// Rows and columns between two windows; those of the window if left out.
        stride: Option<Pair<Size>>,
        /// Rows and columns of padding on each side.
        #[serde(default = "none_each")]
        padding: Pair<u64>,
        /// Whether a last window may reach beyond the padding.
        #[serde(default)]
        ceil_mode: bool,
    },
    /// The mean of as many windows as give `output` rows and columns [x].
    AdaptiveAveragePool2d {
        /// Rows and columns that come out.
        output: Pair<Size>,
    },
    /// Its input, whole on each tensor-parallel rank [x].
    Gather {},
    /// All dimensions but the batch as one, called `features` [x].
    Flatten {},
    /// Normalises each channel over batch, rows and columns [x].
    BatchNorm {
        /// Whether it has a trained scale.
        #[serde(default = "yes")]
        weight: bool,
        /// Whether it has a trained shift.
        #[serde(default = "yes")]
        bias: bool,
        /// Added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Normalises groups of channels over rows and columns [x].
    GroupNorm {
        /// How many groups there are.
        groups: Size,
        /// Whether it has a trained scale.
        #[serde(default = "yes")]
        weight: bool,
        /// Whether it has a trained shift.
        #[serde(default = "yes")]
        bias: bool,
        /// Added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Normalises by mean and variance [x].
    LayerNorm {
        /// The dimensions whose statistics are taken; the last if left out.
        over: Option<DimNames>,
        /// Whether it has a trained scale.
        #[serde(default = "yes")]
        weight: bool,
        /// Whether it has a trained shift.
        #[serde(default = "yes")]
        bias: bool,
        /// Added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Normalises by the root mean square [x].
    RmsNorm {
        /// The dimensions whose statistics are taken; the last if left out.
        over: Option<DimNames>,
        /// Whether it has a trained scale.
        #[serde(default = "yes")]
        weight: bool,
        /// Added to the mean square.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Gaussian error linear unit [x].
    Gelu {},
    /// The same, approximated by a hyperbolic tangent [x].
    GeluTanh {},
    /// Rectified linear unit [x].
    Relu {},
    /// Sigmoid-weighted linear unit [x].
    Silu {},
    /// Hyperbolic tangent [x].
    Tanh {},
    /// Logistic function [x].
    Sigmoid {},
    /// A function of the gate, times the value [gate, value].
    GatedActivation {
        /// The function.
        activation: Function,
    },
    /// Multiplies by `factor` [x].
    Scale {
        /// What it is multiplied by.
        factor: f64,
    },
    /// `cap tanh(x / cap)` [x].
    SoftCap {
        /// The cap.
        cap: f64,
    },
    /// Cuts off what exceeds `limit` on either side [x].
    Clamp {
        /// Where.
        limit: f64,
    },
    /// Zeroes elements at random, and scales the others up to the same mean [x].
    Dropout {
        /// The share that is zeroed.
        #[serde(default = "half")]
        rate: f64,
    },
    /// Softmax [x].
    Softmax {
        /// The dimension that sums to one; the last if left out.
        over: Option<DimName>,
    },
    /// Sum of two or more tensors of one shape [a, b, ..].
    Add {},
    /// Elementwise product; `b` may lack dimensions of `a` [a, b].
    Multiply {},
    /// A function of one tensor, or of two that are broadcast to each other; constants that it takes are left out
    /// [x] or [a, b].
    Elementwise {
        /// The function.
        function: Elementwise,
    },
    /// Product of two tensors, summed over dimensions that both have, for each index of the others that both have [a,
    /// b].
    Product {
        /// The dimensions that are summed over.
        over: DimNames,
    },
    /// A function of all elements along dimensions that the output lacks [x].
    Reduce {
        /// The function.
        function: ReduceFunction,
        /// The dimensions.
        over: DimNames,
    },
    /// The same elements under other dimensions, moved, joined or parted [x].
    Reshape {
        /// What each dimension counts, outermost first.
        dims: DimNames,
        /// The extent of each of `dims`.
        shape: Vec<Extent>,
    },
    /// Zeros around one dimension [x].
    Pad {
        /// The dimension.
        dim: DimName,
        /// Its size with the zeros.
        size: Size,
    },
    /// Elements of one dimension at fixed indices [x].
    Take {
        /// The dimension.
        dim: DimName,
        /// How many elements are taken.
        size: Size,
    },
    /// Tensors joined along one dimension [a, b, ..].
    Concat {
        /// Along which dimension.
        over: DimName,
    },
    /// Part of one dimension [x].
    Slice {
        /// The dimension.
        dim: DimName,
        /// What is left of it.
        size: Size,
        /// The first of it.
        #[serde(default)]
        start: u64,
    },
    /// Rows of a table by index [tokens].
    Embedding {
        /// Rows of the table.
        num_embeddings: Size,
        /// Size of a row.
        embedding_dim: Size,
        /// What a row counts.
        #[serde(default = "hidden")]
        out_dim: DimName,
    },
    /// The sum of the rows of a table that a bag of indices names: the last dimension counts those of a bag [indices].
    EmbeddingBag {
        /// Rows of the table.
        num_embeddings: Size,
        /// Size of a row.
        embedding_dim: Size,
        /// What a row counts.
        #[serde(default = "hidden")]
        out_dim: DimName,
    },
    /// Fused attention [q: .., heads, head_dim; k, v: .., kv_heads, head_dim].
    Attention {
        /// Which positions a query looks at.
        #[serde(default)]
        mask: Mask,
        /// What products of queries and keys are multiplied by; one over the root of `head_dim` if left out.
        scale: Option<f64>,
        /// Scores `s` become `cap tanh(s / cap)`.
        soft_cap: Option<f64>,
        /// The share of probabilities that training zeroes at random.
        #[serde(default)]
        dropout: f64,
    },
    /// Unfused attention's products of queries and keys [q, k].
    AttentionScores {},
    /// Unfused attention's weighted sum of values [probabilities, v].
    AttentionValues {},
    /// Rotates pairs of features by position, `i` with `i + d / 2` [x].
    Rotary {
        /// The base of the angles.
        #[serde(default = "theta")]
        theta: f64,
        /// How many of the features are rotated, the first ones; all if left out.
        features: Option<Size>,
        /// What the angles are where they are no powers of `theta`, as in `table`: it is planned, but does not run.
        scaling: Option<String>,
    },
    /// A trained tensor that an operator takes.
    Parameter {
        /// What each dimension counts, outermost first.
        dims: DimNames,
        /// The extent of each of `dims`.
        shape: Vec<Size>,
    },
    /// Adds a trained tensor, as of positions [x].
    AddParameter {
        /// The dimensions of the input that the parameter has.
        over: DimNames,
    },
    /// Puts a trained row before a sequence of fixed length: the class token [x].
    PrependParameter {},
    /// Rows and columns of an image as one sequence, channels as `hidden` [x].
    PatchesToSequence {},
    /// The first position of the sequence [x].
    FirstToken {},
    /// Scores every expert for every token and chooses the best [x].
    Router {
        /// How many experts there are.
        num_experts: Size,
        /// How many each token goes to.
        top_k: Size,
        /// Whether a bias is added to the scores.
        #[serde(default)]
        bias: bool,
        /// Whether the weights of the chosen experts are scaled to add up to 1.
        #[serde(default = "yes")]
        normalize: bool,
    },
    /// Sends each token to its experts [x, probabilities].
    Dispatch {
        /// How many experts each token goes to.
        top_k: Size,
    },
    /// Brings the experts' outputs back and sums them [y, probabilities].
    Combine {},
    /// The mean negative log-likelihood [logits].
    CrossEntropy {
        /// The dimension of the classes; the last if left out.
        over: Option<DimName>,
    },
    /// The mean squared error against a target [prediction].
    MeanSquaredError {},
}

impl NodeKind {
    /// True if the node has no inputs.
    pub(super) fn is_source(&self) -> bool {
        matches!(self, Self::Input { .. } | Self::Parameter { .. })
    }

    /// Returns whether the node belongs to the block of its predecessor and never starts one: it is too small for a
    /// stage, and a cut before it would send as much as one after it.
    pub(super) fn finishes(&self) -> bool {
        matches!(
            self,
            Self::BatchNorm { .. }
                | Self::GroupNorm { .. }
                | Self::Gelu {}
                | Self::GeluTanh {}
                | Self::Relu {}
                | Self::Silu {}
                | Self::Tanh {}
                | Self::Sigmoid {}
                | Self::Scale { .. }
                | Self::SoftCap { .. }
                | Self::Clamp { .. }
                | Self::Dropout { .. }
                | Self::Elementwise { .. }
                | Self::Reshape { .. }
                | Self::Gather {}
                | Self::Flatten {}
                | Self::CrossEntropy { .. }
                | Self::MeanSquaredError {}
        )
    }
}

fn yes() -> bool {
    true
}

fn one() -> Size {
    Size(1)
}

fn one_each() -> Pair<Size> {
    Pair::Both(Size(1))
}

fn nearest() -> Upsampling {
    Upsampling::Nearest
}

fn none_each() -> Pair<u64> {
    Pair::Both(0)
}

/// PyTorch's default epsilon of norms.
fn epsilon() -> f64 {
    1e-5
}

/// PyTorch's default dropout rate.
fn half() -> f64 {
    0.5
}

fn theta() -> f64 {
    10_000.0
}

fn hidden() -> DimName {
    DimName::Hidden
}
