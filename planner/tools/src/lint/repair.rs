//! Faults of settings as a problem: each is fixed and the rest is posed again, so that all are found.

use ir::cluster::Precision;
use ir::layout::{LayoutError, LayoutSpec, ZeroStage};

use super::change::Change;
use super::context::of_case;
use super::documents::Documents;
use super::evaluated::{EvalContext, EvaluatedConfig};
use super::finding::{Finding, Fix};
use super::rule::Rule;
use super::words::{option_changes, places};
use crate::interchange::{ImportError, Imported, StatedStages};
use planner_core::problem::ProblemError;

/// Result of posing settings, with faults fixed.
pub(super) struct Repaired {
    /// Evaluated settings; `None` if a fault could not be fixed.
    pub(super) case: Option<EvaluatedConfig>,
    /// Findings, one for each fault.
    pub(super) findings: Vec<Finding>,
}

/// Limit of faults that are fixed.
const MOST_FAULTS: usize = 16;

/// A fault with the changes that it is about, and candidate changes that may fix it, the likeliest first.
struct Fault {
    rule: Rule,
    message: String,
    about: Vec<Change>,
    candidates: Vec<Vec<Change>>,
}

/// Poses and evaluates settings, and fixes faults.
///
/// # Errors
///
/// [`ImportError`] where a value is missing that the problem needs.
pub(super) fn pose(
    eval: &EvalContext<'_>,
    given: &Documents,
    imported: &Imported,
) -> Result<Repaired, ImportError> {
    let mut imported = imported.clone();
    let mut faults: Vec<(Fault, Option<Vec<Change>>, Imported)> = Vec::new();
    let mut case = None;
    for _ in 0..MOST_FAULTS {
        let fault = match fault_of(eval, &imported) {
            Some(fault) => fault,
            None => match eval.evaluated(&imported) {
                Ok(evaluated) => {
                    case = Some(evaluated);
                    break;
                }
                Err(error @ ImportError::Unknown { .. }) => return Err(error),
                Err(error) => of_error(eval, &error, &imported),
            },
        };
        let mut fault = fault;
        let is_said = |changes: &Vec<Change>| {
            let after = eval.changed(&imported, changes);
            let runs = [&imported, &after].map(|it| eval.run(it));
            given.tool().is_written
                || after.stages == StatedStages::Balanced
                || option_changes(given, changes, runs.each_ref()).is_some()
        };
        // A tool that hands its settings on may have no key for a change.
        if fault.candidates.iter().any(is_said) {
            fault.candidates.retain(is_said);
        }
        let chosen = chosen(eval, &fault, &imported);
        let before = imported.clone();
        if let Some(changes) = &chosen {
            imported = eval.changed(&imported, changes);
        }
        let is_over = chosen.is_none();
        faults.push((fault, chosen, before));
        if is_over {
            break;
        }
    }
    let finding = |(fault, chosen, before): (Fault, Option<Vec<Change>>, Imported)| {
        let fix = chosen.as_ref().and_then(|changes| {
            let mut after = eval.changed(&before, changes);
            // The prediction is of this fix alone if that can run, else of all fixes together.
            let alone = eval.evaluated(&after).ok();
            if let Some(alone) = &alone
                && after.stages == StatedStages::Balanced
            {
                after.stages = StatedStages::Blocks(alone.blocks());
            }
            let runs = [&before, &after].map(|it| eval.run(it));
            let told = option_changes(given, changes, runs.each_ref())?;
            Some(match alone.as_ref().or(case.as_ref()) {
                Some(case) => of_case(given, told, case),
                None => Fix::unevaluated(told, Vec::new()),
            })
        });
        Finding {
            rule: fault.rule,
            severity: fault.rule.most_severe(),
            message: fault.message,
            options: places(given, &fault.about),
            cost: None,
            fix,
        }
    };
    let findings = faults.into_iter().map(finding).collect();
    Ok(Repaired { case, findings })
}

