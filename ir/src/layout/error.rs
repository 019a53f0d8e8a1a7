//! Errors of layouts that are not possible.

use super::by_group::MicroBatchesByGroup;
use super::offload::Offload;
use super::zero::ZeroStage;
use crate::graph::{OffloadModules, Recompute};
use crate::schedule::{GenerateError, ScheduleKind};

/// Hint at GPU counts or degrees with which a layout and a number of GPUs agree.
fn gpus_hint(needs: u128, has: u32, fitting_data_parallel: Option<u32>) -> String {
    match fitting_data_parallel {
        Some(degree) => format!("\nhint: `data_parallel` {degree} fits"),
        None => format!("\nhint: {needs} GPUs, or degrees whose product is {has}"),
    }
}

/// Hint at numbers of a batch that agree: another number of micro-batches if that divides the batch, else another
/// batch size.
fn batch_hint(batch: u64, of_micro_batch: u64, num_micro_batches: u64) -> String {
    let of_each = of_micro_batch.saturating_mul(num_micro_batches);
    match batch.checked_div(of_micro_batch) {
        Some(number) if number > 0 && batch.is_multiple_of(of_micro_batch) => {
            format!("{number} micro-batches, or a batch of {of_each}")
        }
        _ => format!("a batch of {}", multiples_around(batch, of_micro_batch)),
    }
}

/// Message that a count or size is not divisible by a degree, with the nearest degree that divides it.
fn undivided_text(what: &str, size: u64, by: &str, degree: u64, works: u64) -> String {
    let is_count = ["heads", "experts", "ranks"].iter().any(|things| what.ends_with(things));
    if is_count && !what.starts_with("intermediate") {
        format!("{size} {what} do not divide by {by} {degree}\nhint: {works} divides them")
    } else {
        format!("{what} {size} does not divide by {by} {degree}\nhint: {works} divides it")
    }
}

/// Hint at modules that can be offloaded instead.
fn modules_hint(known: Option<OffloadModules>) -> String {
    match known {
        Some(known) => {
            let names = known.to_string();
            format!("the model's layers have none of them\nhint: they have `activations:{names}`")
        }
        None => "the model has no layers with such modules\nhint: `activations`, which is all \
                 that blocks keep"
            .to_owned(),
    }
}

/// Hint at degrees that result in the given number of stages.
fn stages_hint(given: u32, virtual_stages: u32, fits: u32) -> String {
    if virtual_stages > 1 {
        return format!("`virtual_stages` {fits} has as many");
    }
    format!(
        "`pipeline_parallel` {given}, or `virtual_stages` {fits} and a schedule that takes several, such as \
         `interleaved-1f1b`"
    )
}

