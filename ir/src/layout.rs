//! Layouts: how a step is spread over GPUs.
//!
//! A [`Layout`] in hand is valid: it was checked against model, batch and number of GPUs when it was
//! made. The order of ranks is tensor, context, data, pipeline, fastest first; experts are sharded
//! over ranks of context and data parallelism. It is written here and nowhere else:
//! [`Layout::stride`].

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::graph::{DimName, Extent, Graph, OpKind, Recompute, Sharding};
use crate::schedule::ScheduleKind;

/// What data-parallel ranks share of the model states (Rajbhandari et al. 2020, arXiv 1910.02054).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZeroStage {
    /// Nothing: every rank holds all.
    #[default]
    None,
    /// Optimizer state.
    OptimizerState,
    /// Optimizer state and gradients.
    Gradients,
    /// Optimizer state, gradients and parameters (FSDP).
    Parameters,
}

impl ZeroStage {
    /// All stages, 0 to 3.
    pub const ALL: [Self; 4] =
        [Self::None, Self::OptimizerState, Self::Gradients, Self::Parameters];

    /// Its number, 0 to 3.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl TryFrom<u8> for ZeroStage {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        Self::ALL
            .get(usize::from(number))
            .copied()
            .ok_or_else(|| format!("`zero_stage` is 0, 1, 2 or 3, not {number}"))
    }
}

impl Serialize for ZeroStage {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.number())
    }
}

impl<'de> Deserialize<'de> for ZeroStage {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(u8::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for ZeroStage {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ZeroStage".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 0, "maximum": 3 })
    }
}

/// A layout as it is written down; not yet known to be valid.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct LayoutSpec {
    /// Ranks that share heads, inner features and vocabulary.
    pub tensor_parallel: u32,
    /// Whether those ranks share the sequence between the sharded products.
    pub sequence_parallel: bool,
    /// Ranks that share each sequence.
    pub context_parallel: u32,
    /// Ranks, within context and data parallelism, that share the experts.
    pub expert_parallel: u32,
    /// Ranks that share the layers.
    pub pipeline_parallel: u32,
    /// Chunks of layers on each pipeline rank.
    pub virtual_stages: u32,
    /// Replicas, counting shards.
    pub data_parallel: u32,
    /// Ranks over which ZeRO shards, within context and data parallelism; fewer than all of them is
    /// hybrid sharding (HSDP).
    pub zero_shard: u32,
    /// What those ranks share.
    pub zero_stage: ZeroStage,
    /// Sequences of a replica in a micro-batch.
    pub micro_batch_size: u32,
    /// Micro-batches of a replica in a step.
    pub num_micro_batches: u32,
    /// Which activations are computed again.
    pub recompute: Recompute,
    /// The order of micro-batches in the pipeline.
    pub schedule: ScheduleKind,
}

impl fmt::Display for LayoutSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sequence = if self.sequence_parallel { "-sp" } else { "" };
        write!(f, "tp{}{sequence}", self.tensor_parallel)?;
        for (name, degree) in [
            ("cp", self.context_parallel),
            ("ep", self.expert_parallel),
            ("pp", self.pipeline_parallel),
            ("vpp", self.virtual_stages),
        ] {
            if degree > 1 || name == "pp" {
                write!(f, "-{name}{degree}")?;
            }
        }
        write!(f, "-dp{}", self.data_parallel)
    }
}

/// An axis along which ranks form groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshAxis {
    /// Tensor parallelism.
    Tensor,
    /// Context parallelism.
    Context,
    /// Expert parallelism, within context and data.
    Expert,
    /// Context and data parallelism together: who reduces gradients.
    ContextData,
    /// Pipeline parallelism.
    Pipeline,
}

/// A layout that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layout(LayoutSpec);

impl Deref for Layout {
    type Target = LayoutSpec;

