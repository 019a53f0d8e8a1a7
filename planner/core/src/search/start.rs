//! The first nodes of a search: families that differ only in micro-batches and switches wait together, with the lower
//! bound of the fastest, as most are never expanded.

use std::collections::BTreeMap;
use std::sync::Arc;

use cost_models::block::{ByPolicy, ExpertExchanges, least_exposed};
use ir::graph::{Block, BlockRecompute, ClassId, CudaGraphs, Switches};
use ir::units::Nanos;
use rayon::prelude::*;

use super::family::{Family, ShapeFamily};
use super::least_work::{LeastWork, added_by_experts, least_work, replicas_by_group};
use super::memory::Parameters;
use super::node::{Expansion, Searcher};
use super::outcome::CandidateCounts;
use super::queue::{Branch, Node, Queue};
use super::request::{Go, Observe, Progress, StopReason};
use crate::problem::Problem;
use crate::step::{Shape, ShapeKey};

/// Number of shape families between two checks for an interrupt.
const AT_ONCE: usize = 256;

/// A shape family at the start, with numbers of layouts.
struct Start {
    /// Families with micro-batches that may fit in memory.
    may_fit: ShapeFamily,
    /// Number of their layouts.
    size: u64,
    /// Families with micro-batches for which memory lacks room with all recompute policies, or with some, which lower
    /// bounds of times leave out.
    misfits: ShapeFamily,
    /// Number of layouts of the families that do not fit.
    too_large: u64,
}

