//! What files call parameters, and how they hold them.

use std::collections::BTreeMap;

use ir::graph::AdapterPart;

use super::parameter::{Form, ModelParameter, ParameterId};

/// Whose names files use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Hugging Face's Llama, Mistral, Qwen 2 and 3, and Mixtral, which differs in its experts alone.
    Llama,
    /// Hugging Face's mixtures of Qwen 3: Llama with other words for experts.
    Qwen3Moe,
    /// Hugging Face's GPT-2.
    Gpt2,
    /// Our own, `block.operator.parameter`, with the dimensions that the model has here.
    Native,
}

/// How a parameter lies in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The tensor; of experts one for each.
    pub tensors: Vec<String>,
    /// The shape of each of them.
    pub shape: Vec<usize>,
    /// How a tensor's rows and columns are ours.
    pub orientation: Orientation,
    /// Where the parameter is one of several in the tensor.
    pub fused: Option<Fused>,
}

/// How the rows and columns of a tensor are those of the parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// As here: what is summed over comes first.
    InputsFirst,
    /// As in PyTorch's `nn.Linear`: what comes out comes first.
    OutputsFirst,
}

/// A parameter's place in a tensor of several, side by side along what comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fused {
    /// Which one, from 0.
    pub index: usize,
    /// How many there are, all of one size.
    pub count: usize,
}

/// Our operators and Hugging Face's modules; `{}` is the expert.
type Modules = &'static [(&'static str, &'static str)];

const LLAMA_ENDS: Modules =
    &[("embedding.tokens", "model.embed_tokens"), ("head.norm", "model.norm"), ("head", "lm_head")];

const LLAMA_LAYER: Modules = &[
    ("attention.norm", "input_layernorm"),
    ("attention.query", "self_attn.q_proj"),
    ("attention.key", "self_attn.k_proj"),
    ("attention.value", "self_attn.v_proj"),
    ("attention.query_norm", "self_attn.q_norm"),
    ("attention.key_norm", "self_attn.k_norm"),
    ("attention.output", "self_attn.o_proj"),
    ("mlp.norm", "post_attention_layernorm"),
    ("mlp.gate", "mlp.gate_proj"),
    ("mlp.up", "mlp.up_proj"),
    ("mlp.down", "mlp.down_proj"),
];

const MIXTRAL_EXPERTS: Modules = &[
    ("mlp.router", "block_sparse_moe.gate"),
    ("mlp.experts.gate", "block_sparse_moe.experts.{}.w1"),
    ("mlp.experts.up", "block_sparse_moe.experts.{}.w3"),
    ("mlp.experts.down", "block_sparse_moe.experts.{}.w2"),
];

const QWEN3_EXPERTS: Modules = &[
    ("mlp.router", "mlp.gate"),
    ("mlp.experts.gate", "mlp.experts.{}.gate_proj"),
    ("mlp.experts.up", "mlp.experts.{}.up_proj"),
    ("mlp.experts.down", "mlp.experts.{}.down_proj"),
];

const GPT2_ENDS: Modules = &[
    ("embedding.tokens", "transformer.wte"),
    ("embedding.positions", "transformer.wpe"),
    ("head.norm", "transformer.ln_f"),
    ("head", "lm_head"),
];

const GPT2_LAYER: Modules = &[
    ("attention.norm", "ln_1"),
    ("attention.query", "attn.c_attn"),
    ("attention.key", "attn.c_attn"),
    ("attention.value", "attn.c_attn"),
    ("attention.output", "attn.c_proj"),
    ("mlp.norm", "ln_2"),
    ("mlp.up", "mlp.c_fc"),
    ("mlp.down", "mlp.c_proj"),
];

/// What GPT-2's `c_attn` holds, in order.
const GPT2_FUSED: [&str; 3] = ["attention.query", "attention.key", "attention.value"];

impl Naming {
    /// The names in files of an architecture, which may be given as Hugging Face's class or
    /// `model_type` or as the short form's word: those of its family where all of `parameters` have
    /// one there, else our own.
    pub fn of(architecture: &str, parameters: &[ModelParameter]) -> Self {
        let naming = match architecture {
            "llama" | "LlamaForCausalLM" | "LLaMAForCausalLM" | "mistral"
            | "MistralForCausalLM" | "mixtral" | "MixtralForCausalLM" | "qwen2"
            | "Qwen2ForCausalLM" | "qwen3" | "Qwen3ForCausalLM" => Self::Llama,
            "qwen3_moe" | "Qwen3MoeForCausalLM" => Self::Qwen3Moe,
            "gpt" | "gpt2" | "GPT2LMHeadModel" => Self::Gpt2,
            _ => Self::Native,
        };
        if naming.fits(parameters) { naming } else { Self::Native }
    }

