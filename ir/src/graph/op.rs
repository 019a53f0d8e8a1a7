//! Operators: the functions that they compute, and the shapes and parameters that follow.

use super::elementwise::{Elementwise, ReduceFunction, Upsampling};
use super::keeps::Keeps;
use super::mask::AttentionMask;
use super::numerics::{Real, Rotation, Routing, Scores};
use super::parameter::Parameter;
use super::recomputable::Recomputable;
use super::tensor::{Dim, DimName, Tensor};
use super::weights::WeightFormat;
use super::window::Window2d;

/// A normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NormKind {
    /// Mean and variance over the last dimensions.
    LayerNorm,
    /// Root mean square over the last dimensions.
    RmsNorm,
    /// Mean and variance of each channel over batch and space.
    BatchNorm,
    /// Mean and variance of groups of channels over space.
    GroupNorm {
        /// Number of groups.
        groups: u64,
    },
}

/// An elementwise function of one tensor, or of a gate and a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activation {
    /// Gaussian error linear unit.
    Gelu,
    /// Gaussian error linear unit, approximated by a hyperbolic tangent.
    GeluTanh,
    /// `x` times the logistic function of `1.702 x`.
    QuickGelu,
    /// Rectified linear unit; its backward needs its output only.
    Relu,
    /// The square of the rectified linear unit (Nemotron).
    SquaredRelu,
    /// Sigmoid-weighted linear unit.
    Silu,
    /// Hyperbolic tangent; its backward needs its output only.
    Tanh,
    /// Logistic function; its backward needs its output only.
    Sigmoid,
    /// `a x^2 + x / 2` for `x` above 0, `b (exp(x) - 1 - x) + x / 2` below, where `a` and `b` are trained (Huang and
    /// Schlag 2024, arXiv 2411.13010; Apertus).
    Xielu,
}

/// Row of a table that each token looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EmbeddedRows {
    /// The row of the token's own id, or of the id of a later token.
    Tokens {
        /// Distance to that token; beyond the end of the sequence, the first row is looked up.
        ahead: u64,
    },
    /// The row of the token's position in the sequence.
    Positions {
        /// The row of the first position: earlier rows stand for no position (OPT, RoBERTa).
        first: u64,
    },
    /// The first row: there is one sequence, and all its tokens have one type.
    TokenTypes,
    /// The sum or mean of the rows of all tokens along the last dimension: a bag of categories in a recommender.
    Bag,
}

