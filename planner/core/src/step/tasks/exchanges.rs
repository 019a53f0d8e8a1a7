//! Collectives of a transfer over replicas.

use ir::collective::Collective;
use ir::replication::DataParallelMethod;
use ir::schedule::ActionKind;
use ir::units::Bytes;
use simulator::{RankOp, Transfer};
use smallvec::smallvec;

use crate::step::replicas::{GroupExchange, GroupExchanges, Replicas};
use crate::step::work::Builder;

impl Replicas<'_> {
    /// Exchanges of replicas that are predicted as one time only, in words.
    pub(super) fn opaque(&self) -> Option<String> {
        if self.group().size == 1 {
            return None;
        }
        if self.method != DataParallelMethod::AllReduce {
            return Some(format!("replicas that exchange by `{}`", self.method));
        }
        let compression = self.compression.filter(|it| !it.is_reducible())?;
        Some(format!("gradients that are sent as {compression}"))
    }
}

impl Builder<'_> {
    /// Collectives of the `nth` transfer of an action, counted per collective: for dense parameters and for experts,
    /// each in order. Empty where there are only copies.
    pub(super) fn exchanges_of(
        &self,
        rank: usize,
        op: &RankOp,
        transfer: &Transfer,
        nth: usize,
    ) -> [GroupExchanges; 2] {
        let action = op.action();
        let none = || [GroupExchanges::new(), GroupExchanges::new()];
        if transfer.bytes == Bytes::ZERO {
            return none();
        }
        let collective = transfer.collective;
        if action.kind != ActionKind::OptimizerStep {
            return self.of_stage(action.stage as usize, transfer);
        }
        if collective == Collective::AllGather {
            let of = self.gathers_of(rank).nth(nth);
            return of.map_or_else(none, |(stage, _)| self.of_stage(stage as usize, transfer));
        }
        let held = &self.assignment.held[rank];
        let of = self.replicas_of(rank).partial_reductions(held).nth(nth);
        of.map_or_else(none, |(group, transfer)| {
            let bytes = transfer.bytes;
            [smallvec![GroupExchange { collective, group, bytes }], GroupExchanges::new()]
        })
    }

    /// Collectives of the transfer of one bucket of a stage.
    pub(super) fn of_stage(&self, stage: usize, transfer: &Transfer) -> [GroupExchanges; 2] {
        let holdings = &self.assignment.stages[stage].holdings;
        let Transfer { collective, bytes, .. } = *transfer;
        let replicas = self.replicas_with(stage);
        if replicas.compression.is_some() && collective == Collective::AllReduce {
            let group = replicas.group();
            return [smallvec![GroupExchange { collective, group, bytes }], GroupExchanges::new()];
        }
        let exchanges = replicas.group_exchanges(collective, holdings, self.buckets(stage));
        exchanges.map(|of| {
            of.into_iter().filter(|it| it.group.size > 1 && it.bytes > Bytes::ZERO).collect()
        })
    }
}
