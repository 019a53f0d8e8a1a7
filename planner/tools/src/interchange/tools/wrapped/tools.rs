//! The tools: how each is recognised, and what follows from several of its keys.

use std::collections::BTreeSet;

use ir::graph::ContextParallelKind;

use super::super::megatron;
use super::own::{self, option_of, own_keys};
use super::read::read;
use super::wrapper::{Base, Same, Setting, Wrapper};
use crate::interchange::file::basename;
use crate::interchange::launch::Program;
use crate::interchange::shell::Word;
use crate::interchange::target::Target;
use crate::interchange::tool::Tool;

const AXOLOTL: Wrapper = Wrapper {
    // ring-flash-attn, with any way to share states (docs/sequence_parallelism.qmd).
    context_parallel: &[ContextParallelKind::Ring],
    adds: shards,
    ..Wrapper::new("axolotl", include_str!("axolotl.txt"), Base::Trainer)
};
const LLAMA_FACTORY: Wrapper = Wrapper {
    same: Same::Keys,
    ..Wrapper::new("LLaMA-Factory", include_str!("llama_factory.txt"), Base::Trainer)
};
const SWIFT: Wrapper = Wrapper {
    same: Same::Keys,
    // swift/sequence_parallel: Ulysses, and a ring where there are more ranks than key-value heads.
    context_parallel: &[ContextParallelKind::AllToAll, ContextParallelKind::Ring],
    adds: built_in_fsdp,
    ..Wrapper::new("ms-swift", include_str!("swift.txt"), Base::Trainer)
};
const MEGATRON_SWIFT: Wrapper = Wrapper {
    same: Same::Keys,
    ..Wrapper::new("ms-swift", include_str!("megatron_swift.txt"), Base::Megatron)
};
const SLIME: Wrapper = Wrapper {
    same: Same::Options,
    adds: steps_of_rollout,
    ..Wrapper::new("slime", include_str!("slime.txt"), Base::Megatron)
};
const VERL: Wrapper = Wrapper {
    // verl/workers/engine/fsdp/transformer_impl.py and actor/dp_actor.py: backward of each micro-batch as it is.
    reduces_each: true,
    // verl/models/transformers/monkey_patch.py.
    context_parallel: &[ContextParallelKind::AllToAll],
    adds: mini_batch,
    ..Wrapper::new("verl", include_str!("verl.txt"), Base::Trainer)
};
const MEGATRON_VERL: Wrapper = Wrapper {
    adds: mini_batch,
    ..Wrapper::new("verl", include_str!("megatron_verl.txt"), Base::Megatron)
};
const PRIMUS: Wrapper = Wrapper {
    within: &["modules", "pre_trainer"],
    or_within: &["modules", "post_trainer"],
    prefixes: &["overrides."],
    adds: layout_alone,
    same: Same::Keys,
    ..Wrapper::new("Primus", include_str!("primus.txt"), Base::Megatron)
};
const FLAGSCALE: Wrapper = Wrapper {
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
const NEMO: Wrapper = Wrapper::new("NeMo", include_str!("nemo.txt"), Base::Megatron);

const TORCHTUNE: Wrapper = Wrapper {
    // recipes/full_finetune_distributed.py: backward of each micro-batch as it is.
    reduces_each: true,
    adds: recipe,
    ..Wrapper::new("torchtune", include_str!("torchtune.txt"), Base::Trainer)
};
const TORCHTITAN: Wrapper = Wrapper {
    same: Same::Keys,
    ..Wrapper::new("torchtitan", include_str!("torchtitan_toml.txt"), Base::Torchtitan)
};

/// A tool whose settings are read, but not written: the Trainer's in other words.
const fn tool(target: Target) -> Tool {
    let tool = Tool::new(target, |_, _| Program::default());
    Tool { is_written: false, tables: &own::TRAINER, ..tool }
}

/// A tool that hands its settings on to Megatron.
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

/// Start of a program that is one of some modules or scripts, wherever in a command its name is.
fn started(words: &[Word], place: usize, is_it: impl Fn(&[Word], usize) -> bool) -> Option<usize> {
    if place > 0 {
        return None;
    }
    (0..words.len()).find(|at| is_it(words, *at))
}

/// Returns whether a word is one of some names, and the next, if one is given, is one of its commands.
fn is_command(words: &[Word], at: usize, names: &[&str], commands: &[&str]) -> bool {
    let next = words.get(at + 1).map_or("", |it| it.text.as_str());
    names.contains(&basename(&words[at].text)) && commands.contains(&next)
}

fn has_option(words: &[Word], names: &[&str]) -> bool {
    words.iter().any(|word| {
        let name = word.text.split('=').next().unwrap_or_default().replace('-', "_");
        names.contains(&name.trim_start_matches('_'))
    })
}

/// axolotl: its YAML.
pub(in super::super) static AXOLOTL_TOOL: Tool = Tool {
    starts: |words, place, _| {
        started(words, place, |words, at| {
            is_command(words, at, &["axolotl"], &["train", "preprocess"])
                || words[at].text == "axolotl.cli.train"
        })
    },
    has_keys: |tree| {
        tree.has("base_model")
            && tree.has_any(&["sequence_len", "micro_batch_size", "datasets", "adapter"])
    },
    ..wrapping!(AXOLOTL, tool(Target::new("axolotl", "axolotl 0.21", "fsdp2")))
};

/// LLaMA-Factory: its YAML or options.
pub(in super::super) static LLAMA_FACTORY_TOOL: Tool = Tool {
    starts_ranks: true,
    starts: |words, place, _| {
        started(words, place, |words, at| {
            is_command(words, at, &["llamafactory-cli", "lmf"], &["train"])
                || words[at].is_python("") && has_option(words, &["finetuning_type"])
        })
    },
    has_keys: |tree| {
        tree.has("model_name_or_path")
            && tree.has_any(&["finetuning_type", "cutoff_len", "template"])
    },
    ..wrapping!(LLAMA_FACTORY, tool(Target::new("llama-factory", "LLaMA-Factory 0.9", "fsdp2")))
};

fn is_megatron_swift(words: &[Word]) -> bool {
    (0..words.len()).any(|at| is_command(words, at, &["megatron"], &["sft", "pt", "rlhf"]))
}

/// ms-swift's own words for how parameters are tuned, in its versions.
const TUNER: [&str; 3] = ["tuner_type", "train_type", "sft_type"];

/// ms-swift: options of `swift sft` and its sisters, and `args.json`, which each run leaves behind.
pub(in super::super) static SWIFT_TOOL: Tool = Tool {
    starts_ranks: true,
    starts: |words, place, _| {
        started(words, place, |words, at| {
            is_command(words, at, &["swift"], &["sft", "pt", "rlhf"])
                || ["swift.cli.sft", "swift.cli.pt", "swift.cli.rlhf"]
                    .contains(&words[at].text.as_str())
                || words[at].text.ends_with("swift/cli/sft.py")
                || words[at].is_python("") && has_option(words, &TUNER) && !is_megatron_swift(words)
        })
    },
    has_keys: |tree| tree.has("model") && tree.has_any(&TUNER),
    ..wrapping!(SWIFT, tool(Target::new("ms-swift", "ms-swift 4", "fsdp2")))
};

/// ms-swift with Megatron: options of `megatron sft` and its sisters.
pub(in super::super) static MEGATRON_SWIFT_TOOL: Tool = Tool {
    starts_ranks: true,
    starts: |words, place, _| {
        started(words, place, |words, at| at == 0 && is_megatron_swift(words))
    },
    ..wrapping!(
        MEGATRON_SWIFT,
        of_megatron(Target::new("megatron-swift", "ms-swift 4 with Megatron", "megatron-core"))
    )
};

/// slime: options of `train.py`, Megatron's among them.
pub(in super::super) static SLIME_TOOL: Tool = Tool {
    starts: |words, place, _| {
        started(words, place, |words, at| {
            let is_own = has_option(words, &["actor_num_nodes", "actor_num_gpus_per_node"]);
            words[at].is_python("train") && is_own
        })
    },
    ..wrapping!(SLIME, of_megatron(Target::new("slime", "slime", "megatron-core")))
};

fn is_verl(words: &[Word], at: usize) -> bool {
    words[at].text.starts_with("verl.")
        || words[at].text.starts_with("recipe.") && words[at].text.contains(".main_")
}

fn is_megatron(words: &[Word]) -> bool {
    words.iter().any(|word| {
        word.text.contains("megatron_trainer")
            || word.text.starts_with("actor_rollout_ref.actor.megatron.")
            || word.text.starts_with("actor_rollout_ref.actor.strategy=megatron")
            || word.text == "engine=megatron"
    })
}

/// verl: options of its trainers, as Hydra takes them.
pub(in super::super) static VERL_TOOL: Tool = Tool {
    starts: |words, place, _| {
        started(words, place, |words, at| is_verl(words, at) && !is_megatron(words))
    },
    has_keys: |tree| tree.has("actor_rollout_ref"),
    ..wrapping!(VERL, tool(Target::new("verl", "verl", "fsdp2")))
};

/// verl whose actor is trained with Megatron.
pub(in super::super) static MEGATRON_VERL_TOOL: Tool = Tool {
    starts: |words, place, _| {
        started(words, place, |words, at| is_verl(words, at) && is_megatron(words))
    },
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

/// FlagScale: the YAML of its training, without that of the experiment.
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
    starts: |words, place, _| {
        started(words, place, |words, at| is_command(words, at, &["tune"], &["run"]))
    },
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

fn value<'a>(all: &'a [Setting], key: &str) -> Option<&'a str> {
    let (_, words) = all.iter().find(|it| it.0 == key)?;
    words.first().map(|it| it.text.as_str())
}