/// The function that an operator computes.
///
/// Inputs are numbered as they are listed in brackets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// Input of the block: the output of the block before it, or data.
    Input,
    /// Rows of a table \[tokens\].
    Embedding {
        /// Rows of the table.
        entries: Dim,
        /// Dimension of one row.
        width: Dim,
        /// Row that each token looks up.
        rows: EmbeddedRows,
    },
    /// A tensor that is saved with the model but not trained.
    Buffer {
        /// Dimensions of the tensor.
        dims: Vec<Dim>,
        /// True if it counts among the model's parameters.
        counts: bool,
    },
    /// `y = x W + b`: sums over the dimensions `contracted` of \[x\], which the weight also has.
    Linear {
        /// The dimensions of the input that are summed over.
        contracted: Vec<DimName>,
        /// The output dimensions that replace the contracted ones.
        produced: Vec<Dim>,
        /// True if a bias is added.
        bias: bool,
    },
    /// A linear layer with separate weights for each expert, applied to the tokens routed to it \[dispatched\];
    /// `contracted`, `produced` and `bias` as for `Linear`.
    GroupedLinear {
        /// Number of experts.
        num_experts: u64,
        /// The dimensions of the input that are summed over.
        contracted: Vec<DimName>,
        /// The output dimensions that replace the contracted ones.
        produced: Vec<Dim>,
        /// True if a bias is added.
        bias: bool,
    },
    /// The `keys` earlier keys that each query attends to, chosen by scores of the operator's own \[q, k, weights of
    /// heads\]; without weights each head makes its own choice \[q, k\].
    Indexer {
        /// Number of keys.
        keys: u64,
        /// Number of neighbouring keys that are chosen together.
        block: u64,
    },
    /// One key for each block of positions: their weighted sum. The weights are the softmax of gates, to which a
    /// trained number for each position of a block is added \[x, gates\] (DeepSeek-AI 2026, *DeepSeek-V4*, section
    /// 2.3).
    Compress {
        /// Positions of a block.
        block: u64,
        /// True if half of the features are added to the next block, so that blocks overlap.
        overlaps: bool,
    },
    /// Fused attention, which never stores its scores; it saves the output and a log-sum-exp \[q, k, v; compressed and
    /// chosen keys where there are any\].
    Attention {
        /// Positions that a query attends to.
        mask: AttentionMask,
        /// Computation of scores from queries and keys.
        scores: Scores,
        /// True if each head has a trained sink that takes part in the softmax.
        sinks: bool,
        /// Fraction of probabilities zeroed at random. The mask is recomputed in backward, not saved.
        dropout: Real,
    },
    /// A causal convolution of each feature along the sequence, with an activation \[x\].
    ShortConvolution {
        /// Number of positions that an output depends on.
        kernel: u64,
        /// True if a bias is added.
        bias: bool,
        /// The function applied to the convolution's output, in the same kernel.
        activation: Option<Activation>,
    },
    /// A recurrence over the sequence, computed chunk by chunk; backward recomputes its states.
    Recurrence {
        /// The recurrence.
        kind: Recurrence,
        /// Positions of a chunk.
        chunk: u64,
    },
    /// Unfused attention's products of queries and keys \[q, k\]. Kernels of this kind compute masked positions too.
    AttentionScores,
    /// Unfused attention's weighted sum of values \[probabilities, v\].
    AttentionValues,
    /// Softmax over one dimension \[x\].
    Softmax {
        /// The dimension whose elements sum to one.
        over: DimName,
    },
    /// Zeroes elements at random and saves a mask of one byte per element \[x\].
    Dropout {
        /// Fraction of elements that are zeroed.
        rate: Real,
    },
    /// Normalises over `over` \[x\].
    Norm {
        /// The kind of normalisation.
        kind: NormKind,
        /// The dimensions over which statistics are taken.
        over: Vec<DimName>,
        /// True if there is a trained scale.
        weight: bool,
        /// True if there is a trained shift.
        bias: bool,
        /// Constant added to the variance or mean square.
        epsilon: Real,
        /// True if the output is scaled by the trained scale plus 1 (Gemma).
        unit_offset: bool,
    },
    /// An elementwise function \[x\].
    Activation(Activation),
    /// An elementwise function of a gate, times a value \[gate, value\].
    GatedActivation(Activation),
    /// Sum of the inputs \[a, b, ..\].
    Add,
    /// Elementwise product \[a, b\]; smaller inputs are broadcast.
    Multiply,
    /// An elementwise function of one tensor, or of two that are broadcast to each other \[a, b\].
    Elementwise(Elementwise),
    /// Product of two tensors \[a, b\]: sums over the dimensions `over`, which both have, separately for each index of
    /// the other dimensions that both have. The output has the dimensions of a, then those that only b has.
    Product {
        /// The dimensions that are summed over.
        over: Vec<DimName>,
    },
    /// A function of all elements along `over`, which the output lacks \[x\].
    Reduce {
        /// The function.
        function: ReduceFunction,
        /// The dimensions that are reduced.
        over: Vec<DimName>,
    },
    /// A view with other dimensions, of the same elements \[x\]. Costs nothing.
    Reshape {
        /// Dimensions of the output.
        dims: Vec<Dim>,
    },
    /// Zeros around the elements along one dimension \[x\].
    Pad {
        /// The dimension with its new, larger extent.
        dim: Dim,
    },
    /// Elements of one dimension at fixed indices, which may roll, flip or select them \[x\].
    Take {
        /// The dimension, with one element for each index.
        dim: Dim,
    },
    /// A clamped SwiGLU, `(value + 1) gate sigmoid(1.702 gate)` \[gate, value\] (gpt-oss). The gate is clamped at
    /// `limit` from above only, the value on both sides.
    ClampedSwiGlu {
        /// Magnitude at which gate and value are clamped.
        limit: Real,
    },
    /// `cap tanh(x / cap)` \[x\].
    SoftCap {
        /// The cap.
        cap: Real,
    },
    /// Clamps to the range from `-limit` to `limit` \[x\].
    Clamp {
        /// Largest magnitude that passes unchanged.
        limit: Real,
    },
    /// Multiplies by `factor` \[x\]; its backward needs no saved tensor.
    Scale {
        /// The multiplier.
        factor: Real,
    },
    /// Rotates pairs of features by position \[x\]; its backward needs no saved tensor.
    Rotary(Rotation),
    /// A view of some of the features \[x\]: the dimension of the same name becomes `dim`. Costs nothing.
    Slice {
        /// The dimension with its new, smaller extent.
        dim: Dim,
        /// Index of the first feature in the view.
        start: u64,
    },
    /// Inputs joined along one dimension; an input that lacks dimensions of the first is broadcast.
    Concat {
        /// The dimension that is concatenated.
        over: DimName,
    },
    /// A parameter added to its input \[x\]: positions of a vision model.
    AddParameter {
        /// The dimensions of the parameter.
        dims: Vec<Dim>,
    },
    /// A trained tensor.
    Parameter {
        /// Dimensions of the tensor.
        dims: Vec<Dim>,
    },
    /// A parameter placed before the sequence \[x\]: the class token.
    PrependParameter,
    /// Scores every expert for every token and chooses `top_k` \[x\]. With a second input, a correction is added to
    /// the scores for the choice only \[x, correction\]. Outputs the probabilities.
    Router {
        /// Number of experts.
        num_experts: u64,
        /// Number of experts that each token goes to.
        top_k: u64,
        /// True if a bias is added to the scores.
        bias: bool,
        /// Weighting and choice of the experts.
        routing: Routing,
    },
    /// Sends each token to its experts \[x, probabilities\].
    Dispatch {
        /// Number of experts that each token goes to.
        top_k: u64,
    },
    /// Returns the experts' outputs to their tokens and sums them by the router's weights \[y, probabilities\].
    Combine,
    /// The mean over tokens of the negative log-likelihood \[logits\].
    CrossEntropy {
        /// The dimension of the classes.
        over: DimName,
        /// Distance from the next token to the target; targets beyond the sequence's end count as zero.
        ahead: u64,
        /// Factor of this loss in the sum of losses.
        weight: Real,
    },
    /// The mean squared error against a target \[prediction\].
    MeanSquaredError,
    /// Two-dimensional convolution \[x\].
    Conv2d {
        /// Kernel, stride, padding.
        window: Window2d,
        /// Number of output channels.
        out_channels: u64,
        /// Number of groups of channels; a group's outputs depend on its inputs alone.
        groups: u64,
        /// True if a bias is added.
        bias: bool,
    },
    /// Transposed two-dimensional convolution \[x\]: each element of the input adds a multiple of the kernel to the
    /// output.
    ConvTranspose2d {
        /// Kernel, stride, and padding, which is removed from the output.
        window: Window2d,
        /// Rows and columns added to the output at its end.
        output_padding: [u64; 2],
        /// Number of output channels.
        out_channels: u64,
        /// Number of groups of channels; a group's outputs depend on its inputs alone.
        groups: u64,
        /// True if a bias is added.
        bias: bool,
    },
    /// Rows and columns interpolated between those of an image \[x\].
    Upsample2d {
        /// Rows and columns of the output.
        output: [u64; 2],
        /// The interpolation.
        kind: Upsampling,
    },
    /// The largest element of each window \[x\]; saves the indices.
    MaxPool2d(Window2d),
    /// The mean of each window \[x\].
    AveragePool2d(Window2d),
    /// The mean of each of `output` rows and columns of windows that cover the image \[x\].
    AdaptiveAveragePool2d {
        /// Rows and columns of the output.
        output: [u64; 2],
    },
    /// The input, gathered whole on each rank, however it was sharded before \[x\].
    Gather,
    /// Joins all dimensions but the batch into one, called features \[x\].
    Flatten,
    /// Turns rows and columns of patches into one sequence, and channels into hidden \[x\].
    PatchesToSequence,
    /// The first position of the sequence \[x\].
    FirstToken,
}

