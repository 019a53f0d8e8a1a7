//! Lower bounds of the work of a family's layouts, for any partition of the blocks.

use std::cmp::Reverse;
use std::sync::Arc;

use cost_models::block::{BlockPasses, PassTime};
use ir::graph::{BlockRecompute, Recompute};
use ir::schedule::ScheduleKind;
use ir::units::Nanos;
use smallvec::SmallVec;

use super::family::Family;
use crate::problem::Problem;
use crate::step::{ChainIndex, PipelineRanks, Shape};

/// Keeps bounds below the exact value despite rounding.
const ROUNDING: f64 = 1.0 - 1e-9;

/// The blocks of a class.
#[derive(Clone, Copy)]
struct ClassBlocks {
    number: u64,
    /// Lower bound of the time of each for a micro-batch.
    each: Nanos,
}

impl ClassBlocks {
    fn all(self) -> Nanos {
        self.each * self.number
    }
}

/// Lower bound of the time of the blocks of each class for a micro-batch, with gradients computed together or
/// separately; kernels alone where exchanges may overlap another pass.
fn least_of_blocks(
    blocks: &[Arc<BlockPasses>],
    chain: &ChainIndex,
    policy: BlockRecompute,
    overlaps: bool,
) -> impl Iterator<Item = ClassBlocks> {
    let time = move |pass: &PassTime| pass.least(overlaps);
    blocks.iter().enumerate().map(move |(class, block)| {
        let apart = time(&block.input_grad) + time(&block.weight_grad);
        let grads = time(&block.backward).min(apart);
        let each = time(&block.forward) + grads + time(&block.recompute[policy]);
        ClassBlocks { number: u64::from(chain.count(class, &(0..chain.num_blocks()))), each }
    })
}

/// Lower bounds on ranks that are alike. The busiest has at least the mean work, and whole blocks: of `n` blocks that
/// take at least `t` each, one rank has at least `n / num_ranks`, rounded up. Schedules that overlap passes may give a
/// rank half of a block's micro-batches, so there it is the mean alone.
fn least_of(
    blocks: impl Iterator<Item = ClassBlocks>,
    num_ranks: u32,
    overlaps: bool,
) -> LeastWork {
    let ranks = u64::from(num_ranks);
    let mut blocks: SmallVec<[ClassBlocks; 8]> = blocks.collect();
    let all: Nanos = blocks.iter().map(|it| it.all()).sum();
    let mean = Nanos::new(all.get() / ranks);
    if overlaps {
        return LeastWork { all, rank: mean };
    }
    blocks.sort_unstable_by_key(|it| Reverse(it.each));
    let mut number = 0;
    let whole = blocks.iter().map(|slowest| {
        number += slowest.number;
        slowest.each * number.div_ceil(ranks)
    });
    LeastWork { all, rank: whole.fold(mean, Nanos::max) }
}

/// Lower bounds of the work for a micro-batch.
#[derive(Clone, Copy, Default)]
pub(super) struct LeastWork {
    /// Time of all blocks, each where it is fastest.
    pub(super) all: Nanos,
    /// Time of the busiest rank.
    pub(super) rank: Nanos,
}

impl LeastWork {
    /// The bound with `more` time for all blocks, on GPUs that are alike.
    pub(super) fn with(self, more: Nanos, family: &Family) -> Self {
        let all = self.all + more;
        let mean = Nanos::new(all.get() / u64::from(family.pipeline_parallel));
        Self { all, rank: self.rank.max(mean) }
    }

    /// Lower bound of the busiest rank's time.
    pub(super) fn busiest(self, family: &Family) -> Nanos {
        self.rank * u64::from(family.num_micro_batches)
    }
}

