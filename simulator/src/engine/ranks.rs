//! What a rank is in the midst of.

use std::collections::{BTreeMap, VecDeque};

use ir::schedule::{Action, ActionKind, Step};
use ir::units::{Bytes, Nanos};
use traces::timeline::Stream;

use super::change;
use super::flows::FlowId;
use crate::simulation::{ActionId, Cause, Done};
use crate::work::{Segment, StepEnd};

const NUM_STREAMS: usize = Stream::ALL.len();

/// Which way data goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Forward,
    Backward,
}

impl Pass {
    /// The pass whose result an action is, and the stage that needs it.
    pub(super) fn of(action: Action, num_stages: u32) -> Option<(Self, u32)> {
        match action.kind {
            ActionKind::Forward => {
                Some((Self::Forward, action.stage + 1)).filter(|(_, user)| *user < num_stages)
            }
            ActionKind::Backward | ActionKind::InputGrad => {
                Some((Self::Backward, action.stage.checked_sub(1)?))
            }
            _ => None,
        }
    }
}

/// A rank.
pub(super) struct Rank<'a> {
    pub(super) steps: &'a [Step],
    /// The next of its steps.
    pub(super) next: usize,
    /// Whether the first action of the next step, an overlapped pair, has begun.
    pub(super) pair_started: bool,
    /// The actions under way: one, or two of an overlapped pair.
    pub(super) threads: [Option<Thread<'a>>; 2],
    /// The kernels that run.
    pub(super) kernel: Option<Kernel>,
    pub(super) last_kernel_thread: usize,
    num_kernels: u32,
    /// Transfers under way.
    transfers: u32,
    /// Transfers in line, by stream; the first may be under way.
    pub(super) queues: [VecDeque<FlowId>; NUM_STREAMS],
    /// How many were ever put in line.
    pub(super) posted: [u64; NUM_STREAMS],
    /// How many are over.
    pub(super) transferred: [u64; NUM_STREAMS],
    pub(super) last_flow: [Option<FlowId>; NUM_STREAMS],
    /// Stages whose parameters are gathered once so many transfers on the data stream are over.
    pub(super) gathered: BTreeMap<u32, u64>,
    /// Sends that are on their way though the list has not come to them.
    pub(super) sent_early: Vec<Action>,
    pub(super) done: Vec<Done>,
    /// By stage and kind: actions that were begun, and all that there are.
    counts: BTreeMap<(u32, ActionKind), [u32; 2]>,
    /// Time in which nothing but waiting for a stream was done.
    pub(super) waited: [Nanos; NUM_STREAMS],
    /// Up to where on the clock of [`Rank::without_kernels`] waiting is part of `waited`.
    counted: Nanos,
    /// How long kernels ran that are over.
    kernel_time: Nanos,
    pub(super) last_ended: Option<ActionId>,
    pub(super) memory: Vec<(Nanos, i128)>,
}

/// An action under way.
pub(super) struct Thread<'a> {
    pub(super) action: Action,
    pub(super) index: ActionId,
    pub(super) segments: &'a [Segment],
    pub(super) next: usize,
    /// Whether its kernels run.
    pub(super) computes: bool,
    /// Where it waits: how many transfers must be over before it goes on, and since when by the clock of
    /// [`Rank::without_kernels`].
    pub(super) awaits: Option<(u64, Nanos)>,
    /// Time of its kernels so far, if nothing slows them down.
    pub(super) computed: Nanos,
}

impl<'a> Thread<'a> {
    pub(super) fn new(action: Action, index: ActionId, segments: &'a [Segment]) -> Self {
        let (next, computes, awaits, computed) = (0, false, None, Nanos::ZERO);
        Self { action, index, segments, next, computes, awaits, computed }
    }
}

/// Kernels under way.
pub(super) struct Kernel {
    pub(super) thread: usize,
    pub(super) version: u32,
    start: Nanos,
    /// What was left of them when their rate last changed.
    left: Nanos,
    since: Nanos,
}

/// When kernels will be over, and the version of that.
type KernelEnd = (Nanos, u32);

