//! The time of a step over unequal stages, by schedule, in closed form.

use ir::schedule::ScheduleKind;

/// What a micro-batch costs one pipeline rank, all its chunks together, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTime {
    /// Forward.
    pub forward: f64,
    /// Gradients of activations, and what is recomputed for them.
    pub input_grad: f64,
    /// Gradients of parameters.
    pub weight_grad: f64,
}

impl StageTime {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.forward + self.input_grad + self.weight_grad
    }
}

/// Time from the first action to the last of a step with `m` micro-batches, in seconds.
///
/// With `T` the time of a micro-batch on a stage, all of its passes together:
///
/// ```text
/// 1F1B               sum T + (m - 1) max T
/// GPipe              sum F + (m - 1) max F + sum B + (m - 1) max B
/// interleaved, BFS   m max T + (sum T - max T) / v
/// ZB-H1              m max T + sum over other stages of (F + I - W)
/// ZB-H2              m max T + sum over other stages of (F + I - 2 W)
/// ```
///
/// Terms of the last two below zero count as zero. With equal stages these are the published closed
/// forms, and the bubble of 1F1B and GPipe is `(p - 1) / (m + p - 1)` of the step.
///
/// # Source
///
/// Zheng et al. 2022, *Alpa* (arXiv 2201.12023), equation 2, for unequal stages; Narayanan et al.
/// 2021 (arXiv 2104.04473), section 2.2; Qi et al. 2023 (arXiv 2401.10241), table 2.
pub fn step_time(schedule: ScheduleKind, stages: &[StageTime], v: u32, m: u32) -> f64 {
    let m = f64::from(m);
    let max = |part: fn(&StageTime) -> f64| stages.iter().map(part).fold(0.0, f64::max);
    let sum = |part: fn(&StageTime) -> f64| stages.iter().map(part).sum::<f64>();
    let slowest = max(StageTime::total);
    let others = |part: fn(&StageTime) -> f64| {
        let index = stages.iter().position(|stage| stage.total() >= slowest);
        let rest = stages.iter().enumerate().filter(|(stage, _)| Some(*stage) != index);
        rest.map(|(_, stage)| part(stage).max(0.0)).sum::<f64>()
    };
    match schedule {
        ScheduleKind::OneFOneB => sum(StageTime::total) + (m - 1.0) * slowest,
        ScheduleKind::GPipe => {
            let backward = |stage: &StageTime| stage.input_grad + stage.weight_grad;
            sum(|stage| stage.forward)
                + sum(backward)
                + (m - 1.0) * (max(|stage| stage.forward) + max(backward))
        }
        ScheduleKind::Interleaved | ScheduleKind::LoopedBfs => {
            m * slowest + (sum(StageTime::total) - slowest) / f64::from(v)
        }
        ScheduleKind::ZbH1 => m * slowest + others(|s| s.forward + s.input_grad - s.weight_grad),
        ScheduleKind::ZbH2 => {
            m * slowest + others(|s| s.forward + s.input_grad - 2.0 * s.weight_grad)
        }
        other => panic!("`{other}` has no closed form; the space holds what is searched only"),
    }
}

/// A time below which no partition can be whose stages take `total` seconds for a micro-batch
/// together, and of which the slowest takes at least `slowest`: with equal stages, `total / p`.
pub fn lower_bound(schedule: ScheduleKind, total: f64, slowest: f64, v: u32, m: u32) -> f64 {
    let (v, m) = (f64::from(v), f64::from(m));
    match schedule {
        ScheduleKind::OneFOneB | ScheduleKind::GPipe => total + (m - 1.0) * slowest,
        ScheduleKind::Interleaved | ScheduleKind::LoopedBfs => m * slowest + (total - slowest) / v,
        ScheduleKind::ZbH1 | ScheduleKind::ZbH2 => m * slowest,
        other => panic!("`{other}` has no closed form; the space holds what is searched only"),
    }
}

/// When a rank has done its last backward, before the step's end: the stages before it still drain.
pub fn drain_slack(schedule: ScheduleKind, stages: &[StageTime], v: u32, rank: usize) -> f64 {
    match schedule {
        ScheduleKind::ZbH1 | ScheduleKind::ZbH2 => 0.0,
        _ => {
            let before = stages[..rank].iter().map(|stage| stage.input_grad + stage.weight_grad);
            before.sum::<f64>() / f64::from(v)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stages() -> impl Strategy<Value = Vec<StageTime>> {
        let stage = (1.0..100.0, 1.0..100.0, 1.0..100.0).prop_map(|(f, i, w)| StageTime {
            forward: f,
            input_grad: i,
            weight_grad: w,
        });
        prop::collection::vec(stage, 1..12)
    }

    /// Huang et al. 2019 and Narayanan et al. 2021: `(p - 1) / (m + p - 1)` of the step is idle.
    #[test]
    fn equal_stages_have_the_textbook_bubble() {
        let stage = StageTime { forward: 1.0, input_grad: 1.0, weight_grad: 1.0 };
        for (p, m) in [(4, 8), (8, 32), (16, 64)] {
            for schedule in [ScheduleKind::OneFOneB, ScheduleKind::GPipe] {
                let time = step_time(schedule, &vec![stage; p as usize], 1, m);
                let bubble = 1.0 - f64::from(m) * 3.0 / time;
                assert!((bubble - f64::from(p - 1) / f64::from(m + p - 1)).abs() < 1e-12);
            }
            let time = step_time(ScheduleKind::ZbH2, &vec![stage; p as usize], 1, m);
            assert!((time - f64::from(m) * 3.0).abs() < 1e-9);
        }
    }

    proptest! {
        /// Invariant: a lower bound is never above the true cost.
        #[test]
        fn the_bound_is_below_every_partition(
            stages in stages(), v in 1u32..8, m in 1u32..64, schedule in 0usize..6,
        ) {
            let schedule = ScheduleKind::SEARCHED[schedule];
            let v = if schedule.is_interleaved() { v } else { 1 };
            let total: f64 = stages.iter().map(StageTime::total).sum();
            let slowest = stages.iter().map(StageTime::total).fold(0.0, f64::max);
            let time = step_time(schedule, &stages, v, m) * (1.0 + 1e-12);
            for least in [total / stages.len() as f64, slowest] {
                prop_assert!(lower_bound(schedule, total, least, v, m) <= time);
            }
        }
    }
}
