//! All ways of splitting the operators of a model over one mesh, with the costs of each, and the programs that choose
//! among them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ir::graph::{AxisPlacement, ByMeshAxis, Sizes, Tensor};
use ir::layout::ZeroStage;
use ir::units::{Bytes, Seconds};
use rayon::prelude::*;

use super::costs::{SplitChoice, SplitCosts, moved};
use super::graph::{Operator, Operators};
use super::program::PairwiseProgram;

/// Ways of splitting the operators of a model over a mesh.
pub struct SplitSpace<'a> {
    /// The operators.
    pub operators: &'a Operators<'a>,
    /// Ranks along each axis of the mesh.
    pub mesh: ByMeshAxis<u32>,
    /// Micro-batches of a step.
    pub num_micro_batches: u64,
    /// ZeRO stage: the states that are sharded over the ranks that have the same parameters.
    zero: ZeroStage,
    /// Ways of splitting each operator.
    pub choices: Vec<Arc<[SplitChoice]>>,
    sizes: Sizes,
    /// For each operator, the operators that read its output, each with its input slot.
    pub(super) readers: Vec<Vec<(usize, usize)>>,
    /// Operators of each block, in the order of forward and of backward.
    pub(super) blocks: [Vec<Vec<usize>>; 2],
    /// Costs of moving tensors, which do not depend on weights; single choices cost nothing yet.
    program: PairwiseProgram,
    /// For each tensor that several operators read: its variable, the operator that makes it, and the times to add up
    /// its gradients.
    sums: Vec<(usize, usize, Vec<Seconds>)>,
}

/// Weights of the terms of a step, whose weighted sum is a lower bound of its time.
#[derive(Clone, Debug)]
pub struct TermWeights {
    /// Weight of kernels.
    pub kernels: f64,
    /// Weight of exchanges of parameters, which overlap kernels.
    pub replication: f64,
    /// Cosine and sine of the angle between times of device and host, of forward and backward of each block.
    pub angles: Vec<[[f64; 2]; 2]>,
    /// Seconds for a byte of memory.
    pub byte: f64,
}

impl TermWeights {
    /// Weights of a bound: kernels and the exchanges that overlap them take no less time than any weighted mean of
    /// both.
    pub const fn of_kernels(kernels: f64, angles: Vec<[[f64; 2]; 2]>) -> Self {
        Self { kernels, replication: 1.0 - kernels, angles, byte: 0.0 }
    }
}

impl<'a> SplitSpace<'a> {
    /// All ways of splitting over `mesh`, for micro-batches of `sizes`.
    pub fn new(
        costs: &impl SplitCosts,
        operators: &'a Operators<'a>,
        mesh: ByMeshAxis<u32>,
        sizes: Sizes,
        num_micro_batches: u64,
    ) -> Self {
        let choices = all_choices(costs, operators, mesh, sizes);
        let (program, sums, zero) = (PairwiseProgram::default(), Vec::new(), costs.zero());
        let (readers, blocks) = (operators.readers(), operators.blocks());
        let space = Self {
            operators,
            mesh,
            num_micro_batches,
            zero,
            choices,
            sizes,
            readers,
            blocks,
            program,
            sums,
        };
        let (program, sums) = space.moves(costs);
        Self { program, sums, ..space }
    }

    /// True if the output of `maker` needs a gradient from its readers.
    fn requires_grad(&self, maker: usize) -> bool {
        self.operators.all[maker].requires_grad
    }

    fn tensor(&self, maker: usize) -> (&'a Tensor, u64) {
        let tensor = &self.operators.all[maker].node.op.output;
        (tensor, tensor.num_elements(self.sizes))
    }

    /// Times of moving the output of `maker`, in forward and backward of one micro-batch.
    pub fn moved(
        &self,
        costs: &impl SplitCosts,
        maker: usize,
        placements: [ByMeshAxis<AxisPlacement>; 2],
    ) -> [Seconds; 2] {
        let (tensor, elements) = self.tensor(maker);
        moved(costs, self.mesh, tensor, elements, placements, self.requires_grad(maker))
    }

