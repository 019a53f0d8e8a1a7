//! Operators: what they compute, and what follows from it for shapes and parameters.

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
    /// The same, approximated by a hyperbolic tangent.
    GeluTanh,
    /// `x` times the logistic function of `1.702 x`.
    QuickGelu,
    /// Rectified linear unit; its backward needs its output only.
    Relu,
    /// Sigmoid-weighted linear unit.
    Silu,
    /// Hyperbolic tangent; its backward needs its output only.
    Tanh,
    /// Logistic function; its backward needs its output only.
    Sigmoid,
}

/// Which row of a table each token has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EmbeddedRows {
    /// That of the number of the token itself, or of one further on.
    Tokens {
        /// How many tokens further; beyond the sequence's end it is the first row.
        ahead: u64,
    },
    /// That of its position in the sequence.
    Positions {
        /// The row of the first position: those before it stand for no position (OPT, RoBERTa).
        first: u64,
    },
    /// The first: there is one sequence, all of one type.
    TokenTypes,
}

/// Which positions a query looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttentionMask {
    /// All of them.
    Full,
    /// Itself and what came before.
    Causal,
    /// Itself and the `window - 1` positions before.
    SlidingWindow {
        /// Positions seen, the query's own included.
        window: u64,
    },
}

/// Kernel, stride and padding of a convolution or pooling, alike in both directions unless stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window2d {
    /// Rows and columns of the kernel.
    pub kernel: [u64; 2],
    /// Rows and columns between two applications.
    pub stride: [u64; 2],
    /// Rows and columns of zeros on each side.
    pub padding: [u64; 2],
}

impl Window2d {
    /// Rows and columns that come out for `input` rows and columns; `None` if the kernel exceeds the
    /// padded input.
    pub fn output(&self, input: [u64; 2]) -> Option<[u64; 2]> {
        let side = |axis: usize| {
            let padded = input[axis] + 2 * self.padding[axis];
            Some(padded.checked_sub(self.kernel[axis])? / self.stride[axis] + 1)
        };
        Some([side(0)?, side(1)?])
    }
}

