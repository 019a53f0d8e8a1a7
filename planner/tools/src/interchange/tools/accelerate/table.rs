//! Keys of accelerate's configuration, and Trainer arguments, that a plan decides.

use ir::framework::Fusion;
use ir::graph::ContextParallelKind;

use crate::interchange::error::ImportError;
use crate::interchange::imported::Imported;
use crate::interchange::options::{OptionError, Vocabulary};
use crate::interchange::table::{Reader, Table};

/// Keys of accelerate 1.15.0's configuration; its flags are mapped to the same keys.
pub(in super::super) static CONFIGURATION: Table =
    Table::new(Vocabulary::whole("accelerate", include_str!("keys.txt")), |_, _| None, read);

/// `TrainingArguments` of transformers 5.23.0 as keys of a file, which [`Script`](super::read) reads. Unknown keys are
/// accepted: a script may define arguments too.
pub(in super::super) static TRAINER: Table =
    Table::new(Vocabulary::with_own("the Trainer", include_str!("trainer.txt")), |_, _| None, read);

fn read(key: &str, reader: Reader<'_>, settings: &mut Imported) -> Result<(), ImportError> {
    let given = reader.given;
    let layout = &mut settings.layout;
    match key {
        "fsdp_config.fsdp_offload_params" => layout.offload.optimizer = layout.offload.parameters,
        "dynamo_config.dynamo_backend" => {
            let backend = given.text(key)?;
            let compiles = backend.is_some_and(|name| !["no", "NO", "false"].contains(&name));
            let fusion = if compiles { Fusion::Compiled } else { Fusion::Eager };
            settings.framework.kernels.fusion = fusion;
        }
        "parallelism_config.parallelism_config_cp_size" => {
            let heads = given.count(&key.replace("_cp_size", "_sp_size"))?.unwrap_or(1);
            if layout.context_parallel > 1 && heads > 1 {
                return Err(OptionError::Contradiction {
                    one: "`parallelism_config_cp_size`".to_owned(),
                    other: "`parallelism_config_sp_size`".to_owned(),
                    why: "a sequence is cut in one way".to_owned(),
                }
                .into());
            }
            if heads > 1 {
                layout.context_parallel = heads;
                layout.context_parallel_kind = ContextParallelKind::AllToAll;
            }
            layout.expert_tensor_parallel = layout.tensor_parallel;
        }
        _ => {}
    }
    Ok(())
}
