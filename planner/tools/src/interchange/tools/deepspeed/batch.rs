//! Batch size, micro-batch size and number of micro-batches: any two of them determine the third.

use crate::interchange::error::{Divided, ImportError};
use crate::interchange::imported::Imported;
use crate::interchange::source::agreed;
use crate::interchange::table::Reader;

/// Key of the sequences of a step, over all replicas.
pub(in super::super) const GLOBAL: &str = "train_batch_size";
/// Key of the sequences of a micro-batch.
pub(in super::super) const EACH: &str = "train_micro_batch_size_per_gpu";
/// Key of the micro-batches of a replica in a step.
pub(in super::super) const ROUNDS: &str = "gradient_accumulation_steps";

/// Key of the ranks that share a sequence.
pub(in super::super) const SEQUENCE_RANKS: &str = "sequence_parallel_size";

/// Reads all three keys; the layout's degrees must be known. With a known number of replicas, two keys determine the
/// third. Without it, three keys determine the number of replicas.
pub(super) fn read(reader: Reader<'_>, settings: &mut Imported) -> Result<(), ImportError> {
    let Reader { source, given } = reader;
    let layout = &settings.layout;
    let degrees = [layout.tensor_parallel, layout.context_parallel, layout.pipeline_parallel];
    let others: u64 = degrees.into_iter().map(u64::from).fold(1, u64::saturating_mul);
    let stated = source.stated;
    let stated_batch = stated.global_batch_size;
    let global: Option<u64> =
        agreed(given.count(GLOBAL)?, GLOBAL, stated_batch, "--global-batch-size")?;
    let micro: Option<u32> =
        agreed(given.count(EACH)?, EACH, stated.micro_batch_size, "--micro-batch-size")?;
    let number: Option<u32> = given.count(ROUNDS)?;
    let ranks = source.num_gpus();
    let replicas = ranks.map(u64::from).filter(|ranks| ranks.is_multiple_of(others));
    let replicas = replicas.map(|ranks| ranks / others);
    let whole = |what: u64, by: u64, name: &str| {
        let quotient = what.checked_div(by).filter(|_| what.is_multiple_of(by));
        let quotient = quotient.and_then(|it| u32::try_from(it).ok()).filter(|it| *it > 0);
        quotient.map(Some).ok_or_else(|| {
            let works = what.next_multiple_of(by.max(1));
            let what = format!("`{GLOBAL}` {what} is no multiple of {by}, so there is no `{name}`");
            ImportError::divides_unless(Divided::Batch, what, GLOBAL, works)
        })
    };
    let (micro, number) = match (global, micro, number, replicas) {
        (Some(global), Some(micro), Some(number), Some(replicas)) => {
            let product = (u64::from(micro) * u64::from(number)).saturating_mul(replicas);
            if product != global {
                let what = format!(
                    "`{GLOBAL}` is {global}, but `{EACH}` {micro} x `{ROUNDS}` {number} x {replicas} replicas are \
                     {product}"
                );
                return Err(ImportError::divides_unless(Divided::Batch, what, GLOBAL, product));
            }
            (micro, Some(number))
        }
        (Some(global), Some(micro), None, Some(replicas)) => {
            (micro, whole(global, u64::from(micro) * replicas, ROUNDS)?)
        }
        (Some(global), None, number, Some(replicas)) => {
            let number = number.unwrap_or(1);
            let micro = whole(global, u64::from(number) * replicas, EACH)?.unwrap_or(1);
            (micro, Some(number))
        }
        (_, Some(micro), number, _) => (micro, number),
        (Some(_), None, _, None) => {
            return Err(ImportError::unknown(
                format!("how many sequences `{EACH}` is depends on the ranks"),
                "`--gpus 64`",
            ));
        }
        (None, None, _, _) => {
            return Err(ImportError::unknown(
                format!("`{EACH}` is missing, and `{GLOBAL}` too"),
                "`--micro-batch-size 1`",
            ));
        }
    };
    // All three keys together give the number of replicas.
    let derived = match (ranks, global, number) {
        (None, Some(global), Some(number)) => {
            whole(global, u64::from(micro) * u64::from(number), "replicas")?
                .and_then(|replicas| u32::try_from(u64::from(replicas) * others).ok())
        }
        _ => None,
    };
    settings.num_gpus = settings.num_gpus.or(derived);
    settings.layout.micro_batch_size = micro;
    settings.training.num_micro_batches = number;
    settings.training.global_batch_size = global;
    Ok(())
}
