//! Why a layout is not possible.

use super::offload::Offload;
use super::zero::ZeroStage;
use crate::graph::Recompute;
use crate::schedule::{GenerateError, ScheduleKind};

/// What would make a layout and a number of GPUs agree.
fn gpus_hint(needs: u128, has: u32, fitting_data_parallel: Option<u32>) -> String {
    match fitting_data_parallel {
        Some(degree) => format!("\nhint: `data_parallel` {degree} fits"),
        None => format!("\nhint: {needs} GPUs, or degrees whose product is {has}"),
    }
}

/// What would make a batch and what it is cut into agree: another number of micro-batches where it divides, else another
/// batch.
fn batch_hint(batch: u64, of_micro_batch: u64, num_micro_batches: u64) -> String {
    let of_each = of_micro_batch.saturating_mul(num_micro_batches);
    match batch.checked_div(of_micro_batch) {
        Some(number) if number > 0 && batch.is_multiple_of(of_micro_batch) => {
            format!("{number} micro-batches, or a batch of {of_each}")
        }
        _ => format!("a batch of {}", multiples_around(batch, of_micro_batch)),
    }
}

/// That a number of things, or a size, does not divide, and what divides it.
fn undivided(what: &str, size: u64, by: &str, degree: u64, works: u64) -> String {
    let is_count = ["heads", "experts", "ranks"].iter().any(|things| what.ends_with(things));
    if is_count && !what.starts_with("intermediate") {
        format!("{size} {what} do not divide by {by} {degree}\nhint: {works} divides them")
    } else {
        format!("{what} {size} does not divide by {by} {degree}\nhint: {works} divides it")
    }
}

