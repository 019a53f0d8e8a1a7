//! Expansion of the search's nodes: families into subfamilies, subfamilies into layouts; layouts are simulated.

use std::cell::LazyCell;
use std::sync::Arc;

use cost_models::block::{BlockMemory, BlockPasses, ByPolicy, ExpertExchanges};
use ir::graph::{BlockRecompute, CudaGraphs, Recompute, Sharding};
use ir::layout::Layout;
use ir::schedule::ScheduleKind;
use ir::units::{Bytes, Nanos};
use simulator::ActivationBytes;

use super::evaluated_plan::{EvaluatedPlan, of_groups};
use super::family::{Family, LayoutCounts, ShapeFamily, ZeroSharding};
use super::feasible::switches;
use super::least_work::{RankTime, any_partition, least_work, replicas_by_group};
use super::outcome::{Candidate, CandidateCounts};
use super::queue::{Branch, Node, Subfamily};
use super::request::Request;
use crate::partition::{evened, partition, remembered};
use crate::problem::{Problem, StageRule};
use crate::step::{
    Assignment, BlockCosts, ChainIndex, CostsByHardware, Holdings, Memo, Orders, PipelineRanks,
    Shape, ShapeKey, Step, in_flight,
};

/// Layouts with the same stages, and their balanced partition.
pub(super) struct Balanced {
    shape: Arc<Shape>,
    pub(super) layouts: Vec<Layout>,
    ranks: PipelineRanks,
    pub(super) ends: Arc<[usize]>,
}

/// Result of the expansion of a node: further nodes, or a plan.
#[derive(Default)]
pub(super) struct Expansion {
    pub(super) nodes: Vec<Node>,
    pub(super) plans: Vec<Candidate>,
    pub(super) counts: CandidateCounts,
    /// The family, if some of its layouts are excluded by memory, but not by time.
    pub(super) misfit: Option<Family>,
}

/// State that all threads of a search share.
pub(super) struct Searcher<'a> {
    pub(super) problem: &'a Problem,
    pub(super) chain: &'a ChainIndex,
    pub(super) request: &'a Request,
    orders: Orders,
    /// What blocks cost on the GPUs of each group.
    pub(super) costs: Vec<Arc<BlockCosts>>,
    shapes: Memo<ShapeKey, Arc<Shape>>,
    /// Shapes on the GPUs of one group, for replicas that lie in it.
    shapes_of_groups: Memo<(usize, ShapeKey), Arc<Shape>>,
    /// Lower bounds of shapes, for any degree of expert parallelism.
    pub(super) least: Memo<ShapeKey, Arc<Shape>>,
    /// Exchanges between the experts of each class of blocks, for any number of sequences.
    pub(super) expert_exchanges: Memo<Sharding, Arc<[ExpertExchanges]>>,
    pub(super) layout_counts: LayoutCounts,
    /// The CUDA graphs that save most host time, of those that families have.
    pub(super) graphs: CudaGraphs,
    /// By recompute policy of the blocks that hold least memory: the policy of the blocks that take least time; `None`
    /// for policies that are not searched.
    pub(super) policies: ByPolicy<Option<BlockRecompute>>,
    /// The problems of the replicas in each group, where GPUs are of several kinds.
    pub(super) of_groups: Vec<Problem>,
}

impl<'a> Searcher<'a> {
    pub(super) fn new(
        problem: &'a Problem,
        chain: &'a ChainIndex,
        request: &'a Request,
        (shape_families, known): (&[ShapeFamily], &CostsByHardware),
    ) -> Self {
        let costs = known.of_groups(problem);
        let (orders, shapes, shapes_of_groups, least) = Default::default();
        let (expert_exchanges, layout_counts) = Default::default();
        let switches = shape_families.iter().flat_map(|it| &it.switches);
        let graphs = switches.map(|it| it.cuda_graphs).max().unwrap_or_default();
        let searched = request.fixed.recompute.one();
        let searched = searched.map_or_else(|| Recompute::ALL.to_vec(), |named| vec![named]);
        let policies = ByPolicy::new(|policy| {
            let of = searched.iter().find(|recompute| recompute.of_first_layers() == policy)?;
            Some(if request.min_recompute { BlockRecompute::None } else { of.of_other_layers() })
        });
        let of_groups = problem.of_groups();
        Self {
            problem,
            chain,
            request,
            orders,
            costs,
            shapes,
            shapes_of_groups,
            least,
            expert_exchanges,
            layout_counts,
            graphs,
            policies,
            of_groups,
        }
    }

