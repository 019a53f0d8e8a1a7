//! A measured run, as its source states it.

use ir::plan::MemoryUse;
use ir::units::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Why a run cannot be represented.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(String);

impl Unsupported {
    /// For this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// A run's fields, which may be missing or of the wrong type.
#[derive(Clone, Debug)]
pub struct Row {
    /// What the file calls it; its place, from 0, if it has no name.
    pub id: String,
    fields: Map<String, Value>,
}

/// Memory that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredMemory {
    /// How much.
    pub bytes: Bytes,
    /// What it counts.
    pub kind: MemoryKind,
    /// Whose it is.
    pub whose: MemoryOf,
}

/// What a measurement of memory counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// What the allocator has given out.
    Allocated,
    /// What it has taken from the device.
    Reserved,
    /// All that the process has on the device.
    Process,
}

impl MemoryKind {
    /// The part of a prediction that is counted so.
    pub fn of(self, memory: &MemoryUse) -> Bytes {
        let process = memory.total();
        let reserved = process.saturating_sub(memory.context_bytes);
        match self {
            Self::Process => process,
            Self::Reserved => reserved,
            Self::Allocated => reserved.saturating_sub(memory.allocator_bytes),
        }
    }
}
/// Of which pipeline rank a source states the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryOf {
    /// The one that has most.
    FullestRank,
    /// The first.
    FirstRank,
    /// The last.
    LastRank,
    /// The first or the last, whichever has more.
    FirstOrLastRank,
}

/// What a problem consists of: rows that have all of it in common differ in their layout alone.
const PROBLEM: [&str; 28] = [
    "source_title",
    "gpu",
    "gpus_per_node",
    "n_gpus",
    "intra_node_bw_GBps_per_dir",
    "inter_node_bw_Gbps_per_gpu",
    "n_layers",
    "hidden",
    "n_heads",
    "n_kv_heads",
    "head_dim",
    "ffn_hidden",
    "gated_mlp",
    "vocab",
    "seq_len",
    "tied_embeddings",
    "attention_type",
    "moe_experts",
    "moe_topk",
    "moe_ffn_hidden",
    "moe_shared_ffn",
    "moe_dense_layers",
    "global_batch_size",
    "precision",
    "attention_impl",
    "optimizer_detail",
    "fused_ops",
    "model_name",
];

/// The same, of what only some sources state.
const PROBLEM_EXTRA: [&str; 3] = ["date", "framework", "recipe_version"];

/// What a layout consists of.
const LAYOUT: [&str; 16] = [
    "tp",
    "pp",
    "vpp",
    "dp",
    "cp",
    "ep",
    "etp",
    "sequence_parallel",
    "zero_stage",
    "distributed_optimizer",
    "fsdp_shard",
    "micro_batch_size",
    "recompute",
    "recompute_detail",
    "schedule",
    "overlap",
];

/// The same, of what only some sources state.
const LAYOUT_EXTRA: [&str; 4] = ["zero1_size", "vocab_method", "embedding_layout", "recipe_flags"];

impl Row {
    /// The row at a place of its file.
    pub fn new(index: usize, value: Value) -> Self {
        let fields = match value {
            Value::Object(fields) => fields,
            // Told where the time is asked for.
            other => Map::from_iter([("step_time_s".to_owned(), other)]),
        };
        let id = match fields.get("id") {
            Some(Value::String(id)) => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            _ => index.to_string(),
        };
        Self { id, fields }
    }

