//! The tools: how each is recognised, and which settings follow from several of its keys.

use std::collections::{BTreeMap, BTreeSet};

use ir::graph::ContextParallelKind;

use super::super::megatron;
use super::own::{self, ACTOR, option_of, own_keys};
use super::read::read;
use super::verl;
use super::wrapper::{Base, Same, Setting, Wrapper, add, is_on, number, value};
use crate::interchange::file::basename;
use crate::interchange::launch::Program;
use crate::interchange::shell::{Word, is_program};
use crate::interchange::source::{Source, tree_of};
use crate::interchange::target::Target;
use crate::interchange::tool::Tool;
use crate::interchange::tree::Tree;

static AXOLOTL: Wrapper = Wrapper {
    // ring-flash-attn, combined with any way to shard states (docs/sequence_parallelism.qmd).
    context_parallel: &[ContextParallelKind::Ring],
    adds: |all, source| {
        shards(all, source);
        // Its argument is on by default (integrations/cut_cross_entropy/args.py).
        let plugins = all.iter().find(|it| it.0 == "plugins").map_or(&[][..], |it| &it.1);
        let has_plugin = plugins.iter().any(|it| it.text.ends_with("CutCrossEntropyPlugin"));
        if has_plugin && value(all, "cut_cross_entropy").is_none() {
            add(all, "cut_cross_entropy_plugin", &true);
        }
    },
    loads_16_bits: true,
    ..Wrapper::new("axolotl", include_str!("axolotl.txt"), Base::Trainer)
};
static LLAMA_FACTORY: Wrapper = Wrapper {
    same: Same::Keys,
    adds: |all, source| {
        own_stage(all, source, &STAGES_OF_LLAMA_FACTORY);
        if value(all, "quantization_bit") == Some("8") {
            add(all, "load_in_8bit", &true);
        }
        if is_on(all, "pure_bf16") {
            add(all, "pure", &1);
        }
        // Its defaults: two layers (`FreezeArguments` in hparams/finetuning_args.py), blocks of 32 features.
        match value(all, "finetuning_type") {
            Some("freeze") if value(all, "freeze_trainable_layers").is_none() => {
                add(all, "freeze_trainable_layers", &2);
            }
            Some("oft") if value(all, "oft_block_size").is_none() => {
                add(all, "oft_block_size", &32);
            }
            _ => {}
        }
    },
    ..Wrapper::new("LLaMA-Factory", include_str!("llama_factory.txt"), Base::Trainer)
};
static DEEPSPEED_CHAT: Wrapper = Wrapper {
    same: Same::Keys,
    adds: |all, _| zero_stage(all),
    ..Wrapper::new("DeepSpeed-Chat", include_str!("deepspeed_chat.txt"), Base::Trainer)
};
static SWIFT: Wrapper = Wrapper {
    loads_16_bits: true,
    same: Same::Keys,
    // swift/sequence_parallel: Ulysses, and a ring if there are more ranks than key-value heads.
    context_parallel: &[ContextParallelKind::AllToAll, ContextParallelKind::Ring],
    adds: |all, source| {
        built_in_fsdp(all);
        if value(all, "quant_bits") == Some("8") {
            add(all, "load_in_8bit", &true);
        }
        number_format(all);
        accumulation(all, source);
    },
    ..Wrapper::new("ms-swift", include_str!("swift.txt"), Base::Trainer)
};
static MEGATRON_SWIFT: Wrapper = Wrapper {
    same: Same::Keys,
    ..Wrapper::new("ms-swift", include_str!("megatron_swift.txt"), Base::Megatron)
};
static SLIME: Wrapper = Wrapper {
    same: Same::Options,
    adds: |all, _| steps_of_rollout(all),
    ..Wrapper::new("slime", include_str!("slime.txt"), Base::Megatron)
};
static VERL: Wrapper = Wrapper {
    // verl/workers/engine/fsdp/transformer_impl.py and actor/dp_actor.py: a plain backward for each micro-batch.
    reduces_each: true,
    // verl/models/transformers/monkey_patch.py.
    context_parallel: &[ContextParallelKind::AllToAll],
    is_hydra: true,
    adds: |all, source| {
        verl::batches(all, source);
        verl::adapters(all, &verl::RANKS);
        verl::groups(all, source);
        // Weights and moments have the number format in which the model is created (workers/fsdp_workers.py).
        let format = value(all, "actor_rollout_ref.actor.fsdp_config.model_dtype");
        if format.is_some_and(|it| ["bf16", "bfloat16"].contains(&it)) {
            add(all, "pure", &1);
        }
    },
    ..Wrapper::new("verl", include_str!("verl.txt"), Base::Trainer)
};
static MEGATRON_VERL: Wrapper = Wrapper {
    is_hydra: true,
    adds: |all, source| {
        verl::batches(all, source);
        verl::adapters(all, &verl::RANKS);
        verl::adapters(all, &[verl::MEGATRON_RANK]);
    },
    ..Wrapper::new("verl", include_str!("megatron_verl.txt"), Base::Megatron)
};
static PRIMUS: Wrapper = Wrapper {
    within: &["modules", "pre_trainer"],
    or_within: &["modules", "post_trainer"],
    prefixes: &["overrides."],
    adds: |all, _| layout_alone(all),
    same: Same::Keys,
    ..Wrapper::new("Primus", include_str!("primus.txt"), Base::Megatron)
};
static FLAGSCALE: Wrapper = Wrapper {
    same: Same::Keys,
    prefixes: &[
        "system.",
        "model.",
        "system.precision.",
        "model.optimizer.",
        "model.optimizer.lr_scheduler.",
    ],
    ..Wrapper::new("FlagScale", include_str!("flagscale.txt"), Base::Megatron)
};
static NEMO: Wrapper = Wrapper {
    adds: |all, _| {
        if value(all, "model.peft.peft_scheme").is_some_and(|it| ["none", "null"].contains(&it)) {
            all.retain(|it| !it.0.starts_with("model.peft."));
        }
    },
    ..Wrapper::new("NeMo", include_str!("nemo.txt"), Base::Megatron)
};

