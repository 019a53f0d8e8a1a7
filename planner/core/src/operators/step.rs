//! The step that results from a choice for each operator, simulated from begin to end on one rank.

use ir::graph::{AxisPlacement, ByMeshAxis};
use ir::layout::ZeroStage;
use ir::units::Seconds;

use super::costs::{SplitChoice, SplitCosts};
use super::space::SplitSpace;
use crate::step::BUCKET_PARAMETERS;

/// Time of a step by cause, in seconds, and the parameters and memory of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OperatorStep {
    /// Kernels, slowed down by the exchanges that overlap them.
    pub kernels: f64,
    /// Waits for the host.
    pub host: f64,
    /// Waits for exchanges of activations and their gradients.
    pub waits: f64,
    /// Waits for exchanges of parameters and their gradients.
    pub exposed: f64,
    /// The update, and the host between steps.
    pub update: f64,
    /// Time of all exchanges, overlapped or not.
    pub communication: f64,
    /// Parameters on a rank.
    pub held: u64,
    /// Parameters that a rank updates.
    pub owned: u64,
    /// Bytes saved from forward to backward.
    pub saved: f64,
    /// The most bytes that the backward of one operator takes in addition.
    pub working: f64,
    /// The most parameters of one block, where ranks gather them for each use.
    pub gathered: u64,
}

impl OperatorStep {
    /// Time of the step.
    pub fn time(&self) -> f64 {
        self.kernels + self.host + self.waits + self.exposed + self.update
    }
}

/// Exchanges of parameters, which run at the same time as kernels. On the network, exchanges for which kernels wait go
/// first, then gathers, then reductions.
#[derive(Clone, Copy, Default)]
struct OverlappedExchanges {
    /// Time left of gathers that have begun.
    gathers: f64,
    /// Time left of reductions that have begun.
    reductions: f64,
}

impl OverlappedExchanges {
    /// Lets them run for a time.
    fn run(&mut self, time: f64) {
        let rest = (time - self.gathers).max(0.0);
        self.gathers = (self.gathers - time).max(0.0);
        self.reductions = (self.reductions - rest).max(0.0);
    }

    /// Time of kernels that lose a share of their rate while exchanges run.
    fn overlapped(&mut self, time: f64, slowdown: f64) -> f64 {
        let (left, rate) = (self.gathers + self.reductions, 1.0 - slowdown);
        let taken = if time <= left * rate { time / rate } else { left + (time - left * rate) };
        self.run(taken);
        taken
    }
}

/// Exchanges of parameters that overlap a pass of a micro-batch.
#[derive(Clone, Copy)]
struct Overlap {
    /// Parameters are gathered: all as the pass begins, or those of a block while the block before computes.
    gathers: Option<Ahead>,
    /// Gradients are reduced.
    reduces: bool,
}

/// Distance by which parameters are gathered ahead.
#[derive(Clone, Copy, PartialEq)]
enum Ahead {
    All,
    OneBlock,
}

/// Times of moving each tensor to its readers: the tensor before the forward of the reader, and the gradient after the
/// backward of the reader.
struct Moves {
    /// Time of the moves for which each reader waits in forward, by reader; and for which each maker waits in backward,
    /// by maker.
    forward: Vec<f64>,
    backward: Vec<f64>,
    /// Time of the kernels that add up the gradients of all readers, by maker.
    sums: Vec<f64>,
}

/// Moves of one tensor: for each reader, the times in forward and in backward.
type OfTensor = Vec<(usize, [Seconds; 2])>;

