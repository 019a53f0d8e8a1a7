//! The tools: how each is recognised, and what follows from several of its keys.

use super::super::megatron;
use super::own::{self, option_of, own_keys};
use super::read::read;
use super::wrapper::{Base, Same, Setting, Wrapper};
use crate::interchange::file::basename;
use crate::interchange::launch::Program;
use crate::interchange::shell::Word;
use crate::interchange::target::Target;
use crate::interchange::tool::Tool;

const AXOLOTL: Wrapper =
    Wrapper { adds: shards, ..Wrapper::new("axolotl", include_str!("axolotl.txt"), Base::Trainer) };
const LLAMA_FACTORY: Wrapper = Wrapper {
    same: Same::Keys,
    ..Wrapper::new("LLaMA-Factory", include_str!("llama_factory.txt"), Base::Trainer)
};
const SWIFT: Wrapper = Wrapper {
    same: Same::Keys,
    ..Wrapper::new("ms-swift", include_str!("swift.txt"), Base::Trainer)
};
const MEGATRON_SWIFT: Wrapper = Wrapper {
    same: Same::Keys,
    ..Wrapper::new("ms-swift", include_str!("megatron_swift.txt"), Base::Megatron)
};
const SLIME: Wrapper = Wrapper {
    same: Same::Options,
    ..Wrapper::new("slime", include_str!("slime.txt"), Base::Megatron)
};
const VERL: Wrapper =
    Wrapper { adds: mini_batch, ..Wrapper::new("verl", include_str!("verl.txt"), Base::Trainer) };
const MEGATRON_VERL: Wrapper = Wrapper {
    adds: mini_batch,
    ..Wrapper::new("verl", include_str!("megatron_verl.txt"), Base::Megatron)
};
const PRIMUS: Wrapper = Wrapper {
    within: &["modules", "pre_trainer"],
    prefix: "overrides.",
    same: Same::Keys,
    ..Wrapper::new("Primus", include_str!("primus.txt"), Base::Megatron)
};
const NEMO: Wrapper = Wrapper::new("NeMo", include_str!("nemo.txt"), Base::Megatron);

const TORCHTUNE: Wrapper = Wrapper {
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

/// ms-swift: options of `swift sft` and its sisters.
pub(in super::super) static SWIFT_TOOL: Tool = Tool {
    starts_ranks: true,
    starts: |words, place, _| {
        started(words, place, |words, at| {
            is_command(words, at, &["swift"], &["sft", "pt", "rlhf"])
                || ["swift.cli.sft", "swift.cli.pt", "swift.cli.rlhf"]
                    .contains(&words[at].text.as_str())
                || words[at].text.ends_with("swift/cli/sft.py")
        })
    },
    ..wrapping!(SWIFT, tool(Target::new("ms-swift", "ms-swift 4", "fsdp2")))
};

/// ms-swift with Megatron: options of `megatron sft` and its sisters.
pub(in super::super) static MEGATRON_SWIFT_TOOL: Tool = Tool {
    starts_ranks: true,
    starts: |words, place, _| {
        started(words, place, |words, at| {
            is_command(words, at, &["megatron"], &["sft", "pt", "rlhf"])
        })
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
    words[at].text.starts_with("verl.trainer.")
}

fn is_megatron(words: &[Word]) -> bool {
    words.iter().any(|word| {
        word.text.contains("megatron_trainer")
            || word.text.starts_with("actor_rollout_ref.actor.megatron.")
            || word.text.starts_with("actor_rollout_ref.actor.strategy=megatron")
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
    }
    if value(all, "actor_rollout_ref.model.lora_rank").is_some_and(|it| it != "0") {
        add(all, "use_peft", &true);
    }
}
