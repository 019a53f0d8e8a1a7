//! Detection of a file's kind from its contents, for errors about a file that was given in place of another.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use planner_evidence::measured::nccl_tests;
use planner_tools::interchange::is_read;

/// Kind of a file, detected from its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// An empty file.
    Empty,
    /// A model: a Hugging Face configuration, a short form, or a native graph.
    Model,
    /// A plan.
    Plan,
    /// A timeline, or another Chrome trace.
    Timeline,
    /// A cluster.
    Cluster,
    /// A framework.
    Framework,
    /// JSON output of `search`.
    Report,
    /// Measured steps.
    Steps,
    /// Tables of nccl-tests.
    NcclTests,
    /// A pipeline schedule as CSV, with a row of actions for each rank.
    Order,
    /// Settings of another tool: a script, JSON, YAML or TOML.
    Settings,
    /// TOML, as in older versions of torchtitan.
    Toml,
    /// Settings of a tool that `import` does not read.
    OtherSettings,
    /// Text output of a command, with its tables.
    Results,
    /// Weights of a model.
    Weights,
    /// A file of a model's repository that does not describe the network, such as the tokenizer's.
    BesideModel,
    /// A part or pipeline of diffusers.
    Diffusers,
    /// Sizes of a model in Meta's `params.json`.
    Params,
    /// An HTML page.
    Page,
    /// A Git LFS pointer in place of a large file.
    Pointer,
    /// A picture.
    Picture,
    /// A compressed file.
    Packed,
    /// A file of no known kind.
    Unknown,
}

impl FileKind {
    /// Detects the kind of a file from its bytes, or from a prefix of them.
    pub fn of(bytes: &[u8]) -> Self {
        match Self::of_measurements(bytes) {
            // The first bytes of a JSON list do not distinguish lists of different contents.
            Self::Steps | Self::Unknown => {}
            kind => return kind,
        }
        let Ok(text) = ir::text::decoded(bytes) else { return Self::Unknown };
        match serde_json::from_str(text) {
            Ok(Value::Object(object)) => of_object(&object),
            Ok(Value::Array(list)) => {
                let first = list.first().and_then(Value::as_object).map(of_object);
                first.filter(|kind| *kind == Self::Steps).unwrap_or(Self::Unknown)
            }
            _ => match of_text(text) {
                Self::Settings if !is_read(text) => Self::OtherSettings,
                kind => kind,
            },
        }
    }

    /// Detects the kind of a file of measurements from its bytes; any JSON list counts as a list of measured steps.
    pub fn of_measurements(bytes: &[u8]) -> Self {
        if let Some(kind) = by_signature(bytes) {
            return kind;
        }
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LOOKED_AT)]);
        let start = text.trim_start_matches('\u{feff}').trim_start();
        let has = |keys: [&str; 2]| keys.iter().all(|key| start.contains(&format!("\"{key}\"")));
        match () {
            () if start.is_empty() => Self::Empty,
            () if start.starts_with('{') && start.contains(EVENTS) => Self::Timeline,
            () if start.starts_with('[') && start.contains("\"ph\"") => Self::Timeline,
            () if start.starts_with('[') => Self::Steps,
            // A single step, not in a list.
            () if start.starts_with('{') && (has(["n_gpus", "gpu"]) || has(["id", "plan"])) => {
                Self::Steps
            }
            // The text before the events may be long.
            () if start.starts_with('{')
                && bytes.windows(EVENTS.len()).any(|it| it == EVENTS.as_bytes()) =>
            {
                Self::Timeline
            }
            () if nccl_tests::is_like(&String::from_utf8_lossy(bytes)) => Self::NcclTests,
            () => Self::Unknown,
        }
    }

    /// Description of the kind, with an article.
    pub fn describe(self) -> &'static str {
        KNOWN.kinds[&self].words
    }

    /// Description of the contents of a file of measurements of this kind.
    pub fn contents(self) -> &'static str {
        KNOWN.kinds[&self].contents.unwrap_or(self.describe())
    }

    /// Hint on how a file called `name` is used: the command that reads it, or the file to use instead.
    pub fn use_of(self, name: &str) -> Option<String> {
        KNOWN.kinds[&self].usage.map(|text| text.replace("{name}", name))
    }

    /// Origin of files of this kind.
    pub fn source(self) -> Option<&'static str> {
        KNOWN.kinds[&self].source
    }
}

/// Number of bytes that are inspected at the start of a file.
const LOOKED_AT: usize = 1 << 16;

/// Key of a Chrome trace.
const EVENTS: &str = "\"traceEvents\"";