/// What an operator computes.
///
/// Inputs are numbered as they are listed in brackets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// What the block is given: the output of the block before it, or data.
    Input,
    /// Rows of a table \[tokens\].
    Embedding {
        /// Rows of the table.
        entries: Dim,
        /// What a row is.
        width: Dim,
        /// Which row each token has.
        rows: EmbeddedRows,
    },
    /// A tensor of its own, which is saved with the model but not trained, nor counted among its parameters.
    Buffer {
        /// Its dimensions.
        dims: Vec<Dim>,
    },
    /// `y = x W + b`: contracts `contracted` of \[x\] against the weight's dimensions of that name.
    Linear {
        /// The dimensions of the input that are summed over.
        contracted: Vec<DimName>,
        /// The dimensions that come in their place.
        produced: Vec<Dim>,
        /// Whether a bias is added.
        bias: bool,
    },
    /// A linear layer of which every expert has its own, applied to the tokens routed to it
    /// \[dispatched\]; `contracted`, `produced` and `bias` as for `Linear`.
    GroupedLinear {
        /// How many experts there are.
        num_experts: u64,
        /// The dimensions of the input that are summed over.
        contracted: Vec<DimName>,
        /// The dimensions that come in their place.
        produced: Vec<Dim>,
        /// Whether a bias is added.
        bias: bool,
    },
    /// Fused attention \[q, k, v\] that never stores its scores; saves the output and a log-sum-exp.
    Attention {
        /// Which positions a query looks at.
        mask: AttentionMask,
        /// How scores come from queries and keys.
        scores: Scores,
        /// Whether each head has a trained sink that takes part in the softmax.
        sinks: bool,
        /// The share of probabilities that it zeroes at random. Which ones is computed again, not kept.
        dropout: Real,
    },
    /// Unfused attention's products of queries and keys \[q, k\]. Kernels of this kind compute
    /// masked positions too.
    AttentionScores,
    /// Unfused attention's weighted sum of values \[probabilities, v\].
    AttentionValues,
    /// Softmax over one dimension \[x\].
    Softmax {
        /// The dimension that sums to one.
        over: DimName,
    },
    /// Zeroes elements at random and keeps a mask of one byte each \[x\].
    Dropout {
        /// The share of elements that it zeroes.
        rate: Real,
    },
    /// Normalises over `over` \[x\].
    Norm {
        /// Which normalisation.
        kind: NormKind,
        /// The dimensions whose statistics are taken.
        over: Vec<DimName>,
        /// Whether it has a trained scale.
        weight: bool,
        /// Whether it has a trained shift.
        bias: bool,
        /// Added to the variance or mean square.
        epsilon: Real,
        /// Whether the scale is the trained one plus 1 (Gemma).
        unit_offset: bool,
    },
    /// An elementwise function \[x\].
    Activation(Activation),
    /// An elementwise function of a gate, times a value \[gate, value\].
    GatedActivation(Activation),
    /// Sum of its inputs \[a, b, ..\].
    Add,
    /// Elementwise product \[a, b\]; smaller inputs are broadcast.
    Multiply,
    /// A clamped SwiGLU, `(value + 1) gate sigmoid(1.702 gate)`, the gate cut off above `limit`, the value on both
    /// sides (gpt-oss) \[gate, value\].
    ClampedSwiGlu {
        /// Where they are cut off.
        limit: Real,
    },
    /// `cap tanh(x / cap)` \[x\].
    SoftCap {
        /// The cap.
        cap: Real,
    },
    /// Cuts off what exceeds `limit` on either side \[x\].
    Clamp {
        /// Where.
        limit: Real,
    },
    /// Multiplies by `factor` \[x\]; its backward needs no saved tensor.
    Scale {
        /// What it is multiplied by.
        factor: Real,
    },
    /// Rotates pairs of features by position \[x\]; its backward needs no saved tensor.
    Rotary(Rotation),
    /// A view of some of the features \[x\]: the dimension of the same name becomes `dim`. Costs
    /// nothing.
    Slice {
        /// What is left of the dimension.
        dim: Dim,
        /// The first of it.
        start: u64,
    },
    /// Inputs joined along one dimension; an input that lacks dimensions of the first is broadcast.
    Concat {
        /// Along which dimension.
        over: DimName,
    },
    /// A parameter added to its input \[x\]: positions of a vision model.
    AddParameter {
        /// The dimensions of the parameter.
        dims: Vec<Dim>,
    },
    /// A parameter put before the sequence \[x\]: the class token.
    PrependParameter,
    /// Scores every expert for every token and chooses `top_k` \[x\], where there is one with a correction of what
    /// is chosen by \[x, correction\]. Puts out the probabilities.
    Router {
        /// How many experts there are.
        num_experts: u64,
        /// How many each token goes to.
        top_k: u64,
        /// Whether a bias is added to the scores.
        bias: bool,
        /// How they are weighed and chosen.
        routing: Routing,
    },
    /// Sends each token to its experts \[x, probabilities\].
    Dispatch {
        /// How many experts each token goes to.
        top_k: u64,
    },
    /// Brings the experts' outputs back and sums them by their weights \[y, probabilities\].
    Combine,
    /// The mean over tokens of the negative log-likelihood \[logits\].
    CrossEntropy {
        /// The dimension of the classes.
        over: DimName,
        /// How many tokens after the next one the target is; those beyond the sequence's end count as zero.
        ahead: u64,
        /// What the loss is multiplied by in the sum of losses.
        weight: Real,
    },
    /// The mean squared error against a target \[prediction\].
    MeanSquaredError,
    /// Two-dimensional convolution \[x\].
    Conv2d {
        /// Kernel, stride, padding.
        window: Window2d,
        /// Channels that come out.
        out_channels: u64,
        /// Groups of channels that see only each other.
        groups: u64,
        /// Whether a bias is added.
        bias: bool,
    },
    /// The largest of each window \[x\]; keeps the indices.
    MaxPool2d(Window2d),
    /// The mean of each window \[x\].
    AveragePool2d(Window2d),
    /// The mean of as many windows as give `output` rows and columns \[x\].
    AdaptiveAveragePool2d {
        /// Rows and columns that come out.
        output: [u64; 2],
    },
    /// Its input, whole on each rank, however it is sharded where it was made \[x\].
    Gather,
    /// All dimensions but the batch as one, called features \[x\].
    Flatten,
    /// Rows and columns of patches as one sequence, channels as hidden \[x\].
    PatchesToSequence,
    /// The first position of the sequence \[x\].
    FirstToken,
}

