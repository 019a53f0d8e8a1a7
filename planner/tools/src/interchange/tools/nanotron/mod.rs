//! nanotron: its YAML configuration.

mod read;
mod stages;
mod table;

use ir::graph::RotaryScaling;
use ir::model::Transformer;
use ir::model::transformer::{Embedding, FeedForward};
use ir::plan::Optimizer;

use crate::interchange::argument::{Argument, Section};
use crate::interchange::error::Lack;
use crate::interchange::file::File;
use crate::interchange::keys;
use crate::interchange::launch::{EXPANDABLE_SEGMENTS, ONE_QUEUE, Program};
use crate::interchange::llama;
use crate::interchange::target::Target;
use crate::interchange::tool::Tool;
use crate::interchange::view::ExportView;
use stages::{Sizes, blocks};
use table::TABLE;

pub(super) static TOOL: Tool = Tool {
    tables: &[&TABLE],
    read: Some(read::read),
    starts: |words, place, _| {
        let has_file = words[place..].iter().any(|it| it.text.starts_with("--config-file"));
        (words[place].is_python("run_train.py") && has_file).then_some(place)
    },
    has_keys: |tree| tree.has("parallelism") && tree.has_any(&["tokens", "optimizer", "general"]),
    lacks,
    lacks_of_model,
    model_arguments,
    nearest_training: |training, _| {
        training.fp32_gradients |= training.precision.activation_bytes() == 2;
        training.optimizer = Optimizer::AdamW;
    },
    ..Tool::new(TARGET, |view, _| program(view))
};

const TARGET: Target = Target::new("nanotron", "nanotron 0.4", "nanotron");

/// Parts of a plan, apart from its model, that nanotron cannot run.
fn lacks(view: &ExportView<'_>) -> Vec<Lack> {
    let mut lacks = Vec::new();
    if view.training.optimizer != Optimizer::AdamW {
        lacks.push(Lack::new("an optimizer other than AdamW", "`--optimizer adamw`"));
    }
    let pipeline = view.layout.pipeline_parallel;
    let own = view.transformer.and_then(sizes).and_then(|sizes| blocks(&sizes, pipeline));
    let planned: Vec<u32> = view.plan.stages.iter().map(|stage| stage.num_blocks).collect();
    if pipeline > 1 && own.as_ref() != Some(&planned) {
        let what = "layers of stages other than by its own rule, which is of their weights";
        // `--stages` takes layers only: the embedding and the head belong to the first and the last stage.
        let works = own.map(|own| {
            let last = own.len() - 1;
            let layers = own.iter().enumerate().map(|(stage, count)| {
                (count - u32::from(stage == 0) - u32::from(stage == last)).to_string()
            });
            format!("`--stages {}`", layers.collect::<Vec<_>>().join(","))
        });
        lacks.push(Lack { what: what.to_owned(), works, is_free: false });
    }
    lacks
}

/// Parts of a plan's model that nanotron cannot express.
fn lacks_of_model(view: &ExportView<'_>) -> Vec<Lack> {
    let Some(transformer) = view.transformer else {
        return vec![Lack::without_remedy("a model that is no transformer: a graph of operators")];
    };
    let mut lacks = Vec::new();
    if let Some(what) = llama::unlike(transformer) {
        let what = format!("`{}`, which is no Llama: {what}", view.plan.model.name);
        lacks.push(Lack::without_remedy(what));
    }
    if view.plan.model.adapters.is_some() {
        lacks.push(Lack::without_remedy("adapters (LoRA)"));
    }
    let rotary = transformer.layers.first().and_then(|it| it.layer.attention()?.rotary.as_ref());
    if let Some(rotation) = rotary {
        if rotation.theta.0.total_cmp(&OWN_THETA).is_ne() {
            let what = "a base of rotation other than 10,000, which its code has";
            lacks.push(Lack::free(what));
        }
        if rotation.scaling != RotaryScaling::None {
            lacks.push(Lack::free("a change of rotation for long sequences"));
        }
    }
    lacks
}

/// Base of rotary embeddings in nanotron's code (`RotaryEmbedding` of 0.4); no key changes it.
const OWN_THETA: f64 = 10_000.0;

/// Sizes of a Llama that nanotron's stage costs depend on.
fn sizes(transformer: &Transformer) -> Option<Sizes> {
    let first = &transformer.layers.first()?.layer;
    let (FeedForward::Dense(mlp), Embedding::Tokens { vocab_size, .. }) =
        (&first.feed_forward, &transformer.embedding)
    else {
        return None;
    };
    Some(Sizes {
        layers: transformer.layers.iter().map(|it| it.count).sum(),
        hidden_size: transformer.hidden_size,
        intermediate_size: mlp.intermediate_size,
        num_attention_heads: first.attention()?.num_heads,
        vocab_size: *vocab_size,
    })
}