static TORCHTUNE: Wrapper = Wrapper {
    // recipes/full_finetune_distributed.py: a plain backward for each micro-batch.
    reduces_each: true,
    adds: |all, _| recipe(all),
    ..Wrapper::new("torchtune", include_str!("torchtune.txt"), Base::Trainer)
};
static TORCHTITAN: Wrapper = Wrapper {
    same: Same::Keys,
    adds: |all, _| pipeline_micro_batches(all),
    ..Wrapper::new("torchtitan", include_str!("torchtitan_toml.txt"), Base::Torchtitan)
};

/// Micro-batches in the versions of torchtitan that have `experimental.pipeline_parallel_degree`: one for each pipeline
/// rank, unless a key states their number (`parallelisms/pipelining_utils.py` of 0.0.2).
fn pipeline_micro_batches(all: &mut Vec<Setting>) {
    let of = |key: &str| number(all, key).filter(|it| *it > 0);
    let ranks = of("experimental.pipeline_parallel_degree").filter(|it| *it > 1);
    let Some((ranks, batch)) = ranks.zip(of("training.batch_size")) else { return };
    let count = of("experimental.pipeline_parallel_microbatches").unwrap_or(ranks);
    if batch.is_multiple_of(count) {
        add(all, "parallelism.pipeline_parallel_microbatch_size", &(batch / count));
    }
}

/// A tool whose settings are read but not written: the Trainer's settings under other names.
const fn tool(target: Target) -> Tool {
    let tool = Tool::new(target, |_, _| Program::default());
    Tool { is_written: false, tables: &own::TRAINER, ..tool }
}

/// A tool that passes its settings on to Megatron.
const fn of_megatron(target: Target) -> Tool {
    Tool {
        tables: &own::MEGATRON,
        model_arguments: megatron::model_arguments,
        has_fp32_gradients: true,
        ..tool(target)
    }
}

/// A tool that is read by the table of its wrapper.
macro_rules! wrapping {
    ($wrapper:ident, $tool:expr) => {
        Tool {
            read: Some(|source| read(source, &$wrapper)),
            own_keys: |option| own_keys(&$wrapper, option),
            option_of: |key| option_of(&$wrapper, key),
            ..$tool
        }
    };
}

