//! Operators whose parameters lie in one tensor.

use ir::model::Join;

/// How the rows and columns of a tensor are those of the parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// As here: what is summed over comes first.
    InputsFirst,
    /// As in PyTorch's `nn.Linear`: what comes out comes first.
    OutputsFirst,
}

/// What comes between the outputs of one of several.
#[derive(Clone, Copy, Debug)]
pub(super) enum Splits {
    /// Nothing: one lies whole after the other.
    Not,
    /// Nothing, and all are of one size.
    Evenly,
    /// Those of the others for the same key-value head.
    ByHead,
    /// Those of the others with the same number.
    ByFeature,
}

/// Queries, keys and values.
const QKV: &[&str] = &["attention.query", "attention.key", "attention.value"];

/// Gates and values of experts.
const EXPERTS: &[&str] = &["mlp.experts.gate", "mlp.experts.up"];

/// The operators of one tensor, in their order, and how they share it.
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
