//! Transfers on links that they share.

use std::collections::BTreeMap;

use ir::schedule::ActionKind;
use ir::units::{Bytes, Nanos};
use smallvec::{SmallVec, smallvec};
use traces::timeline::{Activity, Stream};

use super::Event;
use super::ranks::Pass;
use crate::simulation::Cause;
use crate::work::{Transfer, Work};

/// Few enough to need no allocation: most transfers have one rank or two.
type Few<T> = SmallVec<[T; 4]>;

/// A transfer, counting from the first of all ranks.
pub(crate) type FlowId = u32;

/// A transfer.
pub(crate) struct Flow {
    pub(crate) activity: Activity,
    pub(crate) stream: Stream,
    pub(crate) bytes: Bytes,
    pub(crate) ends: Ends,
    /// Pipeline ranks that take part, where they are a group.
    pub(crate) members: Vec<u32>,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) cause: Cause,
    /// When it was put in line.
    posted: Nanos,
    level: u8,
    /// What was left of it when its share last changed, as time alone on its link.
    left: Nanos,
    since: Nanos,
    /// It gets one part in so many of its link.
    share: u64,
    version: u32,
    is_active: bool,
    /// How many members have not come to it.
    missing: u32,
}

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// A rank, with ranks that are alike.
    Rank(u32),
    /// A rank that sends, and one that receives.
    Message { from: u32, to: u32 },
    /// All of [`Flow::members`].
    Group,
}

impl Flow {
    pub(super) fn new(
        transfer: Transfer,
        activity: Activity,
        ends: Ends,
        now: Nanos,
        cause: Cause,
    ) -> Self {
        let Transfer { stream, time, level, bytes, .. } = transfer;
        Self {
            activity,
            stream,
            bytes,
            ends,
            members: Vec::new(),
            start: now,
            end: now,
            cause,
            posted: now,
            level,
            left: time,
            since: now,
            share: 1,
            version: 0,
            is_active: false,
            missing: 0,
        }
    }
}

/// All transfers, and what of the links is in use.
pub(super) struct Flows {
    all: Vec<Flow>,
    /// Transfers under way, by link and direction; see [`Flows::links`].
    links: Vec<Few<FlowId>>,
    num_levels: usize,
    groups: Vec<Vec<u32>>,
    /// By group and member: how many of the group's transfers it has come to.
    joined: BTreeMap<(u32, u32), usize>,
    /// By group: its transfers, in order.
    of_group: BTreeMap<u32, Vec<FlowId>>,
}

