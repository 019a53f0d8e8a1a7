//! What can be planned, but is not run.

use ir::graph::{OpKind, Placement};
use ir::layout::LayoutSpec;
use ir::model::Numerics;

use super::error::{ProgramError, unsupported};
use crate::block::BlockProgram;
use crate::settings::Settings;

/// Operators that a graph may have, but that are not run.
pub(super) fn check_operators(
    classes: &[BlockProgram],
    numerics: &Numerics,
    layout: &LayoutSpec,
) -> Result<(), ProgramError> {
    let tensor_parallel = layout.tensor_parallel;
    check_dropout(classes, numerics, layout)?;
    for program in classes {
        for node in program.block.nodes() {
            let name = &node.op.name;
            match &node.op.kind {
                OpKind::Attention { relative_buckets: Some(_), .. } => {
                    return Err(unsupported(format!("relative position bias (`{name}`)")));
                }
                OpKind::Attention { sinks: true, .. } => {
                    return Err(unsupported(format!("attention sinks (`{name}`)")));
                }
                OpKind::AttentionScores
                | OpKind::AttentionValues
                | OpKind::Softmax { .. }
                | OpKind::Slice { .. }
                | OpKind::Concat { .. }
                | OpKind::PrependParameter
                | OpKind::PatchesToSequence
                | OpKind::FirstToken => {
                    return Err(unsupported(format!("operator `{name}` ({:?})", node.op.kind)));
                }
                OpKind::Norm { .. }
                    if program.placements.sharded_reductions.contains(&node.id)
                        && tensor_parallel > 1 =>
                {
                    return Err(unsupported(format!("norm `{name}` over sharded features")));
                }
                _ => {}
            }
            let heads = node.op.parameters.iter().flat_map(|p| &p.dims);
            for dim in heads.filter(|dim| dim.name == ir::graph::DimName::KvHeads) {
                let ir::graph::Extent::Fixed(size) = dim.extent else { continue };
                if size < tensor_parallel.into() {
                    return Err(ProgramError::Unsupported {
                        what: format!(
                            "`tensor_parallel` {tensor_parallel} over {size} key-value heads"
                        ),
                        instead: Some(format!("a degree of at most {size}")),
                    });
                }
            }
        }
    }
    Ok(())
}

/// Dropout is run where its rate is known and each rank has samples whole: the mask of a part of a sample
/// would have to know which part it is.
fn check_dropout(
    classes: &[BlockProgram],
    numerics: &Numerics,
    layout: &LayoutSpec,
) -> Result<(), ProgramError> {
    for program in classes {
        for node in program.block.nodes().filter(|node| node.op.kind == OpKind::Dropout) {
            let is_whole = program.placements.outputs[node.id.index()] == Placement::Whole;
            let (of_what, instead) = if numerics.dropout_rate.is_none() {
                ("of a transformer", "set the rates of dropout in the model's configuration to 0")
            } else if layout.context_parallel > 1 || !is_whole {
                ("of parts of samples", "a layout with `tensor_parallel` and `context_parallel` 1")
            } else {
                continue;
            };
            return Err(ProgramError::Unsupported {
                what: format!("dropout {of_what} (`{}`)", node.op.name),
                instead: Some(instead.to_owned()),
            });
        }
    }
    Ok(())
}

/// Settings that need gradients of the whole step, where each micro-batch updates by itself.
pub(super) fn check_frequent_updates(settings: &Settings) -> Result<(), ProgramError> {
    let refused = |what: &str, instead: &str| {
        Err(ProgramError::Unsupported {
            what: format!("{what} with updates after each micro-batch"),
            instead: Some(instead.to_owned()),
        })
    };
    if settings.max_gradient_norm.is_some() {
        return refused("a limit on the norm of all gradients", "leave the limit out");
    }
    if settings.loss_scaling.is_some() {
        return refused("scaling of the loss", "bf16, which needs none");
    }
    Ok(())
}
