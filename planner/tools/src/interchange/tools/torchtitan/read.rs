//! Reads torchtitan's flags, and the Python file that an export puts into the same folder.

use ir::cluster::Precision;
use ir::graph::{Recompute, TokenDispatcher};
use ir::schedule::{MOST_STAGES, ScheduleKind};

use super::degrees::count;
use super::table::TABLE;
use crate::interchange::error::{Divided, ImportError};
use crate::interchange::imported::{Imported, StatedStages};
use crate::interchange::options::{OptionError, ParsedOptions};
use crate::interchange::shell::Word;
use crate::interchange::source::Source;
use crate::interchange::table::Reader;

/// Reads options; the last word may be the recompute policy.
pub(in super::super) fn read_words(
    source: &Source<'_>,
    words: &[Word],
) -> Result<Imported, ImportError> {
    let words: Vec<Word> = words.iter().map(Word::underscored).collect();
    let (given, read) = TABLE.vocabulary.read_options(&words)?;
    let policy = words.get(read);
    let module =
        given.text("--module")?.map(|it| format!("{}.py", it.rsplit('.').next().unwrap_or(it)));
    let python = module.and_then(|name| source.files.get(&name)).map(String::as_str);
    if python.is_none() {
        unseen(source, &given, policy)?;
    }
    let given = &given;
    let mut settings = source.defaults(source.target);
    TABLE.read(Reader { source, given }, &mut settings)?;
    let Imported { layout, training, stages: of_stages, .. } = &mut settings;
    let (pipeline, schedule) = (layout.pipeline_parallel, layout.schedule);
    layout.recompute = recompute(policy)?;
    layout.switches.token_dispatcher = dispatcher(python);
    (*of_stages, layout.virtual_stages) = stages(source, given, python, pipeline, schedule)?;
    if python.is_some_and(|text| text.contains("Float8LinearConverter.Config")) {
        training.precision = Precision::Fp8;
    }
    // `mixed_precision_reduce` supports only float32.
    training.fp32_gradients = training.precision != Precision::Fp32;
    Ok(settings)
}

/// Refuses missing flags that the function of `--config` may set, if the Python of that function is not given.
fn unseen(
    source: &Source<'_>,
    given: &ParsedOptions,
    policy: Option<&Word>,
) -> Result<(), ImportError> {
    let function = given.text("--config")?.unwrap_or("--config").to_owned();
    let missing = |name: &str| {
        Err(OptionError::missing(name, format!(
                "`{function}`, which is Python and is not run, may set it: say it beside what starts torchtitan"
            ))
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

/// Blocks of each stage, and number of virtual stages of each rank: those that the Python lists, else those of
/// torchtitan's rule (`generate_llm_fqn_per_model_part`).
fn stages(
    source: &Source<'_>,
    given: &ParsedOptions,
    python: Option<&str>,
    pipeline: u32,
    schedule: ScheduleKind,
) -> Result<(StatedStages, u32), ImportError> {
    if pipeline == 1 {
        return Ok((StatedStages::Even, 1));
    }
    let listed = "--parallelism.module_fqns_per_model_part";
    if given.has(listed) {
        return Err(OptionError::value(
            listed,
            String::new(),
            "modules of stages are read where the function of `--config` sets them, line by line",
        )
        .into());
    }
    let blocks = python.and_then(blocks_of);
    let blocks = match blocks {
        Some(blocks) => blocks,
        None => by_rule(source, given, pipeline, schedule)?,
    };
    let all = blocks.len() as u32;
    if !all.is_multiple_of(pipeline) {
        return Err(ImportError::divides(
            Divided::Stages,
            format!("{all} stages do not divide over {pipeline} ranks"),
            format!("{} stages", all.next_multiple_of(pipeline)),
        ));
    }
    Ok((StatedStages::Blocks(blocks), all / pipeline))
}

/// Blocks of each stage, from the module lists in the Python.
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
    given: &ParsedOptions,
    pipeline: u32,
    schedule: ScheduleKind,
) -> Result<Vec<u32>, ImportError> {
    let whole = |name: &str| -> Result<Option<u32>, OptionError> {
        let name = format!("--parallelism.{name}");
        let Some(text) = given.text(&name)? else { return Ok(None) };
        let works = "a whole number is expected".to_owned();
        let error = || OptionError::value(name.clone(), text, works);
        text.parse().map(Some).map_err(|_| error())
    };
    let first = whole("pipeline_parallel_first_stage_less_layers")?.unwrap_or(1);
    let last = whole("pipeline_parallel_last_stage_less_layers")?.unwrap_or(1);
    let Some(layers) = source.num_layers else {
        return Err(ImportError::unknown(
            "torchtitan's stages are of a model's layers, and this model is of other blocks",
            "a model that is a transformer",
        ));
    };
    let counted = layers.saturating_add(first).saturating_add(last);
    let usual = if schedule.is_interleaved() { 2 } else { schedule.default_virtual_stages() };
    let stages = match count(given, "pipeline_parallel_layers_per_stage")? {
        Some(each) => counted.div_ceil(each),
        None => pipeline.saturating_mul(usual),
    };
    if u64::from(stages) > MOST_STAGES {
        return Err(ImportError::divides(
            Divided::Stages,
            format!("{stages} stages are more than the {MOST_STAGES} of any pipeline"),
            "fewer stages",
        ));
    }
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
    blocks.ok_or_else(|| {
        ImportError::divides(
            Divided::Stages,
            format!("{layers} layers do not make {stages} stages"),
            "fewer stages",
        )
    })
}

fn recompute(policy: Option<&Word>) -> Result<Recompute, OptionError> {
    let text = policy.map_or("activation-checkpoint:none", |it| it.text.as_str());
    match text {
        "activation-checkpoint:none" => Ok(Recompute::None),
        "activation-checkpoint:selective" => Ok(Recompute::Selective),
        "activation-checkpoint:full" => Ok(Recompute::Full),
        _ => Err(OptionError::value(
            text,
            String::new(),
            "activation-checkpoint:none, :selective or :full is what a plan has",
        )),
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