/// Start of a program that is one of some modules or scripts, wherever its name is in a command.
fn started(words: &[Word], place: usize, is_it: impl Fn(&[Word], usize) -> bool) -> Option<usize> {
    if place > 0 {
        return None;
    }
    (0..words.len()).find(|at| is_it(words, *at))
}

/// [`started`], for tools whose recognition does not depend on the named files.
macro_rules! anywhere {
    ($is_it:expr) => {
        |words, place, _| started(words, place, $is_it)
    };
}

/// Returns whether the word at `at` is one of `names` and the next word is one of `commands`.
fn is_command(words: &[Word], at: usize, names: &[&str], commands: &[&str]) -> bool {
    let next = words.get(at + 1).map_or("", |it| it.text.as_str());
    names.contains(&basename(&words[at].text)) && commands.contains(&next)
}

fn has_option(words: &[Word], names: &[&str]) -> bool {
    words.iter().any(|word| {
        let name = word.name().replace('-', "_");
        names.contains(&name.trim_start_matches('_'))
    })
}

/// axolotl: its YAML.
pub(in super::super) static AXOLOTL_TOOL: Tool = Tool {
    starts: anywhere!(|words, at| {
        is_command(words, at, &["axolotl"], &["train", "preprocess"])
            || words[at].text == "axolotl.cli.train"
    }),
    has_keys: |tree| {
        tree.has("base_model")
            && tree.has_any(&["sequence_len", "micro_batch_size", "datasets", "adapter"])
    },
    ..wrapping!(AXOLOTL, tool(Target::new("axolotl", "axolotl 0.21", "fsdp2")))
};

fn is_of_llama_factory(tree: &Tree) -> bool {
    tree.has("model_name_or_path") && tree.has_any(&["finetuning_type", "cutoff_len", "template"])
}

/// Returns whether the word after a program names a file with LLaMA-Factory's keys.
fn has_own_file(words: &[Word], at: usize, files: &BTreeMap<String, String>) -> bool {
    let file = words.get(at + 1).map(|it| basename(&it.text));
    let tree = file.filter(|it| files.contains_key(*it)).and_then(|it| tree_of(files, it).ok());
    tree.is_some_and(|it| is_of_llama_factory(&it))
}

/// LLaMA-Factory: its YAML or options.
pub(in super::super) static LLAMA_FACTORY_TOOL: Tool = Tool {
    starts_ranks: true,
    starts: |words, place, files| {
        started(words, place, |words, at| {
            is_command(words, at, &["llamafactory-cli", "lmf"], &["train"])
                || is_program(words, at)
                    && (has_option(words, &["finetuning_type"]) || has_own_file(words, at, files))
        })
    },
    has_keys: is_of_llama_factory,
    ..wrapping!(LLAMA_FACTORY, tool(Target::new("llama-factory", "LLaMA-Factory 0.9", "fsdp2")))
};

/// Programs of DeepSpeed-Chat, and programs that adopted its options: they build DeepSpeed's configuration from these.
pub(in super::super) static DEEPSPEED_CHAT_TOOL: Tool = Tool {
    starts: anywhere!(|words, at| {
        // The option is also a flag of `accelerate launch`.
        is_program(words, at)
            && !words.iter().any(|it| basename(&it.text) == "accelerate")
            && has_option(words, &["zero_stage"])
            && has_option(words, &["per_device_train_batch_size"])
    }),
    ..wrapping!(DEEPSPEED_CHAT, tool(Target::new("deepspeed-chat", "DeepSpeed-Chat", "deepspeed")))
};

fn is_megatron_swift(words: &[Word]) -> bool {
    (0..words.len()).any(|at| is_command(words, at, &["megatron"], &["sft", "pt", "rlhf"]))
}

/// ms-swift's options, in its different versions, for how parameters are tuned.
const TUNER: [&str; 3] = ["tuner_type", "train_type", "sft_type"];

