//! Operators whose parameters share a tensor in files.

use ir::model::Join;

/// Orientation of a tensor's rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// Inputs, over which products sum, come first, as in this program.
    InputsFirst,
    /// Outputs come first, as in PyTorch's `nn.Linear`.
    OutputsFirst,
}

/// Interleaving of the outputs of parameters that share a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Splits {
    /// None: one whole parameter after the other.
    Not,
    /// None, and all parameters have the same size.
    Evenly,
    /// By key-value head.
    ByHead,
    /// By feature: one of each parameter in turn.
    ByFeature,
    /// By the heads of this operator.
    ByHeadsOf(&'static str),
}

/// Queries, keys and values.
const QKV: &[&str] = &["attention.query", "attention.key", "attention.value"];

/// Gates and values of experts.
const EXPERTS: &[&str] = &["mlp.experts.gate", "mlp.experts.up"];

/// Inputs of Mamba-2.
const STATE_SPACE: &[&str] =
    &["mamba.gate", "mamba.input", "mamba.b", "mamba.c", "mamba.time_step"];

/// Convolutions of the inputs of Mamba-2.
const STATE_SPACE_CONVOLUTION: &[&str] =
    &["mamba.input_convolution", "mamba.b_convolution", "mamba.c_convolution"];

/// Queries, keys, values and gates of a delta rule.
const DELTA: &[&str] = &["delta_net.query", "delta_net.key", "delta_net.value", "delta_net.gate"];

/// Convolutions of the inputs of a delta rule.
const DELTA_CONVOLUTION: &[&str] =
    &["delta_net.query_convolution", "delta_net.key_convolution", "delta_net.value_convolution"];

/// The operators that share a tensor, in order, and their interleaving.
pub(super) const fn joined(join: Join) -> (&'static [&'static str], Splits) {
    match join {
        Join::QkvInOrder => (QKV, Splits::Not),
        Join::QkvEvenly => (QKV, Splits::Evenly),
        Join::QkvByHead => (QKV, Splits::ByHead),
        Join::Latent => (&["attention.key_value_down", "attention.key_rope"], Splits::Not),
        Join::GateUp => (&["mlp.gate", "mlp.up"], Splits::Not),
        Join::ExpertsGateUp => (EXPERTS, Splits::Not),
        Join::ExpertsGateUpInTurn => (EXPERTS, Splits::ByFeature),
        Join::SharedGateUp => (&["mlp.shared.gate", "mlp.shared.up"], Splits::Not),
        Join::StateSpace => (STATE_SPACE, Splits::Not),
        Join::StateSpaceConvolution => (STATE_SPACE_CONVOLUTION, Splits::Not),
        Join::DeltaByHead => (DELTA, Splits::ByHeadsOf("delta_net.key")),
        Join::DeltaInOrder => {
            (&["delta_net.query", "delta_net.key", "delta_net.value"], Splits::Not)
        }
        Join::DeltaGatesByHead => {
            (&["delta_net.beta", "delta_net.decay"], Splits::ByHeadsOf("delta_net.key"))
        }
        Join::DeltaConvolution => (DELTA_CONVOLUTION, Splits::Not),
        Join::Convolution => (&["convolution.b", "convolution.c", "convolution.x"], Splits::Not),
        Join::QueryGateByHead => {
            (&["attention.query", "attention.gate"], Splits::ByHeadsOf("attention.query"))
        }
    }
}
