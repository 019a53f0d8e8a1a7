//! Replicas that each lie within one group of unlike GPUs. The replicas of each group have their own share of the
//! batch.
//!
//! All replicas have the same degrees, stages and size of a micro-batch, and exchange gradients with each other.
//! Numbers of micro-batches are not searched: each layout has the numbers with which the passes of the slowest group
//! take least time.

use std::cell::OnceCell;
use std::sync::Arc;

use cost_models::StridedGroup;
use ir::layout::{Layout, LayoutSpec, MeshAxis, MicroBatchesByGroup};
use ir::units::{Bytes, Nanos};

use super::family::{Family, ZeroSharding};
use super::feasible::abilities;
use super::least_work::{RankTime, num_micro_batches, replicas_with};
use super::node::{Expansion, Searcher};
use super::queue::Subfamily;
use crate::partition::bisected;
use crate::problem::{Problem, StageRule};
use crate::step::{Assignment, PipelineRanks, Shape, exchanges_each_micro_batch};

/// Layouts of a family with the same schedule and recompute, and costs of their blocks in each group.
struct Subject<'a> {
    family: &'a Family,
    subfamily: Subfamily,
    shapes: Vec<Arc<Shape>>,
    ranks: PipelineRanks,
}

/// Stages of these layouts, with their assignment in each group.
struct Cut<'a> {
    ends: Arc<[usize]>,
    of_groups: Vec<Assignment<'a>>,
    /// The shares that suit the replicas best, and equal shares.
    shares: [Option<Shares>; 2],
}

/// Shares of the batch, with the values that all layouts with these shares have in common in each group.
struct Shares {
    by_group: MicroBatchesByGroup,
    of_passes: OnceCell<Vec<Nanos>>,
    kept_at_least: OnceCell<Vec<Vec<Bytes>>>,
    kept: OnceCell<Vec<Vec<Bytes>>>,
}

