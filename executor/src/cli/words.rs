//! Descriptions of layouts, counts and ranks.

use ir::graph::Recompute;
use ir::layout::{LayoutSpec, ZeroStage};
use ir::plan::{MemoryUse, Plan};
use ir::units::Bytes;

/// A number of ranks.
pub(super) fn ranks(count: u32) -> String {
    if count == 1 { "1 rank".to_owned() } else { format!("{count} ranks") }
}

/// Description of a layout: the parallel degrees, and what is recomputed.
pub(super) fn layout(layout: &LayoutSpec) -> String {
    let mut words = Vec::new();
    if layout.tensor_parallel > 1 {
        let sequence = if layout.sequence_parallel { " with sequence parallelism" } else { "" };
        words.push(format!("tensor-parallel {}{sequence}", layout.tensor_parallel));
    }
    if layout.context_parallel > 1 {
        let by_heads = layout.sharding().head_exchange() > 1;
        let how = if by_heads { " by exchange of heads" } else { "" };
        words.push(format!("context-parallel {}{how}", layout.context_parallel));
    }
    if layout.pipeline_parallel > 1 {
        let each = match layout.virtual_stages {
            1 => String::new(),
            count => format!(" with {count} stages each"),
        };
        let (ranks, schedule) = (layout.pipeline_parallel, layout.schedule);
        words.push(format!("pipeline of {ranks}{each} (schedule {schedule})"));
    }
    if layout.data_parallel > 1 {
        words.push(format!("data-parallel {}", layout.data_parallel));
    }
    if layout.expert_parallel > 1 {
        let is_cut_as_all = layout.expert_tensor_parallel == layout.tensor_parallel;
        let ranks = if is_cut_as_all { "replicas" } else { "ranks of a stage" };
        let each = match layout.expert_tensor_parallel {
            2.. if !is_cut_as_all => format!(", each over {}", layout.expert_tensor_parallel),
            _ => String::new(),
        };
        words.push(format!("experts over {} of the {ranks}{each}", layout.expert_parallel));
    }
    let shards = layout.context_parallel * layout.data_parallel;
    if layout.zero_stage != ZeroStage::None && shards > 1 {
        let over = if layout.zero_shard < shards {
            format!(" over {} ranks each", layout.zero_shard)
        } else {
            String::new()
        };
        words.push(format!("ZeRO-{}{over}", layout.zero_stage.number()));
    }
    match layout.recompute {
        Recompute::None => {}
        Recompute::Selective => words.push("attention computed again".to_owned()),
        Recompute::Full => words.push("layers computed again".to_owned()),
        other => words.extend(other.describe().map(|what| format!("computed again: {what}"))),
    }
    if words.is_empty() { "undivided".to_owned() } else { words.join(", ") }
}

/// Description of a step's batch.
pub(super) fn step(plan: &Plan, has_sequence: bool) -> String {
    let batch = plan.training.global_batch_size;
    let what = match (has_sequence, batch) {
        (true, 1) => format!("1 sequence of {} tokens", plan.training.sequence_length),
        (true, _) => format!("{batch} sequences of {} tokens", plan.training.sequence_length),
        (false, 1) => "1 sample".to_owned(),
        (false, _) => format!("{batch} samples"),
    };
    let LayoutSpec { num_micro_batches, micro_batch_size, data_parallel, .. } = plan.layout;
    let by_group = plan.layout.micro_batches_by_group;
    let pieces = match num_micro_batches {
        _ if !by_group.are_equal() => format!("{by_group} micro-batches"),
        1 => "1 micro-batch".to_owned(),
        count => format!("{count} micro-batches"),
    };
    let replica = match data_parallel {
        _ if !by_group.are_equal() => " on replicas of each group",
        1 => "",
        _ => " on each replica",
    };
    format!("{what} a step, in {pieces} of {micro_batch_size}{replica}")
}

/// Memory of tensors that the plan expects on the rank that needs the most, counted as ranks count it: without
/// workspace of operators and memory of the device's libraries.
pub(super) fn expected_tensors(memory: &MemoryUse) -> Bytes {
    let held = memory.of_blocks() + memory.gathered_bytes + memory.buffers_bytes;
    held + memory.recompute_bytes
}

/// A count with three significant digits: `53.5 thousand`.
pub(super) fn count(count: u64) -> String {
    // For each unit: the least number that has this unit once it is rounded to three digits, the divisor, and the name.
    const UNITS: [(f64, f64, &str); 4] = [
        (0.9995e12, 1e12, "trillion"),
        (0.9995e9, 1e9, "billion"),
        (0.9995e6, 1e6, "million"),
        (1e4, 1e3, "thousand"),
    ];
    let number = count as f64;
    match UNITS.into_iter().find(|(from, ..)| number >= *from) {
        None => count.to_string(),
        Some((_, unit, word)) => {
            let value = number / unit;
            let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
            format!("{value:.decimals$} {word}")
        }
    }
}

/// One value for each rank, with equal neighbours merged: `ranks 0-3 1.5 MiB, rank 4 2.1 MiB`.
pub(super) fn by_rank<T: ToString>(values: &[T]) -> String {
    let texts = values.iter().map(ToString::to_string);
    let mut runs: Vec<(usize, usize, String)> = Vec::new();
    for (rank, text) in texts.enumerate() {
        match runs.last_mut() {
            Some((_, last, before)) if *before == text => *last = rank,
            _ => runs.push((rank, rank, text)),
        }
    }
    let shown = runs.into_iter().map(|(first, last, text)| match last {
        _ if first == last => format!("rank {first} {text}"),
        _ => format!("ranks {first}-{last} {text}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}
