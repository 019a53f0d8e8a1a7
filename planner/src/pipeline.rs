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

impl std::ops::Add for StageTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            forward: self.forward + other.forward,
            input_grad: self.input_grad + other.input_grad,
            weight_grad: self.weight_grad + other.weight_grad,
        }
    }
}

impl std::ops::Mul<f64> for StageTime {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self {
            forward: self.forward * factor,
            input_grad: self.input_grad * factor,
            weight_grad: self.weight_grad * factor,
        }
    }
}

/// Whether [`step_time`] knows the family. The others are played through, in [`crate::order`].
pub const fn has_closed_form(schedule: ScheduleKind) -> bool {
    match schedule {
        ScheduleKind::Sequential | ScheduleKind::GPipe | ScheduleKind::OneFOneB => true,
        ScheduleKind::Interleaved | ScheduleKind::LoopedBfs => true,
        ScheduleKind::ZbH1 | ScheduleKind::ZbH2 | ScheduleKind::AsyncOneFOneB => true,
        ScheduleKind::InterleavedZb | ScheduleKind::Zbv => false,
        ScheduleKind::VHalf | ScheduleKind::VMin => false,
        ScheduleKind::DualPipe | ScheduleKind::DualPipeV => false,
    }
}

/// Time from the first action to the last of a step with `m` micro-batches, in seconds.
///
/// With `T` the time of a micro-batch on a stage, all of its passes together:
///
/// ```text
/// sequential         m sum T
/// 1F1B               sum T + (m - 1) max T
/// GPipe              sum F + (m - 1) max F + sum B + (m - 1) max B
/// interleaved, BFS   sum T / v + (m - 1) max T / v + (v - 1) max(m max T, sum T) / v
/// ZB-H1, ZB-H2       the longest way through the step that stays with one stage, from its first forward
///                    or its first input gradient to its last one
/// ```
///
/// With several chunks, ranks work on the same chunk, or the first ones on the next already, and the
/// slowest of these sets the pace: `uneven` is by how much the sum of that over chunks exceeds max T, and
/// comes on top of it; breadth first, for `p` of the `m` micro-batches. With equal stages these are the
/// published closed forms, counted from time zero, and the bubble of 1F1B and GPipe is
/// `(p - 1) / (m + p - 1)` of the step. With fewer micro-batches than stages a round of chunks takes as
/// long as one micro-batch takes through all ranks.
/// Asynchronous 1F1B goes through the actions of 1F1B; its updates are part of T.
///
/// # Source
///
/// Zheng et al. 2022, *Alpa* (arXiv 2201.12023), equation 2, for unequal stages; Narayanan et al.
/// 2021 (arXiv 2104.04473), section 2.2; Qi et al. 2023 (arXiv 2401.10241), table 2. How far they are
/// from a simulation with unequal stages, a test of this module says.
///
/// # Panics
///
/// If the family [has no closed form](has_closed_form).
pub fn step_time(schedule: ScheduleKind, stages: &[StageTime], uneven: f64, v: u32, m: u32) -> f64 {
    let m = f64::from(m);
    let max = |part: fn(&StageTime) -> f64| stages.iter().map(part).fold(0.0, f64::max);
    let sum = |part: fn(&StageTime) -> f64| stages.iter().map(part).sum::<f64>();
    let (slowest, total) = (max(StageTime::total), sum(StageTime::total));
    match schedule {
        ScheduleKind::GPipe => {
            let backward = |stage: &StageTime| stage.input_grad + stage.weight_grad;
            sum(|stage| stage.forward)
                + sum(backward)
                + (m - 1.0) * (max(|stage| stage.forward) + max(backward))
        }
        ScheduleKind::Interleaved | ScheduleKind::LoopedBfs => {
            // Breadth first, a rank stays with a chunk for all micro-batches, not for `p` at a time.
            let together = match schedule {
                ScheduleKind::LoopedBfs => (stages.len() as f64 / m).min(1.0),
                _ => 1.0,
            };
            let v = f64::from(v);
            let pace = slowest + uneven * together;
            (total + (m - 1.0) * pace + (v - 1.0) * (m * pace).max(total)) / v
        }
        ScheduleKind::ZbH1 => zero_bubble(stages, 1.0, m),
        ScheduleKind::ZbH2 => zero_bubble(stages, 2.0, m),
        ScheduleKind::OneFOneB | ScheduleKind::AsyncOneFOneB => total + (m - 1.0) * slowest,
        ScheduleKind::Sequential => m * total,
        other => panic!("`{other}` has no closed form: it is played through in its order"),
    }
}

/// Time of ZB-H1 with `depth` 1, of ZB-H2 with 2, in seconds; never above that of the simulation. With
/// equal stages it is the paper's `m T + (p - 1) (F + I - depth W)`, unless a rank has to wait longer for
/// its first forward or after its last gradient.
fn zero_bubble(stages: &[StageTime], depth: f64, m: f64) -> f64 {
    let mut after: f64 = stages.iter().map(|stage| stage.forward + stage.input_grad).sum();
    let (mut arrival, mut drain, mut time) = (0.0, 0.0_f64, 0.0_f64);
    for (rank, stage) in stages.iter().enumerate() {
        let warm_up = depth * (stages.len() - 1 - rank) as f64;
        let delay = depth * rank as f64;
        after -= stage.forward + stage.input_grad;
        // Weight gradients from the last input gradient on; those before it are in its way.
        let late = m.min(delay + 1.0);
        drain = (late * stage.weight_grad).max(drain);
        let gradients = m * stage.input_grad + (m - late) * stage.weight_grad;
        let from_forward = m * stage.forward;
        let from_gradient = stage.forward + after + (m - 1.0 - warm_up).max(0.0) * stage.forward;
        time = time.max(arrival + from_forward.max(from_gradient) + gradients + drain);
        arrival += stage.forward;
        drain += stage.input_grad;
    }
    time
}

