//! Transfers of a rank overlapped with its passes: gathers and reductions over its replicas, and the copies between
//! device and host before and after them.

use std::collections::VecDeque;

use ir::units::Nanos;

use crate::work::{Run, Transfer};

/// Queue of the transfers that a rank has begun and that have not ended.
///
/// The progress of a transfer is counted up to [`Self::until`] and no further than the rank has advanced, as the passes
/// after that decide its speed. Copies are never slowed down, so their ends are known when they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transfers {
    queue: VecDeque<QueuedTransfer>,
    until: Nanos,
    num_begun: u32,
    /// End of the last copy from the host.
    from_host: Nanos,
    /// End of the last copy to the host, of those that have begun.
    to_host: Nanos,
}

/// A transfer that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueuedTransfer {
    /// Remaining time of the transfer, alone on its link.
    left: Nanos,
    /// Index among the rank's transfers.
    id: u32,
    /// Time at which it began on the link.
    start: Option<Nanos>,
    /// End of the copy from the host that it needs.
    ready: Nanos,
    /// Time of the copy to the host that follows it.
    to_host: Nanos,
}

/// A transfer that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinishedTransfer {
    pub(crate) id: u32,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    /// Begin and end of the copy to the host that follows it.
    pub(crate) to_host: [Nanos; 2],
}

/// End of a rank's wait for transfers, and the part of it with only copies in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waited {
    pub(crate) end: Nanos,
    pub(crate) for_copies: Nanos,
}

/// Remaining time of a transfer and of its copies, at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemainingWork {
    transfer: Nanos,
    from_host: Nanos,
    to_host: Nanos,
}

impl Transfers {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Number of transfers begun so far.
    pub(crate) fn num_begun(&self) -> u32 {
        self.num_begun
    }

    /// Number of transfers that have ended.
    fn num_over(&self) -> u32 {
        self.num_begun - self.queue.len() as u32
    }

    /// Remaining work of transfers and copies, and the time at which that is known, relative to `origin`.
    pub(crate) fn state(&self, origin: Nanos) -> (Vec<RemainingWork>, i128) {
        let since = i128::from(self.until.get()) - i128::from(origin.get());
        let left = self.queue.iter().map(|pending| RemainingWork {
            transfer: pending.left,
            from_host: pending.ready.saturating_sub(origin),
            to_host: pending.to_host,
        });
        let mut left: Vec<RemainingWork> = left.collect();
        let since = if left.is_empty() { 0 } else { since };
        let [from_host, to_host] =
            [self.from_host, self.to_host].map(|time| time.saturating_sub(origin));
        if from_host > Nanos::ZERO || to_host > Nanos::ZERO {
            left.push(RemainingWork { transfer: Nanos::ZERO, from_host, to_host });
        }
        (left, since)
    }

    /// Queues a transfer; returns the begin and the end of the copy before it.
    pub(crate) fn begin(&mut self, transfer: &Transfer, now: Nanos) -> [Nanos; 2] {
        if self.queue.is_empty() {
            self.until = now;
        }
        let begins = self.from_host.max(now);
        let ready = if transfer.from_host.time > Nanos::ZERO {
            self.from_host = begins + transfer.from_host.time;
            self.from_host
        } else {
            now
        };
        self.queue.push_back(QueuedTransfer {
            left: transfer.time,
            id: self.num_begun,
            start: None,
            ready,
            to_host: transfer.to_host.time,
        });
        self.num_begun += 1;
        [begins, ready.max(begins)]
    }

    /// Ends the first transfer of the queue at `end`.
    fn end_first(&mut self, start: Nanos, end: Nanos, over: &mut impl FnMut(FinishedTransfer)) {
        let Some(first) = self.queue.pop_front() else { return };
        self.until = end;
        let begins = self.to_host.max(end);
        let to_host = [begins, begins + first.to_host];
        if first.to_host > Nanos::ZERO {
            self.to_host = to_host[1];
        }
        over(FinishedTransfer { id: first.id, start, end, to_host });
    }

    /// Advances transfers to `now`, while the rank computes nothing.
    pub(crate) fn go_on(&mut self, now: Nanos, over: &mut impl FnMut(FinishedTransfer)) {
        while let Some(first) = self.queue.front_mut() {
            let from = self.until.max(first.ready);
            if from > now {
                self.until = now;
                return;
            }
            let start = *first.start.get_or_insert(from);
            let end = from + first.left;
            if end > now {
                first.left = end - now;
                self.until = now;
                return;
            }
            self.end_first(start, end, over);
        }
    }