impl SplitSpace<'_> {
    /// Plays the step of these choices of operators. Tensors with several readers take the placements that move least.
    pub fn played(&self, costs: &impl SplitCosts, chosen: &[usize], slowdown: f64) -> OperatorStep {
        let all = self.choices.iter().zip(chosen);
        let chosen: Vec<&SplitChoice> = all.map(|(choices, choice)| &choices[*choice]).collect();
        let moves = self.chosen_moves(costs, &chosen);
        let update = costs.between_steps().get();
        let mut played = OperatorStep { update, ..OperatorStep::default() };
        let [forward, _] = &self.blocks;
        for choice in &chosen {
            played.held += choice.held;
            played.owned += choice.owned;
            played.saved += choice.kernels.saved.as_f64();
            played.working = played.working.max(choice.kernels.working.as_f64());
            played.update += choice.update.get();
            played.communication += self.replication(costs.zero(), choice);
        }
        let zero = costs.zero();
        if zero == ZeroStage::Parameters {
            let of_block = |block: &Vec<usize>| block.iter().map(|it| chosen[*it].held).sum();
            played.gathered = forward.iter().map(of_block).max().unwrap_or(0);
        }
        let player = Player { chosen: &chosen, moves: &moves, slowdown };
        let is_sharded = zero == ZeroStage::Parameters;
        let plain = Overlap { gathers: None, reduces: false };
        let each = Overlap { gathers: Some(Ahead::OneBlock), reduces: false };
        let of_updates = (zero > ZeroStage::None).then_some(Ahead::All);
        let mut pass = |pass: usize, overlap: Overlap, times: u64| {
            player.pass(pass, &self.blocks[pass], overlap, times as f64, &mut played);
        };
        let count = self.num_micro_batches;
        if is_sharded {
            pass(0, each, count);
            pass(1, Overlap { reduces: true, ..each }, count);
        } else {
            pass(0, plain, count - 1);
            pass(1, plain, count - 1);
            pass(0, Overlap { gathers: of_updates, reduces: false }, 1);
            pass(1, Overlap { gathers: None, reduces: true }, 1);
        }
        played
    }

    /// Time of the exchanges of an operator's parameters in a step.
    pub fn replication(&self, zero: ZeroStage, choice: &SplitChoice) -> f64 {
        let [reduction, gather] = choice.replication.map(Seconds::get);
        if zero == ZeroStage::Parameters {
            (reduction + 2.0 * gather) * self.num_micro_batches as f64
        } else {
            reduction + gather
        }
    }

    /// Moves of the tensors of chosen operators. A tensor that several operators read in the same placement is moved
    /// once, for the first of them.
    fn chosen_moves(&self, costs: &impl SplitCosts, chosen: &[&SplitChoice]) -> Moves {
        let num = chosen.len();
        let zeros = || vec![0.0; num];
        let mut moves = Moves { forward: zeros(), backward: zeros(), sums: zeros() };
        for (maker, readers) in self.readers.iter().enumerate() {
            let from = chosen[maker].split.output;
            let (of_tensor, sums) = self.least_moves(costs, maker, from, readers, chosen);
            moves.sums[maker] = sums.get();
            for (reader, times) in of_tensor {
                let [forward, backward] = times.map(Seconds::get);
                moves.forward[reader] += forward;
                moves.backward[maker] += backward;
            }
        }
        moves
    }

    /// Moves of one tensor to its readers, and the time to add up their gradients: directly, or by way of a placement
    /// that is kept for all readers, whichever takes less time.
    fn least_moves(
        &self,
        costs: &impl SplitCosts,
        maker: usize,
        from: ByMeshAxis<AxisPlacement>,
        readers: &[(usize, usize)],
        chosen: &[&SplitChoice],
    ) -> (OfTensor, Seconds) {
        let wanted: Vec<(usize, ByMeshAxis<AxisPlacement>)> = readers
            .iter()
            .map(|(reader, slot)| (*reader, chosen[*reader].split.wanted[*slot]))
            .collect();
        let straight = |from: ByMeshAxis<AxisPlacement>| {
            wanted.iter().map(move |(reader, to)| (*reader, self.moved(costs, maker, [from, *to])))
        };
        if readers.len() < 2 {
            return (straight(from).collect(), Seconds::ZERO);
        }
        let by_way_of = |kept: ByMeshAxis<AxisPlacement>| {
            let to_kept = (readers[0].0, self.moved(costs, maker, [from, kept]));
            let moves: OfTensor = std::iter::once(to_kept).chain(straight(kept)).collect();
            (moves, self.gradient_sums(costs, maker, readers, kept))
        };
        let total = |(moves, sums): &(OfTensor, Seconds)| -> f64 {
            moves.iter().flat_map(|(_, times)| times).map(|time| time.get()).sum::<f64>()
                + sums.get()
        };
        let kept = wanted.iter().map(|(_, to)| *to).chain([from]);
        let ways = kept.map(by_way_of);
        ways.min_by(|a, b| total(a).total_cmp(&total(b))).unwrap_or_default()
    }
}

