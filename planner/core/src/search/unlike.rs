//! Choice of the nodes to use, and of the order of their groups, where GPUs are of several kinds.
//!
//! A pipeline goes through the groups one after the other. The order of the groups matters, as the first ranks hold
//! most micro-batches and the last rank has the head. Nodes may be left out: nodes that slow a pipeline down, or with
//! which nothing divides evenly. Each choice of nodes is a problem of its own, searched for plans that are faster than
//! the best so far.

use ir::cluster::{Cluster, NodeGroup};
use ir::units::{Nanos, Seconds};

use super::outcome::Outcome;
use super::request::{Observe, Request, StopReason};
use super::search_below;
use crate::problem::Problem;
use crate::step::CostsByHardware;

/// Largest number of choices of nodes up to which all are tried. Above it, a group has all its nodes, none, or a power
/// of two.
const MOST_CHOICES: usize = 512;

/// The best use of nodes of several kinds.
#[derive(Debug)]
pub struct BestNodes {
    /// The problem on the nodes used.
    pub problem: Problem,
    /// Cluster of the nodes used, in the order of the pipeline.
    pub cluster: Cluster,
    /// The fastest plan there; `None` where none was found on any nodes. Its lower bound of the layouts that are left
    /// covers all choices.
    pub found: Option<Outcome>,
    /// Number of choices that were searched.
    pub searched: usize,
    /// Number of choices.
    pub choices: usize,
    /// True if every number of nodes of each group was among them.
    pub is_every_choice: bool,
    /// Reason why no more choices were searched.
    pub stop_reason: StopReason,
}

/// The best plan of a problem, where GPUs are of several kinds on the nodes with which it is fastest.
#[derive(Debug)]
pub struct OnNodes {
    /// The problem on the nodes used.
    pub problem: Problem,
    /// Name of the nodes; `None` where GPUs are alike.
    pub nodes: Option<String>,
    /// The best plan there.
    pub outcome: Outcome,
}

/// The best plan of a problem on any of its nodes.
pub fn search_nodes(problem: &Problem, request: &Request, observe: &mut Observe<'_>) -> OnNodes {
    search_nodes_below(problem, request, Nanos::new(u64::MAX), observe)
}

/// The best plan of a problem on any of its nodes; where GPUs are alike, one that takes longer than `most` may be missed.
pub fn search_nodes_below(
    problem: &Problem,
    request: &Request,
    most: Nanos,
    observe: &mut Observe<'_>,
) -> OnNodes {
    if let Some(best) = best_nodes(problem, request, observe)
        && let Some(outcome) = best.found
    {
        return OnNodes { problem: best.problem, nodes: Some(best.cluster.name), outcome };
    }
    let outcome =
        search_below(problem, &of_one(request), most, &CostsByHardware::default(), observe);
    OnNodes { problem: problem.clone(), nodes: None, outcome }
}

/// The request for the best plan alone.
fn of_one(request: &Request) -> Request {
    Request { top: 1, find_closest: false, less_headroom: false, ..*request }
}

