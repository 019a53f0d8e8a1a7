//! How a family's files hold what an operator here has.

/// How the rows and columns of a tensor are those of the parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// As here: what is summed over comes first.
    InputsFirst,
    /// As in PyTorch's `nn.Linear`: what comes out comes first.
    OutputsFirst,
}

/// A module of Hugging Face's, or a tensor of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Module {
    /// Its name within the layer; `{}` is the expert.
    pub(super) name: &'static str,
    pub(super) orientation: Orientation,
    /// The operators here that are one tensor there.
    pub(super) join: Option<&'static Join>,
    pub(super) lies: Lies,
}

/// How tensors are named, and what dimensions they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lies {
    /// The parameter's name comes after the module's.
    Named,
    /// The name is the tensor's.
    Bare,
    /// The same, with so many dimensions of 1 before those that it has here.
    Within(usize),
}

/// Operators whose parameters lie in one tensor, in this order.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) ops: &'static [&'static str],
    pub(super) splits: Splits,
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

/// One after the other.
pub(super) static QKV_IN_ORDER: Join = Join { ops: QKV, splits: Splits::Not };
/// The same, all as wide.
pub(super) static QKV_EVENLY: Join = Join { ops: QKV, splits: Splits::Evenly };
/// For each key-value head its queries, key and value.
pub(super) static QKV_BY_HEAD: Join = Join { ops: QKV, splits: Splits::ByHead };
/// Compressed keys and values, and the key's features with position.
pub(super) static LATENT: Join =
    Join { ops: &["attention.key_value_down", "attention.key_rope"], splits: Splits::Not };
/// Gate and value of a gated block.
pub(super) static GATE_UP: Join = Join { ops: &["mlp.gate", "mlp.up"], splits: Splits::Not };
/// The same of experts.
pub(super) static EXPERTS_GATE_UP: Join =
    Join { ops: &["mlp.experts.gate", "mlp.experts.up"], splits: Splits::Not };
/// The same, in turn.
pub(super) static EXPERTS_GATE_UP_IN_TURN: Join =
    Join { ops: &["mlp.experts.gate", "mlp.experts.up"], splits: Splits::ByFeature };
/// The same of the experts for all tokens.
pub(super) static SHARED_GATE_UP: Join =
    Join { ops: &["mlp.shared.gate", "mlp.shared.up"], splits: Splits::Not };

/// A linear layer, a norm or a table.
pub(super) const fn named(name: &'static str) -> Module {
    Module { name, orientation: Orientation::OutputsFirst, join: None, lies: Lies::Named }
}

/// A tensor that is not called after what it is to its module.
pub(super) const fn bare(name: &'static str) -> Module {
    Module { lies: Lies::Bare, ..named(name) }
}

/// A tensor with dimensions of 1 in front.
pub(super) const fn within(name: &'static str, leading: usize) -> Module {
    Module { lies: Lies::Within(leading), ..named(name) }
}

/// A layer whose weight lies as it does here.
pub(super) const fn conv1d(name: &'static str) -> Module {
    Module { orientation: Orientation::InputsFirst, ..named(name) }
}

impl Module {
    /// One of several in a tensor.
    pub(super) const fn of(self, join: &'static Join) -> Self {
        Self { join: Some(join), ..self }
    }
}