/// Reason why a layout is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A degree or count of zero.
    #[error("`{name}` is 0, but must be at least 1")]
    Zero {
        /// Name of the degree or count.
        name: &'static str,
    },
    /// Degrees that do not multiply to the number of GPUs.
    #[error(
        "layout {layout} needs {needs} GPUs, but there are {has}{}",
        gpus_hint(*.needs, *.has, *.fitting_data_parallel)
    )]
    GpuCount {
        /// The layout in its short form.
        layout: String,
        /// GPUs that the layout needs.
        needs: u128,
        /// GPUs in the job.
        has: u32,
        /// The data-parallel degree that would fit, if one does.
        fitting_data_parallel: Option<u32>,
    },
    /// Features that the framework cannot run.
    #[error(
        "`{framework}` cannot run what is asked for: it has no {}\nhint: another `--framework`, or `ideal`, which \
         has no limits",
        .lacks.join(", no ")
    )]
    Framework {
        /// Name of the framework.
        framework: String,
        /// Features that the framework does not have.
        lacks: Vec<String>,
    },
    /// A number of GPUs that is not divisible by the named degrees.
    #[error(
        "the number of GPUs {has} does not divide by the product of the named degrees {degrees}\nhint: {} GPUs, or \
         degrees whose product is {}",
        multiples_around((*.has).into(), *.degrees),
        divisors_around((*.has).into(), *.degrees)
    )]
    GpusUndivided {
        /// Number of GPUs.
        has: u32,
        /// The product of the degrees.
        degrees: u64,
    },
    /// A size that is not divisible by a degree.
    #[error("{}", undivided_text(.what, *.size, .by, *.degree, *.works))]
    NotDivisible {
        /// Name of the size.
        what: &'static str,
        /// Value of the size.
        size: u64,
        /// Name of the degree.
        by: &'static str,
        /// Value of the degree.
        degree: u64,
        /// A degree that works instead: a smaller one; or a larger one, where any divisor of the size works and 1 is
        /// the only smaller one.
        works: u64,
    },
    /// A sequence that is not divisible into equal parts.
    #[error(
        "a sequence of {length} tokens does not divide into the {parts} parts of {}\nhint: a multiple of {parts}, such as {}",
        .of.join(" and "),
        multiples_around(*.length, *.parts)
    )]
    SequenceUndivided {
        /// Tokens in the sequence.
        length: u64,
        /// Number of parts.
        parts: u64,
        /// The options that divide the sequence into parts, in words.
        of: Vec<String>,
    },
    /// An axis of parallelism for which the model has no dimension to shard.
    #[error("`{axis}` {degree}: the model has no dimension that it shards\nhint: use 1")]
    NothingToShard {
        /// Name of the axis.
        axis: &'static str,
        /// Degree of the axis.
        degree: u64,
    },
    /// An exchange of heads with only one context-parallel rank.
    #[error(
        "`context_parallel_kind` all_to_all needs `context_parallel` of at least 2\nhint: leave it out"
    )]
    HeadExchangeAlone,
    /// Sequence parallelism without tensor parallelism.
    #[error("`sequence_parallel` needs `tensor_parallel` of at least 2")]
    SequenceParallelAlone,
    /// Experts sharded over fewer ranks than other layers, though ranks do not have separate tokens to send to them.
    #[error(
        "`expert_tensor_parallel` {degree} below `tensor_parallel` {tensor_parallel} needs {needs}\nhint: leave it \
         out, or use {tensor_parallel}"
    )]
    ExpertTensor {
        /// The missing requirement.
        needs: &'static str,
        /// Ranks over which each expert was to be sharded.
        degree: u32,
        /// Ranks over which the other layers are sharded.
        tensor_parallel: u32,
    },
    /// A global batch size that is not the product of its factors.
    #[error(
        "global batch size {global_batch_size} is not `data_parallel` {data_parallel} x \
         `micro_batch_size` {micro_batch_size} x {num_micro_batches} micro-batches\nhint: {}",
        batch_hint(*.global_batch_size, .data_parallel.saturating_mul(*.micro_batch_size), *.num_micro_batches)
    )]
    Batch {
        /// Sequences in a step.
        global_batch_size: u64,
        /// Number of replicas.
        data_parallel: u64,
        /// Sequences in a micro-batch.
        micro_batch_size: u64,
        /// Micro-batches of a replica in a step.
        num_micro_batches: u64,
    },
    /// More stages than blocks.
    #[error(
        "{stages} stages, but the model has only {blocks} blocks to put on them\nhint: `pipeline_parallel` x \
         `virtual_stages` may be {blocks} at most"
    )]
    TooManyStages {
        /// Pipeline ranks times stages of each rank.
        stages: u64,
        /// Blocks of the model.
        blocks: u64,
    },
    /// A number of stages given by hand that is not a multiple of the pipeline ranks.
    #[error(
        "{given} stage{} given, not a multiple of `pipeline_parallel` {pipeline_parallel}\nhint: `--stages {works}`, \
         or `pipeline_parallel` {divisor}",
        if *.given == 1 { " is" } else { "s are" }
    )]
    GivenStagesUndivided {
        /// Number of stages that are given.
        given: u32,
        /// Number of pipeline ranks.
        pipeline_parallel: u32,
        /// Value of `--stages` that would work, with one stage on each rank.
        works: String,
        /// Number of pipeline ranks that the given stages divide over.
        divisor: u64,
    },
    /// Pipeline ranks whose GPUs are of several kinds.
    #[error(
        "`pipeline_parallel` {pipeline_parallel} gives each rank {} GPUs, into which groups of {} do not divide\nhint: \
         ranks of {works} GPUs, or a divisor of that, are each of one kind",
        gpus.iter().sum::<u32>() / pipeline_parallel.max(&1),
        gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" and "),
    )]
    GroupsUndivided {
        /// Number of pipeline ranks.
        pipeline_parallel: u32,
        /// Number of GPUs of each kind.
        gpus: Vec<u32>,
        /// Largest number of GPUs of a rank that would work.
        works: u32,
    },
    /// Replicas or sets of experts that span several groups of GPUs.
    #[error(
        "replicas of {gpus_per_replica} GPUs, with experts over {expert_ranks} ranks, do not fill groups of {} GPUs\nhint: \
         replicas of {works} GPUs, or a divisor of that, lie whole in one group",
        gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" and "),
    )]
    GroupsOfReplicas {
        /// Number of GPUs of a replica.
        gpus_per_replica: u32,
        /// Number of ranks that together hold every expert.
        expert_ranks: u32,
        /// Number of GPUs of each kind.
        gpus: Vec<u32>,
        /// Largest number of GPUs of a replica that would work.
        works: u32,
    },
    /// Micro-batches by group, for groups other than those of the cluster.
    #[error(
        "`micro_batches_by_group` is {by_group}, with {groups} groups of GPUs and `num_micro_batches` {num_micro_batches}\nhint: a \
         number for each group, the largest of which is `num_micro_batches`"
    )]
    MicroBatchesByGroup {
        /// Micro-batches of the replicas of each group.
        by_group: MicroBatchesByGroup,
        /// Number of groups.
        groups: usize,
        /// Micro-batches of the replicas that have the most.
        num_micro_batches: u32,
    },
    /// Replicas whose micro-batches do not add up to the global batch.
    #[error(
        "the replicas of all groups have {sequences} sequences, but `global_batch_size` is {global_batch_size}\nhint: other \
         `micro_batches_by_group`, or a batch of {sequences}"
    )]
    BatchByGroup {
        /// Sequences in a step.
        global_batch_size: u64,
        /// Sequences of all replicas.
        sequences: u128,
    },
    /// Recompute of modules other than those that the graph recomputes.
    #[error(
        "`recompute` {recompute}, but the graph's blocks recompute {of_graph}\nhint: use {of_graph}"
    )]
    Recompute {
        /// Recompute policy of the layout.
        recompute: Recompute,
        /// Recompute policy of the graph.
        of_graph: Recompute,
    },
    /// A number of stages other than the one given by hand.
    #[error(
        "`pipeline_parallel` {pipeline_parallel} x `virtual_stages` {virtual_stages} are {} stages, but {given} \
         are given\nhint: {}", .pipeline_parallel * .virtual_stages, stages_hint(*.given, *.virtual_stages, *.fits)
    )]
    GivenStages {
        /// Number of stages that are given.
        given: u32,
        /// Number of pipeline ranks.
        pipeline_parallel: u32,
        /// Stages of each pipeline rank.
        virtual_stages: u32,
        /// Stages of each pipeline rank that would give that number of stages.
        fits: u32,
    },
    /// Parameters offloaded to the host though they stay on the device between uses, or though the device updates
    /// them.
    #[error(
        "`offload` {offload} with `zero_stage` {}: parameters lie on the host where they are gathered for each use, \
         and the host updates them\nhint: `--zero 3 --offload optimizer,parameters`", .zero_stage.number()
    )]
    OffloadedParameters {
        /// The requested offload.
        offload: Offload,
        /// Sharding of the model states.
        zero_stage: ZeroStage,
    },
    /// Offload of the activations of more blocks than the model has.
    #[error(
        "`offload` activations:{blocks}, but the model has {num_blocks} blocks\nhint: `activations`, which is of all"
    )]
    OffloadedBlocks {
        /// Blocks whose activations were to be offloaded.
        blocks: u32,
        /// Blocks of the model.
        num_blocks: u64,
    },
    /// Offload of the activations of modules that the model's layers do not have.
    #[error("`offload` activations:{modules}, but {}", modules_hint(*known))]
    OffloadedModules {
        /// Modules whose activations were to be offloaded.
        modules: OffloadModules,
        /// Modules of the model's layers.
        known: Option<OffloadModules>,
    },
    /// Recompute of more layers than the model has.
    #[error(
        "`recompute` full:{layers}, but the model has {has} layers\nhint: `full`, which is of all"
    )]
    RecomputedLayers {
        /// Layers of each stage that were to be recomputed.
        layers: u32,
        /// Layers of the model.
        has: u64,
    },
    /// Offload to hosts whose memory is unknown.
    #[error(
        "`offload` {offload}, but the cluster does not say what memory its hosts have\nhint: `--cluster mine.json`, with \
         {{\"name\": \"mine\", \"like\": \"PRESET\", \"host\": {{\"memory_bytes\": 256e9, \
         \"memory_bandwidth_bytes_per_second\": 2e11}}}} in it: a node's memory, and its bandwidth"
    )]
    UnknownHost {
        /// The requested offload.
        offload: Offload,
    },
    /// Numbers of ranks, stages or micro-batches that the schedule does not support.
    #[error(transparent)]
    Numbers(#[from] GenerateError),
    /// A method of replication that the layout does not support.
    #[error("{what} needs `{field}` {needs}, not {has}")]
    Replication {
        /// The method or compression, in words.
        what: String,
        /// The conflicting field of the layout.
        field: &'static str,
        /// Value that the method needs.
        needs: String,
        /// Value of the layout.
        has: String,
    },
    /// A schedule that cannot run with the layout.
    #[error("schedule `{schedule}` needs {needs}")]
    Schedule {
        /// The schedule.
        schedule: ScheduleKind,
        /// Requirement of the schedule.
        needs: String,
    },
}

