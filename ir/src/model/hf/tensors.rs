//! Names of parameters in checkpoints of the transformers library, by family.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Names of one family: maps an operator here, optionally with a parameter after a colon, to a module of the library.
/// Keys for one stack of layers have a prefix, as in `encoder/mlp.up`. The value of the key `layer.#` is the prefix of
/// a layer's modules, where `#` stands for the layer's number.
pub(super) type Modules = BTreeMap<String, TensorModule>;

/// Names of the tensors of a class.
#[derive(Clone, Debug)]
pub struct TensorNames {
    class: &'static str,
    /// Tables that are searched, in this order.
    modules: Vec<&'static Modules>,
}

/// A module of the transformers library, or a tensor of one.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "StatedModule")]
pub struct TensorModule {
    /// Name within the layer; `{}` stands for the expert's index.
    pub name: String,
    /// True where a weight's first dimensions are its inputs, as in operators here; in `nn.Linear`, outputs come
    /// first.
    pub inputs_first: bool,
    /// Set where several operators here are one tensor in the file.
    pub joins: Option<Join>,
    /// Naming and dimensions of the tensors.
    pub form: TensorForm,
}

/// Naming of a module's tensors, and their dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TensorForm {
    /// The parameter's name follows the module's.
    #[default]
    Named,
    /// The module's name is that of the tensor itself.
    Bare,
    /// As `Named`, in one dimension.
    Flat,
    /// As `Bare`, with this number of leading dimensions of 1.
    Within(usize),
}

/// Layout of several operators' parameters in one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Join {
    /// Queries, keys and values, concatenated.
    QkvInOrder,
    /// Queries, keys and values of equal widths, concatenated.
    QkvEvenly,
    /// For each key-value head: its queries, its key and its value.
    QkvByHead,
    /// Latent keys and values, and the rotated features of the key.
    Latent,
    /// Gate and up projection of a gated block, concatenated.
    GateUp,
    /// Gate and up projection of routed experts, concatenated.
    ExpertsGateUp,
    /// Gate and up projection of routed experts, interleaved.
    ExpertsGateUpInTurn,
    /// Gate and up projection of the shared experts, concatenated.
    SharedGateUp,
    /// Gate, input, `B`, `C` and time steps of Mamba-2, concatenated.
    StateSpace,
    /// Its convolutions of input, `B` and `C`, concatenated.
    StateSpaceConvolution,
    /// For each head of keys of a delta rule: its query, its key, its values and their gates.
    DeltaByHead,
    /// Queries, keys and values of a delta rule, concatenated.
    DeltaInOrder,
    /// For each head of keys of a delta rule: `beta` and decay for its values.
    DeltaGatesByHead,
    /// Convolutions of queries, keys and values of a delta rule, concatenated.
    DeltaConvolution,
    /// The two gates and the value of a short convolution, concatenated.
    Convolution,
    /// For each head: its query and its gate.
    QueryGateByHead,
}

/// A module as stated in a file; in most cases just its name, for `nn.Linear` and norms.
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

    /// Class of the model with these names.
    pub const fn class(&self) -> &'static str {
        self.class
    }

    /// Prefix of the names in a stack's layers, with `#` for the layer's number.
    pub fn prefix(&self, stack: &str) -> Option<&'static str> {
        self.find(&format!("{stack}.#")).map(|module| module.name.as_str())
    }

    /// Module of an operator's parameter, within a stack of layers or outside of all stacks.
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

    /// All keys with their modules.
    pub fn modules(&self) -> impl Iterator<Item = (&'static str, &'static TensorModule)> {
        self.modules.iter().flat_map(|modules| modules.iter()).map(|(op, it)| (op.as_str(), it))
    }

    fn find(&self, name: &str) -> Option<&'static TensorModule> {
        self.modules.iter().find_map(|modules| modules.get(name))
    }
}
