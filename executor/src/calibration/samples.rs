//! Converts laps to samples: the work of each kernel of the graph, and the time of its laps.

use std::collections::BTreeMap;

use executor_kernels::array::ElementExt;
use executor_runtime::probe::Lap;
use executor_runtime::program::Program;
use ir::cluster::{AttentionTime, ProductTime};
use ir::graph::{AttentionMask, Kernel, KernelWork, OpId, Pass, ShardContext, Sharding, Sizes};
use traces::statistics::Sample;

use super::models::TrainedModel;

/// All samples, grouped by the costs that are fitted to them.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) products: BTreeMap<Pass, Vec<Sample<5>>>,
    pub(super) attention: BTreeMap<Pass, Vec<Sample<5>>>,
    pub(super) operators: BTreeMap<(&'static str, Pass), Vec<Sample<2>>>,
    /// Seconds for flattening gradients, by their number.
    pub(super) gradients: Vec<Sample<1>>,
    /// Seconds for the end of the step, by the number of parameters.
    pub(super) update: Vec<Sample<2>>,
    /// Times of whole steps, with the work of all their kernels.
    pub(super) steps: Vec<MeasuredStep>,
}

/// A whole step.
#[derive(Debug)]
pub(super) struct MeasuredStep {
    pub(super) time: f64,
    pub(super) num_parameters: f64,
    pub(super) work: Vec<OperatorWork>,
}

/// Work of an operator in a pass.
#[derive(Clone, Debug)]
pub(super) enum OperatorWork {
    Product(Pass, [f64; 5]),
    Attention(Pass, [f64; 5]),
    Memory(&'static str, Pass, [f64; 2]),
}

impl Samples {
    /// Adds a step of a model: its laps, and the seconds of gradients and of the rest.
    pub(super) fn add(
        &mut self,
        model: &TrainedModel,
        program: &Program,
        laps: &[Lap],
        [gradients, rest]: [f64; 2],
    ) {
        let mut work = Vec::new();
        let mut whole = gradients + rest;
        for (number, class) in program.graph.blocks().enumerate() {
            let block = program.graph.class(class);
            let sizes =
                Sizes { micro_batch_size: model.batch, sequence_length: model.sequence_length };
            let setting = ShardContext {
                compute_bytes: program.settings.compute.num_bytes(),
                reads_data: number == 0,
                fuses_projections: false,
                ..ShardContext::plain(sizes, Sharding::NONE)
            };
            let kernels = block.work(&setting).kernels;
            let own = laps.iter().filter(|lap| lap.block == number);
            let times = by_kernel(&kernels, own);
            for ((op, pass), time) in times {
                whole += time;
                let family = block.op(op).kind.family();
                let of_op = kernels.iter().filter(|it| it.op == op && it.pass == pass);
                let of_op: Vec<OperatorWork> = merged(of_op, family);
                if let [only] = of_op.as_slice() {
                    self.sample(only, time);
                }
                work.extend(of_op);
            }
        }
        let num_parameters = program.graph.parameter_counts().total as f64;
        self.gradients.push(sample([num_parameters], gradients));
        self.update.push(sample([1.0, num_parameters], rest));
        self.steps.push(MeasuredStep { time: whole, num_parameters, work });
    }

    fn sample(&mut self, work: &OperatorWork, time: f64) {
        match work {
            OperatorWork::Product(pass, quantities) => {
                self.products.entry(*pass).or_default().push(sample(*quantities, time));
            }
            OperatorWork::Attention(pass, quantities) => {
                self.attention.entry(*pass).or_default().push(sample(*quantities, time));
            }
            OperatorWork::Memory(family, pass, quantities) => {
                self.operators.entry((family, *pass)).or_default().push(sample(*quantities, time));
            }
        }
    }
}

const fn sample<const N: usize>(quantities: [f64; N], time: f64) -> Sample<N> {
    Sample { quantities, known: 0.0, time }
}

/// The time of each operator and pass for which the graph has kernels. Laps without kernels count with the next lap
/// that has some: for example, a norm's weight gradient with its input gradient.
fn by_kernel<'a>(
    kernels: &[KernelWork],
    laps: impl Iterator<Item = &'a Lap>,
) -> BTreeMap<(OpId, Pass), f64> {
    let has = |op: OpId, pass: Pass| kernels.iter().any(|it| it.op == op && it.pass == pass);
    let mut times: BTreeMap<(OpId, Pass), f64> = BTreeMap::new();
    let (mut carried, mut last) = (0.0, None);
    for Lap { op, pass, time, .. } in laps {
        let key = match pass {
            Pass::WeightGrad if !has(*op, *pass) => (*op, Pass::InputGrad),
            pass => (*op, *pass),
        };
        if has(key.0, key.1) {
            *times.entry(key).or_default() += time + carried;
            carried = 0.0;
            last = Some(key);
        } else {
            carried += time;
        }
    }
    if let Some(last) = last {
        *times.entry(last).or_default() += carried;
    }
    times
}

/// The kernels of an operator in a pass, with all memory-bound ones merged.
fn merged<'a>(
    kernels: impl Iterator<Item = &'a KernelWork>,
    family: &'static str,
) -> Vec<OperatorWork> {
    let mut all = Vec::new();
    let mut moved: Option<(Pass, [f64; 2])> = None;
    for KernelWork { pass, kernel, read, written, .. } in kernels {
        match kernel {
            Kernel::MatMul { batch, m, n, k } => {
                let quantities = ProductTime::quantities([*batch, *m, *n, *k]);
                all.push(OperatorWork::Product(*pass, quantities));
            }
            Kernel::Attention(shape) => {
                let d = shape.head_dim.midpoint(shape.value_head_dim);
                let sizes = [shape.batch, shape.context, shape.heads, shape.kv_heads, d];
                let is_causal = shape.mask != AttentionMask::Full;
                let quantities = AttentionTime::quantities(sizes, is_causal);
                all.push(OperatorWork::Attention(*pass, quantities));
            }
            Kernel::Memory => {
                let (_, quantities) = moved.get_or_insert((*pass, [0.0, 0.0]));
                quantities[0] += 1.0;
                quantities[1] += (*read + *written).as_f64();
            }
        }
    }
    all.extend(moved.map(|(pass, quantities)| OperatorWork::Memory(family, pass, quantities)));
    all
}