/// Contents of `file_kind.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct FileKinds {
    kinds: BTreeMap<FileKind, Texts>,
    /// Kinds of JSON objects, each with a set of keys that only this kind has together; the first kind that matches
    /// counts.
    objects: Vec<(FileKind, Vec<&'static str>)>,
}

static KNOWN: LazyLock<FileKinds> = LazyLock::new(|| {
    serde_json::from_str(include_str!("file_kind.json")).expect("what ships is valid; a test")
});

/// Texts about a file kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Texts {
    words: &'static str,
    /// Description of the contents of a file of measurements.
    contents: Option<&'static str>,
    #[serde(rename = "use")]
    usage: Option<&'static str>,
    source: Option<&'static str>,
}

/// Detects formats that have a signature in their first bytes.
fn by_signature(bytes: &[u8]) -> Option<FileKind> {
    const SIGNATURES: [(&[u8], FileKind); 15] = [
        (b"GGUF", FileKind::Weights),
        // A PyTorch checkpoint is an archive; before version 1.6 it was a pickle.
        (b"PK\x03\x04", FileKind::Weights),
        (b"\x80\x02", FileKind::Weights),
        (b"\x80\x04", FileKind::Weights),
        (b"\x89HDF", FileKind::Weights),
        (b"\x93NUMPY", FileKind::Weights),
        (b"\x89PNG", FileKind::Picture),
        (b"%PDF", FileKind::Picture),
        (b"\xff\xd8\xff", FileKind::Picture),
        (b"GIF8", FileKind::Picture),
        (b"RIFF", FileKind::Picture),
        (b"<svg", FileKind::Picture),
        (b"\x1f\x8b", FileKind::Packed),
        (b"\x28\xb5\x2f\xfd", FileKind::Packed),
        (b"version https://git-lfs", FileKind::Pointer),
    ];
    let known = SIGNATURES.into_iter().find(|(start, _)| bytes.starts_with(start));
    // Safetensors: the length of the header in 8 bytes, then the header, which is a JSON object.
    let has_head = |head: &[u8]| head.starts_with(b"{\"") && bytes[..8].ends_with(&[0, 0]);
    let is_safetensors = bytes.get(8..10).is_some_and(has_head);
    known.map(|(_, kind)| kind).or(is_safetensors.then_some(FileKind::Weights))
}

/// Detects the kind of a JSON object by its keys.
fn of_object(object: &Map<String, Value>) -> FileKind {
    let has_all = |keys: &[&str]| keys.iter().all(|key| object.contains_key(*key));
    let found = KNOWN.objects.iter().find(|(_, keys)| has_all(keys));
    found.map_or(FileKind::Unknown, |(kind, _)| *kind)
}

/// Detects the kind of a text that is not JSON.
fn of_text(text: &str) -> FileKind {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    let small: String = start.chars().take(64).flat_map(char::to_lowercase).collect();
    let lines = || start.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_comment = |line: &&str| line.starts_with('#');
    let first = lines().find(|line| !is_comment(line)).unwrap_or_default();
    let is_key = |key: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.\"".contains(c);
        !key.is_empty() && key.chars().all(is_part)
    };
    // A single line with a colon does not suffice for settings.
    let is_setting = |line: &str| {
        let key = line.trim_start_matches("- ").split_once([':', '=']).map(|(key, _)| key.trim());
        line.starts_with(['#', '-']) || key.is_some_and(is_key)
    };
    match () {
        () if small.starts_with("<!doctype html") || small.starts_with("<html") => FileKind::Page,
        () if small.starts_with("<?xml") => FileKind::Picture,
        () if is_order(first) => FileKind::Order,
        () if is_result(start) => FileKind::Results,
        () if start.starts_with("#!") || start.contains("--tensor-model-parallel-size") => {
            FileKind::Settings
        }
        () if ["torchrun", "srun", "deepspeed ", "accelerate launch", "mpirun"]
            .iter()
            .any(|starter| lines().any(|line| line.starts_with(starter))) =>
        {
            FileKind::Settings
        }
        // A table of TOML, or a key of TOML or YAML.
        () if first.starts_with('[')
            && first.ends_with(']')
            && is_key(first.trim_matches(['[', ']'])) =>
        {
            FileKind::Toml
        }
        () if first == "---" || (lines().count() > 1 && lines().all(is_setting)) => {
            FileKind::Settings
        }
        () => FileKind::Unknown,
    }
}

/// Returns whether a text is the table output of `search`, `evaluate`, `explain`, `compare` or `sweep`.
fn is_result(text: &str) -> bool {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    // Mixtures also state active parameters, and adapters have a line of their own.
    first.contains(" parameters") && lines.clone().take(2).any(|line| line.contains(", cluster "))
        || first.ends_with(", the best for each")
        || first.starts_with("A: ")
            && [" GPU with ", " GPUs with "].iter().any(|it| first.contains(it))
        || lines.any(|line| line.starts_with("made by: planner "))
}

