//! Checks of training settings: errors, waste and risks with their predicted cost, and better settings nearby.
//!
//! A [`Rule`] has a stable name. Faults that prevent the settings from being read, or from being posed as a problem,
//! are fixed one by one, so that all are found. Then the settings and every suggested change are evaluated. Wasted time
//! is a warning only if the whole interval of the saving, for this pair of settings, is large enough to be resolved;
//! otherwise it is a note.

mod change;
mod context;
mod degrees;
mod documents;
mod evaluated;
mod finding;
mod keys;
mod memory;
mod nearest;
mod reading;
mod repair;
mod report;
mod rule;
mod text;
mod training;
mod words;

use ir::cluster::Cluster;
use ir::framework::Abilities;
use ir::layout::Layout;
use ir::plan::Plan;

pub use finding::{Cost, Edit, Finding, Fix, OptionChange, Replacement, SourceSpan};
pub use nearest::Nearby;
pub use report::{LintReport, RankPrediction, SettingsPrediction};
pub use rule::{Rule, Severity};

use context::LintContext;
use documents::Documents;
use evaluated::EvalContext;

use crate::interchange::{self, Import, ImportError, Imported, ModelDifference, Repeated, tool};
use planner_core::plan::CheckedPlan;
use planner_core::problem::Problem;

/// Checks settings of a tool; reports at most `most_nearest` better settings nearby.
///
/// # Errors
///
/// [`ImportError`] if the text contains no settings, or leaves open values that decide the plan.
pub fn lint(import: &Import<'_>, most_nearest: usize) -> Result<LintReport, ImportError> {
    let given = Documents::of(import);
    let reading::Reading { imported, documents, mut findings } = reading::read(import, &given)?;
    let tool = imported.as_ref().map_or("settings", |it| it.source.tool());
    let mut report = LintReport::new(&import.model.name, &import.cluster.name, tool);
    let Some(mut imported) = imported else {
        report.findings = findings;
        return Ok(report);
    };
    imported.num_gpus = imported.num_gpus.or(import.stated.num_gpus);
    let graph = import.graph(&mut imported)?;
    findings.extend(unread(import, &imported));
    findings.extend(repeated(&given, &imported));
    let eval = EvalContext {
        graph,
        cluster: import.cluster,
        num_gpus: import.stated.num_gpus,
        vocabulary_parallel: false,
    };
    let division = repair::pose(&eval, &given, &imported)?;
    let fixes = division.findings.iter().flat_map(|it| &it.fix);
    let now = fixes.fold(documents, |documents, fix| {
        documents.changed(&fix.changes).map_or(documents, |(new, _)| new)
    });
    findings.extend(division.findings);
    if let Some(base) = division.case {
        findings.extend(differences(import, &base, &given, &now));
        let longest_sequence = import.model.max_position_embeddings();
        let context = LintContext { eval, given: &given, now, base, longest_sequence };
        // If there are several faults, the fix of one may not be evaluable alone; it then stays as it is.
        for finding in &mut findings {
            let alone = finding.fix.clone().filter(|it| it.step_time_seconds.is_some());
            let alone = alone.and_then(|fix| checked(import, &context, fix));
            finding.fix = alone.or(finding.fix.take());
        }
        let (context, unable) = repaired(import, context);
        findings.extend(unable);
        let first = findings.len();
        judge(&mut report, &context, &mut findings, most_nearest);
        for finding in &mut findings[first..] {
            finding.fix = finding.fix.take().and_then(|fix| checked(import, &context, fix));
        }
        let nearest = std::mem::take(&mut report.nearest).into_iter();
        let checked =
            nearest.filter_map(|it| Some(Nearby { fix: checked(import, &context, it.fix)?, ..it }));
        report.nearest = checked.collect();
    }
    report.findings = sorted(findings);
    Ok(report)
}

/// Findings of what the framework cannot run, and the settings with each of these fixed; all other rules judge the
/// fixed settings.
fn repaired<'a>(
    import: &Import<'_>,
    mut context: LintContext<'a>,
) -> (LintContext<'a>, Vec<Finding>) {
    let mut findings: Vec<Finding> = Vec::new();
    let next = |context: &LintContext<'_>| {
        let is_error = |it: &Finding| it.severity == Severity::Error;
        let finding = degrees::sequence_parallel(context).filter(is_error);
        let finding = finding.or_else(|| degrees::not_supported(context))?;
        let (now, _) = context.now.changed(&finding.fix.as_ref()?.changes)?;
        let imported = now.settings(import).ok()?;
        Some((finding, now, context.eval.evaluated(&imported).ok()?))
    };
    while let Some((finding, now, base)) = next(&context).filter(|it| !findings.contains(&it.0)) {
        findings.push(finding);
        (context.now, context.base) = (now, base);
    }
    (context, findings)
}

