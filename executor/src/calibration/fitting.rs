//! Fits the numbers of a cluster file to samples.

use std::collections::BTreeMap;

use ir::cluster::{KernelTimes, MeasuredPasses, MemoryTime, Times};
use ir::graph::Pass;
use traces::statistics::{Sample, fit};

use super::samples::{MeasuredStep, OperatorWork, Samples};

/// The costs that fit all samples best.
pub(super) fn times(samples: &Samples) -> KernelTimes {
    let mut operators: BTreeMap<String, MeasuredPasses<MemoryTime>> = BTreeMap::new();
    for ((family, pass), of_family) in &samples.operators {
        let passes = operators.entry((*family).to_owned()).or_insert(MeasuredPasses::NONE);
        *slot(passes, *pass) = Some(fitted(of_family));
    }
    // Operators without a fit of their own are taken to move data at the rate of a sum of two tensors.
    let sums = samples.operators.get(&("add", Pass::Forward));
    let all: Vec<Sample<2>> = samples.operators.values().flatten().cloned().collect();
    let update = fit(&samples.update).costs;
    let mut times = KernelTimes {
        products: passes(&samples.products),
        attention: passes(&samples.attention),
        operators,
        memory: fitted(sums.unwrap_or(&all)),
        seconds_per_gradient: fit(&samples.gradients).costs[0],
        update_start_seconds: update[0],
        seconds_per_update: update[1],
        mean_error: 0.0,
    };
    let errors = samples.steps.iter().map(|step| (predicted(&times, step) / step.time - 1.0).abs());
    times.mean_error = errors.sum::<f64>() / samples.steps.len().max(1) as f64;
    times
}

fn passes<T: Times<N> + Clone, const N: usize>(
    samples: &BTreeMap<Pass, Vec<Sample<N>>>,
) -> MeasuredPasses<T> {
    let mut passes = MeasuredPasses::NONE;
    for (pass, of_pass) in samples {
        *slot(&mut passes, *pass) = Some(fitted(of_pass));
    }
    passes
}

fn slot<T>(passes: &mut MeasuredPasses<T>, pass: Pass) -> &mut Option<T> {
    match pass {
        Pass::Forward => &mut passes.forward,
        Pass::InputGrad => &mut passes.input_grad,
        Pass::WeightGrad => &mut passes.weight_grad,
    }
}

fn fitted<T: Times<N>, const N: usize>(samples: &[Sample<N>]) -> T {
    T::from_costs(fit(samples).costs)
}

/// Time of a step that these kernel times predict.
fn predicted(times: &KernelTimes, step: &MeasuredStep) -> f64 {
    let of_kernels: f64 = step.work.iter().map(|work| of_work(times, work)).sum();
    let each = times.seconds_per_gradient + times.seconds_per_update;
    of_kernels + times.update_start_seconds + each * step.num_parameters
}

fn of_work(times: &KernelTimes, work: &OperatorWork) -> f64 {
    match work {
        OperatorWork::Product(pass, quantities) => of_pass(&times.products, *pass, *quantities),
        OperatorWork::Attention(pass, quantities) => of_pass(&times.attention, *pass, *quantities),
        OperatorWork::Memory(family, pass, quantities) => match times.operators.get(*family) {
            Some(passes) => of_pass(passes, *pass, *quantities),
            None => dot(&times.memory, *quantities),
        },
    }
}

fn of_pass<T: Times<N>, const N: usize>(
    passes: &MeasuredPasses<T>,
    pass: Pass,
    quantities: [f64; N],
) -> f64 {
    let times = match pass {
        Pass::Forward => &passes.forward,
        Pass::InputGrad => &passes.input_grad,
        Pass::WeightGrad => &passes.weight_grad,
    };
    times.as_ref().map_or(0.0, |times| dot(times, quantities))
}

fn dot<const N: usize>(times: &impl Times<N>, quantities: [f64; N]) -> f64 {
    times.costs().iter().zip(quantities).map(|(cost, quantity)| cost * quantity).sum()
}
