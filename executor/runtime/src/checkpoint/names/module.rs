//! Operators whose parameters share a tensor in files.

use ir::model::Join;

/// Orientation of a tensor's rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// As here: inputs, over which products sum, come first.
    InputsFirst,
    /// As in PyTorch's `nn.Linear`: outputs come first.
    OutputsFirst,
}

/// Interleaving of the outputs of parameters that share a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Splits {
    /// None: one whole parameter after the other.
    Not,
    /// None, and all parameters are of one size.
    Evenly,
    /// By key-value head.
    ByHead,
    /// By feature: one of each parameter in turn.
    ByFeature,
}

/// Queries, keys and values.
const QKV: &[&str] = &["attention.query", "attention.key", "attention.value"];

/// Gates and values of experts.
const EXPERTS: &[&str] = &["mlp.experts.gate", "mlp.experts.up"];

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
    }
}