    fn deref(&self) -> &LayoutSpec {
        &self.0
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Layout {
    /// Checks `spec` against model, GPUs and batch.
    ///
    /// # Errors
    ///
    /// The first constraint that is broken, with the numbers.
    pub fn new(spec: LayoutSpec, limits: &Limits) -> Result<Self, LayoutError> {
        limits.check(&spec)?;
        Ok(Self(spec))
    }

    /// Ranks between two neighbours along an axis: the order of ranks.
    pub fn stride(&self, axis: MeshAxis) -> u32 {
        match axis {
            MeshAxis::Tensor => 1,
            MeshAxis::Context | MeshAxis::Expert | MeshAxis::ContextData => self.tensor_parallel,
            MeshAxis::Pipeline => self.tensor_parallel * self.context_parallel * self.data_parallel,
        }
    }

    /// How operators are sharded.
    pub fn sharding(&self) -> Sharding {
        Sharding {
            tensor_parallel: self.tensor_parallel.into(),
            sequence_parallel: self.sequence_parallel,
            context_parallel: self.context_parallel.into(),
            expert_parallel: self.expert_parallel.into(),
        }
    }

    /// Number of GPUs.
    pub fn num_gpus(&self) -> u32 {
        self.tensor_parallel * self.context_parallel * self.pipeline_parallel * self.data_parallel
    }
}

/// What a layout must respect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// GPUs to be used, all of them.
    pub num_gpus: u32,
    /// Sequences in a step.
    pub global_batch_size: u64,
    /// Tokens in a sequence.
    pub sequence_length: u64,
    /// Blocks in the chain.
    pub num_blocks: u64,
    /// Every distinct number of query heads.
    pub heads: Vec<u64>,
    /// Every distinct number of key-value heads.
    pub kv_heads: Vec<u64>,
    /// Every distinct inner width.
    pub intermediate_sizes: Vec<u64>,
    /// Every distinct number of experts.
    pub experts: Vec<u64>,
    /// Whether shapes depend on the sequence length.
    pub has_sequence: bool,
}

impl Limits {
    /// The limits that a graph sets.
    pub fn new(graph: &Graph, num_gpus: u32, global_batch_size: u64, sequence_length: u64) -> Self {
        let mut limits = Self {
            num_gpus,
            global_batch_size,
            sequence_length,
            num_blocks: graph.num_blocks() as u64,
            heads: Vec::new(),
            kv_heads: Vec::new(),
            intermediate_sizes: Vec::new(),
            experts: Vec::new(),
            has_sequence: graph.has_sequence(),
        };
        for (_, block) in graph.classes() {
            for node in block.nodes() {
                if let OpKind::GroupedLinear { num_experts, .. } = node.op.kind {
                    limits.experts.push(num_experts);
                }
                for dim in node.op.parameters.iter().flat_map(|parameter| &parameter.dims) {
                    let Extent::Fixed(size) = dim.extent else { continue };
                    match dim.name {
                        DimName::Heads => limits.heads.push(size),
                        DimName::KvHeads => limits.kv_heads.push(size),
                        DimName::Intermediate => limits.intermediate_sizes.push(size),
                        _ => {}
                    }
                }
            }
        }
        for sizes in [
            &mut limits.heads,
            &mut limits.kv_heads,
            &mut limits.intermediate_sizes,
            &mut limits.experts,
        ] {
            sizes.sort_unstable();
            sizes.dedup();
        }
        limits
    }

    /// Whether heads, inner widths and sequence divide by a tensor-parallel degree.
    ///
    /// Key-value heads may be fewer than ranks, which then hold the same head in groups. The
    /// vocabulary is padded.
    ///
    /// # Errors
    ///
    /// What does not divide.
    pub fn check_tensor(&self, degree: u64) -> Result<(), LayoutError> {
        let not_divisible = |what, size| LayoutError::NotDivisible {
            what,
            size,
            by: "tensor_parallel",
            degree,
            works: largest_divisor(size, degree),
        };
        if degree > 1 && self.heads.is_empty() && self.intermediate_sizes.is_empty() {
            return Err(LayoutError::NothingToShard { axis: "tensor_parallel", degree });
        }
        for (what, sizes) in
            [("attention heads", &self.heads), ("intermediate size", &self.intermediate_sizes)]
        {
            if let Some(size) = sizes.iter().find(|size| **size % degree != 0) {
                return Err(not_divisible(what, *size));
            }
        }
        match self
            .kv_heads
            .iter()
            .find(|size| **size % degree != 0 && !degree.is_multiple_of(**size))
        {
            Some(size) => Err(not_divisible("key-value heads", *size)),
            None => Ok(()),
        }
    }

