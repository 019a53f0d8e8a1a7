//! Orders are right exactly where they can be played: against a player that knows nothing but what each action needs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ir::schedule::{
    Action, ActionKind, Schedule, ScheduleKind, ScheduleStep, Sends, add_communication, check,
    generate,
};
use proptest::prelude::*;

use super::families::fitting;

/// A schedule's actions, which are played one at a time by any rank that can.
struct Player<'a> {
    ranks: &'a [Vec<Action>],
    num_stages: u32,
    communicates: bool,
    done: BTreeSet<(u32, u32, &'static str)>,
    /// Messages that are on their way, by who sends to whom.
    on_the_way: BTreeMap<(usize, usize), VecDeque<Action>>,
}

impl Player<'_> {
    fn rank_of(&self, action: Action) -> Option<usize> {
        self.ranks.iter().position(|rank| rank.contains(&action))
    }

    /// Whether what an action needs of its own rank and, without messages, of others is there.
    fn may_run(&self, rank: usize, action: Action) -> bool {
        let Action { stage, micro_batch, kind } = action;
        let is_done = |stage: u32, what| self.done.contains(&(stage, micro_batch, what));
        let is_here = |stage: u32| {
            self.ranks[rank].iter().any(|other| {
                other.stage == stage && other.micro_batch == micro_batch && !other.kind.is_message()
            })
        };
        let last = self.num_stages - 1;
        let receives = |other: u32| self.communicates && !is_here(other);
        match kind {
            ActionKind::Forward if stage == 0 => true,
            ActionKind::Forward if receives(stage - 1) => is_done(stage, "received forward"),
            ActionKind::Forward => is_done(stage - 1, "forward"),
            ActionKind::Backward | ActionKind::InputGrad => {
                let gradient = match stage {
                    stage if stage == last => true,
                    stage if receives(stage + 1) => is_done(stage, "received backward"),
                    stage => is_done(stage + 1, "backward"),
                };
                is_done(stage, "forward") && gradient
            }
            ActionKind::WeightGrad => is_done(stage, "backward"),
            ActionKind::SendForward => is_done(stage, "forward"),
            ActionKind::SendBackward => is_done(stage, "backward"),
            _ => true,
        }
    }

    fn finish(&mut self, Action { stage, micro_batch, kind }: Action) {
        let what = match kind {
            ActionKind::Forward => "forward",
            ActionKind::Backward | ActionKind::InputGrad => "backward",
            ActionKind::RecvForward => "received forward",
            ActionKind::RecvBackward => "received backward",
            _ => return,
        };
        self.done.insert((stage, micro_batch, what));
    }

    /// Whether all ranks come to their ends.
    fn plays(mut self, sends: Sends) -> bool {
        let mut next = vec![0; self.ranks.len()];
        loop {
            let mut moved = false;
            for rank in 0..self.ranks.len() {
                let Some(&action) = self.ranks[rank].get(next[rank]) else { continue };
                if !self.may_run(rank, action) {
                    continue;
                }
                let other = partner(action);
                let peer = other.and_then(|other| self.rank_of(other));
                match (other, peer) {
                    (Some(other), Some(peer)) if sends == Sends::Blocking => {
                        let meets = self.ranks[peer].get(next[peer]) == Some(&other);
                        if !meets || !self.may_run(peer, other) {
                            continue;
                        }
                        next[peer] += 1;
                        self.finish(other);
                    }
                    (Some(_), Some(peer)) if action.kind.is_send() => {
                        self.on_the_way.entry((rank, peer)).or_default().push_back(action);
                    }
                    (Some(other), Some(peer)) => {
                        match self.on_the_way.entry((peer, rank)).or_default().pop_front() {
                            None => continue,
                            Some(sent) if sent != other => return false,
                            Some(_) => {}
                        }
                    }
                    _ => {}
                }
                self.finish(action);
                next[rank] += 1;
                moved = true;
            }
            if !moved {
                return next.iter().zip(self.ranks).all(|(next, rank)| *next == rank.len());
            }
        }
    }
}

/// The other half of a message.
fn partner(action: Action) -> Option<Action> {
    let (kind, stage) = match action.kind {
        ActionKind::SendForward => (ActionKind::RecvForward, action.stage + 1),
        ActionKind::RecvForward => (ActionKind::SendForward, action.stage - 1),
        ActionKind::SendBackward => (ActionKind::RecvBackward, action.stage - 1),
        ActionKind::RecvBackward => (ActionKind::SendBackward, action.stage + 1),
        _ => return None,
    };
    Some(Action { kind, stage, ..action })
}

/// A family's order, of which some steps of a rank have changed places, most with their neighbours, or are left out.
fn shuffled(
    schedule: &Schedule,
    swaps: &[(usize, usize, usize)],
    left_out: Option<(usize, usize)>,
) -> Vec<Vec<Action>> {
    let actions =
        |steps: &Vec<ScheduleStep>| steps.iter().flat_map(|step| step.actions()).collect();
    let mut ranks: Vec<Vec<Action>> = schedule.ranks().iter().map(actions).collect();
    for (rank, one, further) in swaps {
        let rank = rank % ranks.len();
        let length = ranks[rank].len();
        let one = one % length;
        let other = if *further < 20 { one + 1 } else { one + further };
        ranks[rank].swap(one, other % length);
    }
    if let Some((rank, at)) = left_out {
        let rank = rank % ranks.len();
        let at = at % ranks[rank].len();
        ranks[rank].remove(at);
    }
    ranks
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn orders_that_are_right_are_those_that_play(
        kind in 0_usize..14, p in 1_u32..5, m in 1_u32..5, v in 1_u32..4, communicates in any::<bool>(),
        swaps in prop::collection::vec((0_usize..8, 0_usize..400, 0_usize..24), 0..5),
        left_out in prop::option::weighted(0.2, (0_usize..8, 0_usize..400)),
    ) {
        let kind = ScheduleKind::ALL[kind];
        if kind.placement().num_copies() > 1 {
            return Ok(());
        }
        let (p, m, v) = fitting(kind, p, m, v);
        let plain = generate(kind, p, m, v).unwrap();
        let schedule = if communicates { add_communication(&plain) } else { plain };
        let ranks = shuffled(&schedule, &swaps, left_out);
        let play = |sends| {
            let player = Player {
                ranks: &ranks,
                num_stages: p * v,
                communicates: communicates && p > 1,
                done: BTreeSet::new(),
                on_the_way: BTreeMap::new(),
            };
            player.plays(sends)
        };
        let steps = ranks.iter().map(|rank| rank.iter().map(|it| ScheduleStep::One(*it)).collect());
        let made = Schedule::new(steps.collect(), schedule.placement().clone(), m);
        let is_whole = left_out.is_none();
        prop_assert_eq!(made.is_ok(), is_whole && play(Sends::NonBlocking), "{:?}", made);
        if let Ok(made) = made {
            let blocking = check(&made, Sends::Blocking);
            prop_assert_eq!(blocking.is_ok(), play(Sends::Blocking), "{:?}", blocking);
        }
    }
}