/// The nodes and their order with the fastest step, or all nodes where nothing fits; `None` where GPUs are alike.
pub fn best_nodes(
    problem: &Problem,
    request: &Request,
    observe: &mut Observe<'_>,
) -> Option<BestNodes> {
    let groups = problem.groups.as_ref()?;
    let request = &of_one(request);
    let (all, is_every_choice) = choices(&groups.cluster.groups);
    let bound = |nodes: &[NodeGroup]| Nanos::from(least_time(problem, nodes));
    let mut all: Vec<(Nanos, Vec<NodeGroup>)> =
        all.into_iter().map(|nodes| (bound(&nodes), nodes)).collect();
    all.sort_by_key(|(bound, _)| *bound);
    let (choices, mut searched) = (all.len(), 0);
    let (mut limit, known) = (Nanos::new(u64::MAX), CostsByHardware::default());
    let mut best: Option<(Problem, Cluster, Outcome)> = None;
    let (mut stop_reason, mut least_left) = (StopReason::Exhausted, None);
    for (bound, nodes) in all {
        if bound > limit {
            break;
        }
        if stop_reason != StopReason::Exhausted {
            least_left = least_left.into_iter().chain([bound.into()]).min_by(Seconds::total_cmp);
            break;
        }
        let (cluster, num_gpus) = groups.cluster.of_nodes(&nodes);
        // Nodes without the precision, or with other limits, are left out.
        let Ok(mut other) = problem.on_cluster(&cluster, num_gpus) else { continue };
        let place =
            |of: &NodeGroup| groups.cluster.groups.iter().position(|it| it.cluster == of.cluster);
        // Replicas that lie in groups are searched only in the first order of the groups.
        let is_again = !nodes.is_sorted_by_key(place);
        other.set_replica_groups(!is_again);
        let outcome = search_below(&other, request, limit, &known, observe);
        other.set_replica_groups(true);
        searched += 1;
        stop_reason = outcome.stop_reason;
        let is_done = stop_reason == StopReason::Exhausted;
        least_left = (!is_done).then(|| outcome.least_left.unwrap_or_else(|| bound.into()));
        let time = outcome.plans.first().map(|it| Nanos::from(it.evaluation.step_time));
        if let Some(time) = time.filter(|time| best.is_none() || *time < limit) {
            (limit, best) = (time, Some((other, cluster, outcome)));
        }
    }
    let (problem, cluster, found) = match best {
        Some((problem, cluster, outcome)) => {
            (problem, cluster, Some(Outcome { stop_reason, least_left, ..outcome }))
        }
        None => (problem.clone(), (*groups.cluster).clone(), None),
    };
    Some(BestNodes { problem, cluster, found, searched, choices, is_every_choice, stop_reason })
}

/// Lower bound of a step on these nodes: all its FLOPs at their peak.
fn least_time(problem: &Problem, nodes: &[NodeGroup]) -> Seconds {
    let precision = problem.training.precision;
    let peak = |group: &NodeGroup| {
        let of_one = group.cluster.gpu.peak.get(&precision).map_or(0.0, |peak| peak.get());
        of_one * f64::from(group.num_gpus())
    };
    Seconds::new(problem.model_flops.get() / nodes.iter().map(peak).sum::<f64>().max(1.0))
}

/// Every choice of some nodes of each group, in every order of the groups; and whether these are all choices there are.
fn choices(groups: &[NodeGroup]) -> (Vec<Vec<NodeGroup>>, bool) {
    let every = |group: &NodeGroup| (0..=group.nodes).collect::<Vec<u32>>();
    let few = |group: &NodeGroup| {
        let powers = (0..31).map(|power| 1 << power).take_while(|nodes| *nodes < group.nodes);
        std::iter::once(0).chain(powers).chain([group.nodes]).collect::<Vec<u32>>()
    };
    let number = groups.iter().map(|group| group.nodes as usize + 1);
    let number = number.fold(1_usize, usize::saturating_mul);
    let is_every = number <= MOST_CHOICES;
    let mut all: Vec<Vec<NodeGroup>> = vec![Vec::new()];
    for group in groups {
        let numbers = if is_every { every(group) } else { few(group) };
        all = all
            .into_iter()
            .flat_map(|nodes| numbers.iter().flat_map(move |of| with(&nodes, group, *of)))
            .collect();
    }
    all.retain(|nodes| !nodes.is_empty());
    (all, is_every)
}

/// The nodes with `number` nodes of another group inserted, once for every place among them, the last place first.
fn with(nodes: &[NodeGroup], group: &NodeGroup, number: u32) -> Vec<Vec<NodeGroup>> {
    if number == 0 {
        return vec![nodes.to_vec()];
    }
    let at = |place: usize| {
        let mut more = nodes.to_vec();
        more.insert(place, NodeGroup { nodes: number, ..group.clone() });
        more
    };
    (0..=nodes.len()).rev().map(at).collect()
}
