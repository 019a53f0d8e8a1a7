//! The model as an entry of torchtitan's registries.

use ir::graph::RotaryScaling;
use ir::model::Transformer;
use ir::model::transformer::{Embedding, FeedForward, Layer, Mixer};

use crate::interchange::error::Lack;
use crate::interchange::file::filled;
use crate::interchange::llama;
use crate::interchange::view::ExportView;

/// Python text that defines a model.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    /// Import lines.
    pub(super) imports: String,
    /// Definitions after the imports.
    pub(super) definitions: String,
    /// First arguments of `model_registry`.
    pub(super) spec: String,
}

/// Models of the registries: module, flavor, layers, width, experts.
const FLAVORS: [(&str, &str, u32, u64, u64); 13] = [
    ("qwen3", "0.6B", 28, 1024, 0),
    ("qwen3", "1.7B", 28, 2048, 0),
    ("qwen3", "4B", 36, 2560, 0),
    ("qwen3", "8B", 36, 4096, 0),
    ("qwen3", "14B", 40, 5120, 0),
    ("qwen3", "32B", 64, 5120, 0),
    ("qwen3", "30B-A3B", 48, 2048, 128),
    ("qwen3", "235B-A22B", 94, 4096, 128),
    ("deepseek_v3", "16B", 27, 2048, 64),
    ("deepseek_v3", "236B", 60, 5120, 160),
    ("deepseek_v3", "671B", 61, 7168, 256),
    ("gpt_oss", "20b", 24, 2880, 32),
    ("gpt_oss", "120b", 36, 2880, 128),
];

/// Modules of the registries: name; longest sequence of the rotary embeddings (`max_seq_len`:
/// `models/common/decoder.py:168` refuses longer ones); and whether `model_registry` takes `FlexAttention` by default.
const MODULES: [(&str, u64, bool); 3] =
    [("qwen3", 40_960, true), ("deepseek_v3", 16_384, true), ("gpt_oss", 131_072, false)];

/// Import lines for every model.
const IMPORTS: &str = "from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss\n\
from torchtitan.components.optimizer import default_adamw\n\
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader\n\
from torchtitan.models.common.config_utils import decoder_vocab_size\n\
from torchtitan.trainer import Trainer\n";

/// Python that defines the model, or the first part that torchtitan does not support.
pub(super) fn source(view: &ExportView<'_>) -> Result<Source, Lack> {
    let lack = |what: String| Lack::without_remedy(what);
    let Some(transformer) = view.transformer else {
        return Err(lack("a model that is no transformer: a graph of operators".to_owned()));
    };
    if view.plan.model.adapters.is_some() {
        return Err(lack("adapters (LoRA) as the planner has them".to_owned()));
    }
    let family = view.plan.model.description["model_type"].as_str().unwrap_or_default();
    let family = family.trim_end_matches("_moe");
    let (layers, width) = (view.num_layers(), transformer.hidden_size);
    let experts = view.mixtures().next().map_or(0, |it| it.num_experts);
    let known = FLAVORS.iter().find(|(module, _, has_layers, has_width, has_experts)| {
        *module == family && (*has_layers, *has_width, *has_experts) == (layers, width, experts)
    });
    if let Some((module, flavor, ..)) = known
        && let Some((_, longest, is_flex)) = MODULES.iter().find(|(name, ..)| name == module)
    {
        let length = view.training.sequence_length;
        if length > *longest {
            return Err(Lack {
                what: format!(
                    "sequences of {length} tokens: its {module} {flavor} has {longest} positions"
                ),
                works: Some(format!("`--seq-len {longest}`")),
                is_free: false,
            });
        }
        let own = format!("from torchtitan.models.{module} import model_registry\n");
        // Context parallelism requires FlexAttention (distributed/full_dtensor.py:44).
        let needs_flex = view.layout.context_parallel > 1 && !is_flex;
        let attention = if needs_flex { ", attn_backend=\"flex\"" } else { "" };
        let spec = format!("\"{flavor}\"{attention}");
        return Ok(Source { imports: IMPORTS.to_owned() + &own, spec, ..Source::default() });
    }
    if let Some(what) = llama::unlike(transformer) {
        let name = &view.plan.model.name;
        return Err(lack(format!(
            "`{name}`: its registries have no such model, and it is no Llama: {what}"
        )));
    }
    Ok(of_llama(transformer, layers, view.training.sequence_length))
}

/// Python that defines a Llama of any size.
fn of_llama(transformer: &Transformer, layers: u32, sequence_length: u64) -> Source {
    let Layer { mixer, feed_forward, .. } = &transformer.layers[0].layer;
    let (
        Mixer::Attention(attention),
        FeedForward::Dense(mlp),
        Embedding::Tokens { vocab_size, .. },
    ) = (mixer, feed_forward, &transformer.embedding)
    else {
        return Source::default();
    };
    let imports = "from torchtitan.models import llama3\n\
        from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm\n\
        from torchtitan.models.llama3 import Llama3Model, model_registry\n";
    let rotation = attention.rotary.as_ref();
    let theta = rotation.map_or(1e4, |it| it.theta.0);
    let scaling = match rotation.map(|it| &it.scaling) {
        Some(RotaryScaling::Llama3 { factor, .. }) => {
            format!("scaling=\"llama\", scaling_factor={:?}", factor.0)
        }
        _ => "scaling=\"none\"".to_owned(),
    };
    let width = transformer.hidden_size;
    let tied = if transformer.head.tied { "True" } else { "False" };
    let embedding = if transformer.head.tied { "_EMBEDDING_SKIP_INIT" } else { "_EMBEDDING_INIT" };
    let longest = transformer.max_position_embeddings.unwrap_or(131_072).max(sequence_length);
    let definitions = filled(
        include_str!("llama.py.template"),
        &[
            ("width", &width),
            ("vocab_size", vocab_size),
            ("tied", &tied),
            ("embedding", &embedding),
            ("layers", &layers),
            ("heads", &attention.num_heads),
            ("kv", &attention.num_kv_heads),
            ("inner", &mlp.intermediate_size),
            ("head", &attention.head_dim),
            ("longest", &longest),
            ("theta", &format!("{theta:?}")),
            ("scaling", &scaling),
        ],
    );
    Source { imports: IMPORTS.to_owned() + imports, definitions, spec: "\"planned\"".to_owned() }
}