    /// Whether the sequence divides over context and sequence parallelism. With a causal mask each
    /// context-parallel rank takes two pieces, one from either end, so that all have equal work.
    ///
    /// # Errors
    ///
    /// What does not divide.
    pub fn check_sequence(
        &self,
        context: u64,
        tensor: u64,
        sequence_parallel: bool,
    ) -> Result<(), LayoutError> {
        if sequence_parallel && tensor == 1 {
            return Err(LayoutError::SequenceParallelAlone);
        }
        if !self.has_sequence {
            return if context > 1 {
                Err(LayoutError::NothingToShard { axis: "context_parallel", degree: context })
            } else if sequence_parallel {
                Err(LayoutError::NothingToShard { axis: "sequence_parallel", degree: tensor })
            } else {
                Ok(())
            };
        }
        let pieces = if context > 1 { 2 * context } else { 1 };
        let pieces = if sequence_parallel { pieces * tensor } else { pieces };
        if self.sequence_length.is_multiple_of(pieces) {
            Ok(())
        } else {
            Err(LayoutError::NotDivisible {
                what: "sequence length",
                size: self.sequence_length,
                by: "pieces of context and sequence parallelism",
                degree: pieces,
                works: largest_divisor(self.sequence_length, pieces),
            })
        }
    }

    /// Whether experts divide, and their ranks fit within context and data parallelism.
    ///
    /// # Errors
    ///
    /// What does not.
    pub fn check_expert(&self, expert: u64, context_data: u64) -> Result<(), LayoutError> {
        if expert > 1 && self.experts.is_empty() {
            return Err(LayoutError::NothingToShard { axis: "expert_parallel", degree: expert });
        }
        if let Some(size) = self.experts.iter().find(|size| **size % expert != 0) {
            return Err(LayoutError::NotDivisible {
                what: "experts",
                size: *size,
                by: "expert_parallel",
                degree: expert,
                works: largest_divisor(*size, expert),
            });
        }
        if !context_data.is_multiple_of(expert) {
            return Err(LayoutError::NotDivisible {
                what: "context x data parallel ranks",
                size: context_data,
                by: "expert_parallel",
                degree: expert,
                works: largest_divisor(context_data, expert),
            });
        }
        Ok(())
    }

    /// Whether a schedule can run with these numbers of stages, chunks and micro-batches.
    ///
    /// # Errors
    ///
    /// What it needs.
    pub fn check_schedule(
        &self,
        schedule: ScheduleKind,
        [p, v, m]: [u64; 3],
    ) -> Result<(), LayoutError> {
        let problem = |needs: String| Err(LayoutError::Schedule { schedule, needs });
        if p * v > self.num_blocks {
            return Err(LayoutError::TooManyStages { stages: p * v, blocks: self.num_blocks });
        }
        if v > 1 && !schedule.is_interleaved() {
            return problem(format!("`virtual_stages` 1, not {v}"));
        }
        if schedule.is_interleaved() && (v < 2 || p < 2) {
            return problem(format!(
                "`virtual_stages` and `pipeline_parallel` of at least 2, not {v} and {p}"
            ));
        }
        if schedule == ScheduleKind::Interleaved && m % p != 0 {
            return problem(format!("micro-batches that divide by the {p} stages, not {m}"));
        }
        if p == 1 && schedule != ScheduleKind::OneFOneB {
            return problem("`pipeline_parallel` of at least 2".to_owned());
        }
        Ok(())
    }