/// A recurrence over the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recurrence {
    /// Mamba-2's state-space duality \[x, B, C, time step\] (Dao and Gu 2024, arXiv 2405.21060, section 6).
    StateSpace {
        /// Smallest and largest time step; values outside are clamped.
        time_steps: [Real; 2],
    },
    /// Mamba's scan, with a state for each feature \[x, B, C, time step\] (Gu and Dao 2023, arXiv 2312.00752).
    SelectiveScan,
    /// The gated delta rule, a decay for each head \[q, k, v, beta, decay\] (Yang, Kautz and Hatamizadeh 2024,
    /// arXiv 2412.06464).
    DeltaRule,
    /// The delta rule with a decay for each feature of a key (Kimi Team 2025, arXiv 2510.26692).
    DeltaRuleByFeature,
    /// Linear attention with a fixed decay of each head \[q, k, v\] (Qin et al. 2024, arXiv 2401.04658).
    FixedDecay,
}

impl Recurrence {
    /// Number of inputs of the recurrence.
    pub(super) const fn inputs(self) -> usize {
        match self {
            Self::FixedDecay => 3,
            Self::StateSpace { .. } | Self::SelectiveScan => 4,
            Self::DeltaRule | Self::DeltaRuleByFeature => 5,
        }
    }

    /// Index of the input whose shape the output has: the values.
    pub(super) const fn values(self) -> usize {
        match self {
            Self::StateSpace { .. } | Self::SelectiveScan => 0,
            Self::DeltaRule | Self::DeltaRuleByFeature | Self::FixedDecay => 2,
        }
    }
}