/// Returns whether a line is a rank's row in a pipeline schedule: `0F0,1F0,,0B0`.
fn is_order(line: &str) -> bool {
    let mut actions = line.split(',').map(str::trim).filter(|action| !action.is_empty()).peekable();
    let is_action = |action: &str| {
        let rest = action.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.len() < action.len() && rest.starts_with(['F', 'B', 'I', 'W', 'S', 'R', 'U'])
    };
    actions.peek().is_some() && actions.all(is_action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart() {
        for (text, kind) in [
            ("", FileKind::Empty),
            (" \n", FileKind::Empty),
            (r#"{"model_type": "llama"}"#, FileKind::Model),
            (r#"{"architecture": "gpt", "hidden_size": 8}"#, FileKind::Model),
            (r#"{"version": 3, "layout": {}, "prediction": {}}"#, FileKind::Plan),
            (r#"{"plans": [], "search": {}}"#, FileKind::Report),
            (r#"{"traceEvents": []}"#, FileKind::Timeline),
            (r#"{"name": "x", "gpu": {}, "gpus_per_node": 8}"#, FileKind::Cluster),
            (r#"{"kernels": {}, "abilities": {}}"#, FileKind::Framework),
            (r#"{"train_batch_size": 8}"#, FileKind::Settings),
            (r#"{"weight_map": {}}"#, FileKind::Weights),
            (r#"{"tokenizer_class": "x", "model_type": "llama"}"#, FileKind::BesideModel),
            (
                r#"{"tokenizer_class": "x", "model_type": "a", "architectures": []}"#,
                FileKind::Model,
            ),
            (r#"{"dim": 4096, "n_layers": 32}"#, FileKind::Params),
            (r#"{"colour": "green"}"#, FileKind::Unknown),
            (r#"[{"gpu": "H100", "n_gpus": 8}]"#, FileKind::Steps),
            (r#"[{"id": "a", "plan": {}}]"#, FileKind::Steps),
            ("[]", FileKind::Unknown),
            ("#!/bin/bash\ntorchrun x.py", FileKind::Settings),
            ("# of mine\ntorchrun --nproc-per-node 8 x.py", FileKind::Settings),
            ("compute_environment: LOCAL_MACHINE\nfsdp_config:\n  - x: 1\n", FileKind::Settings),
            ("[parallelism]\ntensor_parallel_degree = 8\n", FileKind::Toml),
            ("base_model: llama\ngradient_accumulation_steps: 4\n", FileKind::OtherSettings),
            ("llama: 8.03 B parameters\n8 x H100, cluster h100\n", FileKind::Results),
            (
                "mixtral: 46.70 B parameters, 12.88 B active\n8 x H100, cluster h100\n",
                FileKind::Results,
            ),
            ("llama on 8 x H100\ntp8, 1f1b\n\nmade by: planner search llama\n", FileKind::Results),
            ("A: llama on 1 GPU with megatron-core: tp1\n", FileKind::Results),
            ("A: llama on 8 GPUs with megatron-core: tp8\n", FileKind::Results),
            (r#"{"id": "a", "gpu": "H100", "gpus_per_node": 8, "n_gpus": 8}"#, FileKind::Steps),
            ("0F0,0F1,,0B0\n1F0,1B0\n", FileKind::Order),
            ("<!DOCTYPE html><html>", FileKind::Page),
            ("<svg xmlns=\"\">", FileKind::Picture),
            ("version https://git-lfs.github.com/spec/v1\n", FileKind::Pointer),
            ("# nccl-tests version 2.13\n", FileKind::Unknown),
            ("Lorem ipsum dolor", FileKind::Unknown),
            ("iperf3: 94 Gbits/sec\n", FileKind::Unknown),
        ] {
            assert_eq!(FileKind::of(text.as_bytes()), kind, "{text}");
            assert!(!kind.describe().is_empty(), "{text}");
        }
        let tensors = b"\x40\0\0\0\0\0\0\0{\"__metadata__\":{}}";
        for (bytes, kind) in [
            (&tensors[..], FileKind::Weights),
            (b"PK\x03\x04\0", FileKind::Weights),
            (b"GGUF\x03", FileKind::Weights),
            (b"\x1f\x8b\x08", FileKind::Packed),
            (b"\xff\xfe\0", FileKind::Unknown),
        ] {
            assert_eq!(FileKind::of(bytes), kind, "{bytes:?}");
            assert!(!kind.describe().is_empty(), "{bytes:?}");
        }
    }
}