impl<'a> Cut<'a> {
    /// The value of `of` for each group.
    fn each<T>(&self, layout: &Layout, of: impl Fn(&Assignment<'a>, &Layout) -> T) -> Vec<T> {
        let groups = self.of_groups.iter().enumerate();
        groups.map(|(group, assignment)| of(assignment, &layout.of_group(group))).collect()
    }

    /// Lower bound of the passes of any layout with these shares: those of the slowest group.
    fn of_passes(&self, shares: &Shares, layout: &Layout) -> Nanos {
        let of = || self.each(layout, Assignment::lower_bound_of_all);
        shares.of_passes.get_or_init(of).iter().copied().max().unwrap_or_default()
    }

    /// Lower bound of the step: that of the slowest group.
    fn lower_bound(&self, shares: &Shares, layout: &Layout) -> Nanos {
        self.of_passes(shares, layout);
        let of_passes = shares.of_passes.get().into_iter().flatten();
        let groups = self.of_groups.iter().zip(of_passes).enumerate();
        let bounds = groups.map(|(group, (assignment, of_passes))| {
            assignment.lower_bound_after(&layout.of_group(group), *of_passes)
        });
        bounds.max().unwrap_or_default()
    }

    /// The first group whose memory is exceeded.
    fn overfilled(
        &self,
        searcher: &Searcher<'_>,
        shares: &Shares,
        layout: &Layout,
    ) -> Option<usize> {
        let least = || self.each(layout, Assignment::kept_at_least);
        let all = || self.each(layout, |assignment, layout| searcher.peaks(assignment, layout));
        let overfilled = |kept: &[Vec<Bytes>]| {
            let mut groups = self.of_groups.iter().zip(kept).enumerate();
            groups.find_map(|(group, (assignment, kept))| {
                (!assignment.fits(&layout.of_group(group), kept)).then_some(group)
            })
        };
        let at_least = overfilled(shares.kept_at_least.get_or_init(least));
        at_least.or_else(|| overfilled(shares.kept.get_or_init(all)))
    }
}

impl Searcher<'_> {
    /// Expands a subfamily to layouts: for each sharding of model states, one layout. Its stages are those with the
    /// least lower bound among the stages that are balanced for one of the groups. If none of these fit, its stages are
    /// cut within the memory of a group that they overfill.
    pub(super) fn expand_by_group(
        &self,
        family: &Family,
        subfamily: Subfamily,
        limit: Nanos,
    ) -> Expansion {
        let mut expansion = Expansion::default();
        let subject = self.subject(family, subfamily);
        let balanced = self.ends_by_group(&subject);
        let shardings = self.shardings_of(family, subfamily);
        if balanced.iter().all(|ends| self.least_time(&subject, ends) > limit) {
            expansion.counts.pruned_by_time += shardings.len() as u64;
            return expansion;
        }
        let balanced: Vec<Cut<'_>> =
            balanced.into_iter().map(|ends| self.cut(&subject, ends)).collect();
        for sharding in shardings {
            let mut best: Option<(Nanos, Layout, Arc<[usize]>)> = None;
            let mut overfilled: Option<(&Cut<'_>, Layout, usize)> = None;
            let mut is_divided = false;
            let mut offer = |bound: Nanos, layout: Layout, ends: &Arc<[usize]>| {
                if best.as_ref().is_none_or(|(least, ..)| bound < *least) {
                    best = Some((bound, layout, Arc::clone(ends)));
                }
            };
            for cut in &balanced {
                let Some((layout, shares)) = self.layout_by_group(&subject, cut, sharding) else {
                    continue;
                };
                is_divided = true;
                let of_passes = cut.of_passes(shares, &layout);
                if of_passes > limit {
                    offer(of_passes, layout, &cut.ends);
                    continue;
                }
                match cut.overfilled(self, shares, &layout) {
                    None => offer(cut.lower_bound(shares, &layout), layout, &cut.ends),
                    Some(group) => overfilled = overfilled.or(Some((cut, layout, group))),
                }
            }
            let within = || self.cut_within(&subject, sharding, overfilled?);
            match best.or_else(within) {
                Some((bound, layout, ends)) => expansion.add(&layout, &ends, bound, limit),
                None if is_divided => expansion.counts.add_misfit(true),
                None => expansion.counts.undivided += 1,
            }
        }
        expansion
    }

    /// The layout with stages that are cut within the memory of the group that the balanced stages overfill, if they
    /// fit in all groups.
    fn cut_within(
        &self,
        subject: &Subject<'_>,
        sharding: ZeroSharding,
        (cut, layout, group): (&Cut<'_>, Layout, usize),
    ) -> Option<(Nanos, Layout, Arc<[usize]>)> {
        let of_group = layout.of_group(group);
        if !self.cuts_within_memory(&of_group) {
            return None;
        }
        let Subfamily { recompute, schedule, .. } = subject.subfamily;
        let family = subject.family;
        let least_memory = self.least_memory(family, &[sharding]);
        let least_memory = least_memory.with(family, recompute, schedule);
        if !self.request.exhaustive && least_memory > self.problem.largest_memory_budget() {
            return None;
        }
        let ends: Arc<[usize]> = self.within_memory(&of_group, &cut.of_groups[group])?.into();
        let cut = self.cut(subject, ends);
        let (layout, shares) = self.layout_by_group(subject, &cut, sharding)?;
        let fits = cut.overfilled(self, shares, &layout).is_none();
        fits.then(|| (cut.lower_bound(shares, &layout), layout, Arc::clone(&cut.ends)))
    }

    /// Memory of the fullest rank for each layout of a subfamily, with stages balanced for the first group.
    pub(super) fn memories_by_group(
        &self,
        family: &Family,
        subfamily: Subfamily,
    ) -> Vec<(Layout, Bytes, Arc<[usize]>)> {
        let subject = self.subject(family, subfamily);
        let Some(ends) = self.ends_by_group(&subject).into_iter().next() else { return Vec::new() };
        let cut = self.cut(&subject, ends);
        let of = |sharding| {
            let (layout, _) = self.layout_by_group(&subject, &cut, sharding)?;
            let fullest = cut.each(&layout, |assignment, layout| {
                assignment.most_memory(layout, &self.peaks(assignment, layout))
            });
            Some((layout, fullest.into_iter().max()?, Arc::clone(&cut.ends)))
        };
        self.shardings_of(family, subfamily).into_iter().filter_map(of).collect()
    }

    fn subject<'s>(&'s self, family: &'s Family, subfamily: Subfamily) -> Subject<'s> {
        let shapes = (0..self.of_groups.len()).map(|group| self.shape_in(family.shape, group));
        let shapes = shapes.collect();
        let stride = family.mesh().stride(MeshAxis::Pipeline);
        let group = StridedGroup { size: family.pipeline_parallel, stride };
        let ranks = PipelineRanks { group, placement: subfamily.schedule.placement() };
        Subject { family, subfamily, shapes, ranks }
    }

    fn shardings_of(&self, family: &Family, subfamily: Subfamily) -> Vec<ZeroSharding> {
        let Subfamily { recompute, schedule, virtual_stages } = subfamily;
        let shardings = family.shardings(self.problem, &self.request.fixed);
        let replicas = self.problem.replicas_of_groups(family.spec().gpus_per_replica());
        let context = family.shape.sharding.context_parallel;
        let replicas: Vec<u32> = replicas.iter().map(|of| of * context).collect();
        let all = family.combined(self.problem, &shardings, (schedule, virtual_stages), recompute);
        all.filter(|it| it.lies_in_groups(&replicas, family.mesh().replicas())).collect()
    }

    /// Ends of stages that are balanced for one of the groups, or those given by hand.
    fn ends_by_group(&self, of: &Subject<'_>) -> Vec<Arc<[usize]>> {
        let Subfamily { recompute, virtual_stages, .. } = of.subfamily;
        let p = of.family.pipeline_parallel;
        let num_stages = (p * virtual_stages) as usize;
        let balanced = || {
            let groups = self.of_groups.iter().zip(&of.shapes);
            let all = groups.filter_map(|(problem, shape)| {
                shape.balanced(problem, self.chain, recompute, num_stages, &of.ranks)
            });
            let mut all: Vec<Arc<[usize]>> = all.collect();
            all.dedup();
            all
        };
        match self.problem.stage_rule(p, virtual_stages) {
            StageRule::Free => balanced(),
            StageRule::Fixed(ends) => vec![ends],
            StageRule::Impossible => Vec::new(),
        }
    }

    /// Lower bound of all layouts with these stages, from their blocks alone.
    fn least_time(&self, of: &Subject<'_>, ends: &[usize]) -> Nanos {
        let Subfamily { recompute, schedule, .. } = of.subfamily;
        let (policies, stages) = ((recompute, schedule), (&of.ranks, ends));
        let of_group = |(problem, shape): (&Problem, &Arc<Shape>)| {
            let ranks = RankTime::of_ranks((problem, self.chain), shape, policies, stages);
            let end = |rank: &RankTime| rank.end(schedule, of.family.num_micro_batches);
            ranks.into_iter().max_by_key(end)
        };
        let last = self.of_groups.iter().zip(&of.shapes).filter_map(of_group);
        replicas_with(self.problem, of.family, last)
    }

    fn cut<'s>(&'s self, of: &'s Subject<'_>, ends: Arc<[usize]>) -> Cut<'s> {
        let Subfamily { recompute, schedule, .. } = of.subfamily;
        let assign = |(problem, shape): (&'s Problem, &'s Arc<Shape>)| {
            let (ranks, ends) = (of.ranks.clone(), Arc::clone(&ends));
            Assignment::new(problem, self.chain, shape, recompute, ranks, ends)
        };
        let groups = self.of_groups.iter().zip(&of.shapes);
        let of_groups: Vec<Assignment<'s>> = groups.map(assign).collect();
        let times: Vec<Nanos> = of_groups.iter().map(Assignment::busiest_rank).collect();
        let is_able = abilities(self.problem).uneven_replicas;
        let free =
            is_able.then(|| shares(self.problem, of.family, &times, of.family.multiple(schedule)));
        let shares = [free.flatten(), equal(self.problem, of.family)].map(|by_group| {
            let (of_passes, kept_at_least, kept) = Default::default();
            by_group.map(|by_group| Shares { by_group, of_passes, kept_at_least, kept })
        });
        Cut { ends, of_groups, shares }
    }

