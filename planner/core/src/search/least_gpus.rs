//! Remedies for a model that does not fit: options that free memory, or more GPUs.

use std::fmt;

use ir::cluster::Cluster;
use ir::graph::{Loss, USUAL_CHUNKS};
use ir::layout::Choice::{Any, One};
use ir::layout::{Offload, PartialLayout};
use ir::model::Model;
use ir::plan::Training;

use super::first_fit;
use super::request::{Go, Request, StopReason};
use crate::problem::{Choices, MOST_GPUS, Problem, ProblemError};

/// Largest number of GPU counts that are tried.
const MOST_PROBES: usize = 64;

/// Number of nodes up to which half nodes are tried too.
const WITH_HALVES: u32 = 5;

/// The least number of GPUs on which some layout fits, among numbers within one node and numbers that fill nodes (of a
/// few nodes, half nodes too). `None` if none is found for as long as `go` says to go on.
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
    let graph = &asked.graph;
    let has_sequence = graph.has_sequence();
    let (bytes, offload) = (asked.state_bytes(), fixed.offload.unwrap_or(Offload::NONE));
    let shard = if offload.parameters { 0.0 } else { bytes.shard as f64 };
    let optimizer = if offload.optimizer { 0.0 } else { bytes.optimizer + bytes.gradient as f64 };
    // Frozen parameters may be stored in few bits: they are not counted.
    let states = graph.parameter_counts().trained as f64 * (shard + optimizer);
    let fewest = (states / cluster.gpu.memory.get().max(1) as f64).ceil() as u64;
    let node = cluster.gpus_per_node;
    for num_gpus in gpu_counts(node).filter(|it| u64::from(*it) >= fewest).take(MOST_PROBES) {
        let resolved = choices.resolve(model, has_sequence, cluster, num_gpus);
        let global_batch_size = resolved.global_batch_size;
        let training = Training { global_batch_size, ..asked.training };
        let framework = asked.hardware.framework.clone();
        let problem = asked.like(training, cluster, framework, num_gpus)?;
        match fits(&problem, &Request { fixed, ..*request }, go) {
            Some(true) => return Ok(Some(num_gpus)),
            Some(false) => {}
            None => break,
        }
    }
    Ok(None)
}

/// Numbers of GPUs within a node, of whole nodes and, up to a few nodes with an even number of GPUs, of half nodes.
fn gpu_counts(node: u32) -> impl Iterator<Item = u32> {
    let node = node.max(1);
    let halves = (2..2 * WITH_HALVES).filter(move |halves| (halves * node).is_multiple_of(2));
    let nodes = (WITH_HALVES..=MOST_GPUS / node).map(move |nodes| nodes * node);
    (1..node).chain(halves.map(move |halves| halves * node / 2)).chain(nodes)
}

/// Returns whether some layout fits; `None` if the search was stopped before that was known.
fn fits(problem: &Problem, request: &Request, go: &mut (dyn FnMut() -> Go + Send)) -> Option<bool> {
    let outcome = first_fit(problem, request, go);
    let is_fit = !outcome.plans.is_empty();
    (is_fit || outcome.stop_reason == StopReason::Exhausted).then_some(is_fit)
}

/// Options that free memory at a cost in time, and that no search tries by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySaving {
    /// The loss.
    pub loss: Option<Loss>,
    /// Offload to the host.
    pub offload: Offload,
}

impl fmt::Display for MemorySaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loss = self.loss.map(|loss| format!("--loss {loss}"));
        let is_offloaded = self.offload != Offload::NONE;
        let offload = is_offloaded.then(|| format!("--offload {}", self.offload));
        let options: Vec<String> = [loss, offload].into_iter().flatten().collect();
        f.write_str(&options.join(" "))
    }
}

/// Ways to free memory, those that cost least time first.
fn memory_savings() -> impl Iterator<Item = MemorySaving> {
    let chunked = Some(Loss::Chunked(USUAL_CHUNKS));
    let optimizer = Offload { optimizer: true, ..Offload::NONE };
    let both = Offload { parameters: true, ..optimizer };
    let offloads = [Offload::NONE, optimizer, both].into_iter();
    let all = offloads.flat_map(move |offload| [None, chunked].map(|loss| (loss, offload)));
    all.skip(1).map(|(loss, offload)| MemorySaving { loss, offload })
}

/// The first of some options that free memory with which a layout fits on the same GPUs, of those that the framework
/// has and that are left open. `None` if none is found for as long as `go` says to go on.
///
/// # Errors
///
/// [`ProblemError`] where the problem itself cannot be posed.
pub fn memory_saving(
    asked: &Problem,
    cluster: &Cluster,
    request: &Request,
    go: &mut (dyn FnMut() -> Go + Send),
) -> Result<Option<MemorySaving>, ProblemError> {
    let own = &asked.hardware.framework;
    let is_open = request.fixed.offload == Any;
    for saving in memory_savings().filter(|it| is_open || it.offload == Offload::NONE) {
        let framework = match saving.loss {
            Some(loss) if !own.kernels.loss.gradient.has_chunks() => own.clone().with_loss(loss),
            Some(_) => None,
            None => Some(own.clone()),
        };
        let Some(framework) = framework else { continue };
        let gpus = asked.limits.num_gpus;
        let problem = asked.like(asked.training, cluster, framework, gpus)?;
        let offload = if is_open { One(saving.offload) } else { request.fixed.offload };
        let fixed = PartialLayout { offload, ..request.fixed };
        match fits(&problem, &Request { fixed, ..*request }, go) {
            Some(true) => return Ok(Some(saving)),
            Some(false) => {}
            None => break,
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_counts_grow_and_have_all_of_a_node_and_whole_nodes() {
        for node in [1, 2, 3, 4, 5, 8, 72] {
            let counts: Vec<u32> = gpu_counts(node).collect();
            assert!(counts.is_sorted_by(|a, b| a < b), "{node}: {counts:?}");
            for gpus in (1..=node).chain((2..20).map(|nodes| nodes * node)) {
                assert!(counts.contains(&gpus), "{gpus} GPUs in nodes of {node}");
            }
        }
        assert_eq!(gpu_counts(4).take(9).collect::<Vec<u32>>(), [1, 2, 3, 4, 6, 8, 10, 12, 14]);
    }
}
