//! Values that follow from several of verl's keys: the number of sequences in an update and in a micro-batch.

use std::collections::BTreeSet;

use super::wrapper::{Setting, add, number, value};
use crate::interchange::shell::Word;
use crate::interchange::source::Source;

/// Prefix of the keys of the model that is trained by reinforcement learning.
const ACTOR: &str = "actor_rollout_ref.actor.";

/// Number of answers to a prompt.
const ANSWERS: &str = "actor_rollout_ref.rollout.n";

/// Adds the settings that verl derives from its keys, with the defaults of `ppo_trainer.yaml` and `sft_trainer.yaml`.
pub(super) fn batches(all: &mut Vec<Setting>, source: &Source<'_>) {
    let is_actor = all.iter().any(|it| it.0.starts_with("actor_rollout_ref."));
    // An update of the actor takes one mini-batch, whose size is counted in prompts.
    let factors: &[(&str, u64)] = if is_actor {
        &[("actor_rollout_ref.actor.ppo_mini_batch_size", 256), (ANSWERS, 1)]
    } else {
        &[("data.train_batch_size", 256)]
    };
    product(all, "global_batch_size", factors);
    let length = if is_actor {
        ranks_of_node(all, source);
        sequence(all, source, &PROMPT_AND_ANSWER)
    } else {
        sequence(all, source, &[("data.max_length", 1_024)])
    };
    // FSDP 1 ignores this key (verl/workers/fsdp_workers.py).
    if value(all, &format!("{ACTOR}strategy")) != Some("fsdp2") {
        all.retain(|it| it.0 != format!("{ACTOR}fsdp_config.offload_policy"));
    }
    micro_batch(all, source, is_actor, length);
}

/// Keys of the longest prompt and the longest answer, with their defaults.
const PROMPT_AND_ANSWER: [(&str, u64); 2] =
    [("data.max_prompt_length", 512), ("data.max_response_length", 512)];

/// Adds the default number of ranks on a node where nothing states their number.
fn ranks_of_node(all: &mut Vec<Setting>, source: &Source<'_>) {
    let key = "trainer.n_gpus_per_node";
    if value(all, key).is_none() && source.num_gpus().is_none() {
        add(all, key, &8);
    }
}

/// Adds and returns the length of a sequence, the sum of several keys, each with its default unless the user states the
/// length.
fn sequence(all: &mut Vec<Setting>, source: &Source<'_>, parts: &[(&str, u64)]) -> Option<u64> {
    let is_stated = source.stated.sequence_length.is_some();
    let length = |(key, usual): &(&str, u64)| match value(all, key) {
        Some(_) => number(all, key),
        None => (!is_stated).then_some(*usual),
    };
    let length = parts.iter().try_fold(0_u64, |sum, part| Some(sum.saturating_add(length(part)?)));
    if let Some(length) = length {
        add(all, "sequence_length", &length);
    }
    length
}

/// Adds the settings that EasyR1 derives from its keys, with the defaults of its `verl/trainer/config.py` and
/// `verl/workers/actor/config.py`. An update takes the answers to one mini-batch of prompts (`fsdp_workers.py`).
pub(super) fn of_easy_r1(all: &mut Vec<Setting>, source: &Source<'_>) {
    let factors = [("worker.actor.global_batch_size", 256), ("worker.rollout.n", 1)];
    product(all, "global_batch_size", &factors);
    ranks_of_node(all, source);
    sequence(all, source, &PROMPT_AND_ANSWER);
    adapters(all, &["worker.actor.model.lora.rank"]);
    groups(all, source);
    // Weights and moments have the number format in which the model is created, fp32 unless given.
    let format = value(all, "worker.actor.fsdp.torch_dtype");
    if format.is_some_and(|it| ["bf16", "bfloat16"].contains(&it)) {
        add(all, "pure", &1);
    }
}

/// Keys of the rank of adapters.
pub(super) const RANKS: [&str; 2] = ["actor_rollout_ref.model.lora_rank", "model.lora_rank"];

/// Key of the rank that Megatron alone reads: FSDP trains all parameters if only this one is given
/// (`workers/engine/fsdp/transformer_impl.py`).
pub(super) const MEGATRON_RANK: &str = "actor_rollout_ref.model.lora.rank";

/// Switches adapters on if one of the keys of their rank is not 0.
pub(super) fn adapters(all: &mut Vec<Setting>, ranks: &[&str]) {
    if ranks.iter().any(|it| value(all, it).is_some_and(|it| it != "0")) {
        add(all, "use_peft", &true);
    }
}