/// Keys that describe a plan's model.
fn model_arguments(view: &ExportView<'_>) -> Vec<Argument> {
    let Some((transformer, sizes)) =
        view.transformer.and_then(|transformer| Some((transformer, sizes(transformer)?)))
    else {
        return Vec::new();
    };
    let Some(attention) = transformer.layers[0].layer.attention() else { return Vec::new() };
    let all = [
        ("hidden_size", sizes.hidden_size),
        ("intermediate_size", sizes.intermediate_size),
        ("num_attention_heads", sizes.num_attention_heads),
        ("num_key_value_heads", attention.num_kv_heads),
        ("num_hidden_layers", u64::from(sizes.layers)),
        ("vocab_size", sizes.vocab_size),
    ];
    let argument = |name: &str, value: &dyn ToString| {
        let name = format!("model.model_config.{name}");
        Argument::value(&name, value.to_string(), "of the model's own file")
    };
    let tied = transformer.head.tied;
    let sizes = all.iter().map(|(name, value)| argument(name, value));
    sizes.chain([argument("tie_word_embeddings", &tied)]).collect()
}

fn program(view: &ExportView<'_>) -> Program {
    let name = "nanotron.yaml";
    let why = "the settings, with their reasons, in the configuration beside this script";
    Program {
        name: "nanotron",
        command: vec!["run_train.py".to_owned(), "--config-file".to_owned(), name.to_owned()],
        environment: vec![ONE_QUEUE, EXPANDABLE_SEGMENTS],
        sections: vec![Section::new(why, Vec::new())],
        extra_files: vec![File::text(name, yaml(view))],
        ..Program::default()
    }
}

fn yaml(view: &ExportView<'_>) -> String {
    let heading = view.heading(TARGET.tool());
    let mut all = TABLE.arguments(&view.run());
    all.extend(model_keys(view));
    all.extend(YOURS.map(|(key, value)| Argument::value(key, value, "yours")));
    format!(
        "{heading}#\n# Keys are those of its dataclasses; it has no parser that runs without GPUs.\n{}",
        keys::yaml(&all)
    )
}

/// Keys of the model, which nanotron builds from its sizes.
fn model_keys(view: &ExportView<'_>) -> Vec<Argument> {
    let Some(transformer) = view.transformer else { return Vec::new() };
    let own = |name: &str, value: String, why: &str| {
        Argument::value(&format!("model.model_config.{name}"), value, why)
    };
    let length = view.training.sequence_length;
    let longest = transformer.max_position_embeddings.unwrap_or(length).max(length);
    let epsilon = transformer.layers.first().map(|it| it.layer.norm.epsilon.to_string());
    let mut all = vec![own("is_llama_config", "true".to_owned(), "")];
    all.extend(model_arguments(view));
    all.extend([
        own("max_position_embeddings", longest.to_string(), "positions"),
        own("rms_norm_eps", epsilon.unwrap_or_default(), "of norms"),
    ]);
    all
}

/// Keys that a plan does not decide, with values that let a step run at once; without a dataset, tokens are random.
const YOURS: [(&str, &str); 20] = [
    ("general.project", "planned"),
    ("general.run", "planned"),
    ("model.init_method.std", "0.02"),
    ("tokenizer.tokenizer_name_or_path", "gpt2"),
    ("tokens.train_steps", "20"),
    ("optimizer.weight_decay", "0.1"),
    ("optimizer.clip_grad", "1.0"),
    ("optimizer.adam_eps", "1.0e-8"),
    ("optimizer.adam_beta1", "0.9"),
    ("optimizer.adam_beta2", "0.95"),
    ("optimizer.torch_adam_is_fused", "true"),
    ("optimizer.learning_rate_scheduler.learning_rate", "3.0e-4"),
    ("optimizer.learning_rate_scheduler.lr_warmup_steps", "2"),
    ("optimizer.learning_rate_scheduler.lr_warmup_style", "linear"),
    ("optimizer.learning_rate_scheduler.lr_decay_style", "cosine"),
    ("optimizer.learning_rate_scheduler.min_decay_lr", "3.0e-5"),
    ("data.dataset", "null"),
    ("data.seed", "42"),
    ("checkpoints.checkpoints_path", "checkpoints"),
    ("checkpoints.checkpoint_interval", "1000"),
];
