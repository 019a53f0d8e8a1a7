//! Simulation of the parts of a pass.

use std::ops::{Add, Mul};

use ir::graph::{Axis, Exchange};
use ir::units::Nanos;

use super::part::BlockPart;

/// One value for each [`Axis`], in the order of [`Axis::ALL`].
pub type ByAxis<T> = [T; Axis::ALL.len()];

/// Zero time along every axis.
const NOTHING: ByAxis<Nanos> = [Nanos::ZERO; Axis::ALL.len()];

/// Time of a pass, by component. An exchange counts for the time that kernels wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTime {
    /// Time of kernels, slowed down by overlapped exchanges.
    pub compute: Nanos,
    /// Time of kernels at their full rate.
    pub kernels: Nanos,
    /// Time of waits for the host, where it launches operators more slowly than the device runs them.
    pub host: Nanos,
    /// Time of waits for exchanges, by [`Axis`].
    pub waits: ByAxis<Nanos>,
    /// Time of exchanges, including the part overlapped with kernels, by [`Axis`].
    pub exchanges: ByAxis<Nanos>,
}

impl PassTime {
    /// Time from the start to the end of the pass.
    pub fn total(&self) -> Nanos {
        self.compute + self.host + self.waits.into_iter().sum()
    }

    /// Lower bound of the pass's time: the total; or where another pass may overlap it and hide its exchanges, its
    /// kernels alone.
    pub fn least(&self, is_overlapped: bool) -> Nanos {
        if is_overlapped { self.kernels } else { self.total() }
    }

    /// Time of waits for exchanges along an axis.
    pub fn waits(&self, axis: Axis) -> Nanos {
        self.waits[axis as usize]
    }
}

impl Add for PassTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let both =
            |a: ByAxis<Nanos>, b: ByAxis<Nanos>| std::array::from_fn(|axis| a[axis] + b[axis]);
        Self {
            compute: self.compute + other.compute,
            kernels: self.kernels + other.kernels,
            host: self.host + other.host,
            waits: both(self.waits, other.waits),
            exchanges: both(self.exchanges, other.exchanges),
        }
    }
}

impl Mul<u64> for PassTime {
    type Output = Self;

    fn mul(self, count: u64) -> Self {
        Self {
            compute: self.compute * count,
            kernels: self.kernels * count,
            host: self.host * count,
            waits: self.waits.map(|time| time * count),
            exchanges: self.exchanges.map(|time| time * count),
        }
    }
}

impl std::iter::Sum for PassTime {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), Add::add)
    }
}

/// An exchange of a simulated pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlayedExchange {
    /// The exchange.
    pub exchange: Exchange,
    /// Start, relative to the start of the pass.
    pub start: Nanos,
    /// End, relative to the start of the pass.
    pub end: Nanos,
    /// Time that kernels wait for it.
    pub waited: Nanos,
}

/// Time of `parts`, which run in order. Exchanges along an axis run one after the other and overlap kernels, which are
/// slower by `slowdown_per_mille` thousandths while an exchange is in flight. `observe` is called with each exchange
/// once it has been waited for.
pub fn played(
    parts: &[BlockPart],
    slowdown_per_mille: u32,
    mut observe: impl FnMut(PlayedExchange),
) -> PassTime {
    let mut time = PassTime::default();
    let mut now = Nanos::ZERO;
    let mut ends = NOTHING;
    let mut pending: Vec<PlayedExchange> = Vec::new();
    for part in parts {
        match part {
            BlockPart::Kernels(kernels) => {
                time.kernels += kernels.time;
                let until = ends.into_iter().max().unwrap_or_default();
                let kernels =
                    overlapped(kernels.time, until.saturating_sub(now), slowdown_per_mille);
                time.compute += kernels;
                now += kernels;
            }
            BlockPart::Host(host) => {
                time.host += *host;
                now += *host;
            }
            BlockPart::Start(timed) => {
                let line = line(timed.exchange.axis);
                let start = ends[line].max(now);
                ends[line] = start + timed.time;
                time.exchanges[timed.exchange.axis as usize] += timed.whole;
                let (exchange, end, waited) = (timed.exchange, ends[line], Nanos::ZERO);
                pending.push(PlayedExchange { exchange, start, end, waited });
            }
            BlockPart::Wait(axis) => {
                let until = ends[line(*axis)].max(now);
                time.waits[*axis as usize] += until - now;
                pending.retain_mut(|played| {
                    let is_over = played.exchange.axis == *axis;
                    if is_over {
                        played.waited = played.end.saturating_sub(played.start.max(now));
                        observe(*played);
                    }
                    !is_over
                });
                now = until;
            }
        }
    }
    time
}