    fn check(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        for (name, degree) in [
            ("tensor_parallel", spec.tensor_parallel),
            ("context_parallel", spec.context_parallel),
            ("expert_parallel", spec.expert_parallel),
            ("pipeline_parallel", spec.pipeline_parallel),
            ("virtual_stages", spec.virtual_stages),
            ("data_parallel", spec.data_parallel),
            ("zero_shard", spec.zero_shard),
            ("micro_batch_size", spec.micro_batch_size),
            ("num_micro_batches", spec.num_micro_batches),
        ] {
            if degree == 0 {
                return Err(LayoutError::Zero { name });
            }
        }
        let [t, c, e, p, v, d] = [
            spec.tensor_parallel,
            spec.context_parallel,
            spec.expert_parallel,
            spec.pipeline_parallel,
            spec.virtual_stages,
            spec.data_parallel,
        ]
        .map(u64::from);
        let model_parallel = u128::from(t) * u128::from(c) * u128::from(p);
        if model_parallel * u128::from(d) != u128::from(self.num_gpus) {
            let fits = u128::from(self.num_gpus) % model_parallel == 0;
            return Err(LayoutError::GpuCount {
                layout: spec.to_string(),
                needs: model_parallel * u128::from(d),
                has: self.num_gpus,
                fitting_data_parallel: fits
                    .then(|| (u128::from(self.num_gpus) / model_parallel) as u32),
            });
        }
        self.check_tensor(t)?;
        self.check_sequence(c, t, spec.sequence_parallel)?;
        self.check_expert(e, c * d)?;
        let (b, m) = (u64::from(spec.micro_batch_size), u64::from(spec.num_micro_batches));
        if d.checked_mul(b).and_then(|db| db.checked_mul(m)) != Some(self.global_batch_size) {
            return Err(LayoutError::Batch {
                global_batch_size: self.global_batch_size,
                data_parallel: d,
                micro_batch_size: b,
                num_micro_batches: m,
            });
        }
        if (c * d) % u64::from(spec.zero_shard) != 0 {
            return Err(LayoutError::NotDivisible {
                what: "context x data parallel ranks",
                size: c * d,
                by: "zero_shard",
                degree: spec.zero_shard.into(),
                works: largest_divisor(c * d, spec.zero_shard.into()),
            });
        }
        self.check_schedule(spec.schedule, [p, v, m])
    }
}

/// The largest divisor of `size` that is at most `degree`.
pub fn largest_divisor(size: u64, degree: u64) -> u64 {
    let most = degree.min(size).min(1 << 16);
    (1..=most).rev().find(|divisor| size.is_multiple_of(*divisor)).unwrap_or(1)
}

/// Why a layout is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A degree or count of zero.
    #[error("`{name}` is 0, but must be at least 1")]
    Zero {
        /// Which.
        name: &'static str,
    },
    /// The degrees do not multiply to the number of GPUs.
    #[error(
        "layout {layout} needs {needs} GPUs, but there are {has}{}",
        .fitting_data_parallel.map_or(String::new(), |d| format!("\nhint: `data_parallel` {d} fits"))
    )]
    GpuCount {
        /// The layout.
        layout: String,
        /// GPUs that it needs.
        needs: u128,
        /// GPUs that there are.
        has: u32,
        /// The data-parallel degree that would fit, if one does.
        fitting_data_parallel: Option<u32>,
    },
    /// A size does not divide by a degree.
    #[error("{what} {size} does not divide by `{by}` {degree}\nhint: {works} divides it")]
    NotDivisible {
        /// What is to be divided.
        what: &'static str,
        /// Its size.
        size: u64,
        /// By what.
        by: &'static str,
        /// The degree.
        degree: u64,
        /// The largest degree up to that one that divides it.
        works: u64,
    },
    /// The model has nothing that an axis shards.
    #[error("`{axis}` {degree}: the model has no dimension that it shards\nhint: use 1")]
    NothingToShard {
        /// The axis.
        axis: &'static str,
        /// Its degree.
        degree: u64,
    },
    /// Sequence parallelism without tensor parallelism.
    #[error("`sequence_parallel` needs `tensor_parallel` of at least 2")]
    SequenceParallelAlone,
    /// The batch does not come out.
    #[error(
        "global batch size {global_batch_size} is not `data_parallel` {data_parallel} x \
         `micro_batch_size` {micro_batch_size} x {num_micro_batches} micro-batches\nhint: it must \
         divide by `data_parallel` x `micro_batch_size`"
    )]
    Batch {
        /// Sequences in a step.
        global_batch_size: u64,
        /// Replicas.
        data_parallel: u64,
        /// Sequences in a micro-batch.
        micro_batch_size: u64,
        /// Micro-batches.
        num_micro_batches: u64,
    },
    /// More stages than blocks.
    #[error("{stages} stages, but the model has only {blocks} blocks to put on them")]
    TooManyStages {
        /// Pipeline ranks times chunks.
        stages: u64,
        /// Blocks of the chain.
        blocks: u64,
    },
    /// A schedule that cannot run so.
    #[error("schedule `{schedule}` needs {needs}")]
    Schedule {
        /// The schedule.
        schedule: ScheduleKind,
        /// What it needs.
        needs: String,
    },
}