impl LayoutError {
    /// A size that is not divisible by a degree, for which any divisor of the size works.
    pub(super) fn undivided(what: &'static str, size: u64, by: &'static str, degree: u64) -> Self {
        // A degree of 1 shards nothing, so a larger divisor is suggested if 1 is the only smaller one.
        let works = match largest_divisor(size, degree) {
            1 => (2..=size.min(1 << 16)).find(|it| size.is_multiple_of(*it)).unwrap_or(1),
            divisor => divisor,
        };
        Self::NotDivisible { what, size, by, degree, works }
    }
}

/// The largest divisor of `size` that is at most `degree`.
pub fn largest_divisor(size: u64, degree: u64) -> u64 {
    let most = degree.min(size).min(1 << 16);
    (1..=most).rev().find(|divisor| size.is_multiple_of(*divisor)).unwrap_or(1)
}

/// The divisors of `size` nearest to `degree`, in words: `4 or 8`.
fn divisors_around(size: u64, degree: u64) -> String {
    let below = largest_divisor(size, degree);
    let above = (degree..=size.min(1 << 16)).find(|divisor| size.is_multiple_of(*divisor));
    above.map_or_else(|| below.to_string(), |above| format!("{below} or {above}"))
}

/// The multiples of `unit` nearest to `size`, in words: `96 or 104`.
pub fn multiples_around(size: u64, unit: u64) -> String {
    let unit = unit.max(1);
    let below = size / unit * unit;
    let above = below.saturating_add(unit);
    if below == 0 { above.to_string() } else { format!("{below} or {above}") }
}