/// Time of two overlapped passes. Their kernels run one after the other, each overlapped with the other pass's
/// exchanges. The pass that has waited longest for the device goes first. `observe` is called as each part begins: with
/// 0 for the first pass, 1 for the other.
pub fn played_together(
    one: &[BlockPart],
    other: &[BlockPart],
    slowdown_per_mille: u32,
    mut observe: impl FnMut(usize),
) -> Nanos {
    let mut threads = [Thread::new(one), Thread::new(other)];
    let mut ends = NOTHING;
    let mut device = Nanos::ZERO;
    loop {
        for (index, thread) in threads.iter_mut().enumerate() {
            thread.go_on(&mut ends, || observe(index));
        }
        let waiting = threads.iter().enumerate().filter(|(_, it)| it.next < it.parts.len());
        let Some((first, _)) = waiting.min_by_key(|(index, it)| (it.now, *index)) else { break };
        let thread = &mut threads[first];
        let start = device.max(thread.now);
        let time = match thread.parts[thread.next] {
            BlockPart::Kernels(kernels) => {
                let until = ends.into_iter().max().unwrap_or_default();
                overlapped(kernels.time, until.saturating_sub(start), slowdown_per_mille)
            }
            BlockPart::Host(time) => time,
            BlockPart::Start(_) | BlockPart::Wait(_) => Nanos::ZERO,
        };
        thread.next += 1;
        observe(first);
        thread.now = start + time;
        device = thread.now;
    }
    threads[0].now.max(threads[1].now)
}

/// One of two overlapped passes.
struct Thread<'a> {
    parts: &'a [BlockPart],
    next: usize,
    now: Nanos,
    /// Ends of its own exchanges, by axis.
    own: ByAxis<Nanos>,
}

impl<'a> Thread<'a> {
    const fn new(parts: &'a [BlockPart]) -> Self {
        Self { parts, next: 0, now: Nanos::ZERO, own: NOTHING }
    }

    /// Begins and waits for exchanges, up to the next part that needs the device.
    fn go_on(&mut self, ends: &mut ByAxis<Nanos>, mut observe: impl FnMut()) {
        while let Some(part) = self.parts.get(self.next) {
            match part {
                BlockPart::Kernels(_) | BlockPart::Host(_) => return,
                BlockPart::Start(timed) => {
                    let line = line(timed.exchange.axis);
                    ends[line] = ends[line].max(self.now) + timed.time;
                    self.own[line] = ends[line];
                }
                BlockPart::Wait(axis) => self.now = self.now.max(self.own[line(*axis)]),
            }
            self.next += 1;
            observe();
        }
    }
}

/// Index of the queue of exchanges along an axis, which run one after the other: both axes of tensor parallelism share
/// one.
const fn line(axis: Axis) -> usize {
    match axis {
        Axis::ExpertTensor => Axis::Tensor as usize,
        axis => axis as usize,
    }
}

/// Time of `kernels`, where exchanges are in flight for `window` from their start.
fn overlapped(kernels: Nanos, window: Nanos, slowdown_per_mille: u32) -> Nanos {
    let slowdown = u64::from(slowdown_per_mille.min(999));
    if slowdown == 0 || window == Nanos::ZERO {
        return kernels;
    }
    let rate = 1000 - slowdown;
    let done = Nanos::new(window.get().saturating_mul(rate) / 1000);
    if kernels <= done {
        Nanos::new(kernels.get().saturating_mul(1000).div_ceil(rate))
    } else {
        window + (kernels - done)
    }
}