/// Returns whether a program of another name has ms-swift's options; `train_type` alone is not enough, since other
/// programs have it too.
fn has_swift_options(words: &[Word], at: usize) -> bool {
    let more = ["model", "model_type", "per_device_train_batch_size", "torch_dtype"];
    let is_own = has_option(words, &["tuner_type", "sft_type"])
        || words[at].text.contains("swift")
        || has_option(words, &more);
    is_own && has_option(words, &TUNER) && !is_megatron_swift(words)
}

/// ms-swift: options of `swift sft` and related commands, and `args.json`, which each run leaves behind.
pub(in super::super) static SWIFT_TOOL: Tool = Tool {
    // swift/model/utils.py, get_default_device_map.
    spreads_layers: true,
    starts_ranks: true,
    starts: anywhere!(|words, at| {
        is_command(words, at, &["swift"], &["sft", "pt", "rlhf"])
            || ["swift.cli.sft", "swift.cli.pt", "swift.cli.rlhf"]
                .contains(&words[at].text.as_str())
            || words[at].text.ends_with("swift/cli/sft.py")
            || is_program(words, at) && has_swift_options(words, at)
    }),
    has_keys: |tree| tree.has("model") && tree.has_any(&TUNER),
    ..wrapping!(SWIFT, tool(Target::new("ms-swift", "ms-swift 4", "fsdp2")))
};

/// ms-swift with Megatron: options of `megatron sft` and related commands.
pub(in super::super) static MEGATRON_SWIFT_TOOL: Tool = Tool {
    starts_ranks: true,
    starts: anywhere!(|words, at| at == 0 && is_megatron_swift(words)),
    ..wrapping!(
        MEGATRON_SWIFT,
        of_megatron(Target::new("megatron-swift", "ms-swift 4 with Megatron", "megatron-core"))
    )
};

/// slime: options of `train.py`, which include Megatron's.
pub(in super::super) static SLIME_TOOL: Tool = Tool {
    is_by_ray: true,
    starts: anywhere!(|words, at| {
        let is_own = has_option(words, &["actor_num_nodes", "actor_num_gpus_per_node"]);
        words[at].is_python("train") && is_own
    }),
    ..wrapping!(SLIME, of_megatron(Target::new("slime", "slime", "megatron-core")))
};

/// Recognises verl's modules, and programs of any name with keys of verl's actor.
fn is_verl(words: &[Word], at: usize) -> bool {
    let text = words[at].text.as_str();
    let is_of_actor =
        |it: &Word| it.text.trim_start_matches('+').starts_with("actor_rollout_ref.actor.");
    text.starts_with("verl.") && text != EASY_R1 && !UNTRAINED.iter().any(|it| text.starts_with(it))
        || is_program(words, at) && words[at..].iter().any(is_of_actor)
}

/// Starts of the names of verl's modules that train nothing.
const UNTRAINED: [&str; 3] =
    ["verl.trainer.main_generation", "verl.trainer.main_eval", "verl.model_merger"];

/// EasyR1's program, whose module has a name like verl's modules.
const EASY_R1: &str = "verl.trainer.main";

fn is_megatron(words: &[Word]) -> bool {
    words.iter().any(|word| {
        word.text.contains("megatron_trainer")
            || word.text.starts_with("actor_rollout_ref.actor.megatron.")
            || word.text.starts_with("actor_rollout_ref.actor.strategy=megatron")
            || ["engine=megatron", "model_engine=megatron"].contains(&word.text.as_str())
    })
}

/// Strategy that trains the actor, in a file of verl's keys.
fn strategy(tree: &Tree) -> Option<&str> {
    let path = ["actor_rollout_ref", "actor", "strategy"];
    path.into_iter().try_fold(tree, Tree::get)?.text()
}

/// verl: options of its trainers, as Hydra takes them.
pub(in super::super) static VERL_TOOL: Tool = Tool {
    is_by_ray: true,
    starts: anywhere!(|words, at| is_verl(words, at) && !is_megatron(words)),
    has_keys: |tree| {
        let is_read = |it: &str| it.starts_with("fsdp") || it.starts_with('$');
        tree.has("actor_rollout_ref") && strategy(tree).is_none_or(is_read)
    },
    // Hydra refuses keys of the actor in settings for SFT.
    takes_key: |key, text| !key.starts_with(ACTOR) || text.contains(ACTOR.trim_end_matches('.')),
    ..wrapping!(VERL, tool(Target::new("verl", "verl", "fsdp2")))
};