    /// The layout with these stages and this sharding of model states, with the shares that suit its replicas best, or
    /// with equal shares where replicas exchange data with each micro-batch; `None` where no shares add up to the
    /// batch.
    fn layout_by_group<'c>(
        &self,
        of: &Subject<'_>,
        cut: &'c Cut<'_>,
        sharding: ZeroSharding,
    ) -> Option<(Layout, &'c Shares)> {
        let Subfamily { recompute, schedule, virtual_stages } = of.subfamily;
        let spec = of.family.layout_spec((schedule, virtual_stages), recompute, sharding);
        let with = |shares: &'c Shares| {
            let micro_batches_by_group = shares.by_group;
            let num_micro_batches = *micro_batches_by_group.numbers().iter().max()?;
            let spec = LayoutSpec { num_micro_batches, micro_batches_by_group, ..spec };
            let layout = Layout::new(spec, &self.problem.limits).ok()?;
            let is_possible = micro_batches_by_group.are_equal()
                || !exchanges_each_micro_batch(self.problem, &layout);
            is_possible.then_some((layout, shares))
        };
        cut.shares.iter().flatten().find_map(with)
    }
}

/// Equal numbers of micro-batches for all replicas; `None` where the batch does not divide.
fn equal(problem: &Problem, family: &Family) -> Option<MicroBatchesByGroup> {
    let all = num_micro_batches(problem, family);
    let replicas = u64::from(family.data_parallel);
    let each = all.is_multiple_of(replicas).then(|| (all / replicas) as u32)?;
    MicroBatchesByGroup::new(&vec![each; problem.num_groups()])
}