/// What an operator keeps for its backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// One of its inputs.
    Input(usize),
    /// Its output.
    Output,
    /// The softmax of its input in fp32.
    Softmax,
    /// A byte for each element of its output.
    Mask,
    /// An index for each element (or token) of its output.
    Indices,
    /// This many fp32 numbers for each row.
    Statistics(u64),
}

impl OpKind {
    /// The name of the operators whose kernels are alike.
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
            OpKind::Attention { .. } => "attention",
            OpKind::Linear { .. } | OpKind::GroupedLinear { .. } => "linear",
            _ => "other",
        }
    }

    /// What PyTorch's autograd keeps for each operator; for a GPT layer, the inventory of Korthikanti et
    /// al. 2022 (arXiv 2205.05198), section 4.1.
    fn keeps(&self) -> Vec<Keeps> {
        match self {
            OpKind::Embedding { .. }
            | OpKind::Linear { .. }
            | OpKind::GroupedLinear { .. }
            | OpKind::Conv2d { .. }
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
    /// Its name within the operator: `weight`, `bias`.
    pub name: String,
    /// Its dimensions. A bias has only those that come out.
    pub dims: Vec<Dim>,
    /// The operator of the chain whose parameter this one is, where the two are tied.
    pub tied_to: Option<String>,
}

impl Parameter {
    /// The dimensions along which it is sharded; experts are if `is_expert`.
    pub fn cut(&self, is_expert: bool) -> Cut {
        let find = |wanted: &dyn Fn(DimName) -> bool| self.dims.iter().position(|d| wanted(d.name));
        Cut {
            tensor: find(&DimName::is_tensor_sharded),
            expert: if is_expert { find(&|name| name == DimName::Experts) } else { None },
        }
    }

    /// How many of `ranks` neighbouring tensor-parallel ranks have the same part along `dim`: more than one where there
    /// are fewer key-value heads than ranks.
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
    /// The one that tensor parallelism shards.
    pub tensor: Option<usize>,
    /// The one that expert parallelism shards.
    pub expert: Option<usize>,
}

/// Whether selective recompute stores an operator's output or computes it again in backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recomputable {
    /// Stored: it is dear to compute for the bytes it takes.
    #[default]
    No,
    /// Dropped and computed again under `selective`: cheap for the bytes it takes. Unfused attention
    /// scores, norms, activation functions.
    Selective,
    /// The end of a region that `selective` runs again as a whole: computed again, but its output is
    /// kept too, as the region's checkpoint does. Unfused attention's product with the values.
    SelectiveEnd,
}

/// What training does with the parameters of an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Learning {
    /// They are trained.
    #[default]
    Trained,
    /// They stay as they are: without gradients, without optimizer state. Weights are stored so, biases
    /// as they are read.
    Frozen(WeightFormat),
    /// They are trained, beside a layer that is frozen.
    Adapter,
}

/// An operator: its name, what it computes, its parameters and what comes out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op {
    /// Its name within the block, as in `attention.query`.
    pub name: String,
    /// What it computes.
    pub kind: OpKind,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// What training does with them.
    pub learning: Learning,
    /// What comes out.
    pub output: Tensor,
    /// What selective recompute does with it.
    pub recomputable: Recomputable,
}

impl Op {
    /// Whether it has parameters that are trained.
    pub fn is_trained(&self) -> bool {
        !self.parameters.is_empty() && !self.is_frozen()
    }

    /// The parameters that are counted as the model's: neither those that are tied to another's, nor buffers.
    pub fn own_parameters(&self) -> impl Iterator<Item = &Parameter> {
        let is_buffer = matches!(self.kind, OpKind::Buffer { .. });
        let own = move |it: &&Parameter| it.tied_to.is_none() && !is_buffer;
        self.parameters.iter().filter(own)
    }

    /// Whether it has parameters that stay as they are.
    pub fn is_frozen(&self) -> bool {
        !self.parameters.is_empty() && matches!(self.learning, Learning::Frozen(_))
    }

    /// How one of its parameters is stored between its uses.
    pub fn format(&self, parameter: &Parameter) -> WeightFormat {
        match self.learning {
            Learning::Frozen(format) if parameter.name == "weight" => format,
            _ => WeightFormat::Plain,
        }
    }

    /// What it keeps for its backward. What the gradient of a weight alone needs, a frozen one does not.
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
