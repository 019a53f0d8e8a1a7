//! Low-rank adapters (LoRA) of frozen linear layers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::block::{Block, Graph, GraphError, OpId};
use super::builder::BlockBuilder;
use super::op::{Learning, Op, OpKind};
use super::tensor::{Dim, DimName};
use super::weights::WeightFormat;

/// Low-rank adapters (LoRA): the model's own parameters are frozen, and next to each linear layer that is
/// chosen, `y = x W + b`, a product of two thin matrices is trained,
///
/// ```text
/// y = x W + b + (alpha / rank) x A B        A [inputs, rank], B [rank, outputs]
/// ```
///
/// # Source
///
/// Hu et al. 2021, *LoRA* (arXiv 2106.09685), section 4.1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapters {
    /// Columns of A, and rows of B.
    pub rank: u64,
    /// Numerator of the scale `alpha / rank`, which multiplies the output of an adapter.
    pub alpha: u64,
    /// The layers that have one: names of operators, whole or their last part, other tools' words for
    /// them, or `all-linear`.
    pub targets: Vec<String>,
    /// Format of the frozen weights of linear layers.
    #[serde(default)]
    pub base_weights: WeightFormat,
}

/// Reason why a model cannot have the adapters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdapterError {
    /// A rank or alpha of zero, or no target.
    #[error("`{name}` of the adapters is {value}, but must be at least 1")]
    Zero {
        /// Name of the option.
        name: &'static str,
        /// Value of the option: zero.
        value: u64,
    },
    /// An adapter of a higher rank than its layer.
    #[error(
        "rank {rank} is more than `{layer}` [{inputs}, {outputs}] has\nhint: at most {}; far less is usual, such as 16",
        .inputs.min(.outputs)
    )]
    RankTooLarge {
        /// Rank of the adapter.
        rank: u64,
        /// Name of the layer.
        layer: String,
        /// Number of input features of the layer.
        inputs: u64,
        /// Number of output features of the layer.
        outputs: u64,
    },
    /// A target that names no linear layer.
    #[error("no linear layer is called `{target}`\nhint: {known}, or `{ALL_LINEAR}`")]
    UnknownTarget {
        /// Name of the target.
        target: String,
        /// Names of the linear layers.
        known: String,
    },
    /// A layer whose weights are tied to another's.
    #[error("`{layer}` has no weights of its own: they are those of `{of}`")]
    Tied {
        /// Name of the layer.
        layer: String,
        /// Name of the operator that has the weights.
        of: String,
    },
    /// An operator that cannot be built.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// The target that names all linear layers but the heads.
pub const ALL_LINEAR: &str = "all-linear";

/// Paths within a layer of the modules that correspond to an operator: first in Hugging Face's classes, then in
/// Megatron-Core, whose fused modules are several operators here, each adapted separately.
const MODULES: [(&str, &[&str]); 18] = [
    ("attention.query", &["self_attn.q_proj", "self_attention.linear_qkv"]),
    ("attention.key", &["self_attn.k_proj", "self_attention.linear_qkv"]),
    ("attention.value", &["self_attn.v_proj", "self_attention.linear_qkv"]),
    ("attention.output", &["self_attn.o_proj", "self_attn.out_proj", "self_attention.linear_proj"]),
    ("attention.query_down", &["self_attn.q_a_proj", "self_attention.linear_q_down_proj"]),
    ("attention.query_up", &["self_attn.q_b_proj", "self_attention.linear_q_up_proj"]),
    (
        "attention.key_value_down",
        &["self_attn.kv_a_proj_with_mqa", "self_attention.linear_kv_down_proj"],
    ),
    ("attention.key_rope", &["self_attn.kv_a_proj_with_mqa", "self_attention.linear_kv_down_proj"]),
    ("attention.key_value_up", &["self_attn.kv_b_proj", "self_attention.linear_kv_up_proj"]),
    ("mlp.gate", &["mlp.gate_proj", "mlp.linear_fc1"]),
    ("mlp.up", &["mlp.up_proj", "fc1", "mlp.linear_fc1"]),
    ("mlp.down", &["mlp.down_proj", "fc2", "mlp.linear_fc2"]),
    ("mlp.experts.gate", &["mlp.experts.0.gate_proj", "mlp.experts.linear_fc1"]),
    ("mlp.experts.up", &["mlp.experts.0.up_proj", "mlp.experts.linear_fc1"]),
    ("mlp.experts.down", &["mlp.experts.0.down_proj", "mlp.experts.linear_fc2"]),
    ("mlp.shared.gate", &["mlp.shared_experts.gate_proj", "mlp.shared_experts.linear_fc1"]),
    ("mlp.shared.up", &["mlp.shared_experts.up_proj", "mlp.shared_experts.linear_fc1"]),
    ("mlp.shared.down", &["mlp.shared_experts.down_proj", "mlp.shared_experts.linear_fc2"]),
];

