//! Keys of nanotron's YAML that a plan decides.

use ir::cluster::Precision;
use ir::framework::TensorOverlap;
use ir::schedule::ScheduleKind;

use crate::interchange::error::ImportError;
use crate::interchange::imported::Imported;
use crate::interchange::options::{OptionError, Vocabulary};
use crate::interchange::table::{Reader, Table};

/// Keys of nanotron 0.4's dataclasses.
pub(super) static TABLE: Table =
    Table::new(Vocabulary::whole("nanotron", include_str!("keys.txt")), |_, _| None, read);

/// Error for a missing key without a default in nanotron.
pub(super) fn missing(name: &str) -> OptionError {
    let works = "nanotron has no default for it".to_owned();
    OptionError::missing(name, works)
}

fn read(key: &str, reader: Reader<'_>, settings: &mut Imported) -> Result<(), ImportError> {
    let Reader { source, given } = reader;
    let Imported { layout, training, framework, .. } = settings;
    match key {
        "parallelism.pp" | "parallelism.tp" if !given.has(key) => return Err(missing(key).into()),
        "parallelism.tp" => layout.expert_tensor_parallel = layout.tensor_parallel,
        "parallelism.pp_engine" if layout.pipeline_parallel == 1 => {
            layout.schedule = ScheduleKind::OneFOneB;
        }
        "parallelism.tp_mode" => layout.sequence_parallel &= layout.tensor_parallel > 1,
        "parallelism.tp_linear_async_communication"
            if layout.sequence_parallel && !given.is_on(key)? =>
        {
            framework.tensor_parallel.overlap = TensorOverlap::None;
        }
        "tokens.micro_batch_size"
            if !given.has(key) && source.stated.micro_batch_size.is_none() =>
        {
            return Err(missing(key).into());
        }
        "optimizer.accumulate_grad_in_fp32" => {
            let in_16 = training.precision != Precision::Fp32;
            training.fp32_gradients &= in_16;
            // Without fp32 accumulation there are no master weights, and moments have the precision of the weights.
            training.bf16_moments = in_16 && !training.fp32_gradients;
            training.no_master_weights = training.bf16_moments;
        }
        _ => {}
    }
    Ok(())
}
