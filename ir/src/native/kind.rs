//! Kinds of nodes with their attributes, as they are in a file.

use super::attributes::{DimNames, Extent, Function, InputElement, Mask, OutFeatures, Pair, Size};
use crate::graph::{DimName, Elementwise, ReduceFunction, Upsampling};

/// Operation of a node. Inputs are in brackets, in the order of their slots.
// A kind without attributes is an empty struct, not a unit: for a unit, serde would accept any attributes.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum NodeKind {
    /// Data input of the model: images, features, tokens.
    Input {
        /// Meaning of each dimension, outermost first. The batch has extent "b"; a sequence may have "s".
        dims: DimNames,
        /// The extent of each of `dims`.
        shape: Vec<Extent>,
        /// Type of the elements.
        #[serde(default)]
        element: InputElement,
    },
    /// `y = x W + b` [x].
    Linear {
        /// The sizes of the dimensions that replace the ones summed over.
        out_features: OutFeatures,
        /// Meaning of those dimensions; `features` if there is one and this is left out.
        out_dims: Option<DimNames>,
        /// The dimensions summed over; the last if left out.
        over: Option<DimNames>,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// A linear layer with separate weights for each expert, applied to the tokens sent to that expert [x].
    GroupedLinear {
        /// Number of experts.
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
        /// Number of output channels.
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
        /// Number of groups of channels; a group's outputs depend on its inputs alone.
        #[serde(default = "one")]
        groups: Size,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Transposed two-dimensional convolution [x].
    ConvTranspose2d {
        /// Number of output channels.
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
        /// Number of groups of channels; a group's outputs depend on its inputs alone.
        #[serde(default = "one")]
        groups: Size,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Rows and columns interpolated between those of an image [x].
    Upsample2d {
        /// Rows and columns of the output.
        output: Pair<Size>,
        /// The interpolation.
        #[serde(default = "nearest")]
        mode: Upsampling,
    },
    /// The largest element of each window [x].
    MaxPool2d {
        /// Rows and columns of the window.
        kernel: Pair<Size>,
        /// Rows and columns between two windows; by default the size of the window.
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
        /// Rows and columns between two windows; by default the size of the window.
        stride: Option<Pair<Size>>,
        /// Rows and columns of padding on each side.
        #[serde(default = "none_each")]
        padding: Pair<u64>,
        /// Whether a last window may reach beyond the padding.
        #[serde(default)]
        ceil_mode: bool,
    },
    /// The mean of each window, with windows such that the output has `output` rows and columns [x].
    AdaptiveAveragePool2d {
        /// Rows and columns of the output.
        output: Pair<Size>,
    },
    /// The input, whole on each tensor-parallel rank [x].
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
        /// Constant added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Normalises groups of channels over rows and columns [x].
    GroupNorm {
        /// Number of groups.
        groups: Size,
        /// Whether it has a trained scale.
        #[serde(default = "yes")]
        weight: bool,
        /// Whether it has a trained shift.
        #[serde(default = "yes")]
        bias: bool,
        /// Constant added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Normalises by mean and variance [x].
    LayerNorm {
        /// The dimensions over which statistics are taken; the last if left out.
        over: Option<DimNames>,
        /// Whether it has a trained scale.
        #[serde(default = "yes")]
        weight: bool,
        /// Whether it has a trained shift.
        #[serde(default = "yes")]
        bias: bool,
        /// Constant added to the variance.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Normalises by the root mean square [x].
    RmsNorm {
        /// The dimensions over which statistics are taken; the last if left out.
        over: Option<DimNames>,
        /// Whether it has a trained scale.
        #[serde(default = "yes")]
        weight: bool,
        /// Constant added to the mean square.
        #[serde(default = "epsilon")]
        epsilon: f64,
    },
    /// Gaussian error linear unit [x].
    Gelu {},
    /// Gaussian error linear unit, approximated by a hyperbolic tangent [x].
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
        /// The multiplier.
        factor: f64,
    },
    /// `cap tanh(x / cap)` [x].
    SoftCap {
        /// The cap.
        cap: f64,
    },
    /// Clamps to the range from `-limit` to `limit` [x].
    Clamp {
        /// The limit.
        limit: f64,
    },
    /// Zeroes elements at random, and scales the others so that the mean is unchanged [x].
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
    /// A function of one tensor, or of two that are broadcast to each other [x] or [a, b]. Constants in the function
    /// are not stated.
    Elementwise {
        /// The function.
        function: Elementwise,
    },
    /// Product of two tensors, summed over dimensions that both have, for each index of the other dimensions that both
    /// have [a, b].
    Product {
        /// The dimensions that are summed over.
        over: DimNames,
    },
    /// A function of all elements along dimensions that the output lacks [x].
    Reduce {
        /// The function.
        function: ReduceFunction,
        /// The dimensions that the output lacks.
        over: DimNames,
    },
    /// The same elements with other dimensions: moved, joined or split [x].
    Reshape {
        /// Meaning of each dimension, outermost first.
        dims: DimNames,
        /// The extent of each of `dims`.
        shape: Vec<Extent>,
    },
    /// Zeros around one dimension [x].
    Pad {
        /// The dimension.
        dim: DimName,
        /// Size of the dimension with the zeros.
        size: Size,
    },
    /// Elements of one dimension at fixed indices [x].
    Take {
        /// The dimension.
        dim: DimName,
        /// Number of elements that are taken.
        size: Size,
    },
    /// Tensors joined along one dimension [a, b, ..].
    Concat {
        /// The dimension along which tensors are joined.
        over: DimName,
    },
    /// Part of one dimension [x].
    Slice {
        /// The dimension.
        dim: DimName,
        /// Size of the part.
        size: Size,
        /// Index of the first element of the part.
        #[serde(default)]
        start: u64,
    },
    /// Rows of a table by index [tokens].
    Embedding {
        /// Rows of the table.
        num_embeddings: Size,
        /// Size of a row.
        embedding_dim: Size,
        /// Meaning of the dimension of a row.
        #[serde(default = "hidden")]
        out_dim: DimName,
    },
    /// The sum of the rows of a table that a bag of indices names; the last dimension of the input enumerates the
    /// indices of a bag [indices].
    EmbeddingBag {
        /// Rows of the table.
        num_embeddings: Size,
        /// Size of a row.
        embedding_dim: Size,
        /// Meaning of the dimension of a row.
        #[serde(default = "hidden")]
        out_dim: DimName,
    },
    /// Fused attention [q: .., heads, head_dim; k, v: .., kv_heads, head_dim].
    Attention {
        /// The positions that a query attends to.
        #[serde(default)]
        mask: Mask,
        /// Factor on products of queries and keys; one over the square root of `head_dim` if left out.
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
        /// Number of features that are rotated, beginning with the first; all if left out.
        features: Option<Size>,
        /// Description of the angles where they are not powers of `theta`, as in `table`: such a model can be planned,
        /// but not run.
        scaling: Option<String>,
    },
    /// A trained tensor, as an input of operators.
    Parameter {
        /// Meaning of each dimension, outermost first.
        dims: DimNames,
        /// The extent of each of `dims`.
        shape: Vec<Size>,
    },
    /// Adds a trained tensor, such as position embeddings [x].
    AddParameter {
        /// The input's dimensions that the parameter also has.
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
        /// Number of experts.
        num_experts: Size,
        /// Number of experts that each token goes to.
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
        /// Number of experts that each token goes to.
        top_k: Size,
    },
    /// Returns the experts' outputs to their tokens and sums them [y, probabilities].
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

    /// Returns whether the node belongs to its predecessor's block and never starts one: it is too small for a stage,
    /// and a cut before it would send the same amount of data as a cut after it.
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
