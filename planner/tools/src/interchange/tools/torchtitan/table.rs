//! torchtitan's flags that a plan decides.

use ir::cluster::Precision;
use ir::framework::Fusion;
use ir::graph::Recompute;

use super::degrees::{LOCAL_BATCH, read_batch, read_replicas, schedule, schedule_name};
use crate::interchange::error::ImportError;
use crate::interchange::imported::Imported;
use crate::interchange::options::Vocabulary;
use crate::interchange::run::Run;
use crate::interchange::source::agreed;
use crate::interchange::table::{Reader, Table, Values};

/// Flags of `ConfigManager` in torchtitan 0.3.0, written with `_`; `ConfigManager` accepts `-` too.
pub(in super::super) static TABLE: Table =
    Table::new(Vocabulary::whole("torchtitan", include_str!("options.txt")), write, read);

fn write(option: &str, run: &Run<'_>) -> Option<Values> {
    let word = match option {
        "activation-checkpoint:" => match run.layout.recompute {
            Recompute::Full | Recompute::FirstLayers(_) => "full",
            Recompute::Selective | Recompute::Modules(_) => "selective",
            Recompute::None => "none",
        },
        "--parallelism.pipeline_parallel_schedule" => schedule_name(run.layout.schedule)?,
        _ => return None,
    };
    Some(vec![word.to_owned()])
}

fn read(option: &str, reader: Reader<'_>, settings: &mut Imported) -> Result<(), ImportError> {
    let Reader { source, given } = reader;
    let Imported { layout, training, .. } = settings;
    match option {
        "--parallelism.tensor_parallel_degree" => {
            layout.expert_tensor_parallel = layout.tensor_parallel;
        }
        "--parallelism.pipeline_parallel_degree" => {
            let ranks = given.count(option)?;
            let ranks = agreed(ranks, option, source.stated.pipeline_parallel, "--pp")?;
            layout.pipeline_parallel = ranks.unwrap_or(1);
        }
        "--parallelism.pipeline_parallel_schedule" if layout.pipeline_parallel > 1 => {
            layout.schedule = schedule(option, reader)?;
        }
        "--parallelism.data_parallel_replicate_degree" => read_replicas(reader, settings)?,
        "--compile.components" if given.text(option)?.is_some_and(|it| !it.contains("model")) => {
            settings.framework.kernels.fusion = Fusion::Eager;
        }
        LOCAL_BATCH => read_batch(reader, settings)?,
        "--training.dtype" => {
            training.bf16_moments = training.no_master_weights;
            if training.no_master_weights {
                training.precision = Precision::Bf16;
            }
        }
        _ => {}
    }
    Ok(())
}