/// verl whose actor is trained with Megatron.
pub(in super::super) static MEGATRON_VERL_TOOL: Tool = Tool {
    is_by_ray: true,
    starts: anywhere!(|words, at| is_verl(words, at) && is_megatron(words)),
    has_keys: |tree| strategy(tree) == Some("megatron"),
    ..wrapping!(
        MEGATRON_VERL,
        of_megatron(Target::new("megatron-verl", "verl with Megatron", "megatron-core"))
    )
};

/// Primus: its YAML with Megatron's options.
pub(in super::super) static PRIMUS_TOOL: Tool = Tool {
    has_keys: |tree| {
        tree.get("modules").is_some_and(|it| it.has_any(&["pre_trainer", "post_trainer"]))
    },
    ..wrapping!(PRIMUS, of_megatron(Target::new("primus", "Primus", "megatron-core")))
};

/// FlagScale: the YAML of the training, without the experiment's YAML.
pub(in super::super) static FLAGSCALE_TOOL: Tool = Tool {
    has_keys: |tree| {
        let has = |section: &str, key: &str| tree.get(section).is_some_and(|it| it.has(key));
        has("system", "tensor_model_parallel_size") && has("model", "num_layers")
    },
    ..wrapping!(FLAGSCALE, of_megatron(Target::new("flagscale", "FlagScale", "megatron-core")))
};

/// NeMo: the YAML of its Megatron models.
pub(in super::super) static NEMO_TOOL: Tool = Tool {
    has_keys: |tree| {
        tree.has("trainer")
            && tree
                .get("model")
                .is_some_and(|it| it.has_any(&["micro_batch_size", "tensor_model_parallel_size"]))
    },
    ..wrapping!(NEMO, of_megatron(Target::new("nemo", "NeMo 1", "megatron-core")))
};

/// torchtune: the YAML of its recipes.
pub(in super::super) static TORCHTUNE_TOOL: Tool = Tool {
    starts: anywhere!(|words, at| is_command(words, at, &["tune"], &["run"])),
    has_keys: |tree| {
        let has = |key: &str| tree.get(key).is_some_and(|it| it.has("_component_"));
        has("model") || has("tokenizer")
    },
    ..wrapping!(TORCHTUNE, tool(Target::new("torchtune", "torchtune 0.6", "fsdp2")))
};

/// torchtitan: the TOML of its older versions.
pub(in super::super) static TORCHTITAN_TOOL: Tool = Tool {
    has_keys: |tree| {
        let degrees =
            ["tensor_parallel_degree", "pipeline_parallel_degree", "data_parallel_shard_degree"];
        let has = |section: &str| tree.get(section).is_some_and(|it| it.has_any(&degrees));
        has("parallelism")
            || has("training")
            || tree.get("training").is_some_and(|it| it.has("seq_len")) && tree.has("job")
    },
    tables: &own::TORCHTITAN,
    states_loss: true,
    has_fp32_gradients: true,
    ..wrapping!(
        TORCHTITAN,
        tool(Target::new("torchtitan-toml", "torchtitan 0.2 and older", "torchtitan"))
    )
};

/// axolotl shards if a degree or FSDP's keys say so, even without the Trainer's `fsdp`; with DeepSpeed, a degree alone
/// does not shard. axolotl's own DeepSpeed configurations are recognised by name.
fn shards(all: &mut Vec<Setting>, source: &Source<'_>) {
    let is_parted = ["dp_shard_size", "tensor_parallel_size", "context_parallel_size"]
        .iter()
        .any(|key| number(all, key).is_some_and(|it| it > 1));
    let has_keys = all.iter().any(|it| it.0.starts_with("fsdp_config.") || it.0 == "fsdp_version");
    let is_alone = value(all, "deepspeed").is_none();
    if (is_parted && is_alone || has_keys) && value(all, "fsdp").is_none() {
        add(all, "fsdp", &"full_shard");
    }
    // Its `bf16` is `auto` unless given (utils/schemas/config.py).
    let has_format = ["bf16", "bfloat16"].iter().any(|key| value(all, key).is_some());
    if !has_format && !is_on(all, "fp16") && !is_on(all, "float16") {
        add(all, "bf16", &true);
    }
    let is_offloaded =
        value(all, "gradient_checkpointing").is_some_and(|it| it.starts_with("offload"));
    if is_offloaded && value(all, "activation_offloading").is_none() {
        add(all, "activation_offloading", &true);
    }
    own_stage(all, source, &STAGES_OF_AXOLOTL);
}

