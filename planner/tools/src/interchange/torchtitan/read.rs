//! torchtitan's flags, read, with the Python that an export puts beside them.

use ir::cluster::Precision;
use ir::framework::{Framework, Fusion, TensorOverlap};
use ir::graph::{CudaGraphs, Recompute, Switches, TokenDispatcher};
use ir::layout::{LayoutSpec, Offload, ZeroStage};
use ir::plan::Optimizer;
use ir::schedule::{self, ScheduleKind, generate, read_csv};

use super::super::file::basename;
use super::super::imported::{Divided, ImportError, Imported, StatedStages, StatedTraining};
use super::super::options::{Given, Known, OptionError, Others};
use super::super::shell::Word;
use super::super::source::{Source, agreed};
use super::super::target::Target;

/// The flags of `ConfigManager` in torchtitan 0.3.0, with `_` for `-`, which are the same to it.
const KNOWN: Known =
    Known { program: "torchtitan", table: include_str!("options.txt"), others: Others::Refused };

/// Reads the words after `torchtitan.train`.
pub(in super::super) fn read(source: &Source<'_>) -> Result<Imported, ImportError> {
    let started = source.started()?;
    let words: Vec<Word> = started.words.iter().skip(1).map(Word::underscored).collect();
    let (given, read) = KNOWN.read_options(&words)?;
    let policy = words.get(read);
    let module =
        given.text("--module")?.map(|it| format!("{}.py", it.rsplit('.').next().unwrap_or(it)));
    let python = module.and_then(|name| source.files.get(&name)).map(String::as_str);
    if python.is_none() {
        unseen(source, &given, policy)?;
    }
    let tensor: u32 = count(&given, "tensor_parallel_degree")?.unwrap_or(1);
    let context: u32 = count(&given, "context_parallel_degree")?.unwrap_or(1);
    let pipeline: u32 = agreed(
        count(&given, "pipeline_parallel_degree")?,
        "--parallelism.pipeline_parallel_degree",
        source.stated.pipeline_parallel,
        "--pp",
    )?
    .unwrap_or(1);
    let expert: u32 = count(&given, "expert_parallel_degree")?.unwrap_or(1);
    let schedule = schedule(source, &given, pipeline)?;
    let (stages, virtual_stages) = stages(source, &given, python, pipeline, schedule)?;
    let replicas =
        replicas(source, &given, u64::from(tensor) * u64::from(context) * u64::from(pipeline))?;
    let zero_stage = zero_stage(&given, &replicas, [context, pipeline])?;
    let batch = batch(source, &given, pipeline)?;
    let cuts_sequences = !given.has("--parallelism.no_enable_sequence_parallel");
    let is_eight = python.is_some_and(|text| text.contains("Float8LinearConverter.Config"));
    let layout = LayoutSpec {
        tensor_parallel: tensor,
        expert_tensor_parallel: tensor,
        sequence_parallel: tensor > 1 && cuts_sequences,
        context_parallel: context,
        expert_parallel: expert,
        pipeline_parallel: pipeline,
        virtual_stages,
        schedule,
        zero_stage,
        micro_batch_size: batch.micro_batch_size,
        recompute: recompute(policy)?,
        offload: if given.has("--training.enable_cpu_offload") {
            Offload { optimizer: true, parameters: true, ..Offload::NONE }
        } else {
            Offload::NONE
        },
        switches: Switches {
            token_dispatcher: dispatcher(python),
            // Whole steps are captured unless that is switched off.
            cuda_graphs: if given.has("--training.disable_cuda_graphs") {
                CudaGraphs::None
            } else {
                CudaGraphs::Iteration
            },
            ..Switches::USUAL
        },
        ..LayoutSpec::ONE_RANK
    };
    Ok(Imported {
        source: Target::TorchTitan,
        framework: framework(&given),
        layout,
        num_gpus: started.num_gpus,
        training: training(source, &given, &batch, is_eight)?,
        stages,
        shard_groups: if zero_stage == ZeroStage::None { 1 } else { replicas.copies },
        model: Vec::new(),
        multi_token_prediction: source.stated.multi_token_prediction,
        dropout: source.stated.dropout,
    })
}

fn count(given: &Given, name: &str) -> Result<Option<u32>, OptionError> {
    given.count(&format!("--parallelism.{name}"))
}

