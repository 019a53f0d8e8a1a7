//! Transfers of a rank beside its passes: gathering and reduction over its replicas.

use std::collections::VecDeque;

use ir::units::Nanos;

use crate::work::{Run, Transfer};

/// The transfers that a rank has begun and that are not over, one after the other.
///
/// What of a transfer is over is counted up to [`Self::until`] and no further than the rank has come, as
/// what its passes do from then on decides how fast it goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transfers {
    queue: VecDeque<Pending>,
    until: Nanos,
    num_begun: u32,
}

/// A transfer that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    /// What is left of it, as time alone on its link.
    left: Nanos,
    /// Which of the rank's transfers it is.
    id: u32,
    /// When its turn came.
    start: Option<Nanos>,
}

/// A transfer that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) id: u32,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
}

impl Transfers {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many were begun so far.
    pub(crate) fn num_begun(&self) -> u32 {
        self.num_begun
    }

    /// How many are over.
    fn num_over(&self) -> u32 {
        self.num_begun - self.queue.len() as u32
    }

    /// What is left of each, and since when that is known, from `origin` on.
    pub(crate) fn state(&self, origin: Nanos) -> (Vec<Nanos>, i128) {
        let since = i128::from(self.until.get()) - i128::from(origin.get());
        let left: Vec<Nanos> = self.queue.iter().map(|pending| pending.left).collect();
        if left.is_empty() { (left, 0) } else { (left, since) }
    }

    /// Puts a transfer in line.
    pub(crate) fn begin(&mut self, transfer: &Transfer, now: Nanos) {
        if self.queue.is_empty() {
            self.until = now;
        }
        let id = self.num_begun;
        self.queue.push_back(Pending { left: transfer.time, id, start: None });
        self.num_begun += 1;
    }

    /// Lets transfers go on while the rank computes nothing, up to `now`.
    pub(crate) fn go_on(&mut self, now: Nanos, over: &mut impl FnMut(Over)) {
        while let Some(first) = self.queue.front_mut() {
            let start = *first.start.get_or_insert(self.until);
            let end = self.until + first.left;
            if end > now {
                first.left = end - now;
                self.until = now;
                return;
            }
            over(Over { id: first.id, start, end });
            self.until = end;
            self.queue.pop_front();
        }
    }

    /// By how much longer a message of `time` takes that leaves or comes at `now` on the link of the
    /// transfers: each has half of it as long as both are under way.
    pub(crate) fn share_with(
        &mut self,
        time: Nanos,
        now: Nanos,
        over: &mut impl FnMut(Over),
    ) -> Nanos {
        self.go_on(now, over);
        let mut longer = Nanos::ZERO;
        for pending in &self.queue {
            longer = time.min(longer + pending.left);
            if longer == time {
                break;
            }
        }
        if let Some(first) = self.queue.front_mut() {
            first.left += longer;
        }
        longer
    }

    /// When so many are over, if the rank computes nothing until then; not before `now`.
    pub(crate) fn wait_for(
        &mut self,
        count: u32,
        now: Nanos,
        over: &mut impl FnMut(Over),
    ) -> Nanos {
        let missing = count.saturating_sub(self.num_over()) as usize;
        let left: Nanos = self.queue.iter().take(missing).map(|pending| pending.left).sum();
        let end = if missing > 0 { now.max(self.until + left) } else { now };
        self.go_on(end, over);
        end
    }

    /// When a run that begins at `now` ends. A transfer beside it slows kernels down, and each takes its
    /// turn on a link that both use: what the run waits for on that link takes twice as long, and the
    /// transfer goes on in the rest of the time.
    pub(crate) fn run_beside(
        &mut self,
        run: Run,
        now: Nanos,
        slowdown_per_mille: u32,
        over: &mut impl FnMut(Over),
    ) -> Nanos {
        self.go_on(now, over);
        if self.queue.is_empty() || run.time == Nanos::ZERO {
            return now + run.time;
        }
        let slowdown = u64::from(slowdown_per_mille.min(999));
        let alone = run.time.get();
        let slowed = run.kernels.get() * slowdown / (1000 - slowdown);
        let beside = alone + slowed + run.waits_on_link.get();
        let free = beside - run.on_link.get().min(beside);
        let (mut now, mut left) = (now.get(), alone);
        while let Some(first) = self.queue.front_mut().filter(|_| left > 0) {
            let start = *first.start.get_or_insert(self.until);
            let whole = scaled_up(left, beside, alone);
            let ends_after = (free > 0).then(|| scaled_up(first.left.get(), beside, free));
            if let Some(time) = ends_after.filter(|time| *time <= whole) {
                now += time;
                left -= scaled_down(time, alone, beside).min(left);
                self.until = Nanos::new(now);
                over(Over { id: first.id, start, end: self.until });
                self.queue.pop_front();
            } else {
                now += whole;
                left = 0;
                let done = Nanos::new(scaled_down(whole, free, beside));
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
fn scaled_down(time: u64, factor: u64, divisor: u64) -> u64 {
    if factor == divisor {
        return time;
    }
    (u128::from(time) * u128::from(factor) / u128::from(divisor)) as u64
}