impl<'a> Rank<'a> {
    pub(super) fn new(steps: &'a [Step]) -> Self {
        let mut counts: BTreeMap<(u32, ActionKind), [u32; 2]> = BTreeMap::new();
        for action in steps.iter().flat_map(|step| step.actions()) {
            if action.kind.is_compute() {
                counts.entry((action.stage, action.kind)).or_default()[1] += 1;
            }
        }
        Self {
            steps,
            counts,
            waited: [Nanos::ZERO; NUM_STREAMS],
            counted: Nanos::ZERO,
            kernel_time: Nanos::ZERO,
            next: 0,
            pair_started: false,
            threads: [None, None],
            kernel: None,
            last_kernel_thread: 1,
            num_kernels: 0,
            transfers: 0,
            queues: Default::default(),
            posted: [0; NUM_STREAMS],
            transferred: [0; NUM_STREAMS],
            last_flow: [None; NUM_STREAMS],
            gathered: BTreeMap::new(),
            sent_early: Vec::new(),
            done: Vec::with_capacity(steps.len()),
            last_ended: None,
            memory: Vec::new(),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.next == self.steps.len()
            && self.threads.iter().all(Option::is_none)
            && self.queues.iter().all(VecDeque::is_empty)
    }

    pub(super) fn remember(&mut self, now: Nanos, bytes: Bytes, sign: i128) {
        if bytes > Bytes::ZERO {
            self.memory.push((now, change(bytes, sign)));
        }
    }

    /// Counts an action that begins.
    pub(super) fn count(&mut self, action: Action) -> StepEnd {
        let Some([begun, all]) = self.counts.get_mut(&(action.stage, action.kind)) else {
            return StepEnd::default();
        };
        *begun += 1;
        StepEnd { is_first: *begun == 1, is_last: begun == all }
    }

    /// The action that ended last.
    pub(super) fn last_action(&self) -> Cause {
        self.last_ended.map_or(Cause::Start, Cause::Action)
    }

    /// The send of the result of an action in an overlapped pair, which need not wait for the other
    /// action: it is among the messages that follow the pair.
    pub(super) fn send_in_pair(&self, action: Action) -> Option<Action> {
        let is_pair = |step: &Step| matches!(step, Step::Overlapped(..));
        let pair = if self.pair_started { self.next } else { self.next.checked_sub(1)? };
        let (_, following) = self.steps[pair..].split_first().filter(|(step, _)| is_pair(step))?;
        let messages = following.iter().map_while(|step| match step {
            Step::One(message) if message.kind.is_message() => Some(*message),
            _ => None,
        });
        let kind = match action.kind {
            ActionKind::Forward => ActionKind::SendForward,
            _ => ActionKind::SendBackward,
        };
        messages.into_iter().find(|message| *message == Action { kind, ..action })
    }

    pub(super) fn start_kernel(
        &mut self,
        thread: usize,
        time: Nanos,
        now: Nanos,
        slowdown: u32,
    ) -> KernelEnd {
        self.num_kernels += 1;
        self.last_kernel_thread = thread;
        let version = self.num_kernels;
        self.kernel = Some(Kernel { thread, version, start: now, left: time, since: now });
        (now + slowed(time, self.rate(slowdown)), version)
    }

    /// Ends the kernels that run, and says of which thread they were.
    pub(super) fn end_kernel(&mut self, now: Nanos) -> Option<usize> {
        let kernel = self.kernel.take()?;
        self.kernel_time += now - kernel.start;
        Some(kernel.thread)
    }

    /// How long no kernels have run so far.
    pub(super) fn without_kernels(&self, now: Nanos) -> Nanos {
        let running = self.kernel.as_ref().map_or(Nanos::ZERO, |kernel| now - kernel.start);
        now - self.kernel_time - running
    }

    /// Counts waiting for a stream, from `since` on the clock of [`Self::without_kernels`]: what the other
    /// action of an overlapped pair computed meanwhile is none, and what both waited counts once.
    pub(super) fn count_waiting(&mut self, stream: Stream, since: Nanos, now: Nanos) {
        let until = self.without_kernels(now);
        self.waited[stream as usize] += until - since.max(self.counted);
        self.counted = self.counted.max(until);
    }

    /// Notes that a transfer began or ended, and says when kernels under way will now be over.
    pub(super) fn change_speed(
        &mut self,
        change: i32,
        now: Nanos,
        slowdown: u32,
    ) -> Option<KernelEnd> {
        let before = self.rate(slowdown);
        self.transfers = self.transfers.saturating_add_signed(change);
        let after = self.rate(slowdown);
        let kernel = self.kernel.as_mut().filter(|_| before != after)?;
        let elapsed = now - kernel.since;
        let done = Nanos::new(elapsed.get().saturating_mul(before) / 1000);
        kernel.left = kernel.left.saturating_sub(done);
        kernel.since = now;
        self.num_kernels += 1;
        kernel.version = self.num_kernels;
        Some((now + slowed(kernel.left, after), kernel.version))
    }

    /// The rate of kernels, in thousandths.
    fn rate(&self, slowdown: u32) -> u64 {
        if self.transfers == 0 { 1000 } else { u64::from(1000 - slowdown.min(999)) }
    }
}

/// The time of kernels at a rate in thousandths, rounded up.
fn slowed(time: Nanos, rate: u64) -> Nanos {
    if rate == 1000 { time } else { Nanos::new(time.get().saturating_mul(1000).div_ceil(rate)) }
}