    /// How files hold a parameter; none if these names have no word for it.
    pub fn stored(self, parameter: &ModelParameter) -> Option<Stored> {
        let op = parameter.id.op.as_str();
        let is_known = matches!(parameter.id.name.as_str(), "weight" | "bias");
        let module = match (self, parameter.layer) {
            (Self::Native, _) => return Some(native(parameter)),
            _ if !is_known => return None,
            (Self::Llama | Self::Qwen3Moe, None) => find(LLAMA_ENDS, op)?.to_owned(),
            (Self::Llama | Self::Qwen3Moe, Some(layer)) => {
                let experts = if self == Self::Llama { MIXTRAL_EXPERTS } else { QWEN3_EXPERTS };
                let module = find(LLAMA_LAYER, op).or_else(|| find(experts, op))?;
                format!("model.layers.{layer}.{module}")
            }
            (Self::Gpt2, None) => find(GPT2_ENDS, op)?.to_owned(),
            (Self::Gpt2, Some(layer)) => {
                format!("transformer.h.{layer}.{}", find(GPT2_LAYER, op)?)
            }
        };
        // GPT-2's layers are `Conv1D`, its head is `nn.Linear` as everywhere else.
        let is_conv1d = self == Self::Gpt2 && parameter.layer.is_some();
        let orientation =
            if is_conv1d { Orientation::InputsFirst } else { Orientation::OutputsFirst };
        let fused = GPT2_FUSED.iter().position(|part| is_conv1d && *part == op);
        let fused = fused.map(|index| Fused { index, count: GPT2_FUSED.len() });
        by_module(parameter, &module, orientation, fused)
    }

    /// How peft's files hold a matrix of an adapter; none if these names have no word for the layer that it is
    /// beside, or that layer is one of several in a tensor, which peft gives one adapter together.
    pub fn stored_adapter(self, parameter: &ModelParameter) -> Option<Stored> {
        let (layer, part) = parameter.id.op.rsplit_once('.')?;
        let part = AdapterPart::ALL.into_iter().find(|known| known.name() == part)?;
        let id = ParameterId { op: layer.to_owned(), ..parameter.id.clone() };
        let base = self.stored(&ModelParameter { id, ..parameter.clone() })?;
        if self == Self::Native || base.fused.is_some() {
            return None;
        }
        let module = match part {
            AdapterPart::Down => "lora_A",
            AdapterPart::Up => "lora_B",
        };
        let of_layer = |tensor: String| {
            let layer = tensor.strip_suffix(".weight").unwrap_or(&tensor).to_owned();
            format!("base_model.model.{layer}.{module}.weight")
        };
        let tensors = base.tensors.into_iter().map(of_layer).collect();
        // Both are `nn.Linear`, whatever the layer is.
        let contracted = match parameter.form {
            Form::Linear { contracted } => contracted,
            Form::Experts { contracted } => contracted + 1,
            _ => return None,
        };
        let is_expert = matches!(parameter.form, Form::Experts { .. });
        let (inputs, outputs) = parameter.shape.split_at(contracted);
        let inputs = inputs.iter().skip(usize::from(is_expert)).product();
        let shape = vec![outputs.iter().product(), inputs];
        Some(Stored { tensors, shape, orientation: Orientation::OutputsFirst, fused: None })
    }

    /// Whether all of `parameters` have a name, and those that share a tensor agree about it.
    fn fits(self, parameters: &[ModelParameter]) -> bool {
        let mut shapes = BTreeMap::new();
        parameters.iter().all(|parameter| {
            self.stored(parameter).is_some_and(|stored| {
                stored.tensors.into_iter().all(|tensor| {
                    *shapes.entry(tensor).or_insert_with(|| stored.shape.clone()) == stored.shape
                })
            })
        })
    }
}

/// A parameter of a module: a matrix, or one for each expert, or a vector.
fn by_module(
    parameter: &ModelParameter,
    module: &str,
    orientation: Orientation,
    fused: Option<Fused>,
) -> Option<Stored> {
    let name = format!("{module}.{}", parameter.id.name);
    let count = fused.map_or(1, |fused| fused.count);
    let matrix = |shape: &[usize], contracted: usize| {
        let (inputs, outputs) = shape.split_at(contracted);
        let (inputs, outputs) = (inputs.iter().product(), outputs.iter().product::<usize>());
        match orientation {
            Orientation::InputsFirst => vec![inputs, outputs * count],
            Orientation::OutputsFirst => vec![outputs * count, inputs],
        }
    };
    let shape = &parameter.shape;
    let (tensors, shape, orientation) = match parameter.form {
        Form::Linear { contracted } => (vec![name], matrix(shape, contracted), orientation),
        Form::Experts { contracted } => {
            let tensors = (0..shape[0]).map(|expert| name.replace("{}", &expert.to_string()));
            (tensors.collect(), matrix(&shape[1..], contracted), orientation)
        }
        Form::Table => (vec![name], shape.clone(), Orientation::InputsFirst),
        Form::Vector => {
            (vec![name], vec![parameter.num_elements() * count], Orientation::InputsFirst)
        }
        Form::Other => return None,
    };
    Some(Stored { tensors, shape, orientation, fused })
}

fn native(parameter: &ModelParameter) -> Stored {
    Stored {
        tensors: vec![parameter.id.to_string()],
        shape: parameter.shape.clone(),
        orientation: Orientation::InputsFirst,
        fused: None,
    }
}

fn find(modules: Modules, op: &str) -> Option<&'static str> {
    modules.iter().find(|(ours, _)| *ours == op).map(|(_, theirs)| *theirs)
}
