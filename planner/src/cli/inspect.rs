//! `planner inspect`.

use indicatif::HumanCount;
use ir::graph::{AttentionMask, Block, DimName, Graph, OpId, OpKind, Recurrence};
use ir::model::{Besides, ModelError};
use planner_core::problem::{LONGEST_SEQUENCE, default_sequence_length};
use serde::Serialize;

use super::answer::Answer;
use super::args::InspectArgs;
use super::idle::refuse_prediction;
use super::input::warn_of_model;
use super::models::{ModelFile, NotRead, name_of, read_model_as};
use super::tables::{count, text_table};

/// JSON output of `inspect`.
#[derive(Debug, Serialize)]
struct Inspection {
    name: String,
    architecture: String,
    num_parameters: u64,
    num_embedding_parameters: u64,
    num_active_parameters: u64,
    num_trained_parameters: u64,
    num_routed_expert_parameters: u64,
    /// Towers and projectors of a multimodal model. They are counted above, but no command plans them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts_not_planned: Vec<Besides>,
    num_layers: u32,
    sequence_length: u64,
    /// FLOPs, where every query-key pair of a causal mask counts.
    forward_flops_per_token: f64,
    /// FLOPs without masked pairs.
    forward_flops_per_token_causal: f64,
    blocks: Vec<BlockSummary>,
    /// Warnings about likely mistakes in the model's description.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// A run of equal consecutive blocks.
#[derive(Debug, Serialize)]
struct BlockSummary {
    name: String,
    count: u32,
    num_parameters: u64,
    num_operators: usize,
    /// Mixing of positions, and experts: `32 heads, 4 KV; 128 experts, top 8`.
    #[serde(skip_serializing_if = "String::is_empty")]
    mixing: String,
}

/// JSON output of `inspect` for a model that has no graph.
#[derive(Debug, Serialize)]
struct Counted {
    name: String,
    architecture: String,
    num_parameters: u64,
    parts_not_planned: Vec<Besides>,
    warnings: Vec<String>,
}

pub(crate) fn inspect(args: &InspectArgs) -> anyhow::Result<Answer> {
    let read = read_model_as(&args.model, args.read_as.as_deref());
    let ModelFile { model, .. } = match read {
        Ok(read) => read,
        Err(error) => return counted(args, error),
    };
    warn_of_model(&args.model, &model);
    refuse_prediction(args.parts.multi_token_prediction, &model)?;
    let adapters = args.adapters.adapters();
    let graph = model.training_graph(args.parts.options(), adapters.as_ref())?;
    let sequence_length =
        args.seq_len.unwrap_or_else(|| default_sequence_length(&model, graph.has_sequence()));
    anyhow::ensure!(
        (1..=LONGEST_SEQUENCE).contains(&sequence_length),
        "`--seq-len` is {sequence_length}, but must be between 1 and {LONGEST_SEQUENCE}"
    );
    let flops = graph.forward_flops(sequence_length);
    // For a model without a sequence, FLOPs are counted per sample.
    let tokens = if graph.has_sequence() { sequence_length as f64 } else { 1.0 };
    let counts = graph.parameter_counts();
    let besides: u64 = model.besides.iter().map(|part| part.num_parameters).sum();
    let inspection = Inspection {
        name: model.name.clone(),
        architecture: model.architecture.clone(),
        num_parameters: counts.total + besides,
        num_embedding_parameters: counts.embedding,
        num_active_parameters: counts.active + besides,
        num_trained_parameters: counts.trained,
        num_routed_expert_parameters: counts.routed,
        parts_not_planned: model.besides.clone(),
        num_layers: num_layers(&graph),
        sequence_length,
        forward_flops_per_token: flops.full.get() / tokens,
        forward_flops_per_token_causal: flops.causal.get() / tokens,
        blocks: summaries(&graph),
        warnings: model.warnings.iter().map(ToString::to_string).collect(),
    };
    args.format.print(&inspection, || describe(&inspection, graph.has_sequence()))
}

/// Parameters of a model that are counted without a graph.
fn counted(args: &InspectArgs, error: anyhow::Error) -> anyhow::Result<Answer> {
    let Some(NotRead { error: alone @ ModelError::CountedAlone { class, parts, .. }, .. }) =
        error.downcast_ref()
    else {
        return Err(error);
    };
    let counted = Counted {
        name: name_of(&args.model),
        architecture: class.clone(),
        num_parameters: parts.iter().map(|part| part.num_parameters).sum(),
        parts_not_planned: parts.clone(),
        warnings: vec![alone.to_string()],
    };
    args.format.print(&counted, || {
        let whole = |name: &str, value: u64| [name.to_owned(), HumanCount(value).to_string()];
        let parts = counted.parts_not_planned.iter();
        let parts = parts.map(|part| whole(&format!("  of {}", part.name), part.num_parameters));
        let all = std::iter::once(whole("parameters", counted.num_parameters));
        let facts = text_table(["", " "], &[""], all.chain(parts));
        format!("{} ({})\n{facts}\n{alone}\n", counted.name, counted.architecture)
    })
}

fn summaries(graph: &Graph) -> Vec<BlockSummary> {
    graph
        .chain()
        .iter()
        .map(|run| {
            let block = graph.class(run.class);
            BlockSummary {
                name: block.name().to_owned(),
                count: run.count,
                num_parameters: block.num_parameters(),
                num_operators: block.nodes().filter(|n| n.op.kind != OpKind::Input).count(),
                mixing: mixing(block),
            }
        })
        .collect()
}

/// Mixing of positions in a block, and its experts.
fn mixing(block: &Block) -> String {
    let mut parts: Vec<String> = Vec::new();
    for node in block.nodes() {
        let part = match node.op.kind {
            OpKind::Attention { mask, .. } => attention(block, node.id, mask),
            OpKind::Recurrence { kind, .. } => match kind {
                Recurrence::StateSpace { .. } => "Mamba-2".to_owned(),
                Recurrence::SelectiveScan => "Mamba".to_owned(),
                Recurrence::DeltaRule => "gated delta rule".to_owned(),
                Recurrence::DeltaRuleByFeature => "delta rule, decay by feature".to_owned(),
                Recurrence::FixedDecay => "linear attention, fixed decay".to_owned(),
            },
            OpKind::ShortConvolution { kernel, .. } => format!("convolution of {kernel} positions"),
            OpKind::Router { num_experts, top_k, .. } => {
                format!("{num_experts} experts, top {top_k}")
            }
            _ => continue,
        };
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts.join("; ")
}

/// Heads of an attention, and the positions to which it is limited.
fn attention(block: &Block, op: OpId, mask: AttentionMask) -> String {
    let size = |op: OpId, name: DimName| block.op(op).output.dim(name)?.extent.fixed();
    let heads = size(op, DimName::Heads);
    let key = block.inputs(op)[1];
    let of_keys = size(key, DimName::KvHeads).filter(|it| Some(*it) != heads);
    let [heads, of_keys] =
        [heads.map(|it| format!("{it} heads")), of_keys.map(|it| format!("{it} KV"))];
    let latent = block.has_latents().then(|| "from latents".to_owned());
    let limited = match mask {
        AttentionMask::Causal => None,
        AttentionMask::Full => Some("to all positions".to_owned()),
        AttentionMask::SlidingWindow { window } => Some(format!("window {window}")),
        AttentionMask::Chosen { keys } => Some(format!("{keys} chosen positions")),
        AttentionMask::Chunked { length } => Some(format!("chunks of {length}")),
        AttentionMask::Compressed { window, block, keys: None } => {
            Some(format!("window {window}, blocks of {block}"))
        }
        AttentionMask::Compressed { window, block, keys: Some(keys) } => {
            Some(format!("window {window}, {keys} chosen blocks of {block}"))
        }
    };
    [heads, of_keys, latent, limited].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Number of layers of a model: the blocks with attention. If some blocks mix positions in other ways, all blocks
/// between the first and the last; in a model without attention, all blocks.
fn num_layers(graph: &Graph) -> u32 {
    let counts = graph.class_counts();
    let count = |is_it: fn(&OpKind) -> bool| -> u32 {
        let of = graph.classes().filter(|(_, block)| block.nodes().any(|it| is_it(&it.op.kind)));
        of.map(|(class, _)| counts[class.0]).sum()
    };
    let all: u32 = counts.iter().sum();
    let with_attention =
        count(|kind| matches!(kind, OpKind::Attention { .. } | OpKind::AttentionScores));
    let recurrent =
        count(|kind| matches!(kind, OpKind::Recurrence { .. } | OpKind::ShortConvolution { .. }));
    match (with_attention, recurrent) {
        (_, 1..) => all.saturating_sub(2),
        (0, 0) => all,
        (layers, 0) => layers,
    }
}

fn describe(inspection: &Inspection, has_sequence: bool) -> String {
    let mut text = format!("{} ({})\n", inspection.name, inspection.architecture);
    let unit = if has_sequence { "token" } else { "sample" };
    let whole = |name: &str, value: u64| [name.to_owned(), HumanCount(value).to_string()];
    let mut facts = vec![
        whole("parameters", inspection.num_parameters),
        whole("  of embeddings", inspection.num_embedding_parameters),
        whole("  of routed experts", inspection.num_routed_expert_parameters),
        whole("  active for a token", inspection.num_active_parameters),
    ];
    for part in &inspection.parts_not_planned {
        facts.push(whole(&format!("  of {}, not planned", part.name), part.num_parameters));
    }
    facts.push(whole("layers", inspection.num_layers.into()));
    let besides: u64 = inspection.parts_not_planned.iter().map(|part| part.num_parameters).sum();
    if inspection.num_trained_parameters < inspection.num_parameters - besides {
        facts.push(whole("trained", inspection.num_trained_parameters));
    }
    let flops = |of: &str, value: f64| [format!("forward FLOPs per {unit}, {of}"), count(value)];
    facts.push(flops("full attention", inspection.forward_flops_per_token));
    facts.push(flops("masked pairs left out", inspection.forward_flops_per_token_causal));
    if has_sequence {
        facts.push(whole("  at a sequence of", inspection.sequence_length));
    }
    text.push_str(&text_table(["", " "], &[""], facts));
    text.push('\n');
    let columns = ["block", "count", "parameters each", "operators", "mixing"];
    text + &text_table(columns, &["block", "mixing"], rows(&inspection.blocks))
}

/// Rows of the table, one for each kind of block, wherever in the model its blocks are.
fn rows(blocks: &[BlockSummary]) -> Vec<[String; 5]> {
    let mut kinds: Vec<([String; 4], u32)> = Vec::new();
    for block in blocks {
        let kind = [
            block.name.clone(),
            HumanCount(block.num_parameters).to_string(),
            block.num_operators.to_string(),
            block.mixing.clone(),
        ];
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += block.count,
            None => kinds.push((kind, block.count)),
        }
    }
    let row = |([name, parameters, operators, mixing], count): ([String; 4], u32)| {
        [name, count.to_string(), parameters, operators, mixing]
    };
    kinds.into_iter().map(row).collect()
}