/// Changes to fix a fault: the fastest that fit, with other faults fixed; else the first that lead to another fault.
fn chosen(eval: &EvalContext<'_>, fault: &Fault, imported: &Imported) -> Option<Vec<Change>> {
    let settled = fault.candidates.iter().filter_map(|changes| {
        let new = eval.changed(imported, changes);
        if fault_in(eval, &new).is_some_and(|other| other.rule == fault.rule) {
            return None;
        }
        let case = settled(eval, &new, SETTLED_WITH)?;
        case.lacks().is_empty().then_some((changes, case))
    });
    let settled: Vec<_> = settled.collect();
    let fitting = settled.iter().filter(|(_, case)| case.fits());
    let best = fitting.min_by(|(_, one), (_, other)| {
        one.seconds_per_sequence().total_cmp(&other.seconds_per_sequence())
    });
    // If nothing fits, the least peak memory.
    let best = best.or_else(|| settled.iter().min_by_key(|(_, case)| case.peak()));
    if let Some((changes, _)) = best {
        return Some((*changes).clone());
    }
    let message = |imported: &Imported| fault_in(eval, imported).map(|it| it.message);
    let differs = |changes: &&Vec<Change>| {
        message(&eval.changed(imported, changes)).as_ref() != Some(&fault.message)
    };
    fault.candidates.iter().find(differs).cloned()
}

/// Limit of further faults that are fixed to evaluate a candidate.
const SETTLED_WITH: u32 = 3;

/// Evaluates settings, after further faults are fixed by the first or second candidate of each.
fn settled(eval: &EvalContext<'_>, imported: &Imported, most: u32) -> Option<EvaluatedConfig> {
    let Some(fault) = fault_in(eval, imported) else { return eval.evaluated(imported).ok() };
    let most = most.checked_sub(1)?;
    let first = fault.candidates.iter().take(2);
    first.into_iter().find_map(|changes| settled(eval, &eval.changed(imported, changes), most))
}

/// First fault of settings, if they have one.
fn fault_in(eval: &EvalContext<'_>, imported: &Imported) -> Option<Fault> {
    match fault_of(eval, imported) {
        Some(fault) => Some(fault),
        None => eval.posed(imported).err().map(|error| of_error(eval, &error, imported)),
    }
}

/// First product or sum of settings that does not divide, or contradicts the number of GPUs.
fn fault_of(eval: &EvalContext<'_>, imported: &Imported) -> Option<Fault> {
    let Imported { layout, training, .. } = imported;
    let gpus = imported.num_gpus.or(eval.num_gpus)?;
    if let Some(asked) = eval.num_gpus.filter(|asked| *asked != gpus) {
        return Some(Fault {
            rule: Rule::NodesDoNotDivide,
            message: format!("the settings start {gpus} ranks, not {asked}"),
            about: vec![Change::Gpus(asked)],
            candidates: vec![vec![Change::Gpus(asked)]],
        });
    }
    let LayoutSpec { tensor_parallel, context_parallel, pipeline_parallel, .. } = *layout;
    let degrees = [tensor_parallel, context_parallel, pipeline_parallel].map(u64::from);
    let others: u64 = degrees.iter().product();
    if others == 0 || !u64::from(gpus).is_multiple_of(others) {
        let domain = eval.cluster.levels.first().and_then(|it| it.ranks).unwrap_or(u32::MAX);
        return Some(ranks(layout, gpus, others, domain));
    }
    let replicas = u64::from(gpus) / others;
    let each = replicas * u64::from(layout.micro_batch_size);
    if let Some(batch) = training.global_batch_size
        && (batch == 0 || !batch.is_multiple_of(each))
    {
        return Some(batches(layout, replicas, batch));
    }
    let sharing = replicas * u64::from(context_parallel);
    if !sharing.is_multiple_of(imported.shard_groups.max(1).into()) {
        return Some(Fault {
            rule: Rule::ShardGroupsDoNotDivide,
            message: format!(
                "{sharing} replicas do not divide into {} groups over which states are sharded",
                imported.shard_groups
            ),
            about: vec![Change::OneShardGroup],
            candidates: vec![vec![Change::OneShardGroup]],
        });
    }
    let stages = layout.pipeline_parallel.saturating_mul(layout.virtual_stages);
    uneven(eval, imported, stages)
}

/// Smaller degrees, in descending order.
pub(super) fn below(degree: u32) -> impl Iterator<Item = u32> {
    (1..degree.min(4096)).rev()
}

/// Constructor of a change of a degree, and the present degree.
type Degree = (fn(u32) -> Change, u32);