    /// The searcher for a problem that differs only in its headroom, with the memoised shapes and blocks.
    pub(super) fn with_problem<'b>(self, problem: &'b Problem) -> Searcher<'b>
    where
        'a: 'b,
    {
        Searcher { problem, of_groups: problem.of_groups(), ..self }
    }

    pub(super) fn shape(&self, key: ShapeKey) -> Arc<Shape> {
        self.shapes.get_with_others(&key, || {
            // All switches that the search may ask for with these kernels.
            let mut all = switches(self.problem, &self.request.fixed, &key.sharding);
            if !all.contains(&key.switches) {
                all = vec![key.switches];
            }
            let shapes = Shape::with_switches(self.problem, self.chain, key, &all, &self.costs);
            shapes.into_iter().map(|shape| (shape.key, Arc::new(shape)))
        })
    }

    /// The shape on the GPUs of a group, for replicas that lie in it.
    pub(super) fn shape_in(&self, key: ShapeKey, group: usize) -> Arc<Shape> {
        let make = || Arc::new(self.shape(key).of_group(group));
        self.shapes_of_groups.get((group, key), make)
    }

    /// Memory of a block of each class on a rank.
    pub(super) fn block_memories(&self, key: ShapeKey) -> Arc<[Arc<BlockMemory>]> {
        self.costs[0].memories.of(self.problem, self.chain, key)
    }

    /// The least recompute of any block.
    pub(super) fn least_recompute(&self, recompute: Recompute) -> BlockRecompute {
        if self.request.min_recompute { BlockRecompute::None } else { recompute.of_other_layers() }
    }

    /// Expands a node into smaller ones, or simulates its one layout.
    pub(super) fn expand(&self, node: Node, limit: Nanos) -> Expansion {
        match node.branch {
            Branch::ShapeFamily(families) => self.expand_shape_family(&families, limit),
            Branch::BestGraphsOfFamily(family) => {
                let bound = self.family_bound(&family);
                let branch = Branch::Family(family);
                Expansion { nodes: vec![Node { bound, branch, ..node }], ..Expansion::default() }
            }
            Branch::Family(family) => self.expand_family(&family, limit),
            Branch::Subfamily(family, subfamily) => {
                let expansion = if family.by_group {
                    self.expand_by_group(&family, subfamily, limit)
                } else if self.request.min_recompute {
                    self.expand_min_recompute(&family, subfamily, limit)
                } else {
                    self.expand_subfamily(&family, subfamily, limit)
                };
                let misfits = expansion.counts.too_large + expansion.counts.pruned_by_memory;
                Expansion { misfit: (misfits > 0).then_some(family), ..expansion }
            }
            Branch::Layout(layout) => self.play(layout.0, layout.1),
        }
    }

    /// The subfamilies of a family, each of layouts with the same stages.
    pub(super) fn subfamilies(&self, family: &Family) -> Vec<Subfamily> {
        let Request { fixed, .. } = self.request;
        let schedules = family.schedules(self.problem, fixed);
        let of_policy = |recompute| {
            let subfamily =
                move |(schedule, virtual_stages)| Subfamily { recompute, schedule, virtual_stages };
            schedules.clone().into_iter().map(subfamily)
        };
        family.recomputes(self.problem, fixed).flat_map(of_policy).collect()
    }

    fn expand_family(&self, family: &Family, limit: Nanos) -> Expansion {
        // Most families do not fit, and need no costs.
        let shape = LazyCell::new(|| self.shape(family.shape));
        let shardings = family.shardings(self.problem, &self.request.fixed);
        let mut expansion = Expansion::default();
        let capacity = self.problem.largest_memory_budget();
        let least_memory = self.least_memory(family, &shardings);
        // Neither bound depends on the number of stages per rank.
        let mut may_fit = of_last(|(recompute, schedule): (Recompute, ScheduleKind)| {
            self.request.exhaustive || least_memory.with(family, recompute, schedule) <= capacity
        });
        let mut bounds = of_last(|(recompute, schedule): (Recompute, ScheduleKind)| {
            let overlaps = schedule.overlaps_passes();
            let policy = self.least_recompute(recompute);
            let of = (self.problem, self.chain);
            if family.by_group {
                return replicas_by_group(of, &shape, policy, overlaps, family);
            }
            any_partition(schedule, least_work(of, &shape, policy, overlaps, family), family)
        });
        for subfamily in self.subfamilies(family) {
            let Subfamily { schedule, virtual_stages, recompute } = subfamily;
            let stages = (schedule, virtual_stages);
            let combined = family.combined(self.problem, &shardings, stages, recompute);
            let size = combined.count() as u64;
            if size == 0 {
                continue;
            }
            if !may_fit((recompute, schedule)) {
                expansion.counts.pruned_by_memory += size;
                expansion.misfit = Some(*family);
                continue;
            }
            let bound = bounds((recompute, schedule));
            if bound > limit {
                expansion.counts.pruned_by_time += size;
            } else {
                let order = family.order();
                expansion.nodes.push(Node {
                    bound,
                    size,
                    order,
                    branch: Branch::Subfamily(*family, subfamily),
                });
            }
        }
        expansion
    }

    /// The layouts of a subfamily, and the partition with the fastest slowest stage, or the one given by hand; `None`
    /// if there are fewer blocks than stages.
    pub(super) fn balanced(&self, family: &Family, subfamily: Subfamily) -> Option<Balanced> {
        let Subfamily { recompute, schedule, virtual_stages } = subfamily;
        let shape = self.shape(family.shape);
        let shardings = family.shardings(self.problem, &self.request.fixed);
        let layouts: Vec<Layout> = family
            .combined(self.problem, &shardings, (schedule, virtual_stages), recompute)
            .map(|it| family.layout(self.problem, (schedule, virtual_stages), recompute, it))
            .collect();
        let ranks = PipelineRanks::of(layouts.first()?);
        let num_stages = (family.pipeline_parallel * virtual_stages) as usize;
        let cut_for = if self.request.min_recompute { Recompute::None } else { recompute };
        let ends = match self.problem.stage_rule(family.pipeline_parallel, virtual_stages) {
            StageRule::Free => {
                shape.balanced(self.problem, self.chain, cut_for, num_stages, &ranks)?
            }
            StageRule::Fixed(ends) => ends,
            StageRule::Impossible => return None,
        };
        Some(Balanced { shape, layouts, ranks, ends })
    }

    pub(super) fn assign<'s>(
        &'s self,
        of: &'s Balanced,
        recompute: Recompute,
        ends: Arc<[usize]>,
    ) -> Assignment<'s> {
        let Balanced { shape, ranks, .. } = of;
        Assignment::new(self.problem, self.chain, shape, recompute, ranks.clone(), ends)
    }

    /// Bytes that each rank of an assignment saves for backward at its peak.
    pub(super) fn peaks(&self, assignment: &Assignment<'_>, layout: &Layout) -> Vec<Bytes> {
        if layout.schedule.keeps_most_at_first_backward() {
            return assignment.kept_at_least(layout);
        }
        let stages = 0..assignment.stages.len();
        let stages: Vec<ActivationBytes> =
            stages.map(|stage| assignment.kept(layout, stage)).collect();
        self.orders.peaks(layout, &stages)
    }

    /// Memory of the fullest rank for each layout of a subfamily, of the layouts that may need no more than `most`.
    pub(super) fn memories(
        &self,
        family: &Family,
        subfamily: Subfamily,
        most: Bytes,
    ) -> Vec<(Layout, Bytes, Arc<[usize]>)> {
        if family.by_group {
            return self.memories_by_group(family, subfamily);
        }
        let Some(balanced) = self.balanced(family, subfamily) else { return Vec::new() };
        let Balanced { layouts, ends, .. } = &balanced;
        let fastest = self.assign(&balanced, subfamily.recompute, Arc::clone(ends));
        let kept_at_least = fastest.kept_at_least(&layouts[0]);
        let fits = layouts.iter().filter(|layout| fastest.may_hold(layout, &kept_at_least, most));
        let mut kept = None;
        let of = |layout: &Layout| {
            let kept = kept.get_or_insert_with(|| self.peaks(&fastest, layout));
            (*layout, fastest.most_memory(layout, kept), Arc::clone(ends))
        };
        fits.map(of).collect()
    }

    pub(super) fn expand_subfamily(
        &self,
        family: &Family,
        subfamily: Subfamily,
        limit: Nanos,
    ) -> Expansion {
        let mut expansion = Expansion::default();
        let Some(balanced) = self.balanced(family, subfamily) else { return expansion };
        let Balanced { layouts, ends, .. } = &balanced;
        let capacity = self.problem.largest_memory_budget();
        let cuts_within_memory = self.cuts_within_memory(&layouts[0]);
        if balanced.least_time(self, family, subfamily, cuts_within_memory) > limit {
            expansion.counts.pruned_by_time += layouts.len() as u64;
            return expansion;
        }
        let fastest = self.assign(&balanced, subfamily.recompute, Arc::clone(ends));
        let of_all = fastest.lower_bound_of_all(&layouts[0]);
        if !cuts_within_memory && of_all > limit {
            expansion.counts.pruned_by_time += layouts.len() as u64;
            return expansion;
        }
        let kept_at_least = fastest.kept_at_least(&layouts[0]);
        let mut kept = None;
        for layout in layouts {
            let may_fit = self.request.exhaustive || fastest.fits(layout, &kept_at_least);
            if may_fit {
                let kept = kept.get_or_insert_with(|| self.peaks(&fastest, layout));
                if fastest.fits(layout, kept) {
                    let bound = fastest.lower_bound_after(layout, of_all);
                    expansion.add(layout, ends, bound, limit);
                    continue;
                }
            }
            if !self.cuts_within_memory(layout) {
                expansion.counts.add_misfit(may_fit);
                continue;
            }
            let shardings = [ZeroSharding::of(layout)];
            let least_memory = self.least_memory(family, &shardings);
            if !self.request.exhaustive
                && least_memory.with(family, subfamily.recompute, subfamily.schedule) > capacity
            {
                expansion.counts.add_misfit(false);
                continue;
            }
            let within = self.within_memory(layout, &fastest).map(Arc::from);
            let within = within.filter(|within| within != ends);
            let other = within.map(|ends| self.assign(&balanced, subfamily.recompute, ends));
            match other.filter(|other| other.fits(layout, &self.peaks(other, layout))) {
                Some(other) => {
                    expansion.add(layout, &other.ends, other.lower_bound(layout), limit);
                }
                None => expansion.counts.add_misfit(true),
            }
        }
        expansion
    }

    /// True if another partition is tried where the fastest overfills a rank. This is done only with one stage per
    /// rank, as the blocks of several stages are not one range of the chain; and not where stages are given by hand or
    /// follow a rule.
    pub(super) fn cuts_within_memory(&self, layout: &Layout) -> bool {
        !self.problem.vocabulary_parallel
            && self.problem.stage_rule(layout.pipeline_parallel, 1) == StageRule::Free
            && layout.schedule.stages_per_rank(layout.virtual_stages) == 1
            && layout.pipeline_parallel > 1
    }

    /// The fastest partition that overfills no rank, for use where the fastest of all overfills one.
    pub(super) fn within_memory(
        &self,
        layout: &Layout,
        assignment: &Assignment<'_>,
    ) -> Option<Vec<usize>> {
        let (problem, held_by) = (assignment.problem, self.in_flight(layout));
        let fits = |rank: usize, start: usize, end: usize| {
            let mut held = Holdings::default();
            held.add_blocks(self.chain, assignment.shape, layout.recompute, start..end);
            held.message = assignment.held[rank].message;
            let group = assignment.groups[rank];
            let at = [rank, group];
            let memory = in_flight(problem, layout, &held, at, held_by[rank]);
            problem.fits_group_with_headroom(group, &memory)
        };
        let num_ranks = layout.pipeline_parallel as usize;
        let fits = remembered([self.chain.num_blocks(), num_ranks], fits);
        if problem.groups.is_some() {
            let Assignment { shape, ranks, .. } = assignment;
            let blocks = (self.chain, layout.recompute);
            return shape.balanced_on_groups(problem, blocks, (ranks, num_ranks), fits);
        }
        let prefix = assignment.shape.prefix(self.chain, layout.recompute, 0);
        let ends = partition(&prefix, num_ranks, &fits)?;
        Some(evened(&prefix, ends, num_ranks, fits))
    }

    /// The most micro-batches in flight on each rank, in a layout with one stage per rank.
    fn in_flight(&self, layout: &Layout) -> Vec<u64> {
        let (p, m) = (layout.pipeline_parallel, layout.num_micro_batches);
        if layout.schedule.keeps_most_at_first_backward() {
            let at_first = |rank| layout.schedule.in_flight_at_first_backward([rank, p, 1, m], 0);
            return (0..p).map(|rank| at_first(rank).into()).collect();
        }
        let one = Bytes::new(1);
        let stage =
            ActivationBytes { activations: one, for_weight_grad: one, workspace: Bytes::ZERO };
        let peaks = self.orders.peaks(layout, &vec![stage; p as usize]);
        peaks.into_iter().map(Bytes::get).collect()
    }

    fn play(&self, layout: Layout, ends: Arc<[usize]>) -> Expansion {
        let time = self.of_steps(layout, &ends, |step| {
            let time = self.orders.step_time(&step.layout, &step.work);
            time.unwrap_or_else(|error| panic!("a checked layout plays: {error}"))
        });
        let time = time.into_iter().max().unwrap_or_default();
        let counts = CandidateCounts { played: 1, ..CandidateCounts::default() };
        Expansion { plans: vec![Candidate { time, layout, ends }], counts, ..Expansion::default() }
    }

    /// A layout whose stages end at `ends`, with the breakdown of its time and memory.
    pub(super) fn found(&self, layout: Layout, ends: &Arc<[usize]>) -> EvaluatedPlan {
        let all = self.of_steps(layout, ends, |step: &Step<'_>| {
            step.evaluate().unwrap_or_else(|error| panic!("a checked layout plays: {error}"))
        });
        let evaluation = of_groups(self.problem, layout, &all);
        EvaluatedPlan { layout, stage_ends: ends.to_vec(), evaluation }
    }

    /// Results of `of` on the step of a layout, or on those of the replicas in each group.
    fn of_steps<T>(
        &self,
        layout: Layout,
        ends: &Arc<[usize]>,
        of: impl Fn(&Step<'_>) -> T,
    ) -> Vec<T> {
        let shape = self.shape(ShapeKey::of(&layout, self.problem));
        let (ranks, recompute) = (PipelineRanks::of(&layout), layout.recompute);
        let on = |problem: &Problem, shape: &Shape, layout: Layout| {
            let (ranks, ends) = (ranks.clone(), Arc::clone(ends));
            let assignment = Assignment::new(problem, self.chain, shape, recompute, ranks, ends);
            of(&Step::new(&assignment, layout))
        };
        if layout.micro_batches_by_group.is_empty() {
            return vec![on(self.problem, &shape, layout)];
        }
        let groups = self.of_groups.iter().enumerate();
        let of_group = |(group, problem): (usize, &Problem)| {
            on(problem, &self.shape_in(shape.key, group), layout.of_group(group))
        };
        groups.map(of_group).collect()
    }
}

