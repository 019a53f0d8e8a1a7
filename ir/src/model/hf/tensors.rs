//! Names that files of the transformers library have for parameters, by family.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The names of one family: for operators here, or a parameter of one after a colon, modules of the library. Those of
/// one stack of layers alone begin with what its blocks are called, as in `encoder/mlp.up`; what the names of a layer's
/// modules begin with stands by `layer.#`, and has `#` for the layer's number.
pub(super) type Modules = BTreeMap<String, TensorModule>;

/// The names that a class has for its tensors.
#[derive(Clone, Debug)]
pub struct TensorNames {
    class: &'static str,
    /// Where a name is looked for, one after the other.
    modules: Vec<&'static Modules>,
}

/// A module of the transformers library, or a tensor of one.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "StatedModule")]
pub struct TensorModule {
    /// Its name within the layer; `{}` is the expert.
    pub name: String,
    /// Whether a weight has its inputs first, as operators have here; `nn.Linear` has its outputs first.
    pub inputs_first: bool,
    /// The operators here that are one tensor there.
    pub joins: Option<Join>,
    /// How tensors are named, and what dimensions they have.
    pub form: TensorForm,
}

/// How tensors are named, and what dimensions they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TensorForm {
    /// The parameter's name comes after the module's.
    #[default]
    Named,
    /// The name is the tensor's.
    Bare,
    /// The same, with so many dimensions of 1 before those that it has here.
    Within(usize),
}

/// Operators whose parameters lie in one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Join {
    /// Queries, keys and values, one after the other.
    QkvInOrder,
    /// The same, all as wide.
    QkvEvenly,
    /// For each key-value head its queries, key and value.
    QkvByHead,
    /// Compressed keys and values, and the key's features with position.
    Latent,
    /// Gate and value of a gated block.
    GateUp,
    /// The same of experts.
    ExpertsGateUp,
    /// The same of experts, in turn.
    ExpertsGateUpInTurn,
    /// The same of the experts for all tokens.
    SharedGateUp,
}

/// A module as families state it; most are `nn.Linear` or norms, and named alone.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum StatedModule {
    Name(String),
    Module {
        name: String,
        #[serde(default)]
        inputs_first: bool,
        joins: Option<Join>,
        #[serde(default)]
        form: TensorForm,
    },
}

impl From<StatedModule> for TensorModule {
    fn from(stated: StatedModule) -> Self {
        match stated {
            StatedModule::Name(name) => {
                Self { name, inputs_first: false, joins: None, form: TensorForm::Named }
            }
            StatedModule::Module { name, inputs_first, joins, form } => {
                Self { name, inputs_first, joins, form }
            }
        }
    }
}

impl TensorNames {
    pub(super) const fn new(class: &'static str, modules: Vec<&'static Modules>) -> Self {
        Self { class, modules }
    }

    /// The class that has the names.
    pub const fn class(&self) -> &'static str {
        self.class
    }

    /// What names of a stack's layers begin with, `#` for the layer.
    pub fn prefix(&self, stack: &str) -> Option<&'static str> {
        self.find(&format!("{stack}.#")).map(|module| module.name.as_str())
    }

    /// The module of a parameter of an operator, in a stack of layers or in none.
    pub fn module(
        &self,
        stack: Option<&str>,
        op: &str,
        parameter: &str,
    ) -> Option<&'static TensorModule> {
        let is_usual = matches!(parameter, "weight" | "bias");
        let of = |op: &str| {
            let by_parameter = self.find(&format!("{op}:{parameter}"));
            by_parameter.or_else(|| self.find(op).filter(|_| is_usual))
        };
        stack.and_then(|stack| of(&format!("{stack}/{op}"))).or_else(|| of(op))
    }

    /// Modules of all operators, and of parameters with a name of their own.
    pub fn modules(&self) -> impl Iterator<Item = (&'static str, &'static TensorModule)> {
        self.modules.iter().flat_map(|modules| modules.iter()).map(|(op, it)| (op.as_str(), it))
    }

    fn find(&self, name: &str) -> Option<&'static TensorModule> {
        self.modules.iter().find_map(|modules| modules.get(name))
    }
}