fn ranks(layout: &LayoutSpec, gpus: u32, others: u64, domain: u32) -> Fault {
    let divides = |degree: u32, was: u32| {
        let rest = others / u64::from(was.max(1)) * u64::from(degree);
        rest > 0 && u64::from(gpus).is_multiple_of(rest)
    };
    let mut candidates = Vec::new();
    let all: [Degree; 3] = [
        (Change::TensorParallel, layout.tensor_parallel),
        (Change::Pipeline, layout.pipeline_parallel),
        (Change::Context, layout.context_parallel),
    ];
    for (change, was) in all {
        let near = below(was).filter(|it| divides(*it, was)).take(2);
        candidates.extend(near.map(|it| vec![change(it)]));
        let more = (was + 1..=was.saturating_mul(4).min(gpus)).find(|it| divides(*it, was));
        candidates.extend(more.map(|it| vec![change(it)]));
    }
    candidates.retain(|it| !it.iter().any(|change| change.crosses(domain)));
    // Pairs of tensor and pipeline degrees, which may divide where no single change does.
    for tensor in below(layout.tensor_parallel.saturating_add(1)) {
        for pipeline in below(layout.pipeline_parallel.saturating_add(1)).take(64) {
            let rest = u64::from(tensor) * u64::from(pipeline) * u64::from(layout.context_parallel);
            let is_within = domain.is_multiple_of(tensor);
            if is_within
                && candidates.len() < 12
                && rest > 0
                && u64::from(gpus).is_multiple_of(rest)
            {
                candidates.push(vec![Change::TensorParallel(tensor), Change::Pipeline(pipeline)]);
            }
        }
    }
    let LayoutSpec { tensor_parallel, context_parallel, pipeline_parallel, .. } = *layout;
    Fault {
        rule: Rule::NodesDoNotDivide,
        message: format!(
            "tensor {tensor_parallel} x context {context_parallel} x pipeline {pipeline_parallel} are {others} ranks, \
             which do not divide {gpus} GPUs; {} GPUs would do",
            u64::from(gpus).next_multiple_of(others.max(1))
        ),
        about: vec![
            Change::TensorParallel(tensor_parallel),
            Change::Pipeline(pipeline_parallel),
            Change::Gpus(gpus),
        ],
        candidates,
    }
}

fn batches(layout: &LayoutSpec, replicas: u64, batch: u64) -> Fault {
    let micro = layout.micro_batch_size;
    // Interleaved 1F1B requires a multiple of the pipeline ranks as the number of micro-batches.
    let rounds = if layout.virtual_stages > 1 { layout.pipeline_parallel } else { 1 };
    let unit = replicas * u64::from(micro) * u64::from(rounds);
    let smaller = below(micro).filter(|it| {
        let unit = replicas * u64::from(*it) * u64::from(rounds);
        batch > 0 && batch.is_multiple_of(unit)
    });
    let [down, up] = [batch / unit * unit, (batch / unit + 1) * unit];
    let mut candidates: Vec<Vec<Change>> =
        smaller.take(1).map(|it| vec![Change::MicroBatch(it)]).collect();
    let nearest = if down > 0 && batch - down <= up - batch { down } else { up };
    candidates.push(vec![Change::GlobalBatch(nearest)]);
    Fault {
        rule: Rule::BatchDoesNotDivide,
        message: format!(
            "a global batch of {batch} is no number of micro-batches of {micro} on {replicas} replicas; {} would be",
            if down > 0 { format!("{down} or {up}") } else { up.to_string() }
        ),
        about: vec![Change::GlobalBatch(batch), Change::MicroBatch(micro)],
        candidates,
    }
}

