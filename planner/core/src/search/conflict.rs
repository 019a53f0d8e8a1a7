//! Options of the user that together leave no layouts to search.

use ir::framework::Abilities;
use ir::layout::PartialLayout;

use super::space::Space;
use crate::problem::{GivenStages, Problem};

/// Options that together leave no layout, though every part of them leaves some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The options, each with its value.
    pub options: Vec<(&'static str, String)>,
    /// The framework, if there are layouts without its limits.
    pub framework: Option<String>,
}

/// The option that gives stages by hand.
const STAGES: &str = "--stages";

/// The smallest set of options `named` by a user that together leave no layout; `None` if all of them together leave
/// some, or if there is no layout even without them. `completed` turns the options that are left into the layout to
/// search.
pub fn conflicting(
    problem: &Problem,
    named: &PartialLayout,
    completed: impl Fn(&PartialLayout) -> PartialLayout,
) -> Option<Conflict> {
    let stages = problem.stages.as_ref().map(|stages| (STAGES, counts(stages)));
    let options: Vec<_> = named.restrictions().into_iter().chain(stages).collect();
    let open = problem.clone().with_stages(None);
    let ideal = |problem: &Problem| {
        let mut problem = problem.clone();
        problem.hardware.framework.abilities = Abilities::all();
        problem
    };
    let layout = |kept: &[usize]| {
        let dropped = (0..options.len()).filter(|place| !kept.contains(place));
        completed(&dropped.fold(*named, |named, place| named.without(options[place].0)))
    };
    let posed = |kept: &[usize]| {
        if kept.iter().any(|place| options[*place].0 == STAGES) { problem } else { &open }
    };
    let leaves = |kept: &[usize]| has_layouts(posed(kept), &layout(kept));
    let all: Vec<usize> = (0..options.len()).collect();
    if options.is_empty() || !leaves(&[]) || leaves(&all) {
        return None;
    }
    let conflict = smallest_subset(&all, leaves);
    let is_able = has_layouts(&ideal(posed(&conflict)), &layout(&conflict));
    Some(Conflict {
        options: conflict.into_iter().map(|place| options[place].clone()).collect(),
        framework: is_able.then(|| problem.hardware.framework.name.clone()),
    })
}

/// A small subset of `all` that leaves no layout: one or two options, or else a set of which none can be dropped.
fn smallest_subset(all: &[usize], leaves: impl Fn(&[usize]) -> bool) -> Vec<usize> {
    let one = all.iter().map(|place| vec![*place]);
    let pairs =
        all.iter().flat_map(|one| all.iter().skip(*one + 1).map(move |other| vec![*one, *other]));
    if let Some(few) = one.chain(pairs).find(|few| !leaves(few)) {
        return few;
    }
    let mut kept = all.to_vec();
    for place in all {
        let without: Vec<usize> = kept.iter().copied().filter(|other| other != place).collect();
        if !leaves(&without) {
            kept = without;
        }
    }
    kept
}

/// True if there is any layout with the fixed options, even one that does not fit in memory.
pub(super) fn has_layouts(problem: &Problem, fixed: &PartialLayout) -> bool {
    Space::new(problem, fixed).has_layouts(problem, fixed)
}

/// Stages as the user gives them: `10,11,11,10`.
fn counts(stages: &GivenStages) -> String {
    stages.counts().0.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
