//! Faults of settings as a problem. Each is fixed and the rest is posed again, so that all are found.

use ir::cluster::Precision;
use ir::layout::{LayoutError, LayoutSpec, ZeroStage};

use super::change::{Change, each};
use super::context::of_case;
use super::documents::Documents;
use super::evaluated::{EvalContext, EvaluatedConfig};
use super::finding::{Finding, Fix};
use super::rule::Rule;
use super::words::{option_changes, places};
use crate::interchange::{Divided, ImportError, Imported, StatedStages};
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
/// [`ImportError`] if a value is missing that the problem needs.
pub(super) fn pose(
    eval: &EvalContext<'_>,
    given: &Documents,
    imported: &Imported,
) -> Result<Repaired, ImportError> {
    let mut imported = imported.clone();
    let mut faults: Vec<(Fault, Option<Vec<Change>>, Imported)> = Vec::new();
    let mut case = None;
    for _ in 0..MOST_FAULTS {
        let mut fault = match eval.evaluated(&imported) {
            Ok(evaluated) => {
                case = Some(evaluated);
                break;
            }
            Err(error @ ImportError::Unknown { .. }) => return Err(error),
            Err(error) => of_error(eval, &error, &imported),
        };
        let is_said = |changes: &Vec<Change>| {
            let after = eval.changed(&imported, changes);
            let runs = [&imported, &after].map(|it| eval.run(it));
            given.tool().is_written
                || after.stages == StatedStages::Balanced
                || option_changes(given, changes, runs.each_ref()).is_some()
        };
        // A tool that passes its settings on may have no key for a change.
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
            // The prediction is for this fix alone if its result can run, else for all fixes together.
            let alone = eval.evaluated(&after).ok();
            if let Some(alone) = &alone
                && after.stages == StatedStages::Balanced
            {
                after.stages = StatedStages::Blocks(alone.found.stage_blocks());
            }
            let runs = [&before, &after].map(|it| eval.run(it));
            let edits = option_changes(given, changes, runs.each_ref())?;
            Some(match alone.as_ref().or(case.as_ref()) {
                Some(case) => of_case(given, edits, case),
                None => Fix::unevaluated(edits, Vec::new()),
            })
        });
        let options = places(given, &fault.about);
        Finding { fix, ..Finding::new(fault.rule, fault.message, options) }
    };
    let findings = faults.into_iter().map(finding).collect();
    Ok(Repaired { case, findings })
}

/// Changes that fix a fault: the fastest candidate that fits once other faults are fixed too; if there is none, the
/// first that leads to another fault.
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
    // If no candidate fits, the one with the least peak memory.
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

/// Largest number of further faults that are fixed to evaluate a candidate.
const SETTLED_WITH: u32 = 3;

/// Evaluates settings after fixing further faults, each with its first or second candidate.
fn settled(eval: &EvalContext<'_>, imported: &Imported, most: u32) -> Option<EvaluatedConfig> {
    let Some(fault) = fault_in(eval, imported) else { return eval.evaluated(imported).ok() };
    let most = most.checked_sub(1)?;
    let first = fault.candidates.iter().take(2);
    first.into_iter().find_map(|changes| settled(eval, &eval.changed(imported, changes), most))
}

/// First fault of settings, if they have one.
fn fault_in(eval: &EvalContext<'_>, imported: &Imported) -> Option<Fault> {
    eval.posed(imported).err().map(|error| of_error(eval, &error, imported))
}

/// Smaller degrees, in descending order.
pub(super) fn below(degree: u32) -> impl Iterator<Item = u32> {
    (1..degree.min(4096)).rev()
}

/// Constructor of a change of a degree, and the present degree.
type Degree = (fn(u32) -> Change, u32);

