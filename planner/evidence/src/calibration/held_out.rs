//! Benefit of a calibration on a few steps: the errors on the other steps, in published data.

use std::collections::BTreeMap;

use ir::framework::Framework;
use rayon::prelude::*;
use serde::Serialize;

use super::{Measured, calibrate, stack};
use crate::validation::left_out::without_its_source;
use crate::validation::run::MeasuredRun;
use crate::validation::setup::Setup;
use crate::validation::{memory_of, predict};

/// Number of different selections of calibration steps.
const DRAWS: usize = 3;

/// Errors of the steps of a file after a calibration on a few of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HeldOutErrors {
    /// Number of steps that are calibrated on, for each framework and kind of GPU.
    pub steps: usize,
    /// Number of predictions of the other steps, over all draws.
    pub rows: usize,
    /// Mean absolute relative error of these predictions with constants fitted without their source.
    pub before: f64,
    /// Mean absolute relative error of these predictions after the calibration.
    pub after: f64,
}

/// Errors of a file's held-out steps, predicted with the given framework or each run's own. `None` if no stack has more
/// than `steps` steps.
pub fn held_out_errors(
    file: &str,
    runs: &[MeasuredRun],
    steps: usize,
    framework: Option<&Framework>,
) -> Option<HeldOutErrors> {
    let mut stacks: BTreeMap<String, Vec<Measured>> = BTreeMap::new();
    for run in runs {
        let Ok(Some(seconds)) = run.step_time_seconds else { continue };
        let Ok(setup) = Setup::with(run, framework) else { continue };
        let stack = stack(&setup.problem.hardware);
        let setup = without_its_source(file, &setup).unwrap_or(setup);
        let memory = memory_of(run, Some(&setup)).ok().flatten();
        let id = run.id.clone();
        let measured = Measured { id, setup, step_time_seconds: Some(seconds), memory };
        stacks.entry(stack).or_default().push(measured);
    }
    let draws: Vec<(&[Measured], usize)> = stacks
        .values()
        .filter(|all| all.len() > steps)
        .flat_map(|all| (0..DRAWS).map(move |draw| (all.as_slice(), draw)))
        .collect();
    let errors: Vec<[f64; 2]> = draws
        .into_par_iter()
        .flat_map_iter(|(all, draw)| {
            // The chosen steps are spread over the file, since neighbouring steps are similar.
            let place = |nth: usize| (nth * DRAWS + draw) * all.len() / (steps * DRAWS);
            let chosen: Vec<usize> = (0..steps).map(place).collect();
            let of_calibration: Vec<Measured> =
                chosen.iter().map(|place| all[*place].clone()).collect();
            let calibration = calibrate(&of_calibration).ok();
            let others = all.iter().enumerate().filter(move |(place, _)| !chosen.contains(place));
            others.filter_map(move |(_, step)| {
                let measured = step.step_time_seconds?;
                let after = calibration.as_ref()?.on(&step.setup);
                let error =
                    |setup: &Setup| (predict(setup).step_time_seconds / measured - 1.0).abs();
                Some([error(&step.setup), error(&after)])
            })
        })
        .collect();
    let count = errors.len();
    let mean = |which: usize| errors.iter().map(|it| it[which]).sum::<f64>() / count as f64;
    (count > 0).then(|| HeldOutErrors { steps, rows: count, before: mean(0), after: mean(1) })
}