    /// Costs of moving each tensor to where it is read. A tensor that several operators read is moved once for all
    /// readers that want the same placement. So it has a variable of its own: the placement in which it is kept for its
    /// readers.
    fn moves(
        &self,
        costs: &impl SplitCosts,
    ) -> (PairwiseProgram, Vec<(usize, usize, Vec<Seconds>)>) {
        let (mut program, mut sums) = (PairwiseProgram::default(), Vec::new());
        let mut known = BTreeMap::new();
        for choices in &self.choices {
            program.add(vec![0.0; choices.len()]);
        }
        let readers = self.readers.iter().enumerate();
        for (maker, readers) in readers.filter(|(_, readers)| !readers.is_empty()) {
            let outputs: Vec<ByMeshAxis<AxisPlacement>> =
                self.choices[maker].iter().map(|it| it.split.output).collect();
            let wanted = |(reader, slot): (usize, usize)| -> Vec<ByMeshAxis<AxisPlacement>> {
                self.choices[reader].iter().map(|it| it.split.wanted[slot]).collect()
            };
            let mut connect = |program: &mut PairwiseProgram, [from, to]: [(usize, &[_]); 2]| {
                let times = self.times(costs, maker, from.1, to.1, &mut known);
                program.add_pair(from.0, to.0, |a, b| times[&[from.1[a], to.1[b]]]);
            };
            let made = (maker, outputs.as_slice());
            if let [reader] = readers.as_slice() {
                connect(&mut program, [made, (reader.0, &wanted(*reader))]);
                continue;
            }
            let all = readers.iter().flat_map(|reader| wanted(*reader));
            let kept: BTreeSet<_> = all.chain(outputs.iter().copied()).collect();
            let kept: Vec<_> = kept.into_iter().collect();
            let variable = program.add(vec![0.0; kept.len()]);
            let of_kept = kept.iter().map(|kept| self.gradient_sums(costs, maker, readers, *kept));
            sums.push((variable, maker, of_kept.collect()));
            connect(&mut program, [made, (variable, &kept)]);
            for reader in readers {
                connect(&mut program, [(variable, &kept), (reader.0, &wanted(*reader))]);
            }
        }
        (program, sums)
    }

    /// Time to add up the gradients of the readers of a tensor, where it is kept for them in one placement.
    pub fn gradient_sums(
        &self,
        costs: &impl SplitCosts,
        maker: usize,
        readers: &[(usize, usize)],
        kept: ByMeshAxis<AxisPlacement>,
    ) -> Seconds {
        let count = self.operators.num_gradients(maker, readers, costs.fuses_projections());
        let (tensor, elements) = self.tensor(maker);
        let shards = kept.iter().zip(self.mesh).map(|(placement, ranks)| match placement {
            AxisPlacement::Shard(_) => u64::from(ranks),
            _ => 1,
        });
        let bytes =
            elements / shards.product::<u64>() * tensor.element.bytes(costs.compute_bytes());
        costs.gradient_sum(Bytes::new(bytes)) * count.saturating_sub(1) as f64
    }

    /// Times of moving a tensor in a step, for each pair of placements; computed once for tensors that are alike.
    fn times(
        &self,
        costs: &impl SplitCosts,
        maker: usize,
        from: &[ByMeshAxis<AxisPlacement>],
        to: &[ByMeshAxis<AxisPlacement>],
        known: &mut BTreeMap<(Vec<u64>, [ByMeshAxis<AxisPlacement>; 2]), f64>,
    ) -> BTreeMap<[ByMeshAxis<AxisPlacement>; 2], f64> {
        let distinct =
            |all: &[ByMeshAxis<AxisPlacement>]| all.iter().copied().collect::<BTreeSet<_>>();
        let (tensor, elements) = self.tensor(maker);
        let element = tensor.element.bytes(costs.compute_bytes());
        let alike = vec![elements, element, self.requires_grad(maker).into()];
        let to = distinct(to);
        let pairs =
            distinct(from).into_iter().flat_map(|from| to.iter().map(move |to| [from, *to]));
        pairs
            .map(|placements| {
                let time = known.entry((alike.clone(), placements)).or_insert_with(|| {
                    let [forward, backward] = self.moved(costs, maker, placements);
                    (forward + backward).get() * self.num_micro_batches as f64
                });
                (placements, *time)
            })
            .collect()
    }

