//! Orders of schedules, cached for all layouts that share them.

use std::sync::Arc;

use ir::layout::Layout;
use ir::schedule::ScheduleKind;
use ir::units::{Bytes, Nanos};
use simulator::{ActivationBytes, Cycle, Order, PassOrder, SimulationError, StepWork, step_time};

use super::memo::Memo;

/// Schedule, and its numbers of ranks, micro-batches and stages per rank.
type Numbers = (ScheduleKind, u32, u32, u32);

/// Cache of the orders that a search uses.
#[derive(Debug, Default)]
pub struct Orders {
    whole: Memo<Numbers, Arc<Order>>,
    passes: Memo<Numbers, Arc<PassOrder>>,
    /// Periodic orders, to which whole cycles can be added; `None` for a schedule without a period.
    cycles: Memo<Numbers, Option<Arc<Cycle>>>,
}

/// Numbers of micro-batches per rank with which a step is simulated and then extrapolated. The next number is tried if
/// the step is not periodic yet.
const FEW: [u32; 3] = [4, 8, 32];

impl Orders {
    /// Step time, simulated in full or extrapolated from fewer micro-batches.
    ///
    /// # Errors
    ///
    /// Errors of the simulation; none for a checked layout.
    pub fn step_time(&self, layout: &Layout, work: &StepWork) -> Result<Nanos, SimulationError> {
        for few in FEW {
            if let Some((cycle, repeats)) = self.cycle(layout, few)
                && let Some(time) = cycle.step_time(work, repeats)?
            {
                return Ok(time);
            }
        }
        let (kind, p, m, v) = numbers(layout);
        let whole = self.whole.get((kind, p, m, v), || {
            let order = Order::of_family(kind, p, m, v);
            Arc::new(order.expect("a checked layout's schedule takes its numbers"))
        });
        step_time(&whole, work)
    }

    /// The most activations that each rank saves for backward at any time.
    pub fn peaks(&self, layout: &Layout, stages: &[ActivationBytes]) -> Vec<Bytes> {
        let (kind, p, m, v) = numbers(layout);
        let m = kind.fill_up(p, m);
        let order = self.passes.get((kind, p, m, v), || {
            let order = PassOrder::of_family(kind, p, m, v);
            Arc::new(order.expect("a checked layout's schedule takes its numbers"))
        });
        order.peak_memory(stages)
    }

    /// The layout's order with fewer micro-batches, and the number of cycles left out; `None` if not shorter.
    fn cycle(&self, layout: &Layout, few: u32) -> Option<(Arc<Cycle>, u64)> {
        let (kind, p, m, v) = numbers(layout);
        let period = kind.cycle(p)?;
        let least = few * p.max(2) + 6;
        let repeats = m.checked_sub(least)? / period;
        // A pipeline may be periodic only over several cycles, whose number must divide the number of cycles left out.
        let repeats = if period < p { repeats / 12 * 12 } else { repeats };
        let short = m - repeats * period;
        if repeats == 0 || short + period >= m {
            return None;
        }
        let cycle = self.cycles.get((kind, p, short, v), || {
            let cycle = Cycle::of_family(kind, p, short, v);
            cycle.expect("a checked layout's schedule takes its numbers").map(Arc::new)
        });
        cycle.map(|cycle| (cycle, repeats.into()))
    }
}

/// Cache key of an order: the parts of a layout that it depends on.
pub(super) fn numbers(layout: &Layout) -> Numbers {
    let (p, v) = (layout.pipeline_parallel, layout.virtual_stages);
    (layout.schedule, p, layout.num_micro_batches, v)
}
