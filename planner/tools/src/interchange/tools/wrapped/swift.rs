//! Values that follow from several of ms-swift's keys.

use super::wrapper::{Setting, add, is_on, value};
use crate::interchange::source::Source;

/// Adds the settings that ms-swift derives from its keys.
pub(super) fn adds(all: &mut Vec<Setting>, source: &Source<'_>) {
    built_in_fsdp(all);
    if value(all, "quant_bits") == Some("8") {
        add(all, "load_in_8bit", &true);
    }
    let tuner = ["tuner_type", "train_type", "sft_type"].iter().find_map(|it| value(all, it));
    if let Some(kind) = tuner.filter(|it| OTHER_ADAPTERS.contains(it)).map(str::to_owned) {
        add(all, &format!("tuner_type.{kind}"), &true);
    }
    number_format(all);
    accumulation(all, source);
}

/// Adapters that are no sums of low-rank products (swift/tuners/mapping.py).
const OTHER_ADAPTERS: [&str; 6] = ["adalora", "boft", "bone", "fourierft", "reft", "vera"];

/// Keys of the ranks that train, where Ray starts ranks of several kinds (examples/ray of ms-swift 4): they are those of
/// a run without Ray, and override keys of all ranks.
pub(super) fn of_ray(all: &mut Vec<Setting>) {
    let (own, mut rest): (Vec<Setting>, Vec<Setting>) =
        std::mem::take(all).into_iter().partition(|it| it.0.starts_with("train."));
    for (key, words) in own {
        let bare = key.strip_prefix("train.").filter(|it| *it != "gpus").map(str::to_owned);
        let key = bare.unwrap_or(key);
        rest.retain(|it| it.0 != key);
        rest.push((key, words));
    }
    *all = rest;
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
