//! Inputs and outputs of operators.

use std::sync::Arc;

use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use executor_kernels::ops::loss::Softmax;
use executor_kernels::ops::norm::Statistics;
use executor_kernels::ops::pool::Places;
use executor_kernels::ops::recurrence::delta_rule::DeltaSaved;

use super::routed::{Routed, Sent};

/// An input or output of an operator.
#[derive(Clone, Debug)]
pub(crate) enum Value<B: Kernels> {
    /// A tensor of the graph's shape, or this rank's part of it.
    Array(Array<B>),
    /// The micro-batch's tokens, which are on the host.
    Tokens,
    /// Rows of tokens routed to experts.
    Routed(Routed<B>),
}

impl<B: Kernels> Value<B> {
    /// The tensor.
    ///
    /// # Panics
    ///
    /// If the value is not an array: the graph's shapes say where arrays are.
    pub(crate) fn array(self) -> Array<B> {
        match self {
            Self::Array(array) => array,
            Self::Tokens => panic!("an operator on tensors was given tokens"),
            Self::Routed(_) => panic!("an operator on tensors was given routed rows"),
        }
    }

    /// The tensor, or the rows where it is routed.
    pub(crate) fn into_rows(self) -> Array<B> {
        match self {
            Self::Routed(routed) => routed.rows,
            other => other.array(),
        }
    }

    pub(crate) fn routed(self) -> Routed<B> {
        match self {
            Self::Routed(routed) => routed,
            _ => panic!("an operator of experts was given a tensor that is not routed"),
        }
    }

    /// Bytes on the device.
    pub(crate) fn num_bytes(&self) -> u64 {
        match self {
            Self::Array(array) => array.num_bytes(),
            Self::Tokens => 0,
            Self::Routed(routed) => routed.rows.num_bytes(),
        }
    }

    /// Each element times a number.
    pub(crate) fn scale(self, factor: f64) -> Self {
        self.mapped(|array| array.scale(factor))
    }

    /// The value with `map` applied to its array, element by element.
    pub(crate) fn mapped(self, map: impl FnOnce(Array<B>) -> Array<B>) -> Self {
        match self {
            Self::Routed(routed) => Self::Routed(routed.with_rows(map(routed.rows.clone()))),
            other => Self::Array(map(other.array())),
        }
    }

    /// The results of `join` on two values in the same placement, element by element.
    pub(crate) fn joined<const N: usize>(
        self,
        other: Self,
        join: impl FnOnce(Array<B>, Array<B>) -> [Array<B>; N],
    ) -> [Self; N] {
        match (self, other) {
            (Self::Routed(a), Self::Routed(b)) => {
                join(a.rows.clone(), b.rows).map(|rows| Self::Routed(a.with_rows(rows)))
            }
            (a, b) => join(a.array(), b.array()).map(Self::Array),
        }
    }

    /// The sum of this value and `sum`, if there is one: gradients of the same tensor, or of tensors in the same
    /// placement.
    pub(super) fn added_to(self, sum: Option<Self>) -> Self {
        let Some(sum) = sum else { return self };
        let [sum] = sum.joined(self, |a, b| [a + b]);
        sum
    }
}

/// Tensors of attention over all positions of a rank's part of the heads, saved for backward.
#[derive(Clone, Debug)]
pub(crate) struct Attended<B: Kernels> {
    pub(super) query: Array<B>,
    pub(super) key: Array<B>,
    pub(super) value: Array<B>,
    pub(super) output: Array<B>,
    pub(super) log_sum_exp: Array<B>,
}

impl<B: Kernels> Attended<B> {
    /// Bytes on the device.
    fn num_bytes(&self) -> u64 {
        let Self { query, key, value, output, log_sum_exp } = self;
        [query, key, value, output, log_sum_exp].map(Array::num_bytes).into_iter().sum()
    }
}

/// State that an operator saves for backward in addition to tensors of the graph.
#[derive(Clone, Debug)]
pub(crate) enum Extra<B: Kernels> {
    /// Statistics of the rows of a norm.
    Statistics(Statistics<B>),
    /// The logarithm of the sum of exponentials of each query's scores.
    LogSumExp(Array<B>),
    /// The softmax of the logits, and the sum of their exponentials over all classes.
    Softmax { softmax: Softmax<B>, sum: Array<B> },
    /// Position of each maximum.
    Places(Places<B>),
    /// Attention over all positions of a part of the heads.
    Attended(Attended<B>),
    /// The shape of the input.
    Shape(Vec<usize>),
    /// Slopes of the load-balancing loss for each expert's probability.
    Slopes(Array<B>),
    /// The rows that came back from the experts, for each token and choice, and the record of their dispatch.
    Returned(Array<B>, Arc<Sent<B>>),
    /// Predictions less their targets.
    Difference(Array<B>),
    /// Inputs of a recurrence or of a convolution before one, exchanged for all positions of a part of the heads; and
    /// the arrays of a delta rule.
    Recurrence { exchanged: Vec<Array<B>>, saved: Option<DeltaSaved<B>> },
}

impl<B: Kernels> Extra<B> {
    /// Bytes on the device.
    pub(crate) fn num_bytes(&self) -> u64 {
        match self {
            Self::Statistics(statistics) => {
                let mean = statistics.mean.as_ref().map_or(0, Array::num_bytes);
                mean + statistics.inverse_deviation.num_bytes()
            }
            Self::Softmax { softmax, sum } => softmax.num_bytes() + sum.num_bytes(),
            Self::Attended(attended) => attended.num_bytes(),
            Self::Recurrence { exchanged, saved } => {
                let exchanged: u64 = exchanged.iter().map(Array::num_bytes).sum();
                exchanged + saved.as_ref().map_or(0, DeltaSaved::num_bytes)
            }
            Self::LogSumExp(array)
            | Self::Slopes(array)
            | Self::Returned(array, _)
            | Self::Difference(array) => array.num_bytes(),
            // The planner counts indices as negligible against the tensor.
            Self::Places(_) | Self::Shape(_) => 0,
        }
    }
}

/// Tokens a fixed number of positions ahead, and the token after each as its target; beyond the end of a sequence,
/// token id 0 without a target.
#[derive(Clone, Debug)]
pub(crate) struct Further {
    pub(crate) tokens: Vec<u32>,
    pub(crate) targets: Vec<u32>,
}

/// The data of a micro-batch, or this rank's part of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct MicroBatch<B: Kernels> {
    /// Global index of the first sample, counted from the beginning of training.
    pub(crate) first_sample: u64,
    /// Token ids, sequence by sequence.
    pub(crate) tokens: Vec<u32>,
    /// Token ids for a decoder, where they differ from the encoder's.
    pub(crate) decoder_tokens: Option<Vec<u32>>,
    /// Targets: the token after each token, the masked token, or the class of each sample.
    pub(crate) targets: Vec<u32>,
    /// Tokens and targets one position further ahead, two positions, and so on, as far as the model predicts.
    pub(crate) further: Vec<Further>,
    /// Input values of samples that are not tokens.
    pub(crate) inputs: Option<Array<B>>,
    /// Target values of samples.
    pub(crate) values: Option<Array<B>>,
}

/// A micro-batch, shared by the blocks that it passes through.
pub(crate) type SharedMicroBatch<B> = Arc<MicroBatch<B>>;