fn uneven(eval: &EvalContext<'_>, imported: &Imported, stages: u32) -> Option<Fault> {
    let layout = &imported.layout;
    let layers = eval.num_layers();
    let about = vec![Change::RebalanceStages, Change::VirtualStages(layout.virtual_stages)];
    let (pipeline, of_rank) = (layout.pipeline_parallel, layout.virtual_stages);
    let in_words = if of_rank > 1 {
        format!("{stages} stages ({of_rank} on each of {pipeline} ranks)")
    } else {
        format!("{stages} stages")
    };
    let candidates = || {
        let mut all = vec![vec![Change::RebalanceStages]];
        let divides = |p: u32, v: u32| layers.is_multiple_of(p.saturating_mul(v).max(1));
        let fewer = below(of_rank).find(|it| divides(pipeline, *it));
        all.extend(fewer.map(|it| vec![Change::VirtualStages(it)]));
        let ranks = below(pipeline).find(|it| divides(*it, of_rank));
        all.extend(ranks.map(|it| vec![Change::Pipeline(it)]));
        all
    };
    let total = eval.graph.num_blocks() as u64;
    match &imported.stages {
        _ if u64::from(stages) > total => Some(Fault {
            rule: Rule::TooManyStages,
            message: format!("{in_words}, but the model has {layers} layers to put on them"),
            about: vec![Change::Pipeline(pipeline), Change::VirtualStages(of_rank)],
            candidates: candidates(),
        }),
        StatedStages::Even if !layers.is_multiple_of(stages.max(1)) => Some(Fault {
            rule: Rule::StagesUneven,
            message: format!(
                "{layers} layers do not divide into {in_words}: {} would be left over",
                layers % stages.max(1)
            ),
            about,
            candidates: candidates(),
        }),
        StatedStages::Blocks(counts) => {
            let given: u64 = counts.iter().copied().map(u64::from).sum();
            let is_whole = given == total && counts.len() == stages as usize;
            (!is_whole || counts.contains(&0)).then(|| Fault {
                rule: Rule::StagesUneven,
                message: format!(
                    "the stages have {} layers in {} stages, but the model has {layers} and the layout {in_words}",
                    given.saturating_sub(2),
                    counts.len()
                ),
                about,
                candidates: candidates(),
            })
        }
        _ => None,
    }
}

/// The fault that an error describes.
fn of_error(eval: &EvalContext<'_>, error: &ImportError, imported: &Imported) -> Fault {
    let message = error.to_string();
    let message = message.lines().next().unwrap_or_default();
    let message = message.trim_start_matches("the layout that the settings give: ").to_owned();
    let layout = &imported.layout;
    let (rule, about, candidates) = match error {
        ImportError::Layout(error) => of_layout(eval, error, imported),
        ImportError::Problem(ProblemError::Precision { .. }) => {
            let has = |it: &Precision| eval.cluster.gpu.peak.contains_key(it);
            let usual = [Precision::Bf16, Precision::Fp16, Precision::Fp32].into_iter().filter(has);
            let about = vec![Change::Precision(imported.training.precision)];
            let all = usual.map(|it| vec![Change::Precision(it)]).collect();
            (Rule::PrecisionNotSupported, about, all)
        }
        _ => (
            Rule::LayoutImpossible,
            vec![Change::TensorParallel(layout.tensor_parallel)],
            Vec::new(),
        ),
    };
    Fault { rule, message, about, candidates }
}

/// Candidate changes of the tensor-parallel degree.
fn other_tensor(layout: &LayoutSpec) -> Vec<Vec<Change>> {
    let near = below(layout.tensor_parallel).take(8);
    let more = layout.tensor_parallel + 1..=layout.tensor_parallel.saturating_mul(2).min(64);
    let mut all: Vec<Vec<Change>> =
        near.chain(more).map(|it| vec![Change::TensorParallel(it)]).collect();
    // The pipeline takes the ranks that tensor parallelism gives up.
    all.extend(below(layout.tensor_parallel).filter_map(|it| {
        let ratio =
            layout.tensor_parallel.is_multiple_of(it).then(|| layout.tensor_parallel / it)?;
        let pipeline = layout.pipeline_parallel.saturating_mul(ratio);
        Some(vec![Change::TensorParallel(it), Change::Pipeline(pipeline)])
    }));
    all
}

/// Candidate changes that make micro-batches a multiple of the pipeline ranks, or switch interleaving off.
fn other_rounds(eval: &EvalContext<'_>, imported: &Imported) -> Vec<Vec<Change>> {
    let layout = &imported.layout;
    let (p, b) = (u64::from(layout.pipeline_parallel), u64::from(layout.micro_batch_size));
    let others = u64::from(layout.tensor_parallel) * u64::from(layout.context_parallel) * p;
    let gpus = u64::from(imported.num_gpus.or(eval.num_gpus).unwrap_or(1));
    let unit = (gpus / others.max(1)).max(1) * b * p;
    let batch = imported.training.global_batch_size.unwrap_or(unit);
    let down = batch / unit * unit;
    let up = (batch / unit + 1) * unit;
    let mut all: Vec<Vec<Change>> = below(layout.micro_batch_size)
        .filter(|it| batch.is_multiple_of(unit / b * u64::from(*it)))
        .take(1)
        .map(|it| vec![Change::MicroBatch(it)])
        .collect();
    all.push(vec![Change::VirtualStages(1)]);
    let near = if down > 0 && batch - down <= up - batch { down } else { up };
    // The batch may change by an eighth at most: a larger change is another training run.
    if near.abs_diff(batch) * 8 <= batch {
        all.push(vec![Change::GlobalBatch(near)]);
    }
    all
}