/// What a function that is not there may set must be said.
fn unseen(source: &Source<'_>, given: &Given, policy: Option<&Word>) -> Result<(), ImportError> {
    let function = given.text("--config")?.unwrap_or("--config").to_owned();
    let missing = |name: &str| {
        Err(OptionError::Missing {
            name: name.to_owned(),
            works: format!(
                "`{function}`, which is Python and is not run, may set it: say it beside what starts torchtitan"
            ),
        }
        .into())
    };
    let mut needed = vec!["--parallelism.tensor_parallel_degree"];
    if source.has_experts {
        needed.push("--parallelism.expert_parallel_degree");
    }
    if source.stated.micro_batch_size.is_none() {
        needed.push("--training.local_batch_size");
    }
    if source.stated.sequence_length.is_none() {
        needed.push("--training.seq_len");
    }
    if let Some(name) = needed.into_iter().find(|name| !given.has(name)) {
        return missing(name);
    }
    if policy.is_none() { missing("activation-checkpoint:none|selective|full") } else { Ok(()) }
}

/// The schedule that is named; or of one's own, where a CSV says the order of its passes.
fn schedule(
    source: &Source<'_>,
    given: &Given,
    pipeline: u32,
) -> Result<ScheduleKind, OptionError> {
    if pipeline == 1 {
        return Ok(ScheduleKind::OneFOneB);
    }
    let known = [
        ("1F1B", ScheduleKind::OneFOneB),
        ("Interleaved1F1B", ScheduleKind::Interleaved),
        ("GPipe", ScheduleKind::GPipe),
        ("LoopedBFS", ScheduleKind::LoopedBfs),
        ("InterleavedZeroBubble", ScheduleKind::InterleavedZb),
        ("ZBVZeroBubble", ScheduleKind::Zbv),
        ("DualPipeV", ScheduleKind::DualPipeV),
    ];
    let schedule = given.one_of("--parallelism.pipeline_parallel_schedule", &known)?;
    let schedule = schedule.unwrap_or(ScheduleKind::OneFOneB);
    let Some(path) = given.text_if_known(CSV) else { return Ok(schedule) };
    let error = |works: String| {
        let (name, value) = (CSV.to_owned(), path.to_owned());
        OptionError::Value { name, value, works }
    };
    let missing = || error("no such file lies beside what names it".to_owned());
    let text = source.files.get(basename(path)).ok_or_else(missing)?;
    let order = read_csv(text).map_err(|problem| error(problem.to_string()))?;
    let own = schedule::Given::new(&order).map_err(|problem| error(problem.to_string()))?;
    let [p, v, m] = own.numbers();
    let is_named = generate(schedule, p, m, v).is_ok_and(|named| named == order);
    Ok(if is_named { schedule } else { ScheduleKind::Given(own) })
}

/// Where the order of a schedule is, action by action.
const CSV: &str = "--parallelism.pipeline_parallel_schedule_csv";

/// Which layers each stage has, and how many stages each rank: as the function lists them, else by torchtitan's rule
/// (`generate_llm_fqn_per_model_part`).
fn stages(
    source: &Source<'_>,
    given: &Given,
    python: Option<&str>,
    pipeline: u32,
    schedule: ScheduleKind,
) -> Result<(StatedStages, u32), ImportError> {
    if pipeline == 1 {
        return Ok((StatedStages::Even, 1));
    }
    let listed = "--parallelism.module_fqns_per_model_part";
    if given.has(listed) {
        return Err(OptionError::Value {
            name: listed.to_owned(),
            value: String::new(),
            works: "modules of stages are read where the function of `--config` sets them, line by line".to_owned(),
        }
        .into());
    }
    let blocks = python.and_then(blocks_of);
    let blocks = match blocks {
        Some(blocks) => blocks,
        None => by_rule(source, given, pipeline, schedule)?,
    };
    let all = blocks.len() as u32;
    if !all.is_multiple_of(pipeline) {
        return Err(ImportError::Divides {
            of: Divided::Stages,
            instead: None,
            what: format!("{all} stages do not divide over {pipeline} ranks"),
            works: format!("{} stages", all.next_multiple_of(pipeline)),
        });
    }
    Ok((StatedStages::Blocks(blocks), all / pipeline))
}

/// Blocks of each stage, of the lists of modules that a function sets.
fn blocks_of(python: &str) -> Option<Vec<u32>> {
    let mut lines = python.lines().map(str::trim);
    lines.find(|line| line.ends_with("module_fqns_per_model_part = ["))?;
    let stages = lines.take_while(|line| *line != "]");
    let is_block = |name: &str| {
        let name = name.trim().trim_matches('"');
        name.starts_with("layers.") || ["tok_embeddings", "lm_head", "output"].contains(&name)
    };
    let count = |line: &str| {
        let names = line.strip_prefix('[')?.trim_end_matches(',').strip_suffix(']')?;
        Some(names.split(',').filter(|name| is_block(name)).count() as u32)
    };
    stages.map(count).collect()
}

