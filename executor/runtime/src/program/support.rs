//! Features that can be planned, but that the executor does not support.

use ir::graph::{
    Activation, EmbeddedRows, ExpertGroups, Extent, NormKind, OpId, OpKind, Recompute, Recurrence,
    RotaryScaling, Rotation,
};
use ir::layout::{LayoutSpec, OffloadedActivations};
use ir::plan::Optimizer;
use ir::replication::Replication;

use super::error::{ProgramError, unsupported, unsupported_but};
use crate::block::BlockProgram;
use crate::optimizer;
use crate::settings::Settings;

/// Refuses operators that a graph may have, but that the executor does not support.
pub(super) fn check_operators(
    classes: &[BlockProgram],
    layout: &LayoutSpec,
) -> Result<(), ProgramError> {
    let tensor_parallel = layout.tensor_parallel;
    for program in classes {
        for node in program.block.nodes() {
            let name = &node.op.name;
            match &node.op.kind {
                OpKind::Rotary(Rotation { scaling: RotaryScaling::Other(kind), .. }) => {
                    return Err(unsupported(format!("`rope_type` `{kind}` (`{name}`)")));
                }
                OpKind::Rotary(Rotation { features: Some(features), .. })
                    if !features.is_multiple_of(2) =>
                {
                    let what =
                        format!("rotation of {features} features, which go in pairs, (`{name}`)");
                    return Err(unsupported(what));
                }
                OpKind::Router { num_experts, top_k, routing, .. } => {
                    if let Some(groups) = routing.groups {
                        check_groups(groups, *num_experts, *top_k)?;
                    }
                }
                OpKind::Activation(Activation::Xielu)
                | OpKind::ShortConvolution { activation: Some(Activation::Xielu), .. } => {
                    return Err(unsupported(format!("xIELU (`{name}`)")));
                }
                OpKind::Recurrence { kind, .. } if let Some(recurrence) = not_run(*kind) => {
                    return Err(unsupported(format!("{recurrence} (`{name}`)")));
                }
                OpKind::Recurrence { .. } | OpKind::ShortConvolution { .. } => {
                    check_exchange(program, node.id, layout)?;
                }
                OpKind::Elementwise(_)
                | OpKind::Product { .. }
                | OpKind::Reduce { .. }
                | OpKind::Reshape { .. }
                | OpKind::Pad { .. }
                | OpKind::Take { .. }
                | OpKind::Parameter { .. }
                | OpKind::ConvTranspose2d { .. }
                | OpKind::Upsample2d { .. }
                | OpKind::AttentionScores
                | OpKind::AttentionValues
                | OpKind::Softmax { .. }
                | OpKind::Norm { kind: NormKind::GroupNorm { .. }, .. }
                | OpKind::Embedding { rows: EmbeddedRows::Bag, .. } => {
                    return Err(unsupported(format!("operator `{name}` ({:?})", node.op.kind)));
                }
                OpKind::Conv2d { window, .. }
                | OpKind::MaxPool2d(window)
                | OpKind::AveragePool2d(window)
                    if window.dilation != [1, 1] || window.rounds_up =>
                {
                    let what = format!("a dilation or `ceil_mode` (`{name}`)");
                    return Err(unsupported(what));
                }
                kind if node.op.output.is_routed() && !accepts_routed(kind) => {
                    let what = format!("operator `{name}` between experts' matrices");
                    return Err(unsupported(what));
                }
                OpKind::Norm { kind: NormKind::LayerNorm, .. }
                    if program.placements.sharded_reductions.contains(&node.id)
                        && tensor_parallel > 1 =>
                {
                    return Err(unsupported(format!("norm `{name}` over sharded features")));
                }
                _ => {}
            }
            let heads = node.op.parameters.iter().flat_map(|p| &p.dims);
            for dim in heads.filter(|dim| dim.name == ir::graph::DimName::KvHeads) {
                let Extent::Fixed(size) = dim.extent else { continue };
                if size < tensor_parallel.into() && !u64::from(tensor_parallel).is_multiple_of(size)
                {
                    return Err(unsupported_but(
                        format!("`tensor_parallel` {tensor_parallel} over {size} key-value heads"),
                        format!("a multiple of {size}, or a degree that divides it"),
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Checks that context-parallel ranks can exchange heads for positions of a recurrence, or of a convolution before one.
fn check_exchange(
    program: &BlockProgram,
    id: OpId,
    layout: &LayoutSpec,
) -> Result<(), ProgramError> {
    let context = u64::from(layout.context_parallel);
    let (block, op) = (&program.block, program.op(id));
    let is_recurrence = |id: OpId| matches!(block.op(id).kind, OpKind::Recurrence { .. });
    let takers = block.nodes().filter(|node| program.inputs[node.id.index()].contains(&id));
    if context > 1 && !is_recurrence(id) && !takers.into_iter().all(|it| is_recurrence(it.id)) {
        let what = format!(
            "`context_parallel` {context} of a convolution that no recurrence follows (`{}`)",
            op.name
        );
        return Err(unsupported_but(what, "`--without cp`"));
    }
    let tensor = u64::from(layout.tensor_parallel);
    for source in &program.inputs[id.index()] {
        let Extent::Fixed(heads) = block.op(*source).output.dims[2].extent else { continue };
        if !(heads / tensor).max(1).is_multiple_of(context) {
            let what = format!(
                "`context_parallel` {context} over {heads} heads or groups of `{}` with `tensor_parallel` {tensor}",
                op.name
            );
            return Err(unsupported_but(what, "degrees whose product divides them"));
        }
    }
    Ok(())
}

/// The usual name of a recurrence that the executor does not compute; none if it computes it.
const fn not_run(kind: Recurrence) -> Option<&'static str> {
    match kind {
        Recurrence::StateSpace { .. } | Recurrence::DeltaRule => None,
        Recurrence::SelectiveScan => Some("Mamba's selective scan"),
        Recurrence::DeltaRuleByFeature => Some("the delta rule with a decay for each feature"),
        Recurrence::FixedDecay => Some("linear attention with fixed decays"),
    }
}

/// Returns whether an operator may stand between dispatch and combination.
const fn accepts_routed(kind: &OpKind) -> bool {
    matches!(
        kind,
        OpKind::Dispatch { .. }
            | OpKind::GroupedLinear { .. }
            | OpKind::Activation(_)
            | OpKind::GatedActivation(_)
            | OpKind::ClampedSwiGlu { .. }
            | OpKind::SoftCap { .. }
            | OpKind::Clamp { .. }
            | OpKind::Scale { .. }
            | OpKind::Add
    )
}

/// Checks that the chosen groups have at least `top_k` experts: otherwise the transformers library picks experts of
/// other groups by chance, or fails.
fn check_groups(groups: ExpertGroups, num_experts: u64, top_k: u64) -> Result<(), ProgramError> {
    let ExpertGroups { count, chosen, scored_by } = groups;
    let size = num_experts / count.max(1);
    let divides = num_experts.checked_rem(count) == Some(0);
    let has_enough = chosen.checked_mul(size).is_some_and(|there| top_k <= there);
    if divides && chosen <= count && has_enough && scored_by <= size {
        return Ok(());
    }
    Err(unsupported(format!(
        "a choice of {top_k} experts from {chosen} of {count} groups of {num_experts} experts"
    )))
}

/// Checks that each position of a sequence has a row in tables of positions.
pub(super) fn check_positions(classes: &[BlockProgram], length: u64) -> Result<(), ProgramError> {
    for node in classes.iter().flat_map(|program| program.block.nodes()) {
        let OpKind::Embedding { entries, rows, .. } = node.op.kind else { continue };
        let (Extent::Fixed(entries), EmbeddedRows::Positions { first }) = (entries.extent, rows)
        else {
            continue;
        };
        let positions = entries.saturating_sub(first);
        if length > positions {
            return Err(unsupported_but(
                format!(
                    "a sequence of {length}, where `{}` has {positions} positions,",
                    node.op.name
                ),
                format!("a plan with `--seq-len` of at most {positions}"),
            ));
        }
    }
    Ok(())
}

/// Refuses settings that need gradients of the whole step, for schedules in which each micro-batch updates the weights.
pub(super) fn check_frequent_updates(settings: &Settings) -> Result<(), ProgramError> {
    let refused = |what: &str, instead: &str| {
        Err(unsupported_but(format!("{what} with updates after each micro-batch"), instead))
    };
    if settings.max_gradient_norm.is_some() {
        return refused(
            "a limit on the norm of all gradients",
            "`--max-gradient-norm 0`, which is no limit",
        );
    }
    if settings.loss_scaling.is_some() {
        return refused("scaling of the loss", "bf16, which needs none");
    }
    Ok(())
}

/// Refuses offloads that are not supported.
pub(super) fn check_offload(layout: &LayoutSpec, has_adapters: bool) -> Result<(), ProgramError> {
    if layout.offload.parameters && has_adapters {
        let what = "frozen weights beside adapters in the host's memory";
        return Err(unsupported_but(what, "`--offload optimizer`"));
    }
    let is_of_some = layout.offload.activations != OffloadedActivations::AllBlocks;
    if layout.offload.activations.is_some() && (is_of_some || layout.recompute != Recompute::Full) {
        let what = format!(
            "`offload` {} with `recompute` {}: of activations, the inputs of all blocks alone are put on the host",
            layout.offload, layout.recompute
        );
        return Err(unsupported_but(what, "`--offload activations --recompute full`"));
    }
    Ok(())
}

/// Refuses optimizers that are not supported.
pub(super) fn check_optimizer(kind: Optimizer) -> Result<(), ProgramError> {
    if optimizer::RUN.contains(&kind) {
        return Ok(());
    }
    let known = optimizer::RUN.map(Optimizer::name).join("`, `--optimizer ");
    Err(unsupported_but(format!("the optimizer {kind}"), format!("`--optimizer {known}`")))
}

/// Refuses loss scaling with gradient compression, or where replicas are not synchronous.
pub(super) fn check_replication(settings: &Settings) -> Result<(), ProgramError> {
    let Replication { method, compression } = settings.replication;
    // Each replica would skip updates on its own. And the compression error of an overflowed gradient would be NaN, and
    // would stay NaN.
    let by = match compression {
        Some(compression) => format!("gradient compression {compression}"),
        None if !method.is_synchronous() => format!("data-parallel method {method}"),
        None => return Ok(()),
    };
    if settings.loss_scaling.is_some() {
        let what = format!("scaling of the loss with {by}");
        return Err(unsupported_but(what, "bf16, which needs none"));
    }
    Ok(())
}