/// A DeepSpeed configuration that a tool ships is recognised by the end of its path, unless a file of this name is
/// given.
fn own_stage(all: &mut Vec<Setting>, source: &Source<'_>, known: &[(&str, &str)]) {
    let path = value(all, "deepspeed").filter(|it| !source.files.contains_key(basename(it)));
    let stage = path.and_then(|path| {
        let is_it = |name: &str| {
            path.strip_suffix(name).is_some_and(|it| it.is_empty() || it.ends_with('/'))
        };
        known.iter().find(|it| is_it(it.0)).map(|it| it.1)
    });
    if let Some(stage) = stage {
        all.retain(|it| it.0 != "deepspeed");
        add(all, "deepspeed", &stage);
    }
}

/// axolotl's own DeepSpeed configurations (its folder `deepspeed_configs`), with what they shard and offload to the
/// host.
const STAGES_OF_AXOLOTL: [(&str, &str); 6] = [
    ("deepspeed_configs/zero1.json", "zero1"),
    ("deepspeed_configs/zero2.json", "zero2_offload"),
    ("deepspeed_configs/zero3.json", "zero3"),
    ("deepspeed_configs/zero3_bf16.json", "zero3"),
    ("deepspeed_configs/zero3_bf16_cpuoffload_all.json", "zero3_offload"),
    ("deepspeed_configs/zero3_bf16_cpuoffload_params.json", "zero3_offload_params"),
];

/// LLaMA-Factory's own DeepSpeed configurations (its folder `examples/deepspeed`).
const STAGES_OF_LLAMA_FACTORY: [(&str, &str); 5] = [
    ("ds_z0_config.json", "zero0"),
    ("ds_z2_config.json", "zero2"),
    ("ds_z2_offload_config.json", "zero2_offload"),
    ("ds_z3_config.json", "zero3"),
    ("ds_z3_offload_config.json", "zero3_offload"),
];

/// DeepSpeed-Chat's ZeRO stage, offload and number format, with its defaults (DeepSpeedExamples,
/// applications/DeepSpeed-Chat/dschat/utils/ds_utils.py).
fn zero_stage(all: &mut Vec<Setting>) {
    let offloads = all.iter().any(|it| it.0 == "offload");
    let stage = all.iter().find(|it| it.0 == "zero_stage").and_then(|it| it.1.first());
    let stage = stage.map_or_else(|| Word::known("0"), Clone::clone);
    let text = format!("zero{}{}", stage.text, if offloads { "_offload" } else { "" });
    let is_half = value(all, "dtype") != Some("bf16");
    all.retain(|it| it.0 != "zero_stage");
    all.push(("zero_stage".to_owned(), vec![Word { text, ..stage }]));
    add(all, if is_half { "half" } else { "brain" }, &true);
}