/// Lower bound of the time that exchanges between experts add to all blocks, where the exchanges of a class take
/// `exchanges` in forward and in backward. A pass that also waits for its host waits less the longer its device takes:
///
/// ```text
/// sqrt((d + e)^2 + h^2) >= sqrt(d^2 + h^2) + e d / sqrt(d^2 + h^2)
/// ```
///
/// with `d` the time of the device without the exchanges, `h` that of the host, and `e` that of the exchanges.
pub(super) fn added_by_experts(
    chain: &ChainIndex,
    shape: &Shape,
    exchanges: impl Fn(usize) -> [Nanos; 2],
) -> Nanos {
    let added = |pass: &PassTime, exchange: Nanos| {
        let all = pass.total().as_f64().max(1.0);
        let share = (all - pass.host.as_f64()) / all;
        Nanos::new((exchange.as_f64() * share) as u64)
    };
    let classes = shape.blocks.iter().enumerate().filter(|(class, _)| chain.has_experts(*class));
    let of_class = |(class, block): (usize, &Arc<BlockPasses>)| {
        let [forward, backward] = exchanges(class);
        let grads = added(&block.backward, backward).min(added(&block.input_grad, backward));
        let count = chain.count(class, &(0..chain.num_blocks()));
        (added(&block.forward, forward) + grads) * u64::from(count)
    };
    classes.map(of_class).sum()
}

/// Lower bounds for any partition. Where GPUs are alike, the busiest rank has at least the mean work of all ranks, and
/// its part of the blocks, rounded up. Otherwise it has at least the weighted mean, for any weights of the ranks. In
/// this mean, each block counts at least as much as on the rank where its weighted time is least. The weight of a rank
/// is proportional to its speed:
///
/// ```text
/// T >= sum over blocks of min over groups g of w_g t_bg,   w_g = (1 / W_g) / sum over groups of p_g / W_g
/// ```
///
/// with `t_bg` the time of block `b`, and `W_g` the time of all blocks, on each of the `p_g` ranks of group `g`.
pub(super) fn least_work(
    (problem, chain): (&Problem, &ChainIndex),
    shape: &Shape,
    policy: BlockRecompute,
    overlaps: bool,
    family: &Family,
) -> LeastWork {
    let of = |group| least_of_blocks(shape.blocks_in(group), chain, policy, overlaps);
    if problem.groups.is_none() {
        return least_of(of(0), family.pipeline_parallel, overlaps);
    }
    let times: Vec<Vec<Nanos>> =
        (0..problem.num_groups()).map(|group| of(group).map(ClassBlocks::all).collect()).collect();
    let sums: Vec<f64> =
        times.iter().map(|times| times.iter().copied().sum::<Nanos>().as_f64().max(1.0)).collect();
    let num_ranks = family.pipeline_parallel;
    let stride = problem.limits.num_gpus / num_ranks;
    let ranks = problem.ranks_of_groups(stride, num_ranks);
    let rates: f64 = ranks.iter().zip(&sums).map(|(ranks, sum)| f64::from(*ranks) / sum).sum();
    let (mut all, mut rank) = (Nanos::ZERO, 0.0);
    for class in 0..times[0].len() {
        let least = times.iter().map(|times| times[class]).min().unwrap_or_default();
        let weighted = times.iter().zip(&sums).map(|(times, sum)| times[class].as_f64() / sum);
        all += least;
        rank += weighted.fold(f64::INFINITY, f64::min);
    }
    LeastWork { all, rank: Nanos::new((rank / rates * ROUNDING) as u64) }
}

/// [`replicas_with`], for any partition.
pub(super) fn replicas_by_group(
    (problem, chain): (&Problem, &ChainIndex),
    shape: &Shape,
    policy: BlockRecompute,
    overlaps: bool,
    family: &Family,
) -> Nanos {
    let busiest = |group: usize| {
        let blocks = least_of_blocks(shape.blocks_in(group), chain, policy, overlaps);
        let each = least_of(blocks, family.pipeline_parallel, overlaps).rank;
        RankTime { start: Nanos::ZERO, each }
    };
    replicas_with(problem, family, (0..problem.num_groups()).map(busiest))
}

/// Lower bound of a step whose replicas lie in groups, for any shares of the batch, given one pipeline rank of each
/// group: with `n_g` replicas in group `g`, `s_g` the time before and after the passes of the rank, and `t_g` that of a
/// micro-batch,
///
/// ```text
/// T >= s_g + m_g t_g,   sum over groups of n_g m_g = M
/// T >= (M + sum over groups of n_g s_g / t_g) / sum over groups of n_g / t_g
/// ```
pub(super) fn replicas_with(
    problem: &Problem,
    family: &Family,
    ranks: impl Iterator<Item = RankTime>,
) -> Nanos {
    let replicas = problem.replicas_of_groups(family.spec().gpus_per_replica());
    let (mut all, mut rates) = (num_micro_batches(problem, family) as f64, 0.0);
    for (replicas, RankTime { start, each }) in replicas.into_iter().zip(ranks) {
        let rate = f64::from(replicas) / each.as_f64().max(1.0);
        all += start.as_f64() * rate;
        rates += rate;
    }
    Nanos::new((all / rates * ROUNDING) as u64)
}

