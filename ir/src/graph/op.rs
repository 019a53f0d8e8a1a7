//! Operators: the functions that they compute, and the shapes and parameters that follow.

use super::numerics::{Real, Rotation, Routing, Scores};
use super::tensor::{Dim, DimName, Extent, Tensor};
use super::weights::WeightFormat;

/// A normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NormKind {
    /// Mean and variance over the last dimensions.
    LayerNorm,
    /// Root mean square over the last dimensions.
    RmsNorm,
    /// Mean and variance of each channel over batch and space.
    BatchNorm,
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
    /// Of `x` above 0 `a x^2 + x / 2`, below `b (exp(x) - 1 - x) + x / 2`, with two trained numbers (Huang and Schlag
    /// 2024, arXiv 2411.13010; Apertus).
    Xielu,
}

/// Row of a table that each token looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EmbeddedRows {
    /// The row of the token's own id, or of the id of a later token.
    Tokens {
        /// Distance to that token; beyond the sequence's end the row is the first.
        ahead: u64,
    },
    /// The row of the token's position in the sequence.
    Positions {
        /// The row of the first position: earlier rows stand for no position (OPT, RoBERTa).
        first: u64,
    },
    /// The first row: there is one sequence, all of one type.
    TokenTypes,
}

/// Positions that a query attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttentionMask {
    /// All positions.
    Full,
    /// The query's own position and all earlier ones.
    Causal,
    /// The query's own position and the `window - 1` positions before.
    SlidingWindow {
        /// Number of positions, the query's own included.
        window: u64,
    },
    /// Of its own position and all earlier ones those that an [`OpKind::Indexer`] chooses (DeepSeek-AI 2025,
    /// *DeepSeek-V3.2*).
    Chosen {
        /// Number of positions.
        keys: u64,
    },
}

/// Kernel, stride and padding of a convolution or pooling, alike in both directions unless stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window2d {
    /// Rows and columns of the kernel.
    pub kernel: [u64; 2],
    /// Rows and columns between two applications of the kernel.
    pub stride: [u64; 2],
    /// Rows and columns of zeros on each side.
    pub padding: [u64; 2],
}

impl Window2d {
    /// Rows and columns of the output for `input` rows and columns; `None` if the kernel exceeds the padded input.
    pub fn output(&self, input: [u64; 2]) -> Option<[u64; 2]> {
        let side = |axis: usize| {
            let padded = input[axis] + 2 * self.padding[axis];
            Some(padded.checked_sub(self.kernel[axis])? / self.stride[axis] + 1)
        };
        Some([side(0)?, side(1)?])
    }
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
    /// `y = x W + b`: contracts `contracted` of \[x\] against the weight's dimensions of that name.
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
    /// The `keys` earlier positions that each query attends to, by scores of its own \[q, k, weights of heads\].
    Indexer {
        /// Number of positions.
        keys: u64,
    },
    /// Fused attention \[q, k, v; chosen keys where there are any\] that never stores its scores; saves the output and a log-sum-exp.
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
    /// A causal convolution over the sequence of each feature by itself, with an activation \[x\].
    ShortConvolution {
        /// Number of positions that an output depends on.
        kernel: u64,
        /// True if a bias is added.
        bias: bool,
        /// The function of its output, in the same kernel.
        activation: Option<Activation>,
    },
    /// A recurrence over the sequence, computed chunk by chunk; backward computes its states again.
    Recurrence {
        /// The recurrence.
        kind: Recurrence,
        /// Positions of a chunk.
        chunk: u64,
    },
    /// Unfused attention's products of queries and keys \[q, k\]. Kernels of this kind compute
    /// masked positions too.
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
    /// A clamped SwiGLU, `(value + 1) gate sigmoid(1.702 gate)`, the gate clamped from above at `limit`, the value on
    /// both sides (gpt-oss) \[gate, value\].
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
    /// A view of some of the features \[x\]: the dimension of the same name becomes `dim`. Costs
    /// nothing.
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
    /// A parameter put before the sequence \[x\]: the class token.
    PrependParameter,
    /// Scores every expert for every token and chooses `top_k` \[x\], or, with a correction of the scores for the
    /// choice alone, \[x, correction\]. Outputs the probabilities.
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
    /// Brings the experts' outputs back and sums them by their weights \[y, probabilities\].
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
    StateSpace,
    /// Mamba's scan, with a state for each feature \[x, B, C, time step\] (Gu and Dao 2023, arXiv 2312.00752).
    SelectiveScan,
    /// The gated delta rule, a decay for each head \[q, k, v, beta, decay\] (Yang, Kautz and Hatamizadeh 2024,
    /// arXiv 2412.06464).
    DeltaRule,
    /// The same with a decay for each feature of a key (Kimi Team 2025, arXiv 2510.26692).
    DeltaRuleByFeature,
}

/// A tensor that an operator saves for its backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// The input of this index.
    Input(usize),
    /// The output.
    Output,
    /// The softmax of the input in fp32.
    Softmax,
    /// A byte for each element of the output.
    Mask,
    /// An index for each element (or token) of the output.
    Indices,
    /// This many fp32 numbers for each row.
    Statistics(u64),
}

impl Recurrence {
    /// Number of its inputs.
    pub(super) const fn inputs(self) -> usize {
        match self {
            Self::StateSpace | Self::SelectiveScan => 4,
            Self::DeltaRule | Self::DeltaRuleByFeature => 5,
        }
    }

    /// Index of the input that its output is shaped like: values.
    pub(super) const fn values(self) -> usize {
        match self {
            Self::StateSpace | Self::SelectiveScan => 0,
            Self::DeltaRule | Self::DeltaRuleByFeature => 2,
        }
    }
}