/// torchtune's recipes shard like FSDP, in the number format of the weights; LoRA is in the model's arguments.
fn recipe(all: &mut Vec<Setting>) {
    if value(all, "loss._component_").is_some_and(|it| it.contains(".rlhf.")) {
        add(all, "reference_model", &true);
    }
    if value(all, "dtype") == Some("bf16") {
        add(all, "pure", &1);
    }
    if value(all, "model.lora_rank").is_none() {
        return;
    }
    add(all, "use_peft", &true);
    // QLoRA's builders are LoRA's with `quantize_base=True` (torchtune/models/*/_model_builders.py).
    let builder = value(all, "model._component_").and_then(|it| it.rsplit('.').next());
    let is_quantized = builder.is_some_and(|it| it.starts_with("qlora_"));
    if is_quantized && value(all, "model.quantize_base").is_none() {
        add(all, "model.quantize_base", &true);
    }
    let of_mlp = if is_on(all, "model.apply_lora_to_mlp") {
        &["gate_proj", "up_proj", "down_proj"][..]
    } else {
        &[]
    };
    let of_attention = all.iter().find(|it| it.0 == "model.lora_attn_modules");
    let of_attention = of_attention.map_or(&[][..], |it| it.1.as_slice());
    let plain =
        |word: &Word| Word::known(if word.text == "output_proj" { "o_proj" } else { &word.text });
    let targets = of_attention.iter().map(plain).chain(of_mlp.iter().map(|it| Word::known(it)));
    let targets = targets.collect();
    all.push(("targets".to_owned(), targets));
}

/// The FSDP settings that ms-swift ships under this name switch recompute on (swift/config/fsdp2.json).
fn built_in_fsdp(all: &mut Vec<Setting>) {
    if value(all, "fsdp") == Some("fsdp2") {
        add(all, "fsdp_config.activation_checkpointing", &true);
    }
}

/// ms-swift computes in the number format of the weights, or in fp16 if the weights are in fp32
/// (`_init_mixed_precision` in swift/arguments/base_args/model_args.py).
fn number_format(all: &mut Vec<Setting>) {
    let of_weights = value(all, "torch_dtype").or(value(all, "dtype"));
    let is_half = of_weights.is_some_and(|it| ["float16", "fp16", "float32", "fp32"].contains(&it));
    if value(all, "fp16").is_none() && is_half && !is_on(all, "bf16") {
        add(all, "fp16", &true);
    }
    if is_on(all, "fp16") && value(all, "bf16").is_none() {
        all.retain(|it| !["torch_dtype", "dtype"].contains(&it.0.as_str()));
        add(all, "bf16", &false);
    }
}

/// By default, ms-swift accumulates 16 sequences over all replicas (swift/arguments/train_args.py).
fn accumulation(all: &mut Vec<Setting>, source: &Source<'_>) {
    let keys = ["per_device_train_batch_size", "batch_size"];
    let each = keys.iter().find_map(|key| value(all, key)).map_or(Some(1), |it| it.parse().ok());
    let (Some(each), Some(ranks)) = (each, source.num_gpus()) else { return };
    if value(all, "gradient_accumulation_steps").is_none() {
        let together = u64::from(ranks).saturating_mul(each).max(1);
        add(all, "gradient_accumulation_steps", &16_u64.div_ceil(together));
    }
}

/// If Primus's settings have a layout of stages, the number of virtual stages follows from the layout.
fn layout_alone(all: &mut Vec<Setting>) {
    if value(all, "overrides.pipeline_model_parallel_layout").is_some() {
        all.retain(|it| it.0 != "overrides.virtual_pipeline_model_parallel_size");
    }
}

/// If the number of steps per rollout is given, slime's batch is the answers to one batch of prompts, divided by it
/// (slime/utils/arguments.py).
fn steps_of_rollout(all: &mut Vec<Setting>) {
    const PARTS: [&str; 3] =
        ["num_steps_per_rollout", "rollout_batch_size", "n_samples_per_prompt"];
    let parts = || all.iter().filter(|it| PARTS.contains(&it.0.as_str())).flat_map(|it| &it.1);
    let unknown: BTreeSet<String> = parts().flat_map(|it| it.unknown.iter().cloned()).collect();
    if all.iter().any(|it| it.0 == PARTS[0]) && !unknown.is_empty() {
        all.retain(|it| it.0 != "global_batch_size");
        all.push(("global_batch_size".to_owned(), vec![Word { text: String::new(), unknown }]));
        return;
    }
    let steps = number(all, "num_steps_per_rollout").filter(|it| *it > 0);
    if let (Some(steps), Some(prompts)) = (steps, number(all, "rollout_batch_size")) {
        let answers = number(all, "n_samples_per_prompt").unwrap_or(1);
        all.retain(|it| it.0 != "global_batch_size");
        add(all, "global_batch_size", &(prompts.saturating_mul(answers) / steps));
    }
}
