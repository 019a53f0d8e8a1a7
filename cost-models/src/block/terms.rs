//! Times of a block's passes, kernel by kernel and exchange by exchange.

use ir::graph::{Block, Exchange, KernelWork, Pass, ShardContext};
use ir::units::Seconds;

use super::Groups;
use super::cost::{BlockCost, ExpertTimes};
use super::parts::BlockParts;
use super::play::{PlayedExchange, played};
use crate::hardware::Hardware;
use crate::kernels::{Basis, Bound, Timing};

/// A kernel or exchange with its time, for explanations.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// Name of the operator.
    pub op: String,
    /// Pass of the kernel or exchange.
    pub pass: Pass,
    /// The kernel or exchange.
    pub work: TermWork,
    /// Time in seconds; of an exchange, the exposed part.
    pub time: Seconds,
    /// Evidence on which the time is based.
    pub basis: Basis,
}

/// Work of a [`Term`].
#[derive(Clone, Debug, PartialEq)]
pub enum TermWork {
    /// A kernel, and the resource that bounds it.
    Kernel(KernelWork, Bound),
    /// An exchange, and its whole time with nothing hidden.
    Exchange(Exchange, Seconds),
}

/// Terms of every kernel and exchange of `block`.
pub fn terms(
    block: &Block,
    setting: &ShardContext,
    groups: &Groups,
    hardware: &Hardware,
) -> Vec<Term> {
    let work = block.work(setting);
    let cost = BlockCost::new(block, &work, setting, groups, hardware, ExpertTimes::Exact);
    // Where gradients are computed operator by operator, forward and backward have every exchange once.
    let parts = BlockParts::of(&cost);
    let mut played_exchanges = Vec::new();
    let computed = [&parts.forward, &parts.backward].map(|pass| {
        let slowdown = hardware.slowdown_per_mille();
        let played = played(pass, slowdown, |exchange| played_exchanges.push(exchange));
        Seconds::from(played.compute)
    });
    // Overlapped kernels are slowed down; each is shown with its share of its pass's slowdown.
    let mut alone = [Seconds::ZERO; 2];
    for (kernel, timing) in cost.kernels() {
        alone[usize::from(kernel.pass != Pass::Forward)] += timing.time;
    }
    let longer = [0, 1]
        .map(|pass| if alone[pass] > Seconds::ZERO { computed[pass] / alone[pass] } else { 1.0 });
    let kernels = cost.kernels().map(|(kernel, Timing { time, bound })| {
        let op = block.op(kernel.op).name.clone();
        let basis = cost.basis(kernel);
        let time = time * longer[usize::from(kernel.pass != Pass::Forward)];
        Term { op, pass: kernel.pass, work: TermWork::Kernel(*kernel, bound), time, basis }
    });
    let exchanges =
        played_exchanges.into_iter().map(|PlayedExchange { exchange, waited, .. }| {
            let whole = cost.exchange(&exchange);
            let op = block.op(exchange.op).name.clone();
            let basis = exchange_basis(&cost, &exchange);
            let work = TermWork::Exchange(exchange, whole);
            Term { op, pass: exchange.pass, work, time: waited.into(), basis }
        });
    kernels.chain(exchanges).collect()
}

/// Evidence on which the time of an exchange is based.
fn exchange_basis(cost: &BlockCost<'_>, exchange: &Exchange) -> Basis {
    let network = &cost.hardware.network;
    let group = cost.groups.along(exchange.axis);
    let made_by = cost.collective_of(exchange);
    made_by.map_or(Basis::DataSheet, |(kind, bytes)| network.basis(kind, group, bytes))
}
