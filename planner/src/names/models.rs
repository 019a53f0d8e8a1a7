//! Lookup of models that ship, by common names and by repositories of the Hugging Face hub.

use models::{ALL, Shipped};

use super::{ALIASES, folded_without};

/// A model argument, classified by its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought<'a> {
    /// A model by name: `llama-3.1-8b`.
    Name(&'a str),
    /// A repository of the Hugging Face hub: `meta-llama/Llama-3.1-8B`.
    Repository {
        /// Owner of the repository.
        owner: &'a str,
        /// Name of the repository.
        name: &'a str,
    },
    /// A path in the file system.
    Path,
}

impl<'a> Sought<'a> {
    /// Classifies `text` by its form; no file is read.
    pub fn of(text: &'a str) -> Self {
        let text = text.trim_end_matches('/');
        let plain = |part: &str| {
            let is_plain = |c: char| c.is_alphanumeric() || "-_. :".contains(c);
            !part.is_empty() && !part.starts_with('.') && part.chars().all(is_plain)
        };
        let is_file =
            [".json", ".yaml", ".yml", ".safetensors", ".bin", ".pt", ".gguf", ".txt", ".py"]
                .iter()
                .any(|ending| text.to_lowercase().ends_with(ending));
        let text = text
            .strip_prefix("https://huggingface.co/")
            .or_else(|| text.strip_prefix("hf://"))
            .unwrap_or(text);
        match text.split_once('/') {
            None if plain(text) && !is_file => Self::Name(text),
            Some((owner, name)) if plain(owner) && plain(name) && !is_file => {
                Self::Repository { owner, name }
            }
            _ => Self::Path,
        }
    }
}

/// Returns the model that ships under the name `given`, in any spelling. Names of fine-tuned weights match the model
/// that they were tuned from.
pub fn model(given: &str) -> Option<&'static Shipped> {
    let folded = |name: &str| folded_without(name, &ALIASES.model_words);
    let given = folded(given);
    let is_it = |name: &str| folded(name) == given;
    let of_repository = |also: &str| is_it(also.split_once('/').map_or(also, |(_, name)| name));
    ALL.iter().find(|it| is_it(it.name) || it.also.iter().any(|also| of_repository(also)))
}