/// What would make as many stages as are given.
fn stages_hint(given: u32, virtual_stages: u32, fits: u32) -> String {
    if virtual_stages > 1 {
        return format!("`virtual_stages` {fits} has as many");
    }
    format!(
        "`pipeline_parallel` {given}, or `virtual_stages` {fits} and a schedule that takes several, such as \
         `interleaved-1f1b`"
    )
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
        gpus_hint(*.needs, *.has, *.fitting_data_parallel)
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
    /// What the framework cannot run.
    #[error(
        "`{framework}` cannot run what is asked for: it has no {}\nhint: another `--framework`, or `ideal`, which \
         has no limits",
        .lacks.join(", no ")
    )]
    Framework {
        /// The framework.
        framework: String,
        /// What it does not have.
        lacks: Vec<String>,
    },
    /// A number of GPUs does not divide by the degrees that are named.
    #[error(
        "the number of GPUs {has} does not divide by the product of the named degrees {degrees}\nhint: {} GPUs, or \
         degrees whose product is {}",
        multiples_around((*.has).into(), *.degrees),
        divisors_around((*.has).into(), *.degrees)
    )]
    GpusUndivided {
        /// GPUs.
        has: u32,
        /// The product of the degrees.
        degrees: u64,
    },
    /// A size does not divide by a degree.
    #[error("{}", undivided(.what, *.size, .by, *.degree, *.works))]
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
    /// A sequence does not come apart into equal parts.
    #[error(
        "a sequence of {length} tokens does not divide into the {parts} parts of {}\nhint: a multiple of {parts}, such as {}",
        .of.join(" and "),
        multiples_around(*.length, *.parts)
    )]
    SequenceUndivided {
        /// Its tokens.
        length: u64,
        /// The parts.
        parts: u64,
        /// What makes them.
        of: Vec<String>,
    },
    /// The model has nothing that an axis shards.
    #[error("`{axis}` {degree}: the model has no dimension that it shards\nhint: use 1")]
    NothingToShard {
        /// The axis.
        axis: &'static str,
        /// Its degree.
        degree: u64,
    },
    /// An exchange of heads between context-parallel ranks, where there is one.
    #[error(
        "`context_parallel_kind` all_to_all needs `context_parallel` of at least 2\nhint: leave it out"
    )]
    HeadExchangeAlone,
    /// Sequence parallelism without tensor parallelism.
    #[error("`sequence_parallel` needs `tensor_parallel` of at least 2")]
    SequenceParallelAlone,
    /// Experts over fewer ranks than all else, where these ranks have no tokens of their own to send to them.
    #[error(
        "`expert_tensor_parallel` {degree} below `tensor_parallel` {tensor_parallel} needs {needs}\nhint: leave it \
         out, or use {tensor_parallel}"
    )]
    ExpertTensor {
        /// What is not there.
        needs: &'static str,
        /// Ranks over which each expert was to be sharded.
        degree: u32,
        /// Ranks over which all else is.
        tensor_parallel: u32,
    },
    /// The batch does not come out.
    #[error(
        "global batch size {global_batch_size} is not `data_parallel` {data_parallel} x \
         `micro_batch_size` {micro_batch_size} x {num_micro_batches} micro-batches\nhint: {}",
        batch_hint(*.global_batch_size, .data_parallel.saturating_mul(*.micro_batch_size), *.num_micro_batches)
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
    #[error(
        "{stages} stages, but the model has only {blocks} blocks to put on them\nhint: `pipeline_parallel` x \
         `virtual_stages` may be {blocks} at most"
    )]
    TooManyStages {
        /// Pipeline ranks times stages of each.
        stages: u64,
        /// Blocks of the chain.
        blocks: u64,
    },
    /// Stages that were given by hand and are none for so many ranks.
    #[error(
        "{given} stage{} given, not a multiple of `pipeline_parallel` {pipeline_parallel}\nhint: `--stages {works}`, \
         or `pipeline_parallel` {divisor}",
        if *.given == 1 { " is" } else { "s are" }
    )]
    GivenStagesUndivided {
        /// How many are given.
        given: u32,
        /// Pipeline ranks.
        pipeline_parallel: u32,
        /// Layers of each stage, one on each rank.
        works: String,
        /// Ranks that as many stages as are given divide over.
        divisor: u64,
    },
    /// Recompute of other modules than the graph was made for.
    #[error(
        "`recompute` {recompute}, but the graph's blocks recompute {of_graph}\nhint: use {of_graph}"
    )]
    Recompute {
        /// The layout's.
        recompute: Recompute,
        /// The graph's.
        of_graph: Recompute,
    },
    /// Other stages than were given by hand.
    #[error(
        "`pipeline_parallel` {pipeline_parallel} x `virtual_stages` {virtual_stages} are {} stages, but {given} \
         are given\nhint: {}", .pipeline_parallel * .virtual_stages, stages_hint(*.given, *.virtual_stages, *.fits)
    )]
    GivenStages {
        /// How many are given.
        given: u32,
        /// Pipeline ranks.
        pipeline_parallel: u32,
        /// Stages of each.
        virtual_stages: u32,
        /// Stages of each that would be as many as are given.
        fits: u32,
    },
    /// Parameters on the host that stay on the device between their uses, or that the device updates.
    #[error(
        "`offload` {offload} with `zero_stage` {}: parameters lie on the host where they are gathered for each use, \
         and the host updates them\nhint: `--zero 3 --offload optimizer,parameters`", .zero_stage.number()
    )]
    OffloadedParameters {
        /// What was to be on the host.
        offload: Offload,
        /// How states are sharded.
        zero_stage: ZeroStage,
    },
    /// More blocks on the host than there are.
    #[error(
        "`offload` activations:{blocks}, but the model has {num_blocks} blocks\nhint: `activations`, which is of all"
    )]
    OffloadedBlocks {
        /// Those whose activations were to be on the host.
        blocks: u32,
        /// Those of the model.
        num_blocks: u64,
    },
    /// More layers that are computed again than there are.
    #[error(
        "`recompute` full:{layers}, but the model has {has} layers\nhint: `full`, which is of all"
    )]
    RecomputedLayers {
        /// Those of each stage that were to be computed again.
        layers: u32,
        /// Those of the model.
        has: u64,
    },
    /// Something on hosts of which nothing is known.
    #[error(
        "`offload` {offload}, but the cluster does not say what memory its hosts have\nhint: add \
         \"host\": {{\"memory_bytes\": 2e12, \"memory_bandwidth_bytes_per_second\": 6e11}} to its file (`--cluster \
         FILE`)"
    )]
    UnknownHost {
        /// What was to be on the host.
        offload: Offload,
    },
    /// Numbers that the schedule does not take.
    #[error(transparent)]
    Numbers(#[from] GenerateError),
    /// A way of replication that not every layout has room for.
    #[error("{what} needs `{field}` {needs}, not {has}")]
    Replication {
        /// Which way.
        what: String,
        /// What of the layout it concerns.
        field: &'static str,
        /// What that must be.
        needs: String,
        /// What it is.
        has: String,
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

/// The largest divisor of `size` that is at most `degree`.
pub fn largest_divisor(size: u64, degree: u64) -> u64 {
    let most = degree.min(size).min(1 << 16);
    (1..=most).rev().find(|divisor| size.is_multiple_of(*divisor)).unwrap_or(1)
}

/// The divisors of `size` next to `degree`, in words: `4 or 8`.
fn divisors_around(size: u64, degree: u64) -> String {
    let below = largest_divisor(size, degree);
    let above = (degree..=size.min(1 << 16)).find(|divisor| size.is_multiple_of(*divisor));
    above.map_or_else(|| below.to_string(), |above| format!("{below} or {above}"))
}

/// The multiples of `unit` next to `size`, in words: `96 or 104`.
pub fn multiples_around(size: u64, unit: u64) -> String {
    let unit = unit.max(1);
    let below = size / unit * unit;
    let above = below.saturating_add(unit);
    if below == 0 { above.to_string() } else { format!("{below} or {above}") }
}
