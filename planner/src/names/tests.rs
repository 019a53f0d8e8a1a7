use std::collections::BTreeSet;

use cost_models::{clusters, frameworks};
use ir::schedule::ScheduleKind;

use super::*;

#[test]
fn models_are_found_in_any_writing() {
    for (given, name) in [
        ("llama-3.1-70b", "llama-3.1-70b"),
        ("Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("llama3.1:70b", "llama-3.1-70b"),
        ("Meta-Llama-3.1-8B", "llama-3.1-8b"),
        ("LLAMA_3_1_405B", "llama-3.1-405b"),
        ("Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("DeepSeek-V3-Base", "deepseek-v3"),
        ("bloom", "bloom-176b"),
        ("GPT-3", "gpt3-175b"),
        ("gpt-oss-120b", "gpt-oss-120b"),
    ] {
        assert_eq!(model(given).map(|it| it.name), Some(name), "{given}");
    }
    for given in ["llama-3.1-70", "llama", "", "mistral-7b-v0.1", "Llama-3.1-8B-GGUF", "instruct"] {
        assert_eq!(model(given), None, "{given}");
    }
}

#[test]
fn no_two_models_share_a_name() {
    let mut seen = BTreeSet::new();
    for shipped in ::models::ALL {
        assert_eq!(model(shipped.name), Some(shipped));
        for also in shipped.also {
            assert_eq!(model(also.rsplit('/').next().unwrap()), Some(shipped), "{also}");
            assert!(seen.insert(also), "{also} is twice there");
        }
    }
}

#[test]
fn texts_say_by_their_form_what_they_ask_for() {
    for (text, sought) in [
        ("llama-3.1-70b", Sought::Name("llama-3.1-70b")),
        ("DGX H100", Sought::Name("DGX H100")),
        ("org/name", Sought::Repository { owner: "org", name: "name" }),
        ("https://huggingface.co/org/name", Sought::Repository { owner: "org", name: "name" }),
        ("hf://org/name/", Sought::Repository { owner: "org", name: "name" }),
        ("models/x.json", Sought::Path),
        ("config.json", Sought::Path),
        ("./llama", Sought::Path),
        ("../llama", Sought::Path),
        ("/models/llama", Sought::Path),
        ("a/b/c", Sought::Path),
        ("", Sought::Path),
    ] {
        assert_eq!(Sought::of(text), sought, "{text}");
    }
}

#[test]
fn clusters_are_found_in_any_writing() {
    for (given, name) in [
        ("H100", "h100"),
        ("DGX H100", "h100"),
        ("dgx-h100", "h100"),
        ("dgxh100", "h100"),
        ("NVIDIA H100 SXM5 80GB", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("GB200", "gb200-nvl72"),
        ("TPU v5p", "tpu-v5p"),
    ] {
        assert_eq!(cluster(given), Some(name), "{given}");
    }
    for given in ["h1000", "h100-nvl", "", "dgx", "a100-60gb", "nvidia"] {
        assert_eq!(cluster(given), None, "{given}");
    }
    assert!(clusters::names().all(|name| cluster(name) == Some(name)));
}

#[test]
fn frameworks_are_found_in_any_writing() {
    for (given, name) in [
        ("Megatron-LM", "megatron-lm"),
        ("megatron", "megatron-core"),
        ("Megatron_Core", "megatron-core"),
        ("TorchTitan", "torchtitan"),
        ("FSDP", "fsdp"),
        ("PyTorch FSDP2", "fsdp2"),
        ("Ideal", "ideal"),
    ] {
        assert_eq!(framework(given), Some(name), "{given}");
    }
    assert_eq!(framework("alpa"), None);
    assert!(frameworks::names().all(|name| framework(name) == Some(name)));
}

/// Every synonym is normalized and belongs to only one name.
#[test]
fn other_names_are_folded_and_of_one_thing() {
    let Aliases { related_clusters, frameworks, values, commands, .. } = &*ALIASES;
    for (section, also) in
        [related_clusters, frameworks, commands].map(|it| (it, it.values().flatten()))
    {
        let mut seen = BTreeSet::new();
        for name in also {
            assert_eq!(folded(name), *name);
            assert!(!section.contains_key(name), "{name}");
            assert!(seen.insert(name), "{name} is of two");
        }
    }
    let rows = [&ALIASES.options, &ALIASES.unplanned, &ALIASES.value_tips].into_iter().flatten();
    for name in rows.flat_map(|row| &row.names).chain(values.values().flatten()) {
        assert_eq!(folded(name), *name);
    }
    let schedules = ScheduleKind::ALL.iter().filter_map(|kind| values.get(kind.name())).flatten();
    let own: BTreeSet<String> = ScheduleKind::ALL.iter().map(|it| folded(it.name())).collect();
    let mut seen = BTreeSet::new();
    for name in schedules {
        assert!(!own.contains(*name), "{name}");
        assert!(seen.insert(name), "{name} is of two schedules");
    }
}

/// Synonyms in `aliases.json` belong to presets that exist.
#[test]
fn what_has_other_names_is_known() {
    let Aliases { related_clusters, frameworks, .. } = &*ALIASES;
    for name in related_clusters.keys() {
        assert!(clusters::names().any(|it| it == *name), "{name}");
    }
    for name in frameworks.keys() {
        assert!(frameworks::names().any(|it| it == *name), "{name}");
    }
}

#[test]
fn near_names_are_offered() {
    let presets: Vec<&str> = clusters::names().collect();
    for (given, first) in [
        ("h1000", "h100"),
        ("a10", "a100"),
        ("gb200-nvl36", "gb200-nvl72"),
        ("rtx-4090ti", "rtx-4090"),
    ] {
        let offered = nearest(given, presets.iter().copied());
        assert!(offered.contains(&first), "{given}: {offered:?}");
    }
    let shipped: Vec<&str> = ::models::ALL.iter().map(|it| it.name).collect();
    for (given, first) in [
        ("llama-3.1-70", "llama-3.1-70b"),
        ("lama-3.1-8b", "llama-3.1-8b"),
        ("llama-70b", "llama-3.1-70b"),
        ("mixtral", "mixtral-8x7b"),
        ("deepseekv2", "deepseek-v3"),
    ] {
        let offered = nearest(given, shipped.iter().copied());
        assert!(offered.contains(&first), "{given}: {offered:?}");
    }
    assert!(nearest("zzz", presets).is_empty());
    assert_eq!(or_nearest("qqq", ["h100"], "`list` has all"), "`list` has all");
    assert_eq!(or_nearest("h10", ["h100"], "x"), "`h100` is the nearest; x");
}