/// The text with options changed; `None` if a change has no place, or belongs to another file.
pub fn changed(text: &str, changes: &[OptionChange]) -> Option<String> {
    let is_here = changes.iter().all(|it| it.file.is_none());
    Some(text::changed(text, changes).filter(|_| is_here)?.0)
}

/// A fix after a round trip: it is written into the files, which are read and evaluated again. `None` if that fails, or
/// if it changes no prediction although it should; unchanged if the files have no place for the fix.
fn checked(import: &Import<'_>, context: &LintContext<'_>, fix: Fix) -> Option<Fix> {
    let Some((now, _)) = context.now.changed(&fix.changes) else { return Some(fix) };
    let imported = now.settings(import).ok()?;
    let case = context.eval.evaluated(&imported).ok()?;
    let step_time_seconds = Some(case.found.evaluation.step_time.get());
    let peak_memory_bytes = Some(case.peak().get());
    let base = &context.base;
    let is_as_before = case.found.evaluation.step_time == base.found.evaluation.step_time
        && case.peak() == base.peak();
    if is_as_before && step_time_seconds != fix.step_time_seconds {
        return None;
    }
    Some(Fix { step_time_seconds, peak_memory_bytes, ..fix })
}

/// Checks a plan.
pub fn lint_plan(checked: &CheckedPlan, text: &str, most_nearest: usize) -> LintReport {
    let Plan { model, cluster, framework, .. } = &checked.plan;
    let mut report = LintReport::new(&model.name, &cluster.name, &framework.name);
    let imported = Imported::of_plan(&checked.plan);
    let eval = EvalContext {
        graph: checked.problem.graph.clone(),
        cluster,
        num_gpus: None,
        vocabulary_parallel: checked.problem.vocabulary_parallel,
    };
    let found = checked.found.clone();
    let base = evaluated::EvaluatedConfig { imported, problem: checked.problem.clone(), found };
    let longest_sequence = checked.model.max_position_embeddings();
    let given = &Documents::of_text(text, tool(base.imported.source));
    let context = LintContext { eval, given, now: given.clone(), base, longest_sequence };
    let mut findings = Vec::new();
    judge(&mut report, &context, &mut findings, most_nearest);
    report.findings = sorted(findings);
    report
}

/// Report on a run that is known to have worked. `id` is its name, `stage_ends` are in blocks, and `cluster` is where
/// it ran. `None` if it cannot be evaluated.
pub fn lint_run(
    problem: &Problem,
    layout: &Layout,
    stage_ends: &[usize],
    cluster: &Cluster,
    id: &str,
) -> Option<LintReport> {
    // The run worked, so the framework most like its own gets all abilities. In measured rows, a node is the domain of
    // a fast network and may span several hosts, so the host memory is multiplied.
    let mut framework = problem.hardware.framework.clone();
    framework.abilities = Abilities::all();
    let mut cluster = cluster.clone();
    if let Some(host) = &mut cluster.host {
        host.memory = host.memory * u64::from(cluster.gpus_per_node);
    }
    let cluster = &cluster;
    let starts = std::iter::once(0).chain(stage_ends.iter().copied());
    let blocks = starts.zip(stage_ends).map(|(start, end)| (end - start) as u32).collect();
    let num_gpus = problem.limits.num_gpus;
    let imported = Imported::of_run(framework, **layout, num_gpus, &problem.training, blocks);
    let eval = EvalContext {
        graph: problem.graph.clone(),
        cluster,
        num_gpus: None,
        vocabulary_parallel: problem.vocabulary_parallel,
    };
    let base = eval.evaluated(&imported).ok()?;
    let given = &Documents::of_text("", tool(base.imported.source));
    let context = LintContext { eval, given, now: given.clone(), base, longest_sequence: None };
    let framework = &problem.hardware.framework;
    let mut report = LintReport::new(id, &cluster.name, &framework.name);
    report.findings = sorted(rules(&context));
    Some(report)
}