fn number(all: &[Setting], key: &str) -> Option<u64> {
    value(all, key)?.parse().ok()
}

fn add(all: &mut Vec<Setting>, key: &str, value: &dyn ToString) {
    all.push((key.to_owned(), vec![Word::known(&value.to_string())]));
}

/// axolotl shards where a degree or FSDP's keys say so, without the Trainer's `fsdp`; a degree alone does not beside
/// DeepSpeed.
fn shards(all: &mut Vec<Setting>) {
    let is_parted = ["dp_shard_size", "tensor_parallel_size", "context_parallel_size"]
        .iter()
        .any(|key| number(all, key).is_some_and(|it| it > 1));
    let has_keys = all.iter().any(|it| it.0.starts_with("fsdp_config.") || it.0 == "fsdp_version");
    let is_alone = value(all, "deepspeed").is_none();
    if (is_parted && is_alone || has_keys) && value(all, "fsdp").is_none() {
        add(all, "fsdp", &"full_shard");
    }
}

/// torchtune's recipes shard as FSDP does, in the number format of the weights; LoRA is in the model's arguments.
fn recipe(all: &mut Vec<Setting>) {
    if value(all, "dtype") == Some("bf16") {
        add(all, "pure", &1);
    }
    if value(all, "model.lora_rank").is_none() {
        return;
    }
    add(all, "use_peft", &true);
    let is_on = |key: &str| value(all, key).is_some_and(|it| it.eq_ignore_ascii_case("true"));
    let of_mlp = if is_on("model.apply_lora_to_mlp") {
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

/// Where verl limits the tokens of a micro-batch, the number of sequences of the full length in one; of those
/// that divide a replica's sequences the largest.
fn micro_batch_by_tokens(all: &mut Vec<Setting>, length: u64) {
    let actor = |key: &str| format!("actor_rollout_ref.actor.{key}");
    let is_on =
        value(all, &actor("use_dynamic_bsz")).is_some_and(|it| it.eq_ignore_ascii_case("true"));
    if !is_on {
        return;
    }
    let of = |key: &str| number(all, &actor(key));
    let sharing = of("ulysses_sequence_parallel_size").or(of("megatron.context_parallel_size"));
    let sharing = sharing.unwrap_or(1);
    // Its default.
    let tokens = of("ppo_max_token_len_per_gpu").unwrap_or(16_384).saturating_mul(sharing);
    let most = (tokens / length.max(1)).max(1);
    let cut = ["tensor_model_parallel_size", "pipeline_model_parallel_size"];
    let cut = cut.iter().filter_map(|it| of(&format!("megatron.{it}"))).product::<u64>() * sharing;
    let ranks = number(all, "trainer.nnodes").unwrap_or(1)
        * number(all, "trainer.n_gpus_per_node").unwrap_or(1);
    let batch = number(all, "global_batch_size").unwrap_or(1);
    let each = batch / (ranks / cut.max(1)).max(1);
    let micro = (1..=most.min(each.max(1))).rev().find(|it| each.is_multiple_of(*it)).unwrap_or(1);
    let key = actor("ppo_micro_batch_size_per_gpu");
    all.retain(|it| it.0 != key);
    add(all, &key, &micro);
}

/// ms-swift's own file of FSDP's settings, which it knows by this name, recomputes (swift/config/fsdp2.json).
fn built_in_fsdp(all: &mut Vec<Setting>) {
    if value(all, "fsdp") == Some("fsdp2") {
        add(all, "fsdp_config.activation_checkpointing", &true);
    }
}

/// Primus's number of virtual stages is that of its layout of stages, where it has one.
fn layout_alone(all: &mut Vec<Setting>) {
    if value(all, "overrides.pipeline_model_parallel_layout").is_some() {
        all.retain(|it| it.0 != "overrides.virtual_pipeline_model_parallel_size");
    }
}

/// slime's batch is a part of the answers to one batch of prompts, where the steps that it is for are given
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

/// verl updates the actor once for each mini-batch, of that number of prompts with `n` answers each.
fn mini_batch(all: &mut Vec<Setting>) {
    let of = |key: &str| number(all, key);
    if let Some(prompts) = of("actor_rollout_ref.actor.ppo_mini_batch_size") {
        let answers = of("actor_rollout_ref.rollout.n").unwrap_or(1);
        add(all, "global_batch_size", &prompts.saturating_mul(answers));
    } else if let Some(batch) = of("data.train_batch_size") {
        add(all, "global_batch_size", &batch);
    }
    let of = |key: &str| number(all, key);
    let length = match [of("data.max_prompt_length"), of("data.max_response_length")] {
        [Some(prompt), Some(answer)] => Some(prompt.saturating_add(answer)),
        _ => of("data.max_length"),
    };
    if let Some(length) = length {
        add(all, "sequence_length", &length);
        micro_batch_by_tokens(all, length);
    }
    let ranks = ["_rank", ".rank"].map(|it| format!("actor_rollout_ref.model.lora{it}"));
    let ranks = ranks.into_iter().chain(["model.lora_rank".to_owned()]);
    if ranks.into_iter().any(|it| value(all, &it).is_some_and(|it| it != "0")) {
        add(all, "use_peft", &true);
    }
}
