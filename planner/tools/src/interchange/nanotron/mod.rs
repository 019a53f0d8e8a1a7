//! nanotron's YAML.

mod read;
mod stages;

use std::fmt::Write as _;

use ir::cluster::Precision;
use ir::framework::TensorOverlap;
use ir::graph::RotaryScaling;
use ir::layout::ZeroStage;
use ir::model::Transformer;
use ir::model::transformer::{Embedding, FeedForward};
use ir::plan::Optimizer;
use ir::schedule::ScheduleKind;

use super::argument::{Argument, Section};
use super::error::Lack;
use super::file::File;
use super::launch::{Program, Starter};
use super::llama;
use super::setting::Setting;
use stages::{Sizes, blocks};

/// Reads a configuration, or the script that names it.
pub(super) use read::read;

/// What nanotron cannot be told of a plan, its model aside.
pub(super) fn lacks(setting: &Setting<'_>) -> Vec<Lack> {
    let mut lacks = Vec::new();
    if setting.training.optimizer != Optimizer::AdamW {
        lacks.push(Lack::new("an optimizer other than AdamW", "`--optimizer adamw`"));
    }
    let pipeline = setting.layout.pipeline_parallel;
    let own = setting.transformer.and_then(sizes).and_then(|sizes| blocks(&sizes, pipeline));
    let planned: Vec<u32> = setting.plan.stages.iter().map(|stage| stage.num_blocks).collect();
    if pipeline > 1 && own.as_ref() != Some(&planned) {
        let what = "layers of stages other than by its own rule, which is of their weights";
        // Layers of each, as `--stages` takes them: the embedding and the head go with the first and the last.
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

/// What it cannot be told of a plan's model.
pub(super) fn lacks_of_model(setting: &Setting<'_>) -> Vec<Lack> {
    let lack = |what: String| Lack { what, works: None, is_free: false };
    let Some(transformer) = setting.transformer else {
        return vec![lack("a model that is no transformer: a graph of operators".to_owned())];
    };
    let mut lacks = Vec::new();
    if let Some(what) = llama::unlike(transformer) {
        lacks.push(lack(format!("`{}`, which is no Llama: {what}", setting.plan.model.name)));
    }
    if setting.plan.model.adapters.is_some() {
        lacks.push(lack("adapters (LoRA)".to_owned()));
    }
    let rotary = transformer.layers.first().and_then(|it| it.layer.attention.rotary.as_ref());
    if let Some(rotation) = rotary {
        let free = |what: &str| Lack { what: what.to_owned(), works: None, is_free: true };
        if rotation.theta.0.total_cmp(&OWN_THETA).is_ne() {
            lacks.push(free("a base of rotation other than 10,000, which its code has"));
        }
        if rotation.scaling != RotaryScaling::None {
            lacks.push(free("a change of rotation for long sequences"));
        }
    }
    lacks
}

/// The base of rotation in nanotron's code (`RotaryEmbedding` of 0.4), which no key changes.
const OWN_THETA: f64 = 10_000.0;

/// The sizes of a Llama.
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
        num_attention_heads: first.attention.num_heads,
        vocab_size: *vocab_size,
    })
}

/// What it is told of a plan's model.
pub(super) fn model_arguments(setting: &Setting<'_>) -> Vec<Argument> {
    let Some((transformer, sizes)) =
        setting.transformer.and_then(|transformer| Some((transformer, sizes(transformer)?)))
    else {
        return Vec::new();
    };
    let attention = &transformer.layers[0].layer.attention;
    let all = [
        ("hidden_size", sizes.hidden_size),
        ("intermediate_size", sizes.intermediate_size),
        ("num_attention_heads", sizes.num_attention_heads),
        ("num_key_value_heads", attention.num_kv_heads),
        ("num_hidden_layers", u64::from(sizes.layers)),
        ("vocab_size", sizes.vocab_size),
    ];
    let argument = |(name, value): (&str, u64)| {
        Argument::value(&format!("model.model_config.{name}"), value, "of the model's own file")
    };
    all.into_iter().map(argument).collect()
}

/// The program, and the file that it reads.
pub(super) fn program(setting: &Setting<'_>) -> (Program, Vec<File>) {
    let name = "nanotron.yaml";
    let files = vec![File { name: name.to_owned(), text: yaml(setting), is_executable: false }];
    let why = "the settings, with their reasons, in the configuration beside this script";
    let program = Program {
        name: "nanotron",
        command: vec!["run_train.py".to_owned(), "--config-file".to_owned(), name.to_owned()],
        environment: vec![(
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "1".to_owned(),
            "kernels start in the order they are launched in, so exchanges start first".to_owned(),
        )],
        sections: vec![Section::new(why, Vec::new())],
        own: Vec::new(),
        last: Vec::new(),
        starter: Starter::Torchrun,
        beside: files.clone(),
    };
    (program, files)
}