/// Rules about settings that can be evaluated, in the order of their findings.
const RULES: [fn(&LintContext<'_>) -> Option<Finding>; 20] = [
    memory::headroom,
    memory::recompute,
    memory::offload,
    degrees::not_supported,
    degrees::across_nodes,
    degrees::tensor_not_needed,
    degrees::sequence_parallel,
    degrees::few_micro_batches,
    degrees::uneven_stages,
    degrees::context_parallel,
    degrees::dispatcher,
    training::optimizer_unused,
    training::zero_alone,
    training::sharding_not_needed,
    training::overlap_off,
    training::vocabulary,
    training::number_format,
    training::long_sequence,
    training::sequence_parallel_alone,
    training::interleaving_alone,
];

fn rules(context: &LintContext<'_>) -> Vec<Finding> {
    RULES.iter().filter_map(|rule| rule(context)).collect()
}

fn judge(
    report: &mut LintReport,
    context: &LintContext<'_>,
    findings: &mut Vec<Finding>,
    nearest: usize,
) {
    let is_repaired = findings.iter().any(|it| it.severity == Severity::Error);
    findings.extend(rules(context));
    report.prediction = Some(SettingsPrediction::of(&context.base, is_repaired));
    report.nearest = nearest::nearest(context, nearest);
}

/// Finding of settings that may change a step but are not part of the prediction.
fn unread(import: &Import<'_>, imported: &Imported) -> Option<Finding> {
    let unread = imported.unread(import.cluster);
    let listed = interchange::by_reason(&unread);
    let message = || format!("not part of the prediction: {}", listed.join(", "));
    (!unread.is_empty()).then(|| Finding::new(Rule::NotRead, message(), Vec::new()))
}

/// Findings of options that are given several times with different values.
fn repeated(given: &Documents, imported: &Imported) -> Vec<Finding> {
    let finding = |it: &Repeated| {
        let Repeated { option, before, last } = it;
        let rule = Rule::OptionGivenTwice;
        let value = (!last.is_empty()).then(|| last.join(" "));
        let fix = given.own(vec![OptionChange::set(option, value)]).and_then(|own| {
            let (_, all) = given.changed(&own)?;
            Some(Fix::unevaluated(own, all))
        });
        let message = format!(
            "`{option}` is given as `{}`, then as `{}`: the last counts",
            before.join(" "),
            last.join(" ")
        );
        let options = vec![given.place(option)];
        Finding { rule, severity: rule.most_severe(), message, options, cost: None, fix }
    };
    imported.repeated.iter().map(finding).collect()
}

/// Findings of settings that describe another model than the user's.
fn differences(
    import: &Import<'_>,
    base: &evaluated::EvaluatedConfig,
    given: &Documents,
    now: &Documents,
) -> Vec<Finding> {
    let model = import.model;
    let plan = import.plan(&base.imported, &base.problem, &base.found);
    let all = base.imported.differences(&plan, model, &base.problem.graph);
    let finding = |rule: Rule, message: String, difference: &ModelDifference| {
        let option = &difference.stated.name;
        let mut changes = vec![match &difference.would {
            Some(would) if would.values.is_empty() => OptionChange::set(option, None),
            Some(would) => OptionChange::set(option, Some(would.values.join(" "))),
            None => OptionChange::remove(option),
        }];
        // Megatron reads the number of groups only with this switch.
        if difference.is_left_out && option == "--num-query-groups" {
            changes.push(OptionChange::set("--group-query-attention", None));
        }
        let mut places = vec![given.place(option)];
        places.retain(|it| it.line.is_some() || !now.gives(option));
        let fix = given.own(changes).map(|own| context::of_case(given, own, base));
        // A setting that is left out may be in a checkpoint or in the code of a fork.
        let severity = if difference.is_left_out { Severity::Warning } else { rule.most_severe() };
        Finding { severity, fix, ..Finding::new(rule, message, places) }
    };
    let mut findings = Vec::new();
    for difference in &all {
        let message =
            format!("the settings are of another model than `{}`: {difference}", model.name);
        let option = &difference.stated.name;
        let message =
            message.replace(&format!("`{option} "), &format!("`{} ", given.place(option).option));
        findings.push(finding(Rule::ModelDiffers, message, difference));
        let stages = base.found.layout.num_stages();
        let layers = difference.stated.values.first().and_then(|it| it.parse::<u32>().ok());
        if difference.stated.name == "--num-layers"
            && let Some(layers) = layers.filter(|it| !it.is_multiple_of(stages))
        {
            let message = format!(
                "{layers} layers do not divide into {stages} stages: {} would be left over",
                layers % stages
            );
            findings.push(finding(Rule::StagesUneven, message, difference));
        }
    }
    findings
}

/// Findings by descending severity, then by line.
fn sorted(mut findings: Vec<Finding>) -> Vec<Finding> {
    let line = |it: &Finding| it.options.iter().find_map(|place| place.line).unwrap_or(usize::MAX);
    findings.sort_by_key(|it| (std::cmp::Reverse(it.severity), line(it), it.rule));
    findings
}
