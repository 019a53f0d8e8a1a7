//! Parameters of a whole model.

use std::collections::BTreeMap;
use std::fmt;

use ir::graph::{AdapterPart, Graph, Learning, Op, OpKind, Parameter};
use serde::{Deserialize, Serialize};

/// Identifier of a parameter of the model. In text `3.attention.query.weight`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ParameterId {
    /// Index of the block in the chain, from 0.
    pub block: u32,
    /// The operator's name within the block, as in `attention.query`.
    pub op: String,
    /// The parameter's name within the operator: `weight`, `bias`.
    pub name: String,
}

impl ParameterId {
    /// The matrix of the adapter of this parameter's operator.
    pub fn of_adapter(&self, part: AdapterPart) -> Self {
        let op = format!("{}.{}", self.op, part.name());
        Self { block: self.block, op, name: "weight".to_owned() }
    }
}

impl fmt::Display for ParameterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.block, self.op, self.name)
    }
}

impl From<ParameterId> for String {
    fn from(id: ParameterId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ParameterId {
    type Error = String;

    /// Parses the format of [`fmt::Display`]. Names of operators may have dots; names of parameters have none.
    fn try_from(text: String) -> Result<Self, String> {
        let parts = text.split_once('.').and_then(|(block, rest)| {
            let (op, name) = rest.rsplit_once('.')?;
            Some(Self { block: block.parse().ok()?, op: op.to_owned(), name: name.to_owned() })
        });
        parts.ok_or_else(|| format!("`{text}` is no parameter, as `3.attention.query.weight` is"))
    }
}

/// Names of blocks whose layers are numbered.
const STACKS: [&str; 3] = ["encoder", "layer", "mtp"];

/// Form of a parameter in its operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A matrix `[in.., out..]`.
    Linear {
        /// Number of dimensions that are summed over.
        contracted: usize,
    },
    /// A matrix for each expert: `[experts, in.., out..]`.
    Experts {
        /// Number of dimensions that are summed over.
        contracted: usize,
    },
    /// A table whose rows are selected.
    Table,
    /// A kernel for each feature by itself, `[features.., kernel]`.
    Kernels,
    /// A bias or a scale.
    Vector,
    /// Any other form, such as the kernel of a convolution.
    Other,
}

/// A parameter of the whole model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelParameter {
    /// Identifier of the parameter.
    pub id: ParameterId,
    /// Index of its layer among the blocks of the same name, from 0; none for blocks that are not numbered.
    pub layer: Option<u32>,
    /// Name of its block: `layer`, `encoder`, `head`.
    pub block_name: String,
    /// Sizes of its dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Form of the parameter in its operator.
    pub form: Form,
}

impl ModelParameter {
    /// The parameters of a model in the order of its operators, each with its role in training. Tied parameters are
    /// left out, as they are copies.
    pub fn all(graph: &Graph) -> Vec<(Self, Learning)> {
        let mut parameters = Vec::new();
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for (block, class) in (0..).zip(graph.blocks()) {
            let class = graph.class(class);
            let count = counts.entry(class.name()).or_default();
            let layer = STACKS.contains(&class.name()).then_some(*count);
            *count += 1;
            for op in class.nodes().map(|node| node.op) {
                let own = op.parameters.iter().filter(|parameter| parameter.tied_to.is_none());
                let place = (block, class.name(), layer);
                let new = |parameter| (Self::new(place, op, parameter), op.learning);
                parameters.extend(own.map(new));
            }
        }
        parameters
    }

    /// Number of its elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn new(
        (block, block_name, layer): (u32, &str, Option<u32>),
        op: &Op,
        parameter: &Parameter,
    ) -> Self {
        let id = ParameterId { block, op: op.name.clone(), name: parameter.name.clone() };
        let shape = parameter.sizes().map(|size| size as usize).collect();
        let is_weight = parameter.name == "weight";
        let form = match &op.kind {
            OpKind::Linear { contracted, .. } if is_weight => {
                Form::Linear { contracted: contracted.len() }
            }
            OpKind::GroupedLinear { contracted, .. } if is_weight => {
                Form::Experts { contracted: contracted.len() }
            }
            OpKind::GroupedLinear { .. } => Form::Experts { contracted: 0 },
            OpKind::Router { .. } if is_weight => Form::Linear { contracted: 1 },
            OpKind::Embedding { .. } if is_weight => Form::Table,
            // Scales with values for each head, which have the head dimension in files too.
            OpKind::Norm { over, .. } if parameter.dims.len() > over.len() => Form::Other,
            OpKind::ShortConvolution { .. } if is_weight => Form::Kernels,
            OpKind::Linear { .. }
            | OpKind::Router { .. }
            | OpKind::Norm { .. }
            | OpKind::ShortConvolution { .. }
            | OpKind::Recurrence { .. }
            | OpKind::Attention { .. }
                if parameter.name != "relative_bias" =>
            {
                Form::Vector
            }
            _ => Form::Other,
        };
        Self { id, layer, block_name: block_name.to_owned(), shape, form }
    }
}