/// Candidate changes of degrees whose product does not divide the number of ranks.
fn other_degrees(eval: &EvalContext<'_>, imported: &Imported) -> Vec<Vec<Change>> {
    let layout = &imported.layout;
    let gpus = imported.num_gpus.unwrap_or(1);
    let domain = eval.cluster.levels.first().and_then(|it| it.ranks).unwrap_or(u32::MAX);
    let all: [Degree; 3] = [
        (Change::TensorParallel, layout.tensor_parallel),
        (Change::Pipeline, layout.pipeline_parallel),
        (Change::Context, layout.context_parallel),
    ];
    let others = all.iter().map(|(_, degree)| u64::from(*degree)).fold(1, u64::saturating_mul);
    let divides = |degree: u32, was: u32| {
        let rest = (others / u64::from(was.max(1))).saturating_mul(u64::from(degree));
        rest > 0 && u64::from(gpus).is_multiple_of(rest)
    };
    let mut candidates = Vec::new();
    for (change, was) in all {
        candidates.extend(each(change, below(was).filter(|it| divides(*it, was)).take(2)));
        let more = (was + 1..=was.saturating_mul(4).min(gpus)).find(|it| divides(*it, was));
        candidates.extend(each(change, more));
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
    candidates
}

/// The largest smaller micro-batch with which the number of micro-batches of each replica is a multiple of `rounds`;
/// and the batch nearest to the present one for which this holds with the present micro-batch.
fn whole_rounds(imported: &Imported, rounds: u32) -> (Option<Change>, u64) {
    let replicas = imported.known_replicas().unwrap_or(1);
    let of_micro = |micro: u32| u64::from(replicas) * u64::from(micro) * u64::from(rounds);
    let micro = imported.layout.micro_batch_size;
    let unit = of_micro(micro).max(1);
    let batch = imported.training.global_batch_size.unwrap_or(unit);
    let smaller = below(micro).find(|it| batch > 0 && batch.is_multiple_of(of_micro(*it)));
    let down = batch / unit * unit;
    let is_down = down > 0 && batch - down <= down + unit - batch;
    (smaller.map(Change::MicroBatch), if is_down { down } else { down + unit })
}

/// Candidate changes of a number of stages that does not divide the layers or exceeds them.
fn other_stages(eval: &EvalContext<'_>, imported: &Imported) -> Vec<Vec<Change>> {
    let (ranks, of_rank) = (imported.layout.pipeline_parallel, imported.layout.virtual_stages);
    let divides = |p: u32, v: u32| eval.num_layers().is_multiple_of(p.saturating_mul(v).max(1));
    let mut all = vec![vec![Change::RebalanceStages]];
    all.extend(each(Change::VirtualStages, below(of_rank).find(|it| divides(ranks, *it))));
    // A number of ranks that does not divide the GPUs would be the next fault.
    let gpus = imported.num_gpus.or(eval.num_gpus);
    let others = imported.layout.tensor_parallel.saturating_mul(imported.layout.context_parallel);
    let fills =
        |p: u32| gpus.is_none_or(|gpus| gpus.is_multiple_of(others.saturating_mul(p).max(1)));
    let fewer = below(ranks).find(|it| divides(*it, of_rank) && fills(*it));
    all.extend(each(Change::Pipeline, fewer));
    all
}

/// The fault that an error describes.
fn of_error(eval: &EvalContext<'_>, error: &ImportError, imported: &Imported) -> Fault {
    let message = match error {
        // The remedy is in the cluster's file, not in the settings.
        ImportError::Layout(error @ LayoutError::UnknownHost { .. }) => {
            error.to_string().replace("\nhint: ", "; ")
        }
        ImportError::Layout(error) => error.to_string(),
        error => error.to_string(),
    };
    let message = message.lines().next().unwrap_or_default().to_owned();
    let layout = &imported.layout;
    let (rule, about, candidates) = match error {
        ImportError::Layout(error) => of_layout(eval, error, imported),
        ImportError::Divides { of, .. } => {
            let (about, candidates) = of_divided(eval, *of, imported);
            return Fault { rule: of.rule(), message: error.in_one_line(), about, candidates };
        }
        ImportError::Problem(ProblemError::Precision { .. }) => {
            let has = |it: &Precision| eval.cluster.gpu.peak.contains_key(it);
            let usual = [Precision::Bf16, Precision::Fp16, Precision::Fp32].into_iter().filter(has);
            let about = vec![Change::Precision(imported.training.precision)];
            (Rule::PrecisionNotSupported, about, each(Change::Precision, usual))
        }
        _ => (
            Rule::LayoutImpossible,
            vec![Change::TensorParallel(layout.tensor_parallel)],
            Vec::new(),
        ),
    };
    Fault { rule, message, about, candidates }
}

/// Changes that name the quantities which do not divide, and candidate changes that fix them.
fn of_divided(
    eval: &EvalContext<'_>,
    of: Divided,
    imported: &Imported,
) -> (Vec<Change>, Vec<Vec<Change>>) {
    let LayoutSpec { tensor_parallel, pipeline_parallel, virtual_stages, .. } = imported.layout;
    match of {
        Divided::Stated => {
            let asked: Vec<Change> = eval.num_gpus.map(Change::Gpus).into_iter().collect();
            (asked.clone(), vec![asked])
        }
        Divided::Ranks => {
            let degrees =
                [Change::TensorParallel(tensor_parallel), Change::Pipeline(pipeline_parallel)];
            let about = degrees.into_iter().chain(imported.num_gpus.map(Change::Gpus));
            (about.collect(), other_degrees(eval, imported))
        }
        Divided::ShardGroups => (vec![Change::OneShardGroup], vec![vec![Change::OneShardGroup]]),
        Divided::Batch => {
            // Interleaved 1F1B requires the number of micro-batches to be a multiple of the pipeline ranks.
            let rounds = if virtual_stages > 1 { pipeline_parallel } else { 1 };
            let (smaller, nearest) = whole_rounds(imported, rounds);
            let batch = imported.training.global_batch_size.unwrap_or(nearest);
            let micro_batch = Change::MicroBatch(imported.layout.micro_batch_size);
            let all = smaller.into_iter().chain([Change::GlobalBatch(nearest)]);
            (vec![Change::GlobalBatch(batch), micro_batch], all.map(|it| vec![it]).collect())
        }
        Divided::Stages => {
            let about = vec![Change::RebalanceStages, Change::VirtualStages(virtual_stages)];
            (about, other_stages(eval, imported))
        }
    }
}

/// Candidate changes of the tensor-parallel degree.
fn other_tensor(layout: &LayoutSpec) -> Vec<Vec<Change>> {
    let neighbours = below(layout.tensor_parallel).take(8);
    let more = layout.tensor_parallel + 1..=layout.tensor_parallel.saturating_mul(2).min(64);
    let mut all = each(Change::TensorParallel, neighbours.chain(more));
    // The pipeline takes the ranks that tensor parallelism gives up.
    all.extend(below(layout.tensor_parallel).filter_map(|it| {
        let ratio =
            layout.tensor_parallel.is_multiple_of(it).then(|| layout.tensor_parallel / it)?;
        let pipeline = layout.pipeline_parallel.saturating_mul(ratio);
        Some(vec![Change::TensorParallel(it), Change::Pipeline(pipeline)])
    }));
    all
}

/// Candidate changes that make the number of micro-batches a multiple of the pipeline ranks, or switch interleaving
/// off.
fn other_rounds(imported: &Imported) -> Vec<Vec<Change>> {
    let (smaller, nearest) = whole_rounds(imported, imported.layout.pipeline_parallel);
    let batch = imported.training.global_batch_size.unwrap_or(nearest);
    let all = smaller.into_iter().chain([Change::VirtualStages(1)]);
    // The batch may change by an eighth at most: a larger change is another training run.
    let is_similar = nearest.abs_diff(batch) * 8 <= batch;
    all.chain(is_similar.then_some(Change::GlobalBatch(nearest))).map(|it| vec![it]).collect()
}

type Diagnosis = (Rule, Vec<Change>, Vec<Vec<Change>>);

fn of_layout(eval: &EvalContext<'_>, error: &LayoutError, imported: &Imported) -> Diagnosis {
    let layout = &imported.layout;
    let degree = layout.expert_parallel;
    let neighbours = below(degree.min(256)).chain(degree + 1..=degree.saturating_mul(2).min(256));
    match error {
        LayoutError::SequenceUndivided { length, parts, .. } => {
            let rounded = (length + parts / 2) / parts.max(&1) * parts;
            let about = vec![Change::Sequence(rounded), Change::Context(layout.context_parallel)];
            if rounded > 0 && rounded.abs_diff(*length) * 8 <= *length {
                return (Rule::SequenceDoesNotDivide, about, vec![vec![Change::Sequence(rounded)]]);
            }
            let mut all = each(Change::Context, below(layout.context_parallel));
            all.extend(other_tensor(layout));
            all.push(vec![Change::SequenceParallel(false)]);
            (Rule::SequenceDoesNotDivide, about, all)
        }
        LayoutError::NotDivisible { what, by, .. } => match () {
            () if *what == "experts" || by.contains("expert_parallel") => {
                let about = vec![Change::Expert(degree)];
                (Rule::ExpertParallelDoesNotDivide, about, each(Change::Expert, neighbours))
            }
            () if by.contains("expert_tensor_parallel") => {
                let about = vec![Change::ExpertTensor(layout.expert_tensor_parallel)];
                let all = each(Change::ExpertTensor, below(layout.expert_tensor_parallel));
                (Rule::ExpertParallelDoesNotDivide, about, all)
            }
            () if by.contains("zero_shard") => {
                let about = vec![Change::OneShardGroup];
                (Rule::ShardGroupsDoNotDivide, about.clone(), vec![about])
            }
            () => {
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
            (Rule::MicroBatchesForInterleaving, about, other_rounds(imported))
        }
        LayoutError::TooManyStages { .. } => {
            let of_rank = Change::VirtualStages(layout.virtual_stages);
            let about = vec![Change::Pipeline(layout.pipeline_parallel), of_rank];
            (Rule::TooManyStages, about, other_stages(eval, imported))
        }
        LayoutError::UnknownHost { .. } => {
            let about = vec![Change::NoOffload];
            (Rule::LayoutImpossible, about.clone(), vec![about])
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
