//! Schedule, replicas and batch: each of them is set by several torchtitan flags.

use ir::layout::ZeroStage;
use ir::schedule::{self, ScheduleKind, generate, read_csv};

use crate::interchange::error::{Divided, ImportError};
use crate::interchange::file::basename;
use crate::interchange::imported::Imported;
use crate::interchange::options::{OptionError, ParsedOptions};
use crate::interchange::source::agreed;
use crate::interchange::table::Reader;

pub(super) const LOCAL_BATCH: &str = "--training.local_batch_size";
const MICRO_BATCH: &str = "--parallelism.pipeline_parallel_microbatch_size";
const GLOBAL_BATCH: &str = "--training.global_batch_size";

pub(super) fn count(given: &ParsedOptions, name: &str) -> Result<Option<u32>, OptionError> {
    given.count(&format!("--parallelism.{name}"))
}

/// PyTorch's names of schedules.
const SCHEDULES: [(&str, ScheduleKind); 7] = [
    ("1F1B", ScheduleKind::OneFOneB),
    ("Interleaved1F1B", ScheduleKind::Interleaved),
    ("GPipe", ScheduleKind::GPipe),
    ("LoopedBFS", ScheduleKind::LoopedBfs),
    ("InterleavedZeroBubble", ScheduleKind::InterleavedZb),
    ("ZBVZeroBubble", ScheduleKind::Zbv),
    ("DualPipeV", ScheduleKind::DualPipeV),
];

/// PyTorch's name of a schedule; for a user's own schedule, the name of one with the same stages on each rank.
pub(super) fn schedule_name(kind: ScheduleKind) -> Option<&'static str> {
    let named = match kind {
        ScheduleKind::Given(given) if given.is_v_shaped() => ScheduleKind::Zbv,
        ScheduleKind::Given(given) if given.virtual_stages() > 1 => ScheduleKind::Interleaved,
        ScheduleKind::Given(_) => ScheduleKind::OneFOneB,
        named => named,
    };
    SCHEDULES.into_iter().find(|(_, kind)| *kind == named).map(|(name, _)| name)
}

/// The named schedule, or the user's own schedule if a CSV has another order of actions.
pub(super) fn schedule(option: &str, reader: Reader<'_>) -> Result<ScheduleKind, OptionError> {
    let Reader { source, given } = reader;
    let schedule = given.one_of(option, &SCHEDULES)?.unwrap_or(ScheduleKind::OneFOneB);
    let Some(path) = given.text_if_known(CSV) else { return Ok(schedule) };
    let error = |works: String| OptionError::value(CSV, path, works);
    let missing = || error("no such file lies beside what names it".to_owned());
    let text = source.files.get(basename(path)).ok_or_else(missing)?;
    let order = read_csv(text).map_err(|problem| error(problem.to_string()))?;
    let own = schedule::UserSchedule::new(&order).map_err(|problem| error(problem.to_string()))?;
    let [p, v, m] = own.numbers();
    let is_named = generate(schedule, p, m, v).is_ok_and(|named| named == order);
    Ok(if is_named { schedule } else { ScheduleKind::Given(own) })
}

/// Flag of the CSV with the actions of a schedule.
const CSV: &str = "--parallelism.pipeline_parallel_schedule_csv";

/// Reads the groups of replicas, and the ZeRO stage.
pub(super) fn read_replicas(
    reader: Reader<'_>,
    settings: &mut Imported,
) -> Result<(), ImportError> {
    let layout = &settings.layout;
    let (context, pipeline) = (layout.context_parallel, layout.pipeline_parallel);
    let degrees = [layout.tensor_parallel, context, pipeline].map(u64::from);
    let others = degrees.into_iter().fold(1, u64::saturating_mul);
    let (copies, shards) = replicas(reader, others)?;
    let known = [
        ("always", Some(ZeroStage::Parameters)),
        ("never", Some(ZeroStage::Gradients)),
        ("default", None),
    ];
    let stated = reader.given.one_of("--parallelism.fsdp_reshard_after_forward", &known)?.flatten();
    let is_whole = shards == Some(1) && context == 1;
    settings.layout.zero_stage = match stated {
        Some(stage) => stage,
        None if is_whole => ZeroStage::None,
        None if pipeline > 1 => ZeroStage::Gradients,
        None => ZeroStage::Parameters,
    };
    if settings.layout.zero_stage != ZeroStage::None {
        settings.shard_groups = copies;
    }
    Ok(())
}