impl OpKind {
    /// Name shared by operators whose kernels are alike.
    pub const fn family(&self) -> &'static str {
        match self {
            OpKind::Norm { .. } => "norm",
            OpKind::Activation(_) | OpKind::SoftCap { .. } | OpKind::Clamp { .. } => "activation",
            OpKind::GatedActivation(_) | OpKind::ClampedSwiGlu { .. } => "gated_activation",
            OpKind::Add | OpKind::AddParameter { .. } => "add",
            OpKind::Multiply => "multiply",
            OpKind::Rotary(_) => "rotary",
            OpKind::Embedding { .. } => "embedding",
            OpKind::CrossEntropy { .. } | OpKind::MeanSquaredError => "loss",
            OpKind::Router { .. } => "router",
            OpKind::Dispatch { .. } | OpKind::Combine => "routing",
            OpKind::Attention { .. } | OpKind::Indexer { .. } => "attention",
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
            | OpKind::ShortConvolution { .. }
            | OpKind::MeanSquaredError
            | OpKind::AveragePool2d(_) => vec![Keeps::Input(0)],
            OpKind::Attention { .. } => {
                vec![
                    Keeps::Input(0),
                    Keeps::Input(1),
                    Keeps::Input(2),
                    Keeps::Output,
                    Keeps::Statistics(1),
                ]
            }
            OpKind::Indexer { .. } => (0..3).map(Keeps::Input).chain([Keeps::Output]).collect(),
            OpKind::Recurrence { kind, .. } => (0..kind.inputs()).map(Keeps::Input).collect(),
            OpKind::AttentionScores
            | OpKind::AttentionValues
            | OpKind::GatedActivation(_)
            | OpKind::ClampedSwiGlu { .. }
            | OpKind::Multiply
            | OpKind::Combine => vec![Keeps::Input(0), Keeps::Input(1)],
            OpKind::Softmax { .. } => vec![Keeps::Output],
            OpKind::Dropout { .. } => vec![Keeps::Mask],
            OpKind::Norm { kind: NormKind::LayerNorm, .. } => {
                vec![Keeps::Input(0), Keeps::Statistics(2)]
            }
            OpKind::Norm { kind: NormKind::RmsNorm, .. } => {
                vec![Keeps::Input(0), Keeps::Statistics(1)]
            }
            OpKind::Norm { kind: NormKind::BatchNorm, .. } => vec![Keeps::Input(0)],
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
            | OpKind::PrependParameter
            | OpKind::AdaptiveAveragePool2d { .. }
            | OpKind::Gather
            | OpKind::Flatten
            | OpKind::PatchesToSequence
            | OpKind::FirstToken => Vec::new(),
        }
    }
}

/// A trained tensor of an operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parameter {
    /// Name within the operator: `weight`, `bias`.
    pub name: String,
    /// Dimensions of the tensor. A bias has only the output dimensions.
    pub dims: Vec<Dim>,
    /// The operator of the chain whose parameter this one is, where the two are tied.
    pub tied_to: Option<String>,
}

impl Parameter {
    /// The dimensions along which the parameter is sharded; the expert dimension only if `is_expert`.
    pub fn cut(&self, is_expert: bool) -> Cut {
        let find = |wanted: &dyn Fn(DimName) -> bool| self.dims.iter().position(|d| wanted(d.name));
        Cut {
            tensor: find(&DimName::is_tensor_sharded),
            expert: if is_expert { find(&|name| name == DimName::Experts) } else { None },
        }
    }

    /// Number of neighbouring tensor-parallel ranks, of `ranks`, that hold the same shard along `dim`: more than one
    /// where there are fewer key-value heads than ranks.
    pub fn num_copies(&self, dim: usize, ranks: u32) -> u32 {
        match self.dims[dim] {
            Dim { name: DimName::KvHeads, extent: Extent::Fixed(heads) } => {
                let copies = u64::from(ranks).checked_div(heads).unwrap_or(1);
                u32::try_from(copies).unwrap_or(1).max(1)
            }
            _ => 1,
        }
    }

    /// Number of elements. Every dimension of a parameter is fixed.
    pub fn num_elements(&self) -> u64 {
        self.dims
            .iter()
            .map(|dim| match dim.extent {
                Extent::Fixed(size) => size,
                _ => unreachable!("a parameter depends on neither batch nor sequence"),
            })
            .product()
    }
}

/// The dimensions along which a parameter is sharded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Index of the dimension that tensor parallelism shards.
    pub tensor: Option<usize>,
    /// Index of the dimension that expert parallelism shards.
    pub expert: Option<usize>,
}

/// Treatment of an operator's output by selective recompute: saved, or recomputed in backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recomputable {
    /// Saved: expensive to compute for the bytes it takes.
    #[default]
    No,
    /// Dropped and recomputed under `selective`: cheap for the bytes it takes. Unfused attention scores, norms,
    /// activation functions.
    Selective,
    /// The end of a region that `selective` recomputes as a whole: recomputed, but its output is also saved, as the
    /// region's checkpoint does. Unfused attention's product with the values.
    SelectiveEnd,
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

    /// The parameters that count towards the model's: neither tied ones nor buffers.
    pub fn own_parameters(&self) -> impl Iterator<Item = &Parameter> {
        let is_buffer = matches!(self.kind, OpKind::Buffer { counts: false, .. });
        let own = move |it: &&Parameter| it.tied_to.is_none() && !is_buffer;
        self.parameters.iter().filter(own)
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

    /// Tensors saved for the backward. A frozen operator saves none that only the weight gradient needs.
    pub fn keeps(&self) -> Vec<Keeps> {
        let for_weight_alone = matches!(
            self.kind,
            OpKind::Linear { .. }
                | OpKind::GroupedLinear { .. }
                | OpKind::Conv2d { .. }
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