/// Time of a step in which the last stage updates a weight that the first has too after each micro-batch,
/// so that its next forward waits until the backward is through all stages; in seconds.
///
/// ```text
/// sum F + sum B + (m - 1) (F of the last stage + sum B)
/// ```
pub fn in_step(stages: &[StageTime], m: u32) -> f64 {
    let forward: f64 = stages.iter().map(|stage| stage.forward).sum();
    let backward: f64 = stages.iter().map(|stage| stage.input_grad + stage.weight_grad).sum();
    let last = stages.last().map_or(0.0, |stage| stage.forward);
    forward + backward + (f64::from(m) - 1.0) * (last + backward)
}

/// A time below which no partition can be whose stages take `total` seconds for a micro-batch
/// together, and of which the slowest takes at least `slowest`: with equal stages, `total / p`. Of what
/// has no closed form it is known that the slowest stage works on every micro-batch.
pub fn lower_bound(schedule: ScheduleKind, total: f64, slowest: f64, v: u32, m: u32) -> f64 {
    let (v, m) = (f64::from(v), f64::from(m));
    match schedule {
        ScheduleKind::OneFOneB | ScheduleKind::AsyncOneFOneB | ScheduleKind::GPipe => {
            total + (m - 1.0) * slowest
        }
        ScheduleKind::Sequential => m * total,
        ScheduleKind::Interleaved | ScheduleKind::LoopedBfs => {
            (total + (m - 1.0) * slowest + (v - 1.0) * (m * slowest).max(total)) / v
        }
        ScheduleKind::ZbH1 | ScheduleKind::ZbH2 | ScheduleKind::InterleavedZb => m * slowest,
        ScheduleKind::Zbv | ScheduleKind::VHalf | ScheduleKind::VMin => m * slowest,
        ScheduleKind::DualPipe | ScheduleKind::DualPipeV => m * slowest,
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
    use ir::schedule::generate;
    use ir::units::Nanos;
    use proptest::prelude::*;
    use simulator::{Durations, PassTimes, earliest};

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
                let time = step_time(schedule, &vec![stage; p as usize], 0.0, 1, m);
                let bubble = 1.0 - f64::from(m) * 3.0 / time;
                assert!((bubble - f64::from(p - 1) / f64::from(m + p - 1)).abs() < 1e-12);
            }
            // From time zero, the last stage starts `p - 1` forwards late and never idles.
            let time = step_time(ScheduleKind::ZbH2, &vec![stage; p as usize], 0.0, 1, m);
            assert!((time - f64::from(3 * m + p - 1)).abs() < 1e-9);
        }
    }

    /// Simulated over closed form, and the family and numbers.
    fn ratio(kind: ScheduleKind, stages: &[StageTime], v: u32, m: u32) -> f64 {
        let p = stages.len() as u32;
        let nanos = |time: f64| Nanos::new((time * 1e6 / f64::from(v)) as u64);
        let passes: Vec<PassTimes> = stages
            .iter()
            .map(|stage| PassTimes {
                forward: nanos(stage.forward),
                input_grad: nanos(stage.input_grad),
                weight_grad: nanos(stage.weight_grad),
            })
            .collect();
        let chunks = passes.iter().cycle().take(passes.len() * v as usize).copied().collect();
        let durations = Durations { stages: chunks, send: Nanos::ZERO };
        let schedule = generate(kind, p, m, v).unwrap();
        earliest(&schedule, &durations).makespan.as_f64() * 1e-6
            / step_time(kind, stages, 0.0, v, m)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// With stages that differ by up to a fifth, closed form and simulation differ by about a tenth
        /// at most, for any number of micro-batches; those of the zero-bubble schedules are ways through
        /// the step, of which the simulation knows the longest.
        #[test]
        fn closed_forms_are_near_the_simulation(
            stages in prop::collection::vec((1.0..1.2, 0.9..1.3, 0.8..1.0), 2..12),
            v in 2u32..5, m in 1u32..48,
        ) {
            let stages: Vec<StageTime> = stages.iter().map(|(f, i, w)| StageTime {
                forward: *f, input_grad: *i, weight_grad: *w,
            }).collect();
            for kind in ScheduleKind::SEARCHED {
                let v = if kind.is_interleaved() { v } else { 1 };
                let p = stages.len() as u32;
                let m = if kind == ScheduleKind::Interleaved { m.next_multiple_of(p) } else { m };
                let ratio = ratio(kind, &stages, v, m);
                let least = match kind {
                    ScheduleKind::ZbH1 | ScheduleKind::ZbH2 => 0.9999,
                    _ => 0.87,
                };
                prop_assert!(
                    (least..1.15).contains(&ratio),
                    "{kind}, p {p}, v {v}, m {m}: {ratio}"
                );
            }
        }

        /// Invariant: a lower bound is never above the true cost.
        #[test]
        fn the_bound_is_below_every_partition(
            stages in stages(), v in 1u32..8, m in 1u32..64, schedule in 0usize..6,
        ) {
            let schedule = ScheduleKind::SEARCHED[schedule];
            let v = if schedule.is_interleaved() { v } else { 1 };
            let total: f64 = stages.iter().map(StageTime::total).sum();
            let slowest = stages.iter().map(StageTime::total).fold(0.0, f64::max);
            let time = step_time(schedule, &stages, 0.0, v, m) * (1.0 + 1e-12);
            for least in [total / stages.len() as f64, slowest] {
                prop_assert!(lower_bound(schedule, total, least, v, m) <= time);
            }
        }
    }
}