impl Balanced {
    /// Lower bound of all layouts with these stages or, where `any_partition`, with any, from their blocks alone.
    pub(super) fn least_time(
        &self,
        of: &Searcher<'_>,
        family: &Family,
        subfamily: Subfamily,
        any_partition: bool,
    ) -> Nanos {
        let Self { shape, ranks, ends, .. } = self;
        let Subfamily { recompute, schedule, .. } = subfamily;
        let is_faster_apart = |block: &Arc<BlockPasses>| {
            (block.input_grad.total() + block.weight_grad.total()) < block.backward.total()
        };
        // Partitions are not balanced for split gradients.
        if any_partition && schedule.splits_backward() && shape.blocks.iter().any(is_faster_apart) {
            return Nanos::ZERO;
        }
        let policies = (recompute, schedule);
        let all = RankTime::of_ranks((of.problem, of.chain), shape, policies, (ranks, ends));
        let m = family.num_micro_batches;
        // The slowest stage of a partition chosen for memory is no faster.
        let time = |it: &RankTime| {
            if any_partition { it.each * u64::from(m) } else { it.end(schedule, m) }
        };
        all.iter().map(time).max().unwrap_or_default()
    }
}

impl Expansion {
    /// Adds a layout that fits in memory, unless its lower bound exceeds the limit.
    pub(super) fn add(&mut self, layout: &Layout, ends: &Arc<[usize]>, bound: Nanos, limit: Nanos) {
        if bound > limit {
            self.counts.pruned_by_time += 1;
            return;
        }
        let branch = Branch::Layout(Box::new((*layout, Arc::clone(ends))));
        self.nodes.push(Node { bound, size: 1, order: 0, branch });
    }
}

/// Caches the last value of `of`, for as long as the key stays the same.
pub(super) fn of_last<K: PartialEq + Copy, V: Copy>(of: impl Fn(K) -> V) -> impl FnMut(K) -> V {
    let mut last: Option<(K, V)> = None;
    move |key| match last {
        Some((same, value)) if same == key => value,
        _ => last.insert((key, of(key))).1,
    }
}