type Diagnosis = (Rule, Vec<Change>, Vec<Vec<Change>>);

fn of_layout(eval: &EvalContext<'_>, error: &LayoutError, imported: &Imported) -> Diagnosis {
    let layout = &imported.layout;
    let expert = |degree: u32| -> Vec<Vec<Change>> {
        let near = below(degree.min(256)).chain(degree + 1..=degree.saturating_mul(2).min(256));
        near.map(|it| vec![Change::Expert(it)]).collect()
    };
    match error {
        LayoutError::SequenceUndivided { length, parts, .. } => {
            let near = (length + parts / 2) / parts.max(&1) * parts;
            let about = vec![Change::Sequence(near), Change::Context(layout.context_parallel)];
            if near > 0 && near.abs_diff(*length) * 8 <= *length {
                return (Rule::SequenceDoesNotDivide, about, vec![vec![Change::Sequence(near)]]);
            }
            let all = below(layout.context_parallel).map(|it| vec![Change::Context(it)]);
            let all =
                all.chain(other_tensor(layout)).chain([vec![Change::SequenceParallel(false)]]);
            (Rule::SequenceDoesNotDivide, about, all.collect())
        }
        LayoutError::NotDivisible { what, by, .. } => match *what {
            "experts" => {
                let about = vec![Change::Expert(layout.expert_parallel)];
                (Rule::ExpertParallelDoesNotDivide, about, expert(layout.expert_parallel))
            }
            _ if by.contains("expert_parallel") => {
                let about = vec![Change::Expert(layout.expert_parallel)];
                (Rule::ExpertParallelDoesNotDivide, about, expert(layout.expert_parallel))
            }
            _ if by.contains("expert_tensor_parallel") => {
                let about = vec![Change::ExpertTensor(layout.expert_tensor_parallel)];
                let all =
                    below(layout.expert_tensor_parallel).map(|it| vec![Change::ExpertTensor(it)]);
                (Rule::ExpertParallelDoesNotDivide, about, all.collect())
            }
            _ if by.contains("zero_shard") => {
                let about = vec![Change::OneShardGroup];
                (Rule::ShardGroupsDoNotDivide, about.clone(), vec![about])
            }
            _ => {
                let about = vec![Change::TensorParallel(layout.tensor_parallel)];
                (Rule::HeadsDoNotDivide, about, other_tensor(layout))
            }
        },
        LayoutError::NothingToShard { axis, .. } if axis.contains("expert") => {
            let about = vec![Change::Expert(layout.expert_parallel)];
            (Rule::ExpertParallelWithoutExperts, about, vec![vec![Change::Expert(1)]])
        }
        LayoutError::ExpertTensor { .. } => {
            let about = vec![Change::SequenceParallel(true)];
            let all = vec![about.clone(), vec![Change::ExpertTensor(layout.tensor_parallel)]];
            (Rule::SequenceParallelMissing, about, all)
        }
        LayoutError::Schedule { .. } | LayoutError::Numbers(_) => {
            let about = vec![
                Change::GlobalBatch(0),
                Change::Pipeline(layout.pipeline_parallel),
                Change::VirtualStages(layout.virtual_stages),
            ];
            (Rule::MicroBatchesForInterleaving, about, other_rounds(eval, imported))
        }
        LayoutError::TooManyStages { .. } => {
            let about = vec![Change::Pipeline(layout.pipeline_parallel)];
            let all = below(layout.pipeline_parallel).map(|it| vec![Change::Pipeline(it)]);
            let fewer = below(layout.virtual_stages).map(|it| vec![Change::VirtualStages(it)]);
            (Rule::TooManyStages, about, fewer.chain(all).collect())
        }
        LayoutError::OffloadedParameters { .. } => {
            let about = vec![Change::NoOffload];
            let all = vec![about.clone(), vec![Change::Zero(ZeroStage::Parameters)]];
            (Rule::LayoutImpossible, about, all)
        }
        _ => {
            let about = vec![Change::TensorParallel(layout.tensor_parallel)];
            (Rule::LayoutImpossible, about, Vec::new())
        }
    }
}