impl OpKind {
    /// Name shared by operators with similar kernels.
    pub const fn family(&self) -> &'static str {
        match self {
            OpKind::Norm { .. } => "norm",
            OpKind::Activation(_) | OpKind::SoftCap { .. } | OpKind::Clamp { .. } => "activation",
            OpKind::GatedActivation(_) | OpKind::ClampedSwiGlu { .. } => "gated_activation",
            OpKind::Add | OpKind::AddParameter { .. } => "add",
            OpKind::Multiply => "multiply",
            OpKind::Elementwise(_) => "elementwise",
            OpKind::Rotary(_) => "rotary",
            OpKind::Embedding { .. } => "embedding",
            OpKind::CrossEntropy { .. } | OpKind::MeanSquaredError => "loss",
            OpKind::Router { .. } => "router",
            OpKind::Dispatch { .. } | OpKind::Combine => "routing",
            OpKind::Attention { .. } | OpKind::Indexer { .. } | OpKind::Compress { .. } => {
                "attention"
            }
            OpKind::Recurrence { .. } | OpKind::ShortConvolution { .. } => "recurrence",
            OpKind::Linear { .. } | OpKind::GroupedLinear { .. } => "linear",
            _ => "other",
        }
    }

    /// Tensors that PyTorch's autograd saves for each operator; for a GPT layer, the inventory of Korthikanti et al.
    /// 2022 (arXiv 2205.05198), section 4.1.
    fn keeps(&self) -> Vec<Keeps> {
        match self {
            OpKind::Embedding { .. }
            | OpKind::Linear { .. }
            | OpKind::GroupedLinear { .. }
            | OpKind::Conv2d { .. }
            | OpKind::ConvTranspose2d { .. }
            | OpKind::ShortConvolution { .. }
            | OpKind::MeanSquaredError
            | OpKind::AveragePool2d(_) => vec![Keeps::Input(0)],
            // With one output position, it is a mean.
            OpKind::AdaptiveAveragePool2d { output } if *output != [1, 1] => vec![Keeps::Input(0)],
            OpKind::Attention { mask, .. } => {
                let inputs = (0..mask.inputs()).map(Keeps::Input);
                inputs.chain([Keeps::Output, Keeps::Statistics(1)]).collect()
            }
            OpKind::Indexer { block: 1, .. } => {
                (0..3).map(Keeps::Input).chain([Keeps::Output]).collect()
            }
            // The choice of a block is discrete, so queries and keys get no gradient.
            OpKind::Indexer { .. } => vec![Keeps::Output],
            OpKind::Recurrence { kind, .. } => (0..kind.inputs()).map(Keeps::Input).collect(),
            OpKind::AttentionScores
            | OpKind::AttentionValues
            | OpKind::GatedActivation(_)
            | OpKind::ClampedSwiGlu { .. }
            | OpKind::Multiply
            | OpKind::Product { .. }
            | OpKind::Compress { .. }
            | OpKind::Combine => vec![Keeps::Input(0), Keeps::Input(1)],
            OpKind::Softmax { .. } => vec![Keeps::Output],
            OpKind::Elementwise(function) => function.keeps().to_vec(),
            OpKind::Reduce { function, .. } => function.keeps().to_vec(),
            OpKind::Dropout { .. } => vec![Keeps::Mask],
            OpKind::Norm { kind, .. } => match kind {
                NormKind::LayerNorm => vec![Keeps::Input(0), Keeps::Statistics(2)],
                NormKind::RmsNorm => vec![Keeps::Input(0), Keeps::Statistics(1)],
                NormKind::BatchNorm => vec![Keeps::Input(0)],
                NormKind::GroupNorm { groups } => {
                    vec![Keeps::Input(0), Keeps::Statistics(groups.saturating_mul(2))]
                }
            },
            OpKind::Activation(Activation::Relu | Activation::Tanh | Activation::Sigmoid)
            | OpKind::SoftCap { .. } => vec![Keeps::Output],
            OpKind::Activation(_) | OpKind::Clamp { .. } => vec![Keeps::Input(0)],
            OpKind::Router { .. } => vec![Keeps::Input(0), Keeps::Output],
            OpKind::Dispatch { .. } => vec![Keeps::Indices],
            OpKind::CrossEntropy { .. } => vec![Keeps::Softmax],
            OpKind::MaxPool2d(_) => vec![Keeps::Input(0), Keeps::Indices],
            OpKind::Input
            | OpKind::Buffer { .. }
            | OpKind::Add
            | OpKind::Rotary(_)
            | OpKind::Scale { .. }
            | OpKind::Slice { .. }
            | OpKind::Concat { .. }
            | OpKind::AddParameter { .. }
            | OpKind::Parameter { .. }
            | OpKind::PrependParameter
            | OpKind::Reshape { .. }
            | OpKind::Pad { .. }
            | OpKind::Take { .. }
            | OpKind::Upsample2d { .. }
            | OpKind::AdaptiveAveragePool2d { .. }
            | OpKind::Gather
            | OpKind::Flatten
            | OpKind::PatchesToSequence
            | OpKind::FirstToken => Vec::new(),
        }
    }
}

