//! The tools, and how each is recognised.

use std::collections::BTreeMap;

use ir::graph::ContextParallelKind;

use super::super::megatron;
use super::adds::{
    STAGES_OF_LLAMA_FACTORY, layout_alone, own_stage, recipe, shards, steps_of_rollout, zero_stage,
};
use super::megatron_yaml::MEGATRON_YAML_TOOL;
use super::own::{self, ACTOR, option_of, own_keys};
use super::read::read;
use super::swift;
use super::verl;
use super::wrapper::{Base, Same, Setting, Wrapper, add, is_on, number, value};
use crate::interchange::file::basename;
use crate::interchange::launch::Program;
use crate::interchange::shell::{Word, is_program};
use crate::interchange::source::tree_of;
use crate::interchange::target::Target;
use crate::interchange::tool::Tool;
use crate::interchange::tree::Tree;

/// The tools, in the order in which they are listed and recognised.
pub(in super::super) static WRAPPED: [&Tool; 15] = [
    &AXOLOTL_TOOL,
    &LLAMA_FACTORY_TOOL,
    &DEEPSPEED_CHAT_TOOL,
    &SWIFT_TOOL,
    &MEGATRON_SWIFT_TOOL,
    &SLIME_TOOL,
    &VERL_TOOL,
    &MEGATRON_VERL_TOOL,
    &EASY_R1_TOOL,
    &PRIMUS_TOOL,
    &FLAGSCALE_TOOL,
    &MEGATRON_YAML_TOOL,
    &NEMO_TOOL,
    &TORCHTUNE_TOOL,
    &TORCHTITAN_TOOL,
];

static AXOLOTL: Wrapper = Wrapper {
    // ring-flash-attn or Ulysses, combined with any way to shard states (docs/sequence_parallelism.qmd).
    context_parallel: &[ContextParallelKind::Ring, ContextParallelKind::AllToAll],
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
    adds: swift::adds,
    ..Wrapper::new("ms-swift", include_str!("swift.txt"), Base::Trainer)
};
static MEGATRON_SWIFT: Wrapper = Wrapper {
    same: Same::Keys,
    adds: |all, _| swift::of_ray(all),
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
static EASY_R1: Wrapper = Wrapper {
    // verl/workers/actor/dp_actor.py of EasyR1: a plain backward for each micro-batch.
    reduces_each: true,
    // verl/models/monkey_patch.py of EasyR1.
    context_parallel: &[ContextParallelKind::AllToAll],
    is_hydra: true,
    adds: verl::of_easy_r1,
    ..Wrapper::new("EasyR1", include_str!("easy_r1.txt"), Base::Trainer)
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
static AXOLOTL_TOOL: Tool = Tool {
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
static LLAMA_FACTORY_TOOL: Tool = Tool {
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
static DEEPSPEED_CHAT_TOOL: Tool = Tool {
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
static SWIFT_TOOL: Tool = Tool {
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
static MEGATRON_SWIFT_TOOL: Tool = Tool {
    starts_ranks: true,
    starts: anywhere!(|words, at| at == 0 && is_megatron_swift(words)),
    // Its files for Ray.
    has_keys: |tree| tree.has("model") && tree.get("train").is_some_and(|it| it.has("gpus")),
    ..wrapping!(
        MEGATRON_SWIFT,
        of_megatron(Target::new("megatron-swift", "ms-swift 4 with Megatron", "megatron-core"))
    )
};

/// slime: options of `train.py`, which include Megatron's.
static SLIME_TOOL: Tool = Tool {
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
    text.starts_with("verl.")
        && text != EASY_R1_PROGRAM
        && !UNTRAINED.iter().any(|it| text.starts_with(it))
        || is_program(words, at) && words[at..].iter().any(is_of_actor)
}

/// Starts of the names of verl's modules that train nothing.
const UNTRAINED: [&str; 3] =
    ["verl.trainer.main_generation", "verl.trainer.main_eval", "verl.model_merger"];

/// EasyR1's program, whose module has a name like verl's modules.
const EASY_R1_PROGRAM: &str = "verl.trainer.main";

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
static VERL_TOOL: Tool = Tool {
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
static MEGATRON_VERL_TOOL: Tool = Tool {
    is_by_ray: true,
    starts: anywhere!(|words, at| is_verl(words, at) && is_megatron(words)),
    has_keys: |tree| strategy(tree) == Some("megatron"),
    ..wrapping!(
        MEGATRON_VERL,
        of_megatron(Target::new("megatron-verl", "verl with Megatron", "megatron-core"))
    )
};

/// EasyR1: a fork of verl with keys of its own.
static EASY_R1_TOOL: Tool = Tool {
    is_by_ray: true,
    starts: anywhere!(|words, at| words[at].text == EASY_R1_PROGRAM),
    has_keys: |tree| ["worker", "algorithm", "data"].iter().all(|key| tree.has(key)),
    ..wrapping!(EASY_R1, tool(Target::new("easy-r1", "EasyR1", "fsdp2")))
};

/// Primus: its YAML with Megatron's options.
static PRIMUS_TOOL: Tool = Tool {
    has_keys: |tree| {
        tree.get("modules").is_some_and(|it| it.has_any(&["pre_trainer", "post_trainer"]))
    },
    ..wrapping!(PRIMUS, of_megatron(Target::new("primus", "Primus", "megatron-core")))
};

/// FlagScale: the YAML of the training, without the experiment's YAML.
static FLAGSCALE_TOOL: Tool = Tool {
    has_keys: |tree| {
        let has = |section: &str, key: &str| tree.get(section).is_some_and(|it| it.has(key));
        has("system", "tensor_model_parallel_size") && has("model", "num_layers")
    },
    ..wrapping!(FLAGSCALE, of_megatron(Target::new("flagscale", "FlagScale", "megatron-core")))
};

/// NeMo: the YAML of its Megatron models.
static NEMO_TOOL: Tool = Tool {
    has_keys: |tree| {
        tree.has("trainer")
            && tree
                .get("model")
                .is_some_and(|it| it.has_any(&["micro_batch_size", "tensor_model_parallel_size"]))
    },
    ..wrapping!(NEMO, of_megatron(Target::new("nemo", "NeMo 1", "megatron-core")))
};

/// torchtune: the YAML of its recipes.
static TORCHTUNE_TOOL: Tool = Tool {
    starts: anywhere!(|words, at| is_command(words, at, &["tune"], &["run"])),
    has_keys: |tree| {
        let has = |key: &str| tree.get(key).is_some_and(|it| it.has("_component_"));
        has("model") || has("tokenizer")
    },
    ..wrapping!(TORCHTUNE, tool(Target::new("torchtune", "torchtune 0.6", "fsdp2")))
};

/// torchtitan: the TOML of its older versions.
static TORCHTITAN_TOOL: Tool = Tool {
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