impl Flows {
    pub(super) fn new(num_ranks: usize, work: &Work) -> Self {
        let stages = work.stages.iter();
        let levels = stages.flat_map(|stage| {
            let passes = [
                &stage.forward,
                &stage.backward,
                &stage.input_grad,
                &stage.weight_grad,
                &stage.update,
            ];
            let within = passes.into_iter().flatten().filter_map(|segment| match segment {
                crate::work::Segment::Start(transfer) => Some(transfer.level),
                _ => None,
            });
            let beside = stage.unshard.iter().chain(&stage.reduce);
            let messages = [&stage.send_forward, &stage.send_backward];
            within.chain(beside.chain(messages).map(|transfer| transfer.level))
        });
        let num_levels = 1 + levels.max().unwrap_or(0) as usize;
        Self {
            all: Vec::new(),
            links: vec![Few::new(); num_ranks * num_levels * 2],
            num_levels,
            groups: work.groups.clone(),
            joined: BTreeMap::new(),
            of_group: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, flow: Flow) -> FlowId {
        self.all.push(flow);
        self.all.len() as FlowId - 1
    }

    /// The transfer of a group that `rank` comes to next.
    pub(super) fn join(
        &mut self,
        group: u32,
        rank: u32,
        transfer: Transfer,
        activity: Activity,
        now: Nanos,
        cause: Cause,
    ) -> FlowId {
        let count = self.joined.entry((group, rank)).or_default();
        let nth = *count;
        *count += 1;
        if let Some(id) = self.of_group.get(&group).and_then(|flows| flows.get(nth)).copied() {
            let flow = &mut self.all[id as usize];
            flow.missing -= 1;
            // The last to come is the one that the others wait for.
            flow.cause = cause;
            flow.posted = now;
            return id;
        }
        let members = self.groups[group as usize].clone();
        let mut flow = Flow::new(transfer, activity, Ends::Group, now, cause);
        flow.missing = (members.len() as u32).saturating_sub(1);
        flow.members = members;
        let id = self.add(flow);
        self.of_group.entry(group).or_default().push(id);
        id
    }

    pub(super) fn get(&self, id: FlowId) -> &Flow {
        &self.all[id as usize]
    }

    pub(super) fn version(&self, id: FlowId) -> u32 {
        self.get(id).version
    }

    /// Whether all that take part have come to it.
    pub(super) fn is_complete(&self, id: FlowId) -> bool {
        self.get(id).missing == 0
    }

    /// The ranks that take part, each with the stream on which it does.
    pub(super) fn ends(&self, id: FlowId) -> Few<(usize, Stream)> {
        let flow = self.get(id);
        match flow.ends {
            Ends::Rank(rank) => smallvec![(rank as usize, flow.stream)],
            Ends::Message { from, to } => {
                smallvec![(from as usize, Stream::Send), (to as usize, Stream::Receive)]
            }
            Ends::Group => flow.members.iter().map(|rank| (*rank as usize, flow.stream)).collect(),
        }
    }

    /// What a message brings: the pass, stage and micro-batch whose result it is.
    pub(super) fn delivers(&self, id: FlowId) -> Option<(u32, u32, Pass)> {
        let action = self.get(id).activity.action();
        match self.get(id).activity.kind()? {
            ActionKind::SendForward => Some((action.stage, action.micro_batch, Pass::Forward)),
            ActionKind::SendBackward => Some((action.stage, action.micro_batch, Pass::Backward)),
            _ => None,
        }
    }

    /// Notes that a transfer waited for another, if it did.
    pub(super) fn follow(&mut self, id: FlowId, end: Nanos, last: FlowId) {
        let flow = &mut self.all[id as usize];
        if end > flow.posted {
            flow.cause = Cause::Transfer(last);
        }
    }

    pub(super) fn start(&mut self, id: FlowId, now: Nanos) -> Few<(Nanos, Event)> {
        let flow = &mut self.all[id as usize];
        flow.start = now;
        flow.since = now;
        flow.is_active = true;
        let links = self.links(id);
        let is_alone = links.iter().all(|link| self.links[*link].is_empty());
        for link in &links {
            self.links[*link].push(id);
        }
        if is_alone {
            let flow = &mut self.all[id as usize];
            flow.version += 1;
            let event = Event::Transferred { flow: id, version: flow.version };
            return smallvec![(now + flow.left, event)];
        }
        self.share(&links, now, Some(id))
    }

    pub(super) fn end(&mut self, id: FlowId, now: Nanos) -> Few<(Nanos, Event)> {
        let flow = &mut self.all[id as usize];
        flow.end = now;
        flow.is_active = false;
        flow.version += 1;
        let links = self.links(id);
        for link in &links {
            self.links[*link].retain(|other| *other != id);
        }
        if links.iter().all(|link| self.links[*link].is_empty()) {
            return Few::new();
        }
        self.share(&links, now, None)
    }

    /// Ends a transfer that crossed no link.
    pub(super) fn arrive(&mut self, id: FlowId, now: Nanos) {
        self.all[id as usize].end = now;
    }

    /// Gives all transfers on `links` their new share, and says when those whose share changed will be
    /// over.
    fn share(&mut self, links: &[usize], now: Nanos, new: Option<FlowId>) -> Few<(Nanos, Event)> {
        let mut affected: Few<FlowId> =
            links.iter().flat_map(|link| &self.links[*link]).copied().collect();
        affected.sort_unstable();
        affected.dedup();
        let mut events = Few::new();
        for id in affected {
            let share = self.links(id).into_iter().map(|link| self.links[link].len()).max();
            let share = share.unwrap_or(1).max(1) as u64;
            let flow = &mut self.all[id as usize];
            if share == flow.share && new != Some(id) {
                continue;
            }
            let elapsed = now - flow.since;
            flow.left = flow.left.saturating_sub(Nanos::new(elapsed.get() / flow.share));
            flow.since = now;
            flow.share = share;
            flow.version += 1;
            let event = Event::Transferred { flow: id, version: flow.version };
            events.push((now + flow.left * share, event));
        }
        events
    }

    /// The links that a transfer crosses: out of each rank and into each, at its level; of a message
    /// out of the one and into the other.
    fn links(&self, id: FlowId) -> Few<usize> {
        let flow = self.get(id);
        let link = |rank: u32, inward: usize| {
            (rank as usize * self.num_levels + flow.level as usize) * 2 + inward
        };
        match flow.ends {
            Ends::Rank(rank) => smallvec![link(rank, 0), link(rank, 1)],
            Ends::Message { from, to } => smallvec![link(from, 0), link(to, 1)],
            Ends::Group => {
                flow.members.iter().flat_map(|rank| [link(*rank, 0), link(*rank, 1)]).collect()
            }
        }
    }

    pub(super) fn into_vec(self) -> Vec<Flow> {
        self.all
    }
}