    /// The program with these weights.
    pub fn program(&self, weights: &TermWeights) -> PairwiseProgram {
        let mut program = self.program.clone();
        for (index, (operator, choices)) in self.operators.all.iter().zip(&self.choices).enumerate()
        {
            let costs = choices.iter().map(|choice| self.weighted(weights, operator, choice));
            program.set_costs(index, costs.collect());
        }
        for (variable, maker, times) in &self.sums {
            let [of_device, _] = weights.angles[self.operators.all[*maker].block][1];
            let weight = weights.kernels * of_device * self.num_micro_batches as f64;
            program.set_costs(*variable, times.iter().map(|time| time.get() * weight).collect());
        }
        program
    }

    fn weighted(
        &self,
        weights: &TermWeights,
        operator: &Operator<'_>,
        choice: &SplitChoice,
    ) -> f64 {
        let TermWeights { kernels, replication, angles, byte } = weights;
        let passes = [0, 1].map(|pass| {
            let [of_device, of_host] = angles[operator.block][pass];
            let device = choice.kernels.device[pass].get() * of_device;
            let host = choice.kernels.host[pass].get() * of_host;
            kernels * (device + host) + choice.waits[pass].get()
        });
        passes.iter().sum::<f64>() * self.num_micro_batches as f64
            + replication * self.replication(self.zero, choice)
            + choice.update.get()
            + byte * self.memory(choice)
    }

    /// Sum over all operators of the number of ways of splitting each.
    pub fn num_choices(&self) -> u64 {
        self.choices.iter().map(|choices| choices.len() as u64).sum()
    }

    /// The least sum of [`Self::memory`] over the operators, over all choices.
    pub fn least_memory(&self) -> f64 {
        let least = |choices: &Arc<[SplitChoice]>| {
            let bytes = choices.iter().map(|choice| self.memory(choice));
            bytes.fold(f64::INFINITY, f64::min)
        };
        self.choices.iter().map(least).sum()
    }

    /// Bytes of a choice that add up over operators: states and saved activations.
    pub fn memory(&self, choice: &SplitChoice) -> f64 {
        choice.states + choice.kernels.saved.as_f64()
    }
}

/// Identity of operators whose choices cost the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    class: usize,
    op: usize,
    reads_data: bool,
    saves_first: Vec<bool>,
}

fn all_choices(
    costs: &impl SplitCosts,
    operators: &Operators<'_>,
    mesh: ByMeshAxis<u32>,
    sizes: Sizes,
) -> Vec<Arc<[SplitChoice]>> {
    let alike = |operator: &Operator<'_>| Alike {
        class: operator.class.0,
        op: operator.node.id.index(),
        reads_data: !operator.inputs.iter().flatten().any(|it| operators.all[*it].requires_grad),
        saves_first: operator.saves_first.clone(),
    };
    let keys: Vec<Alike> = operators.all.iter().map(alike).collect();
    let distinct: BTreeMap<&Alike, &Operator<'_>> = keys.iter().zip(&operators.all).collect();
    let distinct: Vec<(&Alike, &Operator<'_>)> = distinct.into_iter().collect();
    let of = |(key, operator): &(&Alike, &Operator<'_>)| -> Arc<[SplitChoice]> {
        let splits = operators.block_of(operator).split_op(operator.node.id, sizes, mesh);
        splits
            .into_iter()
            .map(|split| SplitChoice::new(costs, split, operator, key.reads_data, mesh))
            .collect()
    };
    let made: Vec<Arc<[SplitChoice]>> = distinct.par_iter().map(of).collect();
    let known: BTreeMap<&Alike, &Arc<[SplitChoice]>> =
        distinct.iter().map(|(key, _)| *key).zip(&made).collect();
    keys.iter().map(|key| Arc::clone(known[key])).collect()
}
