//! The least number of GPUs that a model needs.

use ir::cluster::Cluster;
use ir::layout::Choice::Any;
use ir::layout::PartialLayout;
use ir::model::Model;
use ir::plan::Training;

use super::request::{Go, Request, StopReason};
use super::search;
use crate::problem::{Choices, MOST_GPUS, Problem, ProblemError};

/// Largest number of GPU counts that are tried.
const MOST_PROBES: usize = 64;

/// Number of nodes up to which half nodes are tried too.
const WITH_HALVES: u32 = 5;

/// The least number of GPUs on which some layout fits, among those that fill nodes (of few nodes, half a node too;
/// within one, powers of two). `None` if none is found for as long as `go` says to go on.
///
/// # Errors
///
/// [`ProblemError`] where the problem itself cannot be posed.
pub fn least_gpus(
    model: &Model,
    asked: &Problem,
    choices: &Choices,
    cluster: &Cluster,
    request: &Request,
    go: &mut (dyn FnMut() -> Go + Send),
) -> Result<Option<u32>, ProblemError> {
    // Options that depend on the number of GPUs are left open.
    let fixed = PartialLayout { data_parallel: Any, zero_shard: Any, ..request.fixed };
    let Problem { graph, stages, .. } = asked;
    let has_sequence = graph.has_sequence();
    let bytes = asked.state_bytes();
    let all = (bytes.shard + bytes.gradient) as f64 + bytes.optimizer;
    let states = graph.parameter_counts().total as f64 * all;
    let fewest = (states / cluster.gpu.memory.get().max(1) as f64).ceil() as u64;
    let node = cluster.gpus_per_node;
    let within = (0..32).map(|power| 1u32 << power).take_while(|gpus| *gpus < node);
    // Half a node matters among a few nodes, but not among many.
    let half = (node / 2).max(1);
    let halves = (2..2 * WITH_HALVES).map(|halves| halves * half).filter(|gpus| *gpus >= node);
    let nodes = (WITH_HALVES..=MOST_GPUS / node.max(1)).map(|nodes| nodes * node);
    let enough = within.chain(halves).chain(nodes).filter(|gpus| u64::from(*gpus) >= fewest);
    for num_gpus in enough.take(MOST_PROBES) {
        let resolved = choices.resolve(model, has_sequence, &cluster.gpu, num_gpus);
        let global_batch_size = resolved.global_batch_size;
        let training = Training { global_batch_size, ..asked.training };
        let framework = asked.hardware.framework.clone();
        let problem = Problem::new(graph.clone(), training, cluster, framework, num_gpus)?;
        let problem = problem.with_stages(stages.clone()).with_headroom(asked.headroom());
        let problem = problem.with_expert_load(asked.expert_load.load.clone())?;
        let documents = asked.sequences.as_ref().map(|sequences| sequences.documents.clone());
        let problem = problem.with_documents(documents)?;
        let request = Request { fixed, top: 1, closest: false, ..*request };
        let outcome = search(&problem, &request, &mut |progress| match progress.best {
            Some(_) => Go::Stop(StopReason::FirstFit),
            None => go(),
        });
        if !outcome.plans.is_empty() {
            return Ok(Some(num_gpus));
        }
        if outcome.stop_reason != StopReason::Exhausted {
            break;
        }
    }
    Ok(None)
}