/// Treatment of an operator's parameters in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Learning {
    /// Trained.
    #[default]
    Trained,
    /// Frozen: no gradients and no optimizer state. Weights are stored in this format, biases in the format that
    /// kernels read.
    Frozen(WeightFormat),
    /// Trained, as an adapter of a frozen layer.
    Adapter,
}

/// An operator: its name, function, parameters and output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op {
    /// Name within the block, as in `attention.query`.
    pub name: String,
    /// The function that it computes.
    pub kind: OpKind,
    /// Parameters of the operator.
    pub parameters: Vec<Parameter>,
    /// Treatment of the parameters in training.
    pub learning: Learning,
    /// Shape and element type of the output.
    pub output: Tensor,
    /// Treatment of the output by selective recompute.
    pub recomputable: Recomputable,
}

impl Op {
    /// True if the operator has parameters that are trained.
    pub fn is_trained(&self) -> bool {
        !self.parameters.is_empty() && !self.is_frozen()
    }

    /// The operator's parameters that count towards the model's total: neither tied ones nor buffers.
    pub fn own_parameters(&self) -> impl Iterator<Item = &Parameter> {
        let is_buffer = matches!(self.kind, OpKind::Buffer { counts: false, .. });
        let own = move |it: &&Parameter| it.tied_to.is_none() && !is_buffer;
        self.parameters.iter().filter(own)
    }

    /// True for the activation function of a feed-forward block, gated or not.
    pub(super) const fn is_activation(&self) -> bool {
        matches!(
            self.kind,
            OpKind::Activation(_) | OpKind::GatedActivation(_) | OpKind::ClampedSwiGlu { .. }
        )
    }

    /// True if the operator has parameters that are frozen.
    pub fn is_frozen(&self) -> bool {
        !self.parameters.is_empty() && matches!(self.learning, Learning::Frozen(_))
    }

    /// Storage format of a parameter between its uses.
    pub fn format(&self, parameter: &Parameter) -> WeightFormat {
        match self.learning {
            Learning::Frozen(format) if parameter.name == "weight" => format,
            _ => WeightFormat::Plain,
        }
    }

    /// Tensors saved for the backward. A frozen operator does not save tensors that only the weight gradient needs.
    pub fn keeps(&self) -> Vec<Keeps> {
        let for_weight_alone = matches!(
            self.kind,
            OpKind::Linear { .. }
                | OpKind::GroupedLinear { .. }
                | OpKind::Conv2d { .. }
                | OpKind::ConvTranspose2d { .. }
                | OpKind::Router { .. }
                | OpKind::Embedding { .. }
        );
        let mut keeps = self.kind.keeps();
        if self.is_frozen() && for_weight_alone {
            keeps.retain(|kept| *kept != Keeps::Input(0));
        }
        keeps
    }
}