/// A layout of which only some parts are named; the search fills in the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialLayout {
    /// See [`LayoutSpec::tensor_parallel`].
    pub tensor_parallel: Option<u32>,
    /// See [`LayoutSpec::sequence_parallel`].
    pub sequence_parallel: Option<bool>,
    /// See [`LayoutSpec::context_parallel`].
    pub context_parallel: Option<u32>,
    /// See [`LayoutSpec::expert_parallel`].
    pub expert_parallel: Option<u32>,
    /// See [`LayoutSpec::pipeline_parallel`].
    pub pipeline_parallel: Option<u32>,
    /// See [`LayoutSpec::virtual_stages`].
    pub virtual_stages: Option<u32>,
    /// See [`LayoutSpec::data_parallel`].
    pub data_parallel: Option<u32>,
    /// See [`LayoutSpec::zero_shard`].
    pub zero_shard: Option<u32>,
    /// See [`LayoutSpec::zero_stage`].
    pub zero_stage: Option<ZeroStage>,
    /// See [`LayoutSpec::micro_batch_size`].
    pub micro_batch_size: Option<u32>,
    /// See [`LayoutSpec::recompute`].
    pub recompute: Option<Recompute>,
    /// See [`LayoutSpec::schedule`].
    pub schedule: Option<ScheduleKind>,
}

/// A layout that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseLayoutError {
    /// A part that is none of the known ones.
    #[error(
        "`{part}` in layout `{layout}` is not one of tpN, sp, nosp, cpN, epN, ppN, vppN, dpN, \
         shardN, zeroN, mbsN"
    )]
    UnknownPart {
        /// The part.
        part: String,
        /// All of it.
        layout: String,
    },
    /// A part that comes twice.
    #[error("`{part}` comes twice in layout `{layout}`")]
    Twice {
        /// The part.
        part: String,
        /// All of it.
        layout: String,
    },
}

impl FromStr for PartialLayout {
    type Err = ParseLayoutError;

    /// Reads `tp8-sp-cp2-pp4-vpp2-dp2`; what is not named stays open, but for context, expert and
    /// virtual-stage degrees, which are 1 where only others are named.
    fn from_str(text: &str) -> Result<Self, ParseLayoutError> {
        let mut layout = Self::default();
        for part in text.split('-') {
            let unknown =
                || ParseLayoutError::UnknownPart { part: part.to_owned(), layout: text.to_owned() };
            let twice =
                || ParseLayoutError::Twice { part: part.to_owned(), layout: text.to_owned() };
            if let "sp" | "nosp" = part {
                if layout.sequence_parallel.replace(part == "sp").is_some() {
                    return Err(twice());
                }
                continue;
            }
            let digits = part.find(|c: char| c.is_ascii_digit()).ok_or_else(unknown)?;
            let (name, number) = part.split_at(digits);
            let number: u32 = number.parse().map_err(|_| unknown())?;
            let previous = match name {
                "tp" => layout.tensor_parallel.replace(number),
                "cp" => layout.context_parallel.replace(number),
                "ep" => layout.expert_parallel.replace(number),
                "pp" => layout.pipeline_parallel.replace(number),
                "vpp" => layout.virtual_stages.replace(number),
                "dp" => layout.data_parallel.replace(number),
                "shard" => layout.zero_shard.replace(number),
                "mbs" => layout.micro_batch_size.replace(number),
                "zero" => {
                    let stage = u8::try_from(number).ok().and_then(|n| ZeroStage::try_from(n).ok());
                    layout.zero_stage.replace(stage.ok_or_else(unknown)?).map(|_| 0)
                }
                _ => return Err(unknown()),
            };
            if previous.is_some() {
                return Err(twice());
            }
        }
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_layout_reads() {
        let layout: PartialLayout = "tp8-sp-pp4-vpp2-dp2-zero1".parse().unwrap();
        assert_eq!(layout.tensor_parallel, Some(8));
        assert_eq!(layout.sequence_parallel, Some(true));
        assert_eq!(layout.pipeline_parallel, Some(4));
        assert_eq!(layout.virtual_stages, Some(2));
        assert_eq!(layout.data_parallel, Some(2));
        assert_eq!(layout.zero_stage, Some(ZeroStage::OptimizerState));
        assert_eq!(layout.context_parallel, None);
    }

    #[test]
    fn a_wrong_layout_names_the_part() {
        for text in ["", "tp", "8", "tp8-xp2", "tp-8", "tp8-tp4", "zero4", "tp99999999999"] {
            text.parse::<PartialLayout>().unwrap_err();
        }
        assert_eq!(
            "tp8-tp4".parse::<PartialLayout>().unwrap_err().to_string(),
            "`tp4` comes twice in layout `tp8-tp4`"
        );
    }
}
