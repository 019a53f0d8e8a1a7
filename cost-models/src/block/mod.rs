//! Passes of a block: its kernels on a device, its exchanges on a network, their overlap, and the activations that it
//! saves.
//!
//! [`BlockParts`] lists a pass part by part, and all else is derived from it: [`BlockPasses`] by simulating the parts
//! once, [`terms`] the same kernel by kernel.

mod cost;
mod eager;
mod expert_exchanges;
mod groups;
mod host;
mod overlap;
mod part;
mod parts;
mod play;
mod policy;
mod terms;

use ir::graph::{Block, BlockRecompute, LocalParameters, ShardContext, Sharding, Switches};
use ir::units::Bytes;

use crate::hardware::Hardware;
use cost::{BlockCost, ExpertTimes};
pub use expert_exchanges::ExpertExchanges;
pub use groups::Groups;
pub use overlap::least_exposed;
pub use part::{BlockPart, KernelSequence, TimedExchange};
pub use parts::BlockParts;
pub use play::{ByAxis, PassTime, PlayedExchange, played, played_together};
pub use policy::ByPolicy;
pub use terms::{Term, TermWork, terms};

/// Time and memory of one block of a class on one rank, for one micro-batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockPasses {
    /// Time of the forward pass.
    pub forward: PassTime,
    /// Time of both gradients, operator by operator.
    pub backward: PassTime,
    /// Time of the gradients of activations alone.
    pub input_grad: PassTime,
    /// Time of the gradients of parameters alone.
    pub weight_grad: PassTime,
    /// Time of recompute before the gradients, by policy.
    pub recompute: ByPolicy<PassTime>,
    /// Activations saved from forward to backward, in bytes, by policy.
    pub saved: ByPolicy<Bytes>,
    /// Part of `saved` that can be offloaded, in bytes, by policy; that of the ends of the chain is not used.
    pub offloadable: ByPolicy<Bytes>,
    /// Part of the input that is saved in addition where the block before is on another stage, or is recomputed while
    /// this one is not.
    pub shared: Bytes,
    /// Peak memory of gradients of activations within backward, less the part of `saved` that backward has freed by
    /// then.
    pub gradients: Bytes,
    /// Elements of the largest weight whose gradient one product computes, with experts counted singly; zero for the
    /// ends of the chain.
    pub largest_weight: u64,
    /// Bytes of the largest quantised weight, dequantised for a product.
    pub dequantised: Bytes,
    /// Parameters on the rank.
    pub parameters: LocalParameters,
    /// Bytes of the message to the next block, if that is on another stage.
    pub output: Bytes,
}

/// Memory of one block of a class on one rank, known without the times of kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockMemory {
    /// Parameters on the rank.
    pub parameters: LocalParameters,
    /// Activations saved from forward to backward, in bytes, by policy.
    pub saved: ByPolicy<Bytes>,
}

impl BlockMemory {
    /// Memory of `block`, sharded as `setting` says.
    pub fn new(
        block: &Block,
        setting: &ShardContext,
        groups: &Groups,
        hardware: &Hardware,
    ) -> Self {
        let work = block.work(setting);
        let cost = BlockCost::untimed(block, &work, setting, groups, hardware);
        Self { parameters: work.parameters, saved: ByPolicy::new(|policy| cost.saved(policy)) }
    }
}

impl BlockPasses {
    /// Simulates the passes of `block`, sharded as `setting` says, on `hardware`.
    pub fn new(
        block: &Block,
        setting: &ShardContext,
        groups: &Groups,
        hardware: &Hardware,
    ) -> Self {
        let work = block.work(setting);
        Self::of(&BlockCost::new(block, &work, setting, groups, hardware, ExpertTimes::Exact))
    }

    /// [`Self::new`] for each of several switches, which replace the setting's, in their order. All must have the
    /// setting's dispatcher: kernels depend on no other switch, and are timed once.
    pub fn with_switches(
        block: &Block,
        setting: &ShardContext,
        groups: &Groups,
        hardware: &Hardware,
        switches: &[Switches],
    ) -> Vec<Self> {
        let work = block.work(setting);
        let mut cost = BlockCost::new(block, &work, setting, groups, hardware, ExpertTimes::Exact);
        let with = |switches: &Switches| {
            cost.switches = *switches;
            Self::of(&cost)
        };
        switches.iter().map(with).collect()
    }

    /// Lower bounds for every expert-parallel degree: without exchanges between experts, and with each token at peak
    /// rate. Parameters are those of a rank that has all experts.
    pub fn least(
        block: &Block,
        setting: &ShardContext,
        groups: &Groups,
        hardware: &Hardware,
    ) -> Self {
        let sharding = Sharding { expert_parallel: 1, ..setting.sharding };
        let setting = ShardContext { sharding, ..*setting };
        let work = block.work(&setting);
        Self::of(&BlockCost::new(block, &work, &setting, groups, hardware, ExpertTimes::Least))
    }

    fn of(cost: &BlockCost<'_>) -> Self {
        let parts = BlockParts::of(cost);
        let play = |parts: &[BlockPart]| played(parts, cost.hardware.slowdown_per_mille(), |_| {});
        let work = cost.work;
        Self {
            forward: play(&parts.forward),
            backward: play(&parts.backward),
            input_grad: play(&parts.input_grad),
            weight_grad: play(&parts.weight_grad),
            recompute: ByPolicy::new(|policy| play(&parts.recompute[policy])),
            saved: ByPolicy::new(|policy| cost.saved(policy)),
            offloadable: ByPolicy::new(|policy| cost.offloadable(policy)),
            shared: work.shared_bytes(),
            gradients: cost.gradients(),
            largest_weight: work.largest_weight(),
            dequantised: work.dequantised,
            parameters: work.parameters,
            output: work.output,
        }
    }

    /// The block with no recompute under any policy.
    pub fn never_recomputed(self) -> Self {
        let saved = self.saved[BlockRecompute::None];
        Self {
            recompute: ByPolicy::default(),
            saved: ByPolicy::new(|policy| match policy {
                BlockRecompute::None => saved,
                _ => saved + self.shared,
            }),
            // Unlike those of layers, weight gradients of a vocabulary did not show in peak memory (SimuMax's runs).
            largest_weight: 0,
            ..self
        }
    }
}