/// Other tools' name for the operator `head`.
const HEAD: &str = "lm_head";

/// Paths within a layer of the modules that correspond to an operator in other tools; none for the head, which is in
/// no layer.
pub fn module_paths(op: &str) -> &'static [&'static str] {
    MODULES.iter().find(|(name, _)| *name == op).map_or(&[], |(_, paths)| *paths)
}

impl Adapters {
    /// Returns whether `target` names the operator `op`: by the operator's name or the last part of it, or by the end
    /// of a module's path, which is how PEFT matches the items of a list.
    pub fn names(target: &str, op: &str) -> bool {
        let ends = |path: &&str| {
            path.strip_suffix(target).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        target == op
            || op.rsplit('.').next() == Some(target)
            || module_paths(op).iter().any(ends)
            || (target == HEAD && op == "head")
            || (target == ALL_LINEAR && !op.split('.').any(|part| part == "head"))
    }

    /// Names of the layers of a model that may have an adapter.
    pub fn layers(graph: &Graph) -> BTreeSet<&str> {
        let nodes = graph.classes().flat_map(|(_, block)| block.nodes());
        nodes.filter(|node| is_linear(node.op)).map(|node| node.op.name.as_str()).collect()
    }

    fn check(&self, graph: &Graph) -> Result<(), AdapterError> {
        for (name, value) in
            [("rank", self.rank), ("alpha", self.alpha), ("targets", self.targets.len() as u64)]
        {
            if value == 0 {
                return Err(AdapterError::Zero { name, value });
            }
        }
        let nodes = || graph.classes().flat_map(|(_, block)| block.nodes());
        let linear = Self::layers(graph);
        if let Some(target) =
            self.targets.iter().find(|target| !linear.iter().any(|op| Self::names(target, op)))
        {
            let known: Vec<String> = linear.iter().map(|name| format!("`{name}`")).collect();
            return Err(AdapterError::UnknownTarget {
                target: target.clone(),
                known: known.join(", "),
            });
        }
        nodes()
            .filter(|node| self.adapts(node.op))
            .try_for_each(|node| self.check_layer(node.op))?;
        // If all targets are thinner than the rank, nothing would be trained.
        let names_it = |op: &Op| self.targets.iter().any(|target| Self::names(target, &op.name));
        let named = nodes().filter(|node| is_linear(node.op) && names_it(node.op));
        let thickest = named.max_by_key(|node| sizes(node.op).into_iter().min());
        match thickest.filter(|_| !nodes().any(|node| self.adapts(node.op))) {
            Some(node) => self.check_layer(node.op),
            None => Ok(()),
        }
    }

    fn check_layer(&self, op: &Op) -> Result<(), AdapterError> {
        let weight = &op.parameters[0];
        if let Some(of) = &weight.tied_to {
            return Err(AdapterError::Tied { layer: op.name.clone(), of: of.clone() });
        }
        let [inputs, outputs] = sizes(op);
        if self.rank > inputs.min(outputs) {
            let layer = op.name.clone();
            return Err(AdapterError::RankTooLarge { rank: self.rank, layer, inputs, outputs });
        }
        Ok(())
    }

    /// Returns whether an operator gets an adapter. Under `all-linear`, layers that are thinner than the rank get
    /// none.
    fn adapts(&self, op: &Op) -> bool {
        let is_target = |target: &String| {
            let is_thick = || self.rank <= sizes(op).into_iter().min().unwrap_or(0);
            Self::names(target, &op.name) && (target != ALL_LINEAR || is_thick())
        };
        is_linear(op) && self.targets.iter().any(is_target)
    }

    /// `block` with all parameters frozen, and adapters added to the targets.
    fn adapted(&self, block: &Block) -> Result<Block, AdapterError> {
        let mut builder = BlockBuilder::new(block.name());
        // New id of each of the block's tensors.
        let mut now: Vec<OpId> = Vec::with_capacity(block.nodes().len());
        for node in block.nodes() {
            let inputs: Vec<OpId> =
                block.inputs(node.id).iter().map(|id| now[id.index()]).collect();
            // bitsandbytes does not quantise the head (transformers, `get_keys_to_not_convert`); nor does torchtune.
            let is_stored = is_linear(node.op) && Self::names(ALL_LINEAR, &node.op.name);
            let format = if is_stored { self.base_weights } else { WeightFormat::Plain };
            let frozen = Op { learning: Learning::Frozen(format), ..node.op.clone() };
            let base = builder.copy(frozen, &inputs);
            now.push(if self.adapts(node.op) {
                self.adapter(&mut builder, node.op, base, inputs[0])?
            } else {
                base
            });
        }
        let outputs: Vec<OpId> = block.outputs().iter().map(|id| now[id.index()]).collect();
        Ok(builder.finish(outputs))
    }

    /// Adds the adapter of `op`, whose input is `x` and output `base`; returns their sum. The factor is applied to the
    /// thin tensor.
    fn adapter(
        &self,
        builder: &mut BlockBuilder,
        op: &Op,
        base: OpId,
        x: OpId,
    ) -> Result<OpId, GraphError> {
        let name = |part: &str| format!("{}.{part}", op.name);
        let thin = Dim::fixed(DimName::Latent, self.rank);
        let scale = OpKind::Scale { factor: (self.alpha as f64 / self.rank as f64).into() };
        let down =
            builder.push(name(AdapterPart::Down.name()), like(&op.kind, None, vec![thin]), &[x])?;
        let scaled = builder.push(name("scale"), scale, &[down])?;
        let contracted = Some(vec![DimName::Latent]);
        let up = like(&op.kind, contracted, produced(&op.kind).to_vec());
        let up = builder.push(name(AdapterPart::Up.name()), up, &[scaled])?;
        for part in [down, up] {
            builder.set_learning(part, Learning::Adapter);
        }
        builder.push(name("sum"), OpKind::Add, &[base, up])
    }
}

impl Graph {
    /// The model with its parameters frozen, and with adapters.
    ///
    /// # Errors
    ///
    /// [`AdapterError`] where the model has no such layers, or they are smaller than the adapters.
    pub fn with_adapters(&self, adapters: &Adapters) -> Result<Self, AdapterError> {
        adapters.check(self)?;
        self.try_map(|block| adapters.adapted(block))
    }
}

/// The layer that an operator is an adapter of, and which of the two matrices the operator is; `None` for other
/// operators.
pub fn adapted_layer(op: &Op) -> Option<(&str, AdapterPart)> {
    if op.learning != Learning::Adapter {
        return None;
    }
    let (layer, name) = op.name.rsplit_once('.')?;
    let part = AdapterPart::ALL.into_iter().find(|part| part.name() == name)?;
    Some((layer, part))
}

named_enum! {
    /// One of the two matrices of an adapter.
    pub enum AdapterPart {
        /// A: from the input of the layer to the rank.
        Down = "lora_a",
        /// B: from the rank to the outputs of the layer. It starts at zero, so that the model is unchanged at first.
        Up = "lora_b",
    }
}

/// True if an operator can have an adapter.
fn is_linear(op: &Op) -> bool {
    matches!(op.kind, OpKind::Linear { .. } | OpKind::GroupedLinear { .. })
}

fn produced(kind: &OpKind) -> &[Dim] {
    match kind {
        OpKind::Linear { produced, .. } | OpKind::GroupedLinear { produced, .. } => produced,
        _ => &[],
    }
}

/// A linear layer of the same kind that sums over `summed` (none: the dimensions of `kind`) and whose output has the
/// dimensions `outputs`.
fn like(kind: &OpKind, summed: Option<Vec<DimName>>, outputs: Vec<Dim>) -> OpKind {
    let mut kind = kind.clone();
    match &mut kind {
        OpKind::Linear { contracted, produced, bias }
        | OpKind::GroupedLinear { contracted, produced, bias, .. } => {
            *contracted = summed.unwrap_or_else(|| contracted.clone());
            *produced = outputs;
            *bias = false;
        }
        other => unreachable!("only linear layers have adapters, not {other:?}"),
    }
    kind
}

/// Input and output features of a linear layer; for experts, those of one expert.
fn sizes(op: &Op) -> [u64; 2] {
    let outputs: u64 = produced(&op.kind).iter().map(fixed).product();
    let experts = match op.kind {
        OpKind::GroupedLinear { num_experts, .. } => num_experts,
        _ => 1,
    };
    [op.parameters[0].num_elements() / experts.max(1) / outputs.max(1), outputs]
}

fn fixed(dim: &Dim) -> u64 {
    dim.extent.fixed().expect("what a linear layer puts out is fixed")
}
