//! A block's passes, kernel by kernel and exchange by exchange.

use ir::graph::{Block, Exchange, KernelWork, Pass, Setting};
use ir::units::Seconds;

use super::Groups;
use super::coster::{Coster, ExpertTimes};
use super::parts::BlockParts;
use super::play::{PlayedExchange, played};
use crate::hardware::Hardware;
use crate::kernels::{Basis, Bound, Timing};

/// A kernel or exchange with its time, for explanations.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// The operator.
    pub op: String,
    /// In which pass.
    pub pass: Pass,
    /// What is done.
    pub work: TermWork,
    /// How long it takes; of an exchange, what is left exposed.
    pub time: Seconds,
    /// What that rests on.
    pub basis: Basis,
}

/// What a [`Term`] does.
#[derive(Clone, Debug, PartialEq)]
pub enum TermWork {
    /// A kernel, and what bounds it.
    Kernel(KernelWork, Bound),
    /// An exchange, and how long it takes where nothing hides it.
    Exchange(Exchange, Seconds),
}

/// Every kernel and exchange of `block` with its time.
pub fn terms(block: &Block, setting: &Setting, groups: &Groups, hardware: &Hardware) -> Vec<Term> {
    let work = block.work(setting);
    let coster = Coster::new(block, &work, setting, groups, hardware, ExpertTimes::Exact);
    let kernels = coster.kernels().map(|(kernel, Timing { time, bound })| {
        let op = block.op(kernel.op).name.clone();
        let basis = coster.basis(kernel);
        Term { op, pass: kernel.pass, work: TermWork::Kernel(*kernel, bound), time, basis }
    });
    // Where gradients are computed operator by operator, forward and backward have every exchange once.
    let parts = BlockParts::of(&coster);
    let mut played_exchanges = Vec::new();
    for pass in [&parts.forward, &parts.backward] {
        played(pass, hardware.slowdown_per_mille(), |exchange| played_exchanges.push(exchange));
    }
    let exchanges =
        played_exchanges.into_iter().map(|PlayedExchange { exchange, waited, .. }| {
            let whole = coster.exchange(&exchange);
            let op = block.op(exchange.op).name.clone();
            let group = groups.along(exchange.axis);
            let basis = hardware.network.basis(exchange.collective, group, exchange.bytes);
            let work = TermWork::Exchange(exchange, whole);
            Term { op, pass: exchange.pass, work, time: waited.into(), basis }
        });
    kernels.chain(exchanges).collect()
}
