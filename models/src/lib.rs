//! The models that ship, by name: the texts of this folder, within the program, so that it needs no file next to it.
//!
//! A crate of its own, because a package holds nothing from outside its folder: so each description stands once, where
//! people look for it, and goes with whatever depends on it.

/// A model that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Name of the model here: its file's or its folder's name.
    pub name: &'static str,
    /// Where in this folder it lies.
    pub path: &'static str,
    /// Its description, as `ir::model::Model::from_json` reads it.
    pub text: &'static str,
    /// Repositories of the Hugging Face hub whose `config.json` describes the same network, and other names it has;
    /// the first repository is the original.
    pub also: &'static [&'static str],
}

/// A configuration in a folder, and a description in one file.
macro_rules! shipped {
    ($name:literal in $ending:literal, $also:expr) => {
        Shipped {
            name: $name,
            path: concat!($name, $ending),
            text: include_str!(concat!("../", $name, $ending)),
            also: &$also,
        }
    };
    ($name:literal, $also:expr) => {
        shipped!($name in "/config.json", $also)
    };
}

/// All models that ship, families together, the smallest of each first.
pub const ALL: &[Shipped] = &[
    shipped!("llama-2-7b", ["meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b"]),
    shipped!("llama-2-13b", ["meta-llama/Llama-2-13b-hf", "meta-llama/Llama-2-13b"]),
    shipped!("llama-2-70b", ["meta-llama/Llama-2-70b-hf", "meta-llama/Llama-2-70b"]),
    shipped!("llama-3-8b", ["meta-llama/Meta-Llama-3-8B"]),
    shipped!("llama-3-70b", ["meta-llama/Meta-Llama-3-70B"]),
    shipped!("llama-3.1-8b", ["meta-llama/Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B"]),
    shipped!(
        "llama-3.1-70b",
        ["meta-llama/Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B", "meta-llama/Llama-3.3-70B"]
    ),
    shipped!("llama-3.1-405b", ["meta-llama/Llama-3.1-405B", "meta-llama/Meta-Llama-3.1-405B"]),
    shipped!("llama-3.2-1b", ["meta-llama/Llama-3.2-1B"]),
    shipped!("llama-3.2-3b", ["meta-llama/Llama-3.2-3B"]),
    shipped!("mistral-7b-v0.3", ["mistralai/Mistral-7B-v0.3"]),
    shipped!("mixtral-8x7b", ["mistralai/Mixtral-8x7B-v0.1"]),
    shipped!("mixtral-8x22b", ["mistralai/Mixtral-8x22B-v0.1"]),
    shipped!("qwen2.5-7b", ["Qwen/Qwen2.5-7B"]),
    shipped!("qwen2.5-32b", ["Qwen/Qwen2.5-32B"]),
    shipped!("qwen2.5-72b", ["Qwen/Qwen2.5-72B"]),
    shipped!("qwen3-8b", ["Qwen/Qwen3-8B"]),
    shipped!("qwen3-30b-a3b", ["Qwen/Qwen3-30B-A3B"]),
    shipped!("qwen3-32b", ["Qwen/Qwen3-32B"]),
    shipped!("qwen3-235b-a22b", ["Qwen/Qwen3-235B-A22B"]),
    shipped!("gemma-2-9b", ["google/gemma-2-9b"]),
    shipped!(
        "deepseek-v3",
        ["deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3.1"]
    ),
    shipped!("kimi-k2", ["moonshotai/Kimi-K2-Base", "moonshotai/Kimi-K2-Instruct"]),
    shipped!("glm-4.5-air", ["zai-org/GLM-4.5-Air", "zai-org/GLM-4.5-Air-Base"]),
    shipped!("glm-4.5", ["zai-org/GLM-4.5", "zai-org/GLM-4.5-Base"]),
    shipped!("minimax-m2", ["MiniMaxAI/MiniMax-M2", "MiniMaxAI/MiniMax-M2.1"]),
    shipped!("smollm3-3b", ["HuggingFaceTB/SmolLM3-3B", "HuggingFaceTB/SmolLM3-3B-Base"]),
    shipped!("olmo-3-7b", ["allenai/Olmo-3-1025-7B"]),
    shipped!("olmo-3-32b", ["allenai/Olmo-3-1125-32B"]),
    shipped!(
        "seed-oss-36b",
        ["ByteDance-Seed/Seed-OSS-36B-Base", "ByteDance-Seed/Seed-OSS-36B-Instruct"]
    ),
    shipped!("gpt-oss-120b", ["openai/gpt-oss-120b"]),
    shipped!("gpt2", ["openai-community/gpt2", "gpt2-small"]),
    shipped!("gpt2-xl", ["openai-community/gpt2-xl"]),
    shipped!("gpt3-175b" in ".json", ["gpt-3", "gpt-3-davinci"]),
    shipped!("gpt-neox-20b", ["EleutherAI/gpt-neox-20b"]),
    shipped!("bloom-176b", ["bigscience/bloom"]),
    shipped!("falcon-40b", ["tiiuae/falcon-40b"]),
    shipped!("megatron-530b" in ".json", ["megatron-turing-530b", "mt-nlg-530b"]),
    shipped!("megatron-1t" in ".json", ["megatron-1000b"]),
    shipped!("bert-large-uncased", ["google-bert/bert-large-uncased", "bert-large"]),
    shipped!("t5-3b", ["google-t5/t5-3b"]),
    shipped!("vit-large-patch16-224", ["google/vit-large-patch16-224", "vit-l-16"]),
    shipped!("resnet-50" in ".json", ["microsoft/resnet-50"]),
    shipped!("alexnet" in ".json", []),
    shipped!("vgg-19" in ".json", []),
    shipped!("tiny-llama" in ".json", []),
    shipped!("tiny-mixtral" in ".json", []),
    shipped!("lone-linear" in ".json", []),
    shipped!("toy-mlp" in ".json", []),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Every description that lies here ships, under the name of its file or folder, and none twice.
    #[test]
    fn all_of_this_folder_ships() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let there: BTreeSet<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .map(|name| {
                let config = format!("{name}/config.json");
                if folder.join(&config).exists() { config } else { name }
            })
            .filter(|path| Path::new(path).extension().is_some_and(|ending| ending == "json"))
            .filter(|path| path != "graph.schema.json")
            .collect();
        let shipped: BTreeSet<String> = ALL.iter().map(|it| it.path.to_owned()).collect();
        assert_eq!(shipped, there);
        assert_eq!(ALL.len(), there.len());
    }
}
