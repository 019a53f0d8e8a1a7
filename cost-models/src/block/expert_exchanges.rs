//! Exchanges between the experts of a block, known without the times of kernels.

use ir::collective::Collective;
use ir::graph::{Axis, Block, BlockWork, Exchange, Pass, ShardContext, Sizes, TokenDispatcher};
use ir::units::{Bytes, Nanos, Seconds};

use super::cost::BlockCost;
use super::groups::Groups;
use crate::hardware::Hardware;

/// Number of sequences whose exchanges are kept: large, so that tokens rounded up for each expert are a negligible share.
const SEQUENCES: u64 = 1 << 16;

/// Factor that keeps lower bounds below the exact times, despite rounding.
const ROUNDING: f64 = 0.999;

/// Exchanges between the experts of one block, for any number of sequences in a micro-batch.
#[derive(Clone, Debug)]
pub struct ExpertExchanges {
    /// The exchanges of [`SEQUENCES`] sequences.
    of_many: Vec<Exchange>,
}

impl ExpertExchanges {
    /// The exchanges of `block`, sharded as `setting` says.
    pub fn new(block: &Block, setting: &ShardContext) -> Self {
        let sizes = Sizes { micro_batch_size: SEQUENCES, ..setting.sizes };
        let mut of_many = block.exchanges(&ShardContext { sizes, ..*setting });
        of_many.retain(|exchange| exchange.axis == Axis::Expert);
        Self { of_many }
    }

    /// Lower bounds of the time of the exchanges in forward and in backward, for the micro-batch of `setting`.
    pub fn least_times(
        &self,
        block: &Block,
        setting: &ShardContext,
        groups: &Groups,
        hardware: &Hardware,
    ) -> [Nanos; 2] {
        let work = BlockWork::default();
        let cost = BlockCost::untimed(block, &work, setting, groups, hardware);
        let share = setting.sizes.micro_batch_size as f64 / SEQUENCES as f64;
        let time = |exchange: &Exchange| {
            let bytes = Bytes::from_f64(exchange.bytes.as_f64() * share * ROUNDING);
            cost.exchange(&Exchange { bytes, ..*exchange }) * ROUNDING
        };
        let of = |is_forward: bool| -> Seconds {
            let which = self.of_many.iter().filter(|it| (it.pass == Pass::Forward) == is_forward);
            which.map(time).sum()
        };
        [true, false].map(|is_forward| of(is_forward).into())
    }
}

impl BlockCost<'_> {
    /// The collective by which an exchange is made, with its bytes; `None` for a dispatch that sends each token once.
    pub(super) fn collective_of(&self, exchange: &Exchange) -> Option<(Collective, Bytes)> {
        let group = self.groups.along(exchange.axis);
        let dispatcher = self.dispatcher();
        match exchange.collective {
            Collective::AllToAll if exchange.axis == Axis::Expert => match dispatcher {
                _ if dispatcher.sends_tokens_once() => None,
                TokenDispatcher::AllGather => {
                    let all = exchange.bytes.shard(self.top_k()) * u64::from(group.size);
                    Some((Collective::AllGather, all))
                }
                _ => Some((Collective::AllToAll, exchange.bytes)),
            },
            collective => Some((collective, self.exchanged_bytes(exchange))),
        }
    }
}