impl Searcher<'_> {
    /// The queue of all families that may fit in memory. The layouts of the other families are counted, and these
    /// families are added to `misfits`, with those that do not fit with every recompute policy.
    ///
    /// # Errors
    ///
    /// The reason to stop, if `observe` gives one.
    pub(super) fn start(
        &self,
        shape_families: &[ShapeFamily],
        counts: &mut CandidateCounts,
        misfits: &mut Vec<ShapeFamily>,
        observe: &mut Observe<'_>,
    ) -> Result<Queue, StopReason> {
        let firsts = shape_families.iter().filter_map(|it| it.families(self.problem).next());
        let parameters = self.all_parameters(firsts);
        let started = shape_families.par_iter();
        let started = started.filter_map(|it| self.sorted_by_room(it, &parameters));
        let mut may_fit = Vec::new();
        for start in started.collect::<Vec<Start>>() {
            counts.candidates += start.size + start.too_large;
            counts.pruned_by_memory += start.too_large;
            if start.size > 0 {
                may_fit.push((start.may_fit, start.size));
            }
            misfits.push(start.misfits);
        }
        let mut nodes = Vec::new();
        while !may_fit.is_empty() {
            let next: Vec<_> = may_fit.drain(..AT_ONCE.min(may_fit.len())).collect();
            let progress =
                Progress { done: counts.pruned_by_memory, all: counts.candidates, best: None };
            if let Go::Stop(reason) = observe(progress) {
                return Err(reason);
            }
            nodes.par_extend(next.into_par_iter().map(|(families, size)| {
                let mut bounds = self.bounds();
                let bound = families.families(self.problem).map(|it| bounds(&it)).min();
                Node {
                    bound: bound.unwrap_or_default(),
                    size,
                    order: families.order(self.problem),
                    branch: Branch::ShapeFamily(Box::new(families)),
                }
            }));
        }
        Ok(Queue::of_shape_families(nodes))
    }

    /// A shape family by what memory may hold; `None` if the framework runs no family.
    fn sorted_by_room(&self, all: &ShapeFamily, parameters: &Parameters) -> Option<Start> {
        let first = all.families(self.problem).next()?;
        let capacity = self.problem.largest_memory_budget();
        let states_fit =
            self.request.exhaustive || self.least_states(&first, parameters) <= capacity;
        let policies = self.policies_with_room(&first);
        let mut rooms: BTreeMap<u32, ByPolicy<bool>> = BTreeMap::new();
        let (mut size, mut too_large) = (0, 0);
        for (family, num_layouts) in self.sized(all) {
            let room = rooms.entry(family.shape.micro_batch_size).or_insert_with(|| {
                if states_fit { policies(&family) } else { ByPolicy::default() }
            });
            *(if room.any() { &mut size } else { &mut too_large }) += num_layouts;
        }
        let searched = ByPolicy::new(|policy| self.policies[policy].is_some());
        let with = |is_in: &dyn Fn(ByPolicy<bool>) -> bool| {
            let mut part = all.clone();
            part.micro_batches.retain(|[size, _]| rooms.get(size).is_some_and(|it| is_in(*it)));
            part
        };
        let (may_fit, misfits) = (with(&ByPolicy::any), with(&|room| room != searched));
        Some(Start { may_fit, size, misfits, too_large })
    }

    /// The families of a shape family that may fit in memory, with their own lower bounds.
    pub(super) fn expand_shape_family(
        &self,
        shape_family: &ShapeFamily,
        limit: Nanos,
    ) -> Expansion {
        let mut expansion = Expansion::default();
        let mut bounds = self.bounds();
        for (family, size) in self.sized(shape_family).filter(|(_, size)| *size > 0) {
            let bound = bounds(&family);
            if bound > limit {
                expansion.counts.pruned_by_time += size;
                continue;
            }
            let is_own = family.shape.switches.cuda_graphs == self.graphs;
            let branch =
                if is_own { Branch::Family(family) } else { Branch::BestGraphsOfFamily(family) };
            expansion.nodes.push(Node { bound, size, order: family.order(), branch });
        }
        expansion
    }

    /// Each family of a shape family with its number of layouts.
    fn sized(&self, shape_family: &ShapeFamily) -> impl Iterator<Item = (Family, u64)> {
        let fixed = &self.request.fixed;
        let first = shape_family.families(self.problem).next();
        let of_first = first.map(|first| {
            let shardings = first.shardings(self.problem, fixed);
            (first.known_counts(&shardings, &self.layout_counts), shardings)
        });
        let of_first = of_first.into_iter();
        of_first.flat_map(move |(known, shardings)| {
            shape_family.families(self.problem).map(move |family| {
                (family, family.num_layouts(self.problem, fixed, &shardings, &known))
            })
        })
    }

    /// Lower bounds of the families of one shape family: families that differ only in switches have the same bound,
    /// except for the exposed time of exchanges between experts.
    fn bounds(&self) -> impl FnMut(&Family) -> Nanos {
        // All families of a shape family have the same dispatcher.
        let mut known: BTreeMap<ShapeKey, (FamilyBound, ByPolicy<bool>)> = BTreeMap::new();
        let mut policies = None;
        move |family| {
            let key = self.lower_bound_key(family.shape, self.graphs);
            let (bound, fits) = known.entry(key).or_insert_with(|| {
                let policies = policies.get_or_insert_with(|| self.policies_with_room(family));
                (self.parts_of_bound(family, self.graphs), policies(family))
            });
            bound.of(family, *fits)
        }
    }

    /// Cache key of the lower bound, which does not depend on dispatcher, overlap or expert-parallel degree, so these
    /// are unset.
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
        let make = || Arc::new(Shape::least(self.problem, self.chain, key, &self.costs));
        self.least.get(key, make)
    }

    /// Lower bound of a family: for every micro-batch, the slowest rank has at least the mean work of all ranks, and
    /// whole blocks. That work is for any expert-parallel degree, with the least recompute with which the family may
    /// fit in memory, plus the exchanges between experts at the family's own degree.
    pub(super) fn family_bound(&self, family: &Family) -> Nanos {
        let bound = self.parts_of_bound(family, family.shape.switches.cuda_graphs);
        bound.of(family, self.policies_with_room(family)(family))
    }

    /// The bound with CUDA graphs that are no slower than the family's.
    fn parts_of_bound(&self, family: &Family, graphs: CudaGraphs) -> FamilyBound {
        let shape = self.lower_bound_shape(family.shape, graphs);
        let named = self.request.fixed.schedule.listed();
        let overlaps = named.iter().any(|it| it.overlaps_passes());
        let of = (self.problem, self.chain);
        if family.by_group {
            let any = BlockRecompute::ALL.into_iter().filter_map(|policy| self.policies[policy]);
            let times =
                any.map(|policy| replicas_by_group(of, &shape, policy, overlaps, family)).min();
            return FamilyBound::ByGroup(times.unwrap_or_default());
        }
        let work = ByPolicy::new(|policy| {
            let policy = self.policies[policy].unwrap_or(policy);
            least_work(of, &shape, policy, overlaps, family)
        });
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

/// Lower bound of a family, except for the part that differs between its switches.
#[derive(Clone, Copy)]
enum FamilyBound {
    /// The bound of replicas in groups of unlike GPUs.
    ByGroup(Nanos),
    Alike {
        /// Work of a micro-batch without exchanges between experts, by policy of the blocks that hold least.
        work: ByPolicy<LeastWork>,
        /// Time that these exchanges add to all blocks where nothing hides them.
        experts: Nanos,
    },
}

impl FamilyBound {
    /// The least bound over the recompute policies with which the family may fit.
    fn of(self, family: &Family, fits: ByPolicy<bool>) -> Nanos {
        match self {
            Self::ByGroup(bound) => bound,
            Self::Alike { work, experts } => {
                let exposed = experts.as_f64() * least_exposed(family.shape.switches);
                let policies = BlockRecompute::ALL.into_iter().filter(|policy| fits[*policy]);
                let times = policies.map(|policy| match experts {
                    Nanos::ZERO => work[policy],
                    _ => work[policy].with(Nanos::new(exposed as u64), family),
                });
                times.map(|work| work.busiest(family)).min().unwrap_or_default()
            }
        }
    }
}