/// Numbers of micro-batches for the replicas of each group with which the slowest group takes least time, where a
/// micro-batch takes `times` on the busiest rank of each group. With `p` pipeline ranks, `n_g` replicas in group `g`,
/// and `M` micro-batches of all replicas, these are the `m_g` that
///
/// ```text
/// minimise max over groups of (m_g + p - 1) t_g,   sum over groups of n_g m_g = M,   m_g > 0 a multiple
/// ```
///
/// The limit is found by bisection. `None` if there are no such numbers.
///
/// # Source
///
/// Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.1, for the time of a pipeline.
fn shares(
    problem: &Problem,
    family: &Family,
    times: &[Nanos],
    multiple: u32,
) -> Option<MicroBatchesByGroup> {
    let all = num_micro_batches(problem, family);
    let replicas = problem.replicas_of_groups(family.spec().gpus_per_replica());
    let weights: Vec<u64> = replicas.iter().map(|of| u64::from(*of * multiple)).collect();
    let warm_up = u64::from(family.pipeline_parallel - 1);
    let within = |limit: Nanos| {
        let most = |group: usize| {
            let passes = limit.get() / times[group].get().max(1);
            passes.saturating_sub(warm_up) / u64::from(multiple)
        };
        let most: Vec<u64> = (0..times.len()).map(most).collect();
        adding_up(&weights, &most, all).ok_or(limit + Nanos::new(1))
    };
    let slowest = |numbers: &Vec<u64>| {
        let passes = numbers.iter().map(|number| number * u64::from(multiple) + warm_up);
        passes.zip(times).map(|(passes, time)| *time * passes).max().unwrap_or_default()
    };
    let best = bisected(within(Nanos::new(u64::MAX)).ok()?, Nanos::ZERO, slowest, within);
    let numbers: Option<Vec<u32>> =
        best.iter().map(|number| u32::try_from(number * u64::from(multiple)).ok()).collect();
    MicroBatchesByGroup::new(&numbers?)
}

/// Numbers from 1 to `most` whose products with their weights add up to `sum`, the first as large as possible; `None`
/// if there are none.
fn adding_up(weights: &[u64], most: &[u64], sum: u64) -> Option<Vec<u64>> {
    let ([weight, weights @ ..], [most, others @ ..]) = (weights, most) else {
        return (sum == 0).then(Vec::new);
    };
    let least_of_others: u64 = weights.iter().sum();
    let most_of_others = weights
        .iter()
        .zip(others)
        .fold(0_u64, |sum, (weight, most)| sum.saturating_add(weight.saturating_mul(*most)));
    let largest = (sum.checked_sub(least_of_others)? / weight).min(*most);
    let smallest = sum.saturating_sub(most_of_others).div_ceil(*weight).max(1);
    (smallest..=largest).rev().find_map(|number| {
        let mut numbers = adding_up(weights, others, sum - number * weight)?;
        numbers.insert(0, number);
        Some(numbers)
    })
}
