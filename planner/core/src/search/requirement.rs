//! Requirements that leave no layout: without such a requirement, there would be some.

use std::collections::BTreeMap;

use ir::framework::{Abilities, StageLayers};
use ir::layout::PartialLayout;
use ir::plan::Training;

use super::conflict::has_layouts;
use super::space::Space;
use crate::problem::Problem;

/// A requirement that leaves no layout, and a choice that meets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The requirement in words; empty where this batch divides, but another batch would also work.
    pub fails: String,
    /// A choice that works instead; this was checked.
    pub works: Option<String>,
}

/// The largest number of a framework's reasons in a message.
const MOST_REASONS: usize = 3;

/// The requirements that each alone leave no layout of `fixed`; empty where only several together leave none.
pub fn failed_requirements(problem: &Problem, fixed: &PartialLayout) -> Vec<Requirement> {
    // If a framework without limits runs this batch, the fault is the framework's.
    let is_able = has_layouts(&with_abilities(problem, Abilities::all()), fixed);
    let of_framework = || [stages(problem, fixed), framework(problem, fixed)].into_iter().flatten();
    if !is_able {
        return batch(problem, fixed).into_iter().collect();
    }
    let mut failed: Vec<Requirement> = of_framework().collect();
    if let Some(batch) = batch(problem, fixed) {
        failed.push(Requirement { fails: String::new(), ..batch });
    }
    failed
}

/// The requirement on the batch, where the next smaller or larger one divides.
fn batch(problem: &Problem, fixed: &PartialLayout) -> Option<Requirement> {
    let (batch, gpus) = (problem.training.global_batch_size, problem.limits.num_gpus);
    let replicas = fixed.data_parallel.unwrap_or(gpus);
    let around = [batch / u64::from(replicas), batch / u64::from(replicas) + 1];
    let tried = around.map(|times| times * u64::from(replicas));
    let works = tried.into_iter().filter(|size| *size > 0 && *size != batch).filter(|size| {
        let training = Training { global_batch_size: *size, ..problem.training };
        problem.with_training(training).is_ok_and(|other| has_layouts(&other, fixed))
    });
    let works: Vec<String> = works.map(|size| size.to_string()).collect();
    (!works.is_empty()).then(|| Requirement {
        fails: format!("no number of replicas that {gpus} GPUs come to divides a batch of {batch}"),
        works: Some(format!("a batch of {}", works.join(" or "))),
    })
}

/// The framework's rule for stages.
fn stages(problem: &Problem, fixed: &PartialLayout) -> Option<Requirement> {
    let abilities = &problem.hardware.framework.abilities;
    if abilities.stage_layers == StageLayers::Any {
        return None;
    }
    let any = Abilities { stage_layers: StageLayers::Any, ..abilities.clone() };
    has_layouts(&with_abilities(problem, any), fixed).then(|| {
        let layers = problem.limits.num_blocks.saturating_sub(2);
        let name = &problem.hardware.framework.name;
        let stages = fixed.pipeline_parallel.one().map_or_else(
            || "by the stages that these GPUs come to".to_owned(),
            |ranks| format!("by {ranks} stages"),
        );
        Requirement {
            fails: format!("{layers} layers do not divide {stages}, and {name} cuts no others"),
            works: None,
        }
    })
}

/// The other limits of the framework.
fn framework(problem: &Problem, fixed: &PartialLayout) -> Option<Requirement> {
    let ideal = with_abilities(problem, Abilities::all());
    let space = Space::new(&ideal, fixed);
    if !space.has_layouts(&ideal, fixed) {
        return None;
    }
    let abilities = &problem.hardware.framework.abilities;
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for family in space.families(&ideal) {
        for excluded in abilities.excluded(family.features(problem)) {
            *reasons.entry(excluded.to_string()).or_default() += 1;
        }
    }
    let mut reasons: Vec<(String, u64)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    let reasons: Vec<String> = reasons.into_iter().take(MOST_REASONS).map(|(it, _)| it).collect();
    let name = &problem.hardware.framework.name;
    let of = if reasons.is_empty() {
        String::new()
    } else {
        format!(": it does not run {}", reasons.join("; "))
    };
    Some(Requirement {
        fails: format!("{name} runs none of the layouts that there are{of}"),
        works: Some("another `--framework`, or `ideal`, which has no limits".to_owned()),
    })
}

fn with_abilities(problem: &Problem, abilities: Abilities) -> Problem {
    let mut problem = problem.clone();
    problem.hardware.framework.abilities = abilities;
    problem
}
