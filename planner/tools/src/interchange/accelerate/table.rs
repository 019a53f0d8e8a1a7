//! Keys of accelerate's configuration, and Trainer arguments, that a plan decides.

use ir::framework::Fusion;
use ir::graph::ContextParallelKind;

use super::super::error::ImportError;
use super::super::imported::Imported;
use super::super::options::OptionError;
use super::super::table::{Reader, Table};

/// Keys of accelerate 1.15.0's configuration; its flags are mapped to the same keys.
pub(crate) const CONFIGURATION: Table =
    Table { text: include_str!("keys.txt"), write: |_, _| None, read };

/// `TrainingArguments` of transformers 5.23.0, which [`Script`](super::read) reads.
pub(crate) const TRAINER: Table =
    Table { text: include_str!("trainer.txt"), write: |_, _| None, read };

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