fn by_rule(
    source: &Source<'_>,
    given: &Given,
    pipeline: u32,
    schedule: ScheduleKind,
) -> Result<Vec<u32>, ImportError> {
    let whole = |name: &str| -> Result<Option<u32>, OptionError> {
        let name = format!("--parallelism.{name}");
        let Some(text) = given.text(&name)? else { return Ok(None) };
        let works = "a whole number is expected".to_owned();
        let error = || OptionError::Value { name: name.clone(), value: text.to_owned(), works };
        text.parse().map(Some).map_err(|_| error())
    };
    let first = whole("pipeline_parallel_first_stage_less_layers")?.unwrap_or(1);
    let last = whole("pipeline_parallel_last_stage_less_layers")?.unwrap_or(1);
    let Some(layers) = source.num_layers else {
        return Err(ImportError::Unknown {
            what: "torchtitan's stages are of a model's layers, and this model is of other blocks"
                .to_owned(),
            works: "a model that is a transformer".to_owned(),
        });
    };
    let counted = layers + first + last;
    let usual = if schedule.is_interleaved() { 2 } else { schedule.default_virtual_stages() };
    let stages = match count(given, "pipeline_parallel_layers_per_stage")? {
        Some(each) => counted.div_ceil(each),
        None => pipeline * usual,
    };
    let (each, more) = (counted / stages, counted % stages);
    let of = |stage: u32| {
        let all = each + u32::from(stage < more);
        let [less, is_end] = match stage {
            0 => [first, 1],
            _ if stage + 1 == stages => [last, 1],
            _ => [0, 0],
        };
        all.checked_sub(less).map(|layers| layers + is_end)
    };
    let blocks: Option<Vec<u32>> = (0..stages).map(of).collect();
    blocks.ok_or_else(|| ImportError::Divides {
        of: Divided::Stages,
        instead: None,
        what: format!("{layers} layers do not make {stages} stages"),
        works: "fewer stages".to_owned(),
    })
}

/// Groups of replicas, and ranks over which each shards, beside context parallelism.
struct Replicas {
    copies: u32,
    shards: Option<u32>,
}

fn replicas(source: &Source<'_>, given: &Given, others: u64) -> Result<Replicas, ImportError> {
    let copies: u32 = count(given, "data_parallel_replicate_degree")?.unwrap_or(1);
    let name = "--parallelism.data_parallel_shard_degree";
    // What is left of the ranks, by default.
    let shards = match given.text(name)? {
        Some("-1") | None => None,
        Some(_) => given.count::<u32>(name)?,
    };
    let ranks = source.num_gpus().map(u64::from).filter(|ranks| ranks.is_multiple_of(others));
    let Some(replicas) = ranks.map(|ranks| ranks / others) else {
        return Ok(Replicas { copies, shards });
    };
    let product = u64::from(copies) * u64::from(shards.unwrap_or(1));
    let fits =
        if shards.is_some() { product == replicas } else { replicas.is_multiple_of(product) };
    if !fits {
        let shards = shards.map_or_else(|| "what is left".to_owned(), |it| it.to_string());
        return Err(ImportError::Divides {
            of: Divided::Ranks,
            instead: None,
            what: format!(
                "`data_parallel_replicate_degree` {copies} x `data_parallel_shard_degree` {shards} are no way to \
                 have {replicas} replicas"
            ),
            works: format!(
                "`data_parallel_shard_degree` -1 with a `data_parallel_replicate_degree` that divides {replicas}"
            ),
        });
    }
    let shards = shards.or_else(|| u32::try_from(replicas / product).ok());
    Ok(Replicas { copies, shards })
}

fn zero_stage(
    given: &Given,
    replicas: &Replicas,
    [context, pipeline]: [u32; 2],
) -> Result<ZeroStage, OptionError> {
    let known = [
        ("always", Some(ZeroStage::Parameters)),
        ("never", Some(ZeroStage::Gradients)),
        ("default", None),
    ];
    let name = "--parallelism.fsdp_reshard_after_forward";
    let stated = given.one_of(name, &known)?.flatten();
    let is_whole = replicas.shards == Some(1) && context == 1;
    Ok(match stated {
        Some(stage) => stage,
        None if is_whole => ZeroStage::None,
        None if pipeline > 1 => ZeroStage::Gradients,
        None => ZeroStage::Parameters,
    })
}