/// Number of micro-batches of all replicas.
pub(super) fn num_micro_batches(problem: &Problem, family: &Family) -> u64 {
    problem.limits.global_batch_size / u64::from(family.shape.micro_batch_size)
}

/// Lower bounds of a pipeline rank with given stages: its blocks alone, without messages, gathers and waits.
#[derive(Clone, Copy)]
pub(super) struct RankTime {
    /// Time before its first pass and after its last.
    start: Nanos,
    /// Time of its passes for a micro-batch.
    pub(super) each: Nanos,
}

impl RankTime {
    /// The ranks of a pipeline with stages that have these ends.
    pub(super) fn of_ranks(
        (problem, chain): (&Problem, &ChainIndex),
        shape: &Shape,
        (recompute, schedule): (Recompute, ScheduleKind),
        (ranks, ends): (&PipelineRanks, &[usize]),
    ) -> Vec<Self> {
        let [overlaps, splits] = [schedule.overlaps_passes(), schedule.splits_backward()];
        // Only some layers of a stage may be recomputed.
        let policy = recompute.of_other_layers();
        let time = |block: &Arc<BlockPasses>| {
            let of = |pass: &PassTime| pass.least(overlaps);
            let apart = of(&block.input_grad) + of(&block.weight_grad);
            let grads = if splits { of(&block.backward).min(apart) } else { of(&block.backward) };
            let whole = of(&block.forward) + grads + of(&block.recompute[policy]);
            // Gradients of weights may follow the last gradient that the first rank needs.
            [whole, if splits { of(&block.forward) } else { whole }]
        };
        let times: Vec<Vec<[Nanos; 2]>> = (0..problem.num_groups())
            .map(|group| shape.blocks_in(group).iter().map(time).collect())
            .collect();
        let mut all: Vec<Option<Self>> = vec![None; ranks.group.size as usize];
        let (mut start, mut first) = (Nanos::ZERO, 0);
        for (stage, end) in ends.iter().enumerate() {
            let of_class = &times[problem.group_of(ranks, ranks.first_with(stage))];
            let (mut each, mut after) = (Nanos::ZERO, start);
            for block in first..*end {
                let [whole, before_next] = of_class[chain.class_at(block)];
                each += whole;
                after += before_next;
            }
            for rank in ranks.with(stage) {
                all[rank].get_or_insert(Self { start, each: Nanos::ZERO }).each += each;
            }
            (start, first) = (after, *end);
        }
        all.into_iter().flatten().collect()
    }

    /// Lower bound of the end of all passes.
    pub(super) fn end(&self, schedule: ScheduleKind, num_micro_batches: u32) -> Nanos {
        let each = num_micro_batches / schedule.placement().num_copies();
        self.start + self.each * u64::from(each)
    }
}

/// Lower bound of a schedule's time, for any partition of blocks with at least this work.
///
/// With 1F1B a rank runs all `m` micro-batches after the first has passed the ranks before it, and the last micro-batch
/// returns through them: `S_r + m T_r <= t`, with `T_r` the time of the rank and `S_r` that of the ranks before it, for
/// a micro-batch. So the time of the first `r` ranks is at most `t (1 - (1 - 1 / m)^r)`, and for all ranks it is `all`:
///
/// ```text
/// t >= all / (1 - (1 - 1 / m)^p)
/// ```
pub(super) fn any_partition(schedule: ScheduleKind, work: LeastWork, family: &Family) -> Nanos {
    let busiest = work.busiest(family);
    if schedule != ScheduleKind::OneFOneB {
        return busiest;
    }
    let m = f64::from(family.num_micro_batches);
    let p = family.pipeline_parallel.cast_signed();
    let share = 1.0 - (1.0 - 1.0 / m).powi(p);
    busiest.max(Nanos::new((work.all.as_f64() / share * ROUNDING) as u64))
}