/// Plays passes of the chosen operators.
struct Player<'a> {
    chosen: &'a [&'a SplitChoice],
    moves: &'a Moves,
    slowdown: f64,
}

impl Player<'_> {
    /// Adds `times` passes of a micro-batch through blocks of operators.
    fn pass(
        &self,
        pass: usize,
        blocks: &[Vec<usize>],
        overlap: Overlap,
        times: f64,
        played: &mut OperatorStep,
    ) {
        let gather = |block: &Vec<usize>| -> f64 {
            block.iter().map(|index| self.chosen[*index].replication[1].get()).sum()
        };
        let mut exchanges = OverlappedExchanges::default();
        match overlap.gathers {
            Some(Ahead::All) => exchanges.gathers = blocks.iter().map(gather).sum(),
            Some(Ahead::OneBlock) => exchanges.gathers = blocks.first().map_or(0.0, gather),
            None => {}
        }
        // Gathers of later blocks may still be in flight.
        let mut later = exchanges.gathers;
        let mut reduced = Bucket::default();
        let mut sum = OperatorStep::default();
        for (position, block) in blocks.iter().enumerate() {
            if overlap.gathers.is_some() {
                let ahead = if overlap.gathers == Some(Ahead::All) { gather(block) } else { later };
                later -= ahead;
                let late = (exchanges.gathers - later).max(0.0);
                exchanges.gathers -= late;
                sum.exposed += late;
            }
            if let (Some(Ahead::OneBlock), Some(next)) = (overlap.gathers, blocks.get(position + 1))
            {
                later = gather(next);
                exchanges.gathers += later;
            }
            let [mut device, mut host] = [0.0; 2];
            for &index in block {
                let choice = self.chosen[index];
                let (moved, sums) = if pass == 0 {
                    (self.moves.forward[index], 0.0)
                } else {
                    (self.moves.backward[index], self.moves.sums[index])
                };
                sum.waits += choice.waits[pass].get() + moved;
                let kernels = choice.kernels.device[pass].get() + sums;
                device += kernels;
                host += choice.kernels.host[pass].get();
                sum.kernels += exchanges.overlapped(kernels, self.slowdown);
                if overlap.reduces {
                    exchanges.reductions += reduced.add(choice);
                }
            }
            let wait = device.hypot(host) - device;
            exchanges.run(wait);
            sum.host += wait;
        }
        sum.exposed += exchanges.reductions + reduced.left;
        played.kernels += sum.kernels * times;
        played.host += sum.host * times;
        played.waits += sum.waits * times;
        played.communication += sum.waits * times;
        played.exposed += sum.exposed * times;
    }
}

/// Gradients whose reduction has not begun; it begins once a bucket is full.
#[derive(Default)]
struct Bucket {
    left: f64,
    elements: u64,
}

impl Bucket {
    /// Adds the gradients of an operator, and returns the time of the reductions that begin.
    fn add(&mut self, choice: &SplitChoice) -> f64 {
        let time = choice.replication[0].get();
        if time > 0.0 {
            self.left += time;
            self.elements += choice.held;
        }
        if self.elements < BUCKET_PARAMETERS {
            return 0.0;
        }
        self.elements = 0;
        std::mem::take(&mut self.left)
    }
}