fn recompute(policy: Option<&Word>) -> Result<Recompute, OptionError> {
    let text = policy.map_or("activation-checkpoint:none", |it| it.text.as_str());
    match text {
        "activation-checkpoint:none" => Ok(Recompute::None),
        "activation-checkpoint:selective" => Ok(Recompute::Selective),
        "activation-checkpoint:full" => Ok(Recompute::Full),
        _ => Err(OptionError::Value {
            name: text.to_owned(),
            value: String::new(),
            works: "activation-checkpoint:none, :selective or :full is what a plan has".to_owned(),
        }),
    }
}

fn dispatcher(python: Option<&str>) -> TokenDispatcher {
    let has = |what: &str| {
        python.is_some_and(|text| text.contains(&format!("moe_comm_backend=\"{what}\"")))
    };
    match (has("deepep"), has("hybridep")) {
        (true, _) => TokenDispatcher::DeepEp,
        (_, true) => TokenDispatcher::HybridEp,
        _ => TokenDispatcher::AllToAll,
    }
}

/// Sequences of a step and how they are cut.
struct Batch {
    micro_batch_size: u32,
    num_micro_batches: Option<u32>,
    global: Option<u64>,
}

/// A local batch goes through a pipeline in micro-batches; without one it is a micro-batch, and they add up.
fn batch(source: &Source<'_>, given: &Given, pipeline: u32) -> Result<Batch, ImportError> {
    let stated = source.stated;
    let name = "--training.global_batch_size";
    let global = match given.text(name)? {
        Some("-1") => None,
        _ => given.count::<u64>(name)?,
    };
    let global = agreed(global, name, stated.global_batch_size, "--global-batch-size")?;
    let local_name = "--training.local_batch_size";
    let local: Option<u32> = given.count(local_name)?;
    let needed = || OptionError::Missing {
        name: local_name.to_owned(),
        works: "how many sequences a rank has at once".to_owned(),
    };
    if pipeline == 1 {
        let micro = agreed(local, local_name, stated.micro_batch_size, "--micro-batch-size")?;
        let micro_batch_size = micro.ok_or_else(needed)?;
        return Ok(Batch { micro_batch_size, num_micro_batches: None, global });
    }
    let local = local.ok_or_else(needed)?;
    let each = "pipeline_parallel_microbatch_size";
    let micro = agreed(count(given, each)?, each, stated.micro_batch_size, "--micro-batch-size")?;
    let micro_batch_size: u32 = micro.unwrap_or(1);
    if !local.is_multiple_of(micro_batch_size) {
        return Err(ImportError::Divides {
            of: Divided::Batch,
            instead: None,
            what: format!(
                "`{local_name}` {local} is no number of micro-batches of {micro_batch_size}"
            ),
            works: format!("{}", local.next_multiple_of(micro_batch_size)),
        });
    }
    // Local batches that follow each other empty the pipeline in between, which no plan does.
    Ok(Batch { micro_batch_size, num_micro_batches: Some(local / micro_batch_size), global })
}

fn training(
    source: &Source<'_>,
    given: &Given,
    batch: &Batch,
    is_eight: bool,
) -> Result<StatedTraining, ImportError> {
    let formats = [("bfloat16", true), ("float32", false)];
    let in_16 = given.one_of("--training.mixed_precision_param", &formats)?.unwrap_or(true);
    let all_in_16 = given.one_of("--training.dtype", &formats)?.unwrap_or(false);
    let name = "--training.seq_len";
    let precision = match (in_16 || all_in_16, is_eight) {
        (_, true) => Precision::Fp8,
        (true, _) => Precision::Bf16,
        (false, false) => Precision::Fp32,
    };
    Ok(StatedTraining {
        sequence_length: agreed(
            given.count(name)?,
            name,
            source.stated.sequence_length,
            "--seq-len",
        )?,
        global_batch_size: batch.global,
        num_micro_batches: batch.num_micro_batches,
        precision,
        optimizer: Optimizer::AdamW,
        // `mixed_precision_reduce` has float32 alone.
        fp32_gradients: precision != Precision::Fp32,
        bf16_moments: all_in_16,
        no_master_weights: all_in_16,
    })
}

/// torchtitan, with what the flags switch on and off of its habits.
fn framework(given: &Given) -> Framework {
    let mut framework = Target::TorchTitan.framework();
    if !given.has("--compile.enable") {
        framework.kernels.fusion = Fusion::Eager;
    }
    if given.has("--compile.enable_async_tensor_parallel") {
        framework.tensor_parallel.overlap = TensorOverlap::Products;
    }
    framework
}
