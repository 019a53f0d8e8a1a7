//! Steps with a slow pipeline rank.

use ir::schedule::Schedule;
use ir::units::Nanos;

use crate::error::SimulationError;
use crate::order::{Order, RankOp};
use crate::play::{Observer, play};
use crate::work::{Run, StepWork};

/// The time of a step in which one pipeline rank takes `factor` times as long for its passes.
///
/// # Errors
///
/// As [`simulate`](crate::simulate).
pub fn straggling_step(
    schedule: &Schedule,
    work: &StepWork,
    pipeline_rank: usize,
    factor: f64,
) -> Result<Nanos, SimulationError> {
    let order = Order::new(schedule);
    Ok(play(&order, work, &mut Straggling { pipeline_rank, factor })?.end)
}

/// Observer that slows down the passes of one rank.
struct Straggling {
    pipeline_rank: usize,
    factor: f64,
}

impl Observer for Straggling {
    fn pace(&mut self, rank: usize, op: &RankOp, run: Run) -> Run {
        if rank == self.pipeline_rank && op.kind.is_compute() {
            longer(run, self.factor)
        } else {
            run
        }
    }
}

/// A run that takes `factor` times as long.
fn longer(run: Run, factor: f64) -> Run {
    let longer = |time: Nanos| Nanos::new((time.as_f64() * factor).round() as u64);
    Run { time: longer(run.time), kernels: longer(run.kernels), ..run }
}