    /// A field that is there.
    fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// A whole number, if it is there.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn count(&self, name: &str) -> Result<Option<u64>, Unsupported> {
        self.get(name).map_or(Ok(None), |value| {
            let whole = value.as_f64().filter(|number| *number >= 0.0 && number.fract() == 0.0);
            let whole = value.as_u64().or(whole.map(|number| number as u64));
            whole
                .map(Some)
                .ok_or_else(|| Unsupported(format!("`{name}` is {value}, no whole number")))
        })
    }

    /// A whole number above zero that must be there.
    ///
    /// # Errors
    ///
    /// It is missing, zero or something else.
    pub fn size(&self, name: &str) -> Result<u64, Unsupported> {
        match self.count(name)? {
            None => Err(Unsupported(format!("`{name}` is missing"))),
            Some(0) => Err(Unsupported(format!("`{name}` is 0"))),
            Some(size) => Ok(size),
        }
    }

    /// A degree of parallelism; 1 if it is left out.
    ///
    /// # Errors
    ///
    /// It is no number above zero that fits 32 bits.
    pub fn degree(&self, name: &str) -> Result<u32, Unsupported> {
        match self.count(name)? {
            None => Ok(1),
            Some(degree) => u32::try_from(degree)
                .ok()
                .filter(|degree| *degree > 0)
                .ok_or_else(|| Unsupported(format!("`{name}` is {degree}"))),
        }
    }

    /// A number above zero, if it is there.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn real(&self, name: &str) -> Result<Option<f64>, Unsupported> {
        self.get(name).map_or(Ok(None), |value| {
            let number = value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
            number.map(Some).ok_or_else(|| Unsupported(format!("`{name}` is {value}")))
        })
    }

    /// A text; empty if it is left out.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Yes or no, if it is there.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).and_then(Value::as_bool)
    }

    /// Something that only its source states; empty if it is left out.
    pub fn extra(&self, name: &str) -> &str {
        let extra = self.get("extra").and_then(|extra| extra.get(name));
        extra.and_then(Value::as_str).unwrap_or_default()
    }

    /// A degree that only this source has, if it is a number.
    pub fn extra_degree(&self, name: &str) -> Option<u32> {
        let degree = self.get("extra").and_then(|extra| extra.get(name)).and_then(Value::as_u64)?;
        u32::try_from(degree).ok().filter(|degree| *degree > 0)
    }

    /// All that decides its time but the layout, as a text that equal problems have in common.
    pub fn problem(&self) -> String {
        self.texts(&PROBLEM, &PROBLEM_EXTRA)
    }

    /// Its layout, as a text that equal layouts have in common.
    pub fn layout(&self) -> String {
        self.texts(&LAYOUT, &LAYOUT_EXTRA)
    }

    /// Whether linear layers run in fewer than 16 bits.
    pub fn has_few_bits(&self) -> bool {
        let precision = self.text("precision").to_ascii_lowercase();
        ["fp8", "fp4"].iter().any(|name| precision.contains(name))
    }

    fn texts(&self, fields: &[&str], of_extra: &[&str]) -> String {
        let extra = self.get("extra");
        let field = |name: &&str| self.get(name);
        let of_extra = of_extra.iter().map(|name| extra.and_then(|extra| extra.get(name)));
        let all = fields.iter().map(field).chain(of_extra);
        all.map(|value| value.map(Value::to_string).unwrap_or_default() + ";").collect()
    }

    /// Whether the run ended for lack of memory.
    pub fn ran_out_of_memory(&self) -> bool {
        let extra = self.get("extra").and_then(|extra| extra.get("oom"));
        extra.and_then(Value::as_bool).unwrap_or(false)
    }

    /// Something that only its source states, whatever it is.
    pub fn extra_value(&self, name: &str) -> Option<&Value> {
        self.get("extra").and_then(|extra| extra.get(name)).filter(|value| !value.is_null())
    }

    /// Whether something that only its source states is so.
    pub fn extra_flag(&self, name: &str) -> bool {
        self.extra_value(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// A flag of the recipe that was run, in small letters; empty if it is left out.
    pub fn recipe_flag(&self, name: &str) -> String {
        let flags = self.get("extra").and_then(|extra| extra.get("recipe_flags"));
        let text = |value: &Value| value.to_string().replace(['"', '\\'], "").to_lowercase();
        flags.and_then(|flags| flags.get(name)).map(text).unwrap_or_default()
    }

    /// The time of a step, where it was measured.
    ///
    /// # Errors
    ///
    /// It is no number above zero.
    pub fn step_time_seconds(&self) -> Result<Option<f64>, Unsupported> {
        self.real("step_time_s")
    }

    /// The memory of a GPU, where it was measured: `mem_kind` says of which pipeline stage, else it is of
    /// the `usual` one. GB are
    /// those of PyTorch's and nvidia-smi's users, 2^30 bytes, unless `mem_kind` says 1e9. What is counted is
    /// the first that `mem_kind` names, and the `usual` if it names nothing.
    ///
    /// # Errors
    ///
    /// It is no number above zero.
    pub fn memory(
        &self,
        usual: (MemoryKind, MemoryOf),
    ) -> Result<Option<MeasuredMemory>, Unsupported> {
        let kind_text = self.text("mem_kind");
        let unit = if kind_text.contains("1e9") { 1e9 } else { (1u64 << 30) as f64 };
        let gib = self.real("peak_mem_gib")?.map(|gib| gib * (1u64 << 30) as f64);
        let gb = self.real("peak_mem_gb")?.map(|gb| gb * unit);
        let Some(bytes) = gib.or(gb) else { return Ok(None) };
        let words = [
            ("allocated", MemoryKind::Allocated),
            ("reserved", MemoryKind::Reserved),
            ("nvidia-smi", MemoryKind::Process),
            ("per device", MemoryKind::Process),
        ];
        let places = words.iter().filter_map(|(word, kind)| Some((kind_text.find(word)?, *kind)));
        let first = places.min_by_key(|(place, _)| *place);
        let kind = first.map_or(usual.0, |(_, kind)| kind);
        let places = [
            ("first pipeline stage", MemoryOf::FirstRank),
            ("first/last stage", MemoryOf::FirstOrLastRank),
            ("last rank", MemoryOf::LastRank),
            ("rank 0", MemoryOf::FirstRank),
        ];
        let stated = places.iter().find(|(words, _)| kind_text.contains(words));
        let whose = stated.map_or(usual.1, |(_, whose)| *whose);
        Ok(Some(MeasuredMemory { bytes: Bytes::new(bytes as u64), kind, whose }))
    }
}