/// Number of groups of replicas, and number of data-parallel ranks over which each group shards, if known; context
/// parallelism is not counted.
fn replicas(reader: Reader<'_>, others: u64) -> Result<(u32, Option<u32>), ImportError> {
    let Reader { source, given } = reader;
    let copies: u32 = count(given, "data_parallel_replicate_degree")?.unwrap_or(1);
    let name = "--parallelism.data_parallel_shard_degree";
    // The default is all remaining replicas.
    let shards = match given.text(name)? {
        Some("-1") | None => None,
        Some(_) => given.count::<u32>(name)?,
    };
    let ranks = source.num_gpus().map(u64::from).filter(|ranks| ranks.is_multiple_of(others));
    let Some(replicas) = ranks.map(|ranks| ranks / others) else {
        return Ok((copies, shards));
    };
    let product = u64::from(copies) * u64::from(shards.unwrap_or(1));
    let fits =
        if shards.is_some() { product == replicas } else { replicas.is_multiple_of(product) };
    if !fits {
        let shards = shards.map_or_else(|| "what is left".to_owned(), |it| it.to_string());
        return Err(ImportError::divides(
            Divided::Ranks,
            format!(
                "`data_parallel_replicate_degree` {copies} x `data_parallel_shard_degree` {shards} are no way to \
                 have {replicas} replicas"
            ),
            format!(
                "`data_parallel_shard_degree` -1 with a `data_parallel_replicate_degree` that divides {replicas}"
            ),
        ));
    }
    Ok((copies, shards.or_else(|| u32::try_from(replicas / product).ok())))
}

/// Reads batch sizes. With a pipeline, the local batch is split into the pipeline's micro-batches. Without one, the
/// local batch is one micro-batch, and gradients accumulate.
pub(super) fn read_batch(reader: Reader<'_>, settings: &mut Imported) -> Result<(), ImportError> {
    let Reader { source, given } = reader;
    let stated = source.stated;
    let global = match given.text(GLOBAL_BATCH)? {
        Some("-1") => None,
        _ => given.count::<u64>(GLOBAL_BATCH)?,
    };
    let (stated_batch, stated_micro) = (stated.global_batch_size, stated.micro_batch_size);
    settings.training.global_batch_size =
        agreed(global, GLOBAL_BATCH, stated_batch, "--global-batch-size")?;
    let local: Option<u32> = given.count(LOCAL_BATCH)?;
    let needed = || OptionError::missing(LOCAL_BATCH, "how many sequences a rank has at once");
    if settings.layout.pipeline_parallel == 1 {
        let micro = agreed(local, LOCAL_BATCH, stated_micro, "--micro-batch-size")?;
        settings.layout.micro_batch_size = micro.ok_or_else(needed)?;
        return Ok(());
    }
    let local = local.ok_or_else(needed)?;
    let each = "pipeline_parallel_microbatch_size";
    let micro = agreed(given.count(MICRO_BATCH)?, each, stated_micro, "--micro-batch-size")?;
    let micro = micro.unwrap_or(1);
    if !local.is_multiple_of(micro) {
        return Err(ImportError::divides(
            Divided::Batch,
            format!("`{LOCAL_BATCH}` {local} is no number of micro-batches of {micro}"),
            format!("{}", local.next_multiple_of(micro)),
        ));
    }
    // Gradient accumulation over several local batches drains the pipeline between them, which plans do not have.
    settings.layout.micro_batch_size = micro;
    settings.training.num_micro_batches = Some(local / micro);
    Ok(())
}
