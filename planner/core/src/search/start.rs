//! The first nodes of a search: families that differ only in micro-batches and switches wait together, with the lower
//! bound of the fastest, as most never come to be expanded.

use std::collections::BTreeMap;
use std::sync::Arc;

use cost_models::block::{ExpertExchanges, least_exposed};
use ir::graph::{Block, ClassId, CudaGraphs, Recompute, Switches};
use ir::units::Nanos;
use rayon::prelude::*;

use super::family::{Family, ZeroSharding};
use super::least_work::{LeastWork, added_by_experts, least_work, replicas_by_group};
use super::node::{Expansion, Searcher};
use super::outcome::CandidateCounts;
use super::queue::{Branch, Node, Queue};
use super::request::{Go, Observe, Progress, StopReason};
use crate::problem::Problem;
use crate::step::{Shape, ShapeKey};

/// Number of shape families between two checks for an interrupt.
const AT_ONCE: usize = 256;

/// A shape family at the start, with numbers of layouts.
struct Start<'f> {
    families: &'f [Family],
    /// Families that may fit in memory.
    may_fit: Vec<&'f Family>,
    /// Number of layouts of the families that may fit.
    size: u64,
    /// Families that do not fit.
    misfits: Vec<Family>,
    /// Number of layouts of the families that do not fit.
    too_large: u64,
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
            let states_fit = self.request.exhaustive
                || self.least_states(first, &parameters) <= self.problem.largest_memory_budget();
            let mut start =
                Start { families, may_fit: Vec::new(), size: 0, misfits: Vec::new(), too_large: 0 };
            for (family, size, has_room) in self.sized(families, &shardings) {
                if states_fit && has_room {
                    start.may_fit.push(family);
                    start.size += size;
                } else {
                    start.too_large += size;
                    start.misfits.push(*family);
                }
            }
            start
        });
        let started: Vec<Start<'f>> = started.collect();
        counts.candidates = started.iter().map(|start| start.size + start.too_large).sum();
        counts.pruned_by_memory += started.iter().map(|start| start.too_large).sum::<u64>();
        misfits.extend(started.iter().flat_map(|start| &start.misfits));
        let mut nodes = Vec::new();
        for started in started.chunks(AT_ONCE) {
            let progress =
                Progress { done: counts.pruned_by_memory, all: counts.candidates, best: None };
            if let Go::Stop(reason) = observe(progress) {
                return Err(reason);
            }
            let started = started.par_iter().filter(|start| start.size > 0);
            nodes.par_extend(started.map(|start| {
                let families = start.families;
                let mut bounds = self.bounds();
                Node {
                    bound: start.may_fit.iter().map(|it| bounds(it)).min().unwrap_or_default(),
                    size: start.size,
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
        for (family, size, has_room) in self.sized(families, &shardings) {
            if size == 0 || !has_room {
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

    /// Each family of a shape family with its number of layouts, and true if memory may hold its blocks.
    fn sized<'f>(
        &self,
        families: &'f [Family],
        shardings: &[ZeroSharding],
    ) -> Vec<(&'f Family, u64, bool)> {
        let fixed = &self.request.fixed;
        let sized = |(family, has_room): (&'f Family, bool)| {
            let size = family.num_layouts(self.problem, fixed, shardings, &self.layout_counts);
            (family, size, has_room)
        };
        families.iter().zip(self.have_room(families, shardings)).map(sized).collect()
    }

    /// Lower bounds of the families of one shape family: those that differ in switches alone have the same, but for
    /// what is exposed of exchanges between experts.
    fn bounds(&self) -> impl FnMut(&Family) -> Nanos {
        // All of them have the same dispatcher.
        let mut known: BTreeMap<ShapeKey, FamilyBound> = BTreeMap::new();
        move |family| {
            let key = self.lower_bound_key(family.shape, self.graphs);
            let bound =
                known.entry(key).or_insert_with(|| self.parts_of_bound(family, self.graphs));
            bound.of(family)
        }
    }

    /// Cache key of the lower bound, which depends on no dispatcher, overlap or expert-parallel degree: these are
    /// unset.
    fn lower_bound_key(&self, key: ShapeKey, cuda_graphs: CudaGraphs) -> ShapeKey {
        if self.problem.limits.experts.is_empty() {
            return key;
        }
        let switches = Switches { cuda_graphs, ..Switches::USUAL };
        ShapeKey { switches, ..key.with_all_experts() }
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
    /// any expert-parallel degree, and with CUDA graphs that are no slower than the family's; and the exchanges between
    /// experts of its own degree.
    pub(super) fn family_bound(&self, family: &Family, graphs: CudaGraphs) -> Nanos {
        self.parts_of_bound(family, graphs).of(family)
    }

    fn parts_of_bound(&self, family: &Family, graphs: CudaGraphs) -> FamilyBound {
        let policy = self.least_recompute(self.request.fixed.recompute.unwrap_or(Recompute::None));
        let shape = self.lower_bound_shape(family.shape, graphs);
        let named = self.request.fixed.schedule.listed();
        let overlaps = named.iter().any(|it| it.overlaps_passes());
        let of = (self.problem, self.chain);
        if family.by_group {
            return FamilyBound::ByGroup(replicas_by_group(of, &shape, policy, overlaps, family));
        }
        let work = least_work(of, &shape, policy, overlaps, family);
        let is_known = self.problem.groups.is_none() && family.shape.documents.is_none();
        let experts = (is_known && !overlaps && family.shape.sharding.expert_parallel > 1)
            .then(|| added_by_experts(self.chain, &shape, self.expert_times(family.shape)));
        FamilyBound::Alike { work, experts: experts.unwrap_or_default() }
    }

    /// Lower bounds of the times of exchanges between the experts of a class of blocks, in forward and in backward.
    fn expert_times(&self, key: ShapeKey) -> impl Fn(usize) -> [Nanos; 2] {
        let Problem { graph, hardware, .. } = self.problem;
        let setting = move |class: usize| key.setting(self.problem, class);
        let all = self.expert_exchanges.get(key.sharding, || {
            let of_class =
                |(class, block): (ClassId, &Block)| ExpertExchanges::new(block, &setting(class.0));
            graph.classes().map(of_class).collect()
        });
        move |class| {
            let block = graph.class(ClassId(class));
            all[class].least_times(block, &setting(class), &key.groups(), hardware)
        }
    }
}

/// Lower bound of a family, but for what differs between its switches.
#[derive(Clone, Copy)]
enum FamilyBound {
    /// The bound of replicas in groups of unlike GPUs.
    ByGroup(Nanos),
    Alike {
        /// Work of a micro-batch without exchanges between experts.
        work: LeastWork,
        /// What these add to the time of all blocks where nothing hides them.
        experts: Nanos,
    },
}

impl FamilyBound {
    fn of(self, family: &Family) -> Nanos {
        match self {
            Self::ByGroup(bound) => bound,
            Self::Alike { work, experts: Nanos::ZERO } => work.busiest(family),
            Self::Alike { work, experts } => {
                let exposed = experts.as_f64() * least_exposed(family.shape.switches);
                work.with(Nanos::new(exposed as u64), family).busiest(family)
            }
        }
    }
}