    /// Additional time of a message of `time` that leaves or arrives at `now` on the link of the transfers: each has
    /// half of the link while both are in flight.
    pub(crate) fn share_with(
        &mut self,
        time: Nanos,
        now: Nanos,
        over: &mut impl FnMut(FinishedTransfer),
    ) -> Nanos {
        self.go_on(now, over);
        let mut longer = Nanos::ZERO;
        let mut alone = Nanos::ZERO;
        for pending in &self.queue {
            alone = alone.max(pending.ready.saturating_sub(now));
            longer = time.saturating_sub(alone).min(longer + pending.left);
            if longer + alone >= time {
                break;
            }
        }
        if let Some(first) = self.queue.front_mut() {
            first.left += longer;
        }
        longer
    }

    /// Waits from `now` until `count` transfers have ended, while the rank computes nothing.
    pub(crate) fn wait_for(
        &mut self,
        count: u32,
        now: Nanos,
        over: &mut impl FnMut(FinishedTransfer),
    ) -> Waited {
        let missing = count.saturating_sub(self.num_over()) as usize;
        let (mut end, mut for_copies) = (self.until, Nanos::ZERO);
        for pending in self.queue.iter().take(missing) {
            for_copies += pending.ready.saturating_sub(end.max(now));
            end = end.max(pending.ready) + pending.left;
        }
        let end = if missing > 0 { now.max(end) } else { now };
        self.go_on(end, over);
        Waited { end, for_copies }
    }

    /// Waits from `now` until all transfers and all copies have ended.
    pub(crate) fn wait_for_all(
        &mut self,
        now: Nanos,
        over: &mut impl FnMut(FinishedTransfer),
    ) -> Waited {
        let Waited { end, for_copies } = self.wait_for(self.num_begun, now, over);
        let copied = end.max(self.from_host).max(self.to_host);
        Waited { end: copied, for_copies: for_copies + (copied - end) }
    }

    /// End of a run that begins at `now`. An overlapped transfer slows the run's kernels down. If both use the same
    /// link, they share it: waits of the run for that link take twice as long, and the transfer proceeds in the rest of
    /// the time.
    pub(crate) fn run_overlapped(
        &mut self,
        run: Run,
        now: Nanos,
        slowdown_per_mille: u32,
        over: &mut impl FnMut(FinishedTransfer),
    ) -> Nanos {
        self.go_on(now, over);
        if self.queue.is_empty() || run.time == Nanos::ZERO {
            return now + run.time;
        }
        let slowdown = u64::from(slowdown_per_mille.min(999));
        let alone = run.time.get();
        let slowed = run.kernels.get() * slowdown / (1000 - slowdown);
        let overlapped = alone + slowed + run.waits_on_link.get();
        let free = overlapped - run.on_link.get().min(overlapped);
        let (mut now, mut left) = (now.get(), alone);
        while let Some(first) = self.queue.front_mut().filter(|_| left > 0) {
            let unready = first.ready.get().saturating_sub(now);
            if unready > 0 {
                let by_itself = unready.min(left);
                now += by_itself;
                left -= by_itself;
                self.until = Nanos::new(now);
                continue;
            }
            let start = *first.start.get_or_insert(self.until);
            let whole = scaled_up(left, overlapped, alone);
            let ends_after = (free > 0).then(|| scaled_up(first.left.get(), overlapped, free));
            if let Some(time) = ends_after.filter(|time| *time <= whole) {
                now += time;
                left -= scaled_down(time, alone, overlapped).min(left);
                self.end_first(start, Nanos::new(now), over);
            } else {
                now += whole;
                left = 0;
                let done = Nanos::new(scaled_down(whole, free, overlapped));
                first.left = first.left.saturating_sub(done);
                self.until = Nanos::new(now);
            }
        }
        Nanos::new(now + left)
    }
}

/// `time x factor / divisor`, rounded up.
fn scaled_up(time: u64, factor: u64, divisor: u64) -> u64 {
    if factor == divisor {
        return time;
    }
    (u128::from(time) * u128::from(factor)).div_ceil(divisor.into()) as u64
}

/// `time x factor / divisor`, rounded down.
pub(crate) fn scaled_down(time: u64, factor: u64, divisor: u64) -> u64 {
    if factor == divisor {
        return time;
    }
    (u128::from(time) * u128::from(factor) / u128::from(divisor)) as u64
}
