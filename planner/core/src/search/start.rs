//! The first nodes of a search: families that differ only in micro-batches and switches wait together, with the lower
//! bound of the fastest, as most never come to be expanded.

use std::collections::BTreeMap;
use std::sync::Arc;

use ir::graph::{CudaGraphs, Recompute, Switches};
use ir::schedule::ScheduleKind;
use ir::units::Nanos;
use rayon::prelude::*;

use super::family::{Family, ZeroSharding};
use super::least_work::{least_work, replicas_by_group};
use super::node::{Expansion, Searcher};
use super::outcome::CandidateCounts;
use super::queue::{Branch, Node, Queue};
use super::request::{Go, Observe, Progress, StopReason};
use crate::step::{Shape, ShapeKey};

/// Number of shape families between two checks for an interrupt.
const AT_ONCE: usize = 256;

/// A shape family at the start, with numbers of layouts.
struct Start<'f> {
    families: &'f [Family],
    /// Layouts of families that may fit in memory.
    may_fit: u64,
    /// Layouts of the others.
    too_large: u64,
    misfits: Vec<Family>,
}

impl Searcher<'_> {
    /// The queue of all shape families that may fit in memory; layouts of the others are counted, and their families
    /// added to `misfits`.
    ///
    /// # Errors
    ///
    /// The reason to stop, where `observe` has one.
    pub(super) fn start<'f>(
        &self,
        families: &'f [Family],
        counts: &mut CandidateCounts,
        misfits: &mut Vec<Family>,
        observe: &mut Observe<'_>,
    ) -> Result<Queue<'f>, StopReason> {
        let parameters = self.all_parameters(families);
        let shape_families = families.par_chunk_by(Family::same_shape_family);
        let started = shape_families.map(|families: &'f [Family]| {
            let first = &families[0];
            let shardings = first.shardings(self.problem, &self.request.fixed);
            let may_fit = self.request.exhaustive
                || self.least_states(first, &parameters) <= self.problem.largest_memory_budget();
            let mut start = Start { families, may_fit: 0, too_large: 0, misfits: Vec::new() };
            for (family, size, may_fit_alone) in self.sized(families, &shardings) {
                if may_fit && may_fit_alone {
                    start.may_fit += size;
                } else {
                    start.too_large += size;
                    start.misfits.push(*family);
                }
            }
            start
        });
        let started: Vec<Start<'f>> = started.collect();
        counts.candidates = started.iter().map(|start| start.may_fit + start.too_large).sum();
        counts.pruned_by_memory += started.iter().map(|start| start.too_large).sum::<u64>();
        misfits.extend(started.iter().flat_map(|start| &start.misfits));
        let mut nodes = Vec::new();
        for started in started.chunks(AT_ONCE) {
            let progress =
                Progress { done: counts.pruned_by_memory, all: counts.candidates, best: None };
            if let Go::Stop(reason) = observe(progress) {
                return Err(reason);
            }
            let started = started.par_iter().filter(|start| start.may_fit > 0);
            nodes.par_extend(started.map(|start| {
                let families = start.families;
                let mut bounds = self.bounds();
                Node {
                    bound: families.iter().map(&mut bounds).min().unwrap_or_default(),
                    size: start.may_fit,
                    order: families[0].order(),
                    branch: Branch::ShapeFamily(families),
                }
            }));
        }
        Ok(Queue::of_shape_families(nodes))
    }

    /// The families of a shape family that may fit in memory, with their own lower bounds.
    pub(super) fn expand_shape_family<'f>(
        &self,
        families: &'f [Family],
        limit: Nanos,
    ) -> Expansion<'f> {
        let shardings = families[0].shardings(self.problem, &self.request.fixed);
        let mut expansion = Expansion::default();
        let mut bounds = self.bounds();
        for (family, size, may_fit_alone) in self.sized(families, &shardings) {
            if size == 0 || !may_fit_alone {
                continue;
            }
            let bound = bounds(family);
            if bound > limit {
                expansion.counts.pruned_by_time += size;
                continue;
            }
            let is_own = family.shape.switches.cuda_graphs == self.graphs;
            let branch =
                if is_own { Branch::Family(*family) } else { Branch::BestGraphsOfFamily(*family) };
            expansion.nodes.push(Node { bound, size, order: family.order(), branch });
        }
        expansion
    }

    /// Each family of a shape family with its number of layouts, and true if memory may hold any one of its blocks.
    fn sized<'f>(
        &self,
        families: &'f [Family],
        shardings: &[ZeroSharding],
    ) -> Vec<(&'f Family, u64, bool)> {
        let fixed = &self.request.fixed;
        let sized = |(family, may_fit_alone): (&'f Family, bool)| {
            let size = family.num_layouts(self.problem, fixed, shardings, &self.subfamilies);
            (family, size, may_fit_alone)
        };
        families.iter().zip(self.have_room(families, shardings)).map(sized).collect()
    }

    /// Lower bounds of the families of one shape family: those that differ in switches alone have the same.
    fn bounds(&self) -> impl FnMut(&Family) -> Nanos {
        let mut known: BTreeMap<ShapeKey, Nanos> = BTreeMap::new();
        move |family| {
            let key = self.lower_bound_key(family.shape, self.graphs);
            *known.entry(key).or_insert_with(|| self.family_bound(family, self.graphs))
        }
    }

    /// Cache key of the lower bound, which depends on no dispatcher, overlap or expert-parallel degree: these are
    /// unset.
    fn lower_bound_key(&self, key: ShapeKey, cuda_graphs: CudaGraphs) -> ShapeKey {
        if self.problem.limits.experts.is_empty() {
            return key;
        }
        let switches = Switches { cuda_graphs, ..Switches::USUAL };
        ShapeKey { switches, ..key.with_experts_over(1) }
    }

    fn lower_bound_shape(&self, key: ShapeKey, cuda_graphs: CudaGraphs) -> Arc<Shape> {
        if self.problem.limits.experts.is_empty() {
            return self.shape(key);
        }
        let key = self.lower_bound_key(key, cuda_graphs);
        let make = || Arc::new(Shape::least(self.problem, self.chain, key, &self.blocks));
        self.least.get(key, make)
    }

    /// Lower bound of a family: for every micro-batch, the slowest rank has at least the mean work of all ranks, for
    /// any expert-parallel degree, and with CUDA graphs that are no slower than the family's.
    pub(super) fn family_bound(&self, family: &Family, graphs: CudaGraphs) -> Nanos {
        let policy = self.least_recompute(self.request.fixed.recompute.unwrap_or(Recompute::None));
        let shape = self.lower_bound_shape(family.shape, graphs);
        let overlaps = self.request.fixed.schedule.one().is_some_and(ScheduleKind::overlaps_passes);
        if family.by_group {
            return replicas_by_group((self.problem, self.chain), &shape, policy, overlaps, family);
        }
        least_work((self.problem, self.chain), &shape, policy, overlaps, family).busiest(family)
    }
}
