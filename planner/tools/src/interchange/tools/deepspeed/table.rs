//! Keys of DeepSpeed's JSON that a plan decides.

use ir::framework::WhenReduced;
use ir::graph::{ContextParallelKind, Recompute};
use ir::layout::ZeroStage;
use ir::plan::Optimizer;

use super::batch;
use crate::interchange::error::ImportError;
use crate::interchange::imported::Imported;
use crate::interchange::options::Vocabulary;
use crate::interchange::table::{Reader, Table};
use crate::interchange::target::Target;

pub(super) const TARGET: Target = Target::new("deepspeed", "DeepSpeed 0.19.8", "deepspeed");

/// Keys of `DeepSpeedConfig` in deepspeed 0.19.8. Keys that no plan decides, such as how often DeepSpeed logs, are
/// listed only here.
pub(super) static TABLE: Table =
    Table::new(Vocabulary::whole("DeepSpeed", include_str!("keys.txt")), |_, _| None, read);

fn read(key: &str, reader: Reader<'_>, settings: &mut Imported) -> Result<(), ImportError> {
    let given = reader.given;
    let Imported { layout, training, framework, .. } = settings;
    match key {
        "tensor_parallel.autotp_size" => {
            let others = ["tensor_parallel.tp.tp_size", "tensor_parallel.tensor_parallel.tp_size"];
            for other in others.into_iter().filter(|_| !given.has(key)).rev() {
                layout.tensor_parallel = given.count(other)?.unwrap_or(layout.tensor_parallel);
            }
            layout.expert_tensor_parallel = layout.tensor_parallel;
        }
        "sequence_parallel_size" if layout.context_parallel > 1 => {
            layout.context_parallel_kind = ContextParallelKind::AllToAll;
        }
        // `overlap_comm` is on by default only with ZeRO 3.
        "zero_optimization.overlap_comm" if layout.zero_stage != ZeroStage::None => {
            let is_usual = layout.zero_stage == ZeroStage::Parameters;
            if !given.flag(key)?.unwrap_or(is_usual) {
                framework.gradients.reduced = WhenReduced::AfterBackward;
            }
        }
        "activation_checkpointing.cpu_checkpointing"
            if given.has_within("activation_checkpointing") =>
        {
            layout.recompute = Recompute::Full;
        }
        batch::GLOBAL => batch::read(reader, settings)?,
        "optimizer.params.momentum"
            if training.optimizer == Optimizer::Sgd
                && given.text(key)?.is_some_and(|it| it.parse() != Ok(0.0)) =>
        {
            training.optimizer = Optimizer::Momentum;
        }
        _ => {}
    }
    Ok(())
}
