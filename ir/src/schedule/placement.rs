//! Placement of stages on ranks.

use super::{Action, ScheduleStep};

/// Map from stage and micro-batch to the rank that runs it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StagePlacement {
    /// Stage `s` on rank `s mod p`: round robin.
    Loop,
    /// The stages go down the ranks and up again, so that the first stage and the last of two rounds are on the same
    /// rank.
    V,
    /// The same number of stages as ranks, each on two ranks: even micro-batches run down the ranks, stage `s` on rank
    /// `s`; odd ones run up, stage `s` on rank `p - 1 - s`. So each rank has two stages, and there are two copies of
    /// the parameters (`DualPipe`).
    Bidirectional,
    /// The rank of each stage.
    Table(Vec<u32>),
}

impl StagePlacement {
    /// The rank, of `num_ranks`, that runs `stage` for `micro_batch`; `None` if the placement has no such stage.
    pub fn rank(&self, num_ranks: u32, stage: u32, micro_batch: u32) -> Option<u32> {
        let (round, place) = (stage.checked_div(num_ranks)?, stage.checked_rem(num_ranks)?);
        match self {
            Self::Loop => Some(place),
            Self::V if round.is_multiple_of(2) => Some(place),
            Self::V => Some(num_ranks - 1 - place),
            Self::Bidirectional if round > 0 => None,
            Self::Bidirectional if micro_batch.is_multiple_of(2) => Some(place),
            Self::Bidirectional => Some(num_ranks - 1 - place),
            Self::Table(ranks) => ranks.get(stage as usize).copied(),
        }
    }

    /// Number of ranks that hold each stage: micro-batches alternate among them.
    pub const fn num_copies(&self) -> u32 {
        match self {
            Self::Bidirectional => 2,
            Self::Loop | Self::V | Self::Table(_) => 1,
        }
    }

    /// The ranks that hold `stage`, one for each copy; empty if the placement has no such stage.
    pub fn ranks(&self, num_ranks: u32, stage: u32) -> impl Iterator<Item = u32> {
        (0..self.num_copies()).filter_map(move |copy| self.rank(num_ranks, stage, copy))
    }

    /// The stages, of `num_stages`, that `rank` holds, in the order of the model.
    pub fn stages(&self, num_ranks: u32, num_stages: u32, rank: u32) -> impl Iterator<Item = u32> {
        let mirror = (num_ranks - 1).saturating_sub(rank);
        let table = match self {
            Self::Table(ranks) => ranks.as_slice(),
            Self::Loop | Self::V | Self::Bidirectional => &[],
        };
        let listed = (0..).zip(table).filter(move |(_, other)| **other == rank);
        let rounds = if table.is_empty() { num_stages.div_ceil(num_ranks) } else { 0 };
        let placed = (0..rounds).flat_map(move |round: u32| {
            let places = match self {
                Self::Bidirectional if rank == mirror => [Some(rank), None],
                Self::Bidirectional => [Some(rank.min(mirror)), Some(rank.max(mirror))],
                Self::V if round % 2 == 1 => [Some(mirror), None],
                Self::V | Self::Loop | Self::Table(_) => [Some(rank), None],
            };
            places.into_iter().flatten().map(move |place| round * num_ranks + place)
        });
        let all = listed.map(|(stage, _)| stage).chain(placed);
        all.filter(move |stage| *stage < num_stages)
    }

    /// The simplest placement that agrees with the ranks of the actions: loop, V, both directions, or else a table
    /// with the first rank of each stage.
    pub fn infer(ranks: &[Vec<ScheduleStep>]) -> Self {
        let p = ranks.len() as u32;
        let placed = || {
            let ranks = ranks.iter().zip(0..);
            ranks.flat_map(|(steps, rank)| actions(steps).map(move |action| (rank, action)))
        };
        let agrees = |placement: &Self| {
            placed().all(|(rank, action)| {
                // A stage on two ranks is gathered, reduced and updated on both.
                let known = placement.rank(p, action.stage, action.micro_batch);
                let other = placement.rank(p, action.stage, action.micro_batch.wrapping_add(1));
                known == Some(rank) || (!action.kind.has_micro_batch() && other == Some(rank))
            })
        };
        if let Some(known) = [Self::Loop, Self::V, Self::Bidirectional].into_iter().find(agrees) {
            return known;
        }
        let num_stages = placed().map(|(_, action)| action.stage as usize + 1).max().unwrap_or(0);
        if num_stages > placed().count() {
            return Self::Loop; // Stages are missing, which the check will say.
        }
        let mut table = vec![None; num_stages];
        for (rank, action) in placed() {
            table[action.stage as usize].get_or_insert(rank);
        }
        Self::Table(table.into_iter().map(Option::unwrap_or_default).collect())
    }
}

fn actions(steps: &[ScheduleStep]) -> impl Iterator<Item = Action> {
    steps.iter().flat_map(|step| step.actions())
}