/// Adds the product of several keys, each with its default; the product is unknown if a key's value is.
fn product(all: &mut Vec<Setting>, key: &str, factors: &[(&str, u64)]) {
    let is_factor = |it: &&Setting| factors.iter().any(|factor| factor.0 == it.0);
    let words = all.iter().filter(is_factor).flat_map(|it| &it.1);
    let unknown: BTreeSet<String> = words.flat_map(|it| it.unknown.iter().cloned()).collect();
    if unknown.is_empty() {
        let factors = factors.iter().map(|(key, usual)| number(all, key).unwrap_or(*usual));
        let product = factors.fold(1, u64::saturating_mul);
        add(all, key, &product);
    } else {
        all.push((key.to_owned(), vec![Word { text: String::new(), unknown }]));
    }
}

/// Number of ranks, from the launcher, the user or the keys.
fn num_ranks(all: &[Setting], source: &Source<'_>) -> Option<u64> {
    let nodes = number(all, "trainer.nnodes").unwrap_or(1);
    let started = number(all, "trainer.n_gpus_per_node").and_then(|it| it.checked_mul(nodes));
    source.num_gpus().map(u64::from).or(started)
}

/// Adds the number of full copies of the states if groups of ranks shard them (`create_device_mesh` in verl's
/// `workers/fsdp_workers.py`).
pub(super) fn groups(all: &mut Vec<Setting>, source: &Source<'_>) {
    let keys = [
        "actor_rollout_ref.actor.fsdp_config.fsdp_size",
        "engine.fsdp_size",
        "worker.actor.fsdp.fsdp_size",
    ];
    for key in keys {
        let size = number(all, key).filter(|it| *it > 0);
        let (Some(size), Some(ranks)) = (size, num_ranks(all, source)) else { continue };
        if size < ranks && !ranks.is_multiple_of(size) {
            continue;
        }
        all.retain(|it| it.0 != key);
        add(all, "copies", &(ranks / size).max(1));
        add(all, "shards", &"rest");
    }
}

/// Largest micro-batch, in sequences, that is considered.
const MOST_AT_ONCE: u64 = 1 << 16;

/// Adds the number of sequences of a micro-batch if another key determines it: the sequences of all ranks at once, as
/// old versions have it for the actor, or the tokens. For tokens, it is the largest number of full-length sequences
/// that fits and divides a replica's sequences.
fn micro_batch(all: &mut Vec<Setting>, source: &Source<'_>, is_actor: bool, length: Option<u64>) {
    let program = source.launched().ok().and_then(|it| it.words.first());
    let is_engine = program.is_some_and(|it| it.text.starts_with("verl.trainer.sft_trainer"));
    let (start, ppo) = if is_actor { (ACTOR, "ppo_") } else { ("data.", "") };
    let of = |key: &str| number(all, &format!("{start}{key}"));
    let own = format!("{start}{ppo}micro_batch_size_per_gpu");
    let of_all = format!("{start}{ppo}micro_batch_size");
    let of_engine = |key: &str| number(all, &format!("engine.{key}"));
    let of_megatron = |key: &str| of(&format!("megatron.{key}")).or_else(|| of_engine(key));
    let ulysses = "ulysses_sequence_parallel_size";
    let sharing = [
        of(ulysses),
        of(&format!("fsdp_config.{ulysses}")),
        number(all, ulysses),
        of_engine(ulysses),
        of_megatron("context_parallel_size"),
    ];
    let sharing = sharing.into_iter().flatten().max().unwrap_or(1);
    let cut = ["tensor_model_parallel_size", "pipeline_model_parallel_size"];
    let cut = cut.into_iter().filter_map(of_megatron).product::<u64>() * sharing;
    let replicas = (num_ranks(all, source).unwrap_or(1) / cut.max(1)).max(1);
    let by_tokens = value(all, &format!("{start}use_dynamic_bsz"));
    let by_tokens = by_tokens.map_or(is_engine, |it| it.eq_ignore_ascii_case("true"));
    let micro = match (by_tokens, length, of(&format!("{ppo}micro_batch_size"))) {
        (true, Some(length), _) => {
            let usual = if is_actor { 16_384 } else { 8_192 };
            let tokens = of(&format!("{ppo}max_token_len_per_gpu")).unwrap_or(usual);
            let most = (tokens.saturating_mul(sharing) / length.max(1)).max(1);
            let each = number(all, "global_batch_size").unwrap_or(1) / replicas;
            (1..=most.min(each.max(1)).min(MOST_AT_ONCE)).rev().find(|it| each.is_multiple_of(*it))
        }
        (false, _, Some(micro)) if is_actor => Some((micro / replicas).max(1)),
        _ if !is_actor && value(all, &own).is_none() => Some(4),
        _ => None,
    };
    // Versions that have only this key multiply it by the number of answers; later ones do not.
    if is_actor && number(all, ANSWERS).is_none_or(|it| it == 1) {
        all.retain(|it| it.0 != of_all);
    }
    if let Some(micro) = micro {
        all.retain(|it| it.0 != own);
        add(all, &own, &micro);
    }
}