fn yaml(setting: &Setting<'_>) -> String {
    let (layout, training) = (&setting.layout, &setting.training);
    let mut text: String =
        setting.heading("nanotron 0.4").iter().flat_map(|line| ["# ", line, "\n"]).collect();
    text.push_str(
        "#\n# Keys are those of its dataclasses; it has no parser that runs without GPUs. Data, steps and learning rates are \
         yours.\n",
    );
    let mut line = |indent: usize, key: &str, value: &str, why: &str| {
        let setting = format!("{}{key}: {value}", " ".repeat(indent));
        if why.is_empty() {
            let _ = writeln!(text, "{}", setting.trim_end());
        } else {
            let _ = writeln!(text, "{setting:52} # {why}");
        }
    };
    line(0, "general", "", "");
    line(2, "project", "planned", "");
    line(2, "run", "planned", "");
    line(0, "parallelism", "", "");
    line(2, "dp", &layout.data_parallel.to_string(), "replicas");
    line(2, "pp", &layout.pipeline_parallel.to_string(), "ranks over which layers are spread");
    line(2, "tp", &layout.tensor_parallel.to_string(), "ranks over which products are cut");
    let engine = if layout.schedule == ScheduleKind::GPipe { "afab" } else { "1f1b" };
    line(2, "pp_engine", engine, "the order of micro-batches");
    if layout.sequence_parallel {
        let why = "norms and residuals keep a part of the sequence each, not a copy";
        line(2, "tp_mode", "REDUCE_SCATTER", why);
    } else {
        line(2, "tp_mode", "ALL_REDUCE", "norms and residuals are whole on each rank");
    }
    let beside = setting.plan.framework.tensor_parallel.overlap != TensorOverlap::None;
    let beside = (beside && layout.sequence_parallel).to_string();
    let why = "whether exchanges run beside products, as predicted";
    line(2, "tp_linear_async_communication", &beside, why);
    line(0, "model", "", "");
    let dtype = if training.precision == Precision::Fp32 { "float32" } else { "bfloat16" };
    line(2, "dtype", dtype, "of activations and products");
    let multiple = setting.plan.framework.tensor_parallel.vocabulary_multiple;
    line(2, "make_vocab_size_divisible_by", &multiple.to_string(), "as predicted");
    line(2, "init_method", "", "");
    line(4, "std", "0.02", "of random weights");
    line(2, "model_config", "", "");
    line(4, "is_llama_config", "true", "");
    for argument in model_arguments(setting) {
        let name = argument.name.rsplit('.').next().unwrap_or_default();
        line(4, name, &argument.values.join(" "), &argument.why);
    }
    if let Some(transformer) = setting.transformer {
        let length = training.sequence_length;
        let longest = transformer.max_position_embeddings.unwrap_or(length).max(length);
        line(4, "max_position_embeddings", &longest.to_string(), "positions");
        let epsilon = transformer.layers.first().map(|it| it.layer.norm.epsilon.to_string());
        line(4, "rms_norm_eps", &epsilon.unwrap_or_default(), "of norms");
        line(
            4,
            "tie_word_embeddings",
            &transformer.head.tied.to_string(),
            "whether head and embedding are one",
        );
    }
    line(0, "tokenizer", "", "");
    line(2, "tokenizer_name_or_path", "gpt2", "yours");
    line(0, "tokens", "", "");
    line(2, "sequence_length", &training.sequence_length.to_string(), "tokens of a sequence");
    line(2, "train_steps", "20", "yours");
    line(2, "micro_batch_size", &layout.micro_batch_size.to_string(), "sequences at once");
    let rounds = layout.num_micro_batches.to_string();
    let why = format!(
        "micro-batches of a step: {} sequences on {} replicas",
        training.global_batch_size, layout.data_parallel
    );
    line(2, "batch_accumulation_per_replica", &rounds, &why);
    line(0, "optimizer", "", "");
    let why = if layout.zero_stage == ZeroStage::None {
        "every replica keeps all of the optimizer's state"
    } else {
        "each replica keeps a part of the optimizer's state (ZeRO 1)"
    };
    line(2, "zero_stage", &layout.zero_stage.number().to_string(), why);
    let why = "gradients are added up and reduced in 32 bits, and weights have a copy in these";
    let sums = training.precision != Precision::Fp32;
    line(2, "accumulate_grad_in_fp32", &sums.to_string(), why);
    for (key, value) in [
        ("weight_decay", "0.1"),
        ("clip_grad", "1.0"),
        ("adam_eps", "1.0e-8"),
        ("adam_beta1", "0.9"),
        ("adam_beta2", "0.95"),
    ] {
        line(2, key, value, "yours");
    }
    line(2, "torch_adam_is_fused", "true", "one kernel for the update");
    text + YOURS
}

/// What a plan says nothing of.
const YOURS: &str = "  learning_rate_scheduler: # yours, as all that follows\n    learning_rate: 3.0e-4\n    lr_warmup_steps: 2\n    \
    lr_warmup_style: linear\n    lr_decay_style: cosine\n    min_decay_lr: 3.0e-5\ndata:\n  \
    dataset: null # random tokens\n  seed: 42\ncheckpoints:\n  checkpoints_path: checkpoints\n  \
    checkpoint_interval: 1000\n";
