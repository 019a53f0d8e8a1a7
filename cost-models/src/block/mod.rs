//! What a block does in each pass: its kernels on a device, its exchanges on a network, what runs beside
//! what, and what it keeps.
//!
//! [`BlockParts`] states it, part by part; all else follows from that: [`BlockPasses`] are its parts played
//! through once, [`terms`] the same kernel by kernel.

mod coster;
mod eager;
mod groups;
mod overlap;
mod part;
mod parts;
mod play;
mod policy;
mod terms;

use ir::graph::{Block, BlockRecompute, LocalParameters, Setting, Sharding};
use ir::units::Bytes;

use crate::hardware::Hardware;
use coster::{Coster, ExpertTimes};
pub use groups::Groups;
pub use part::{Kernels, Part, TimedExchange};
pub use parts::BlockParts;
pub use play::{ByAxis, PassTime, PlayedExchange, played, played_together};
pub use policy::ByPolicy;
pub use terms::{Term, TermWork, terms};

/// What one block of a class costs one rank for one micro-batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockPasses {
    /// From input to output.
    pub forward: PassTime,
    /// Both gradients, operator by operator.
    pub backward: PassTime,
    /// Gradients of activations alone.
    pub input_grad: PassTime,
    /// Gradients of parameters alone.
    pub weight_grad: PassTime,
    /// What a policy runs again before the gradients.
    pub recompute: ByPolicy<PassTime>,
    /// What a policy keeps from forward to backward.
    pub saved: ByPolicy<Bytes>,
    /// The largest tensor that an operator puts out.
    pub largest_tensor: Bytes,
    /// Elements of the largest weight whose gradient one product makes; of experts, of one; none for the
    /// ends of the chain.
    pub largest_weight: u64,
    /// The largest weight that is made from a quantised one for a product.
    pub dequantised: Bytes,
    /// Parameters held.
    pub parameters: LocalParameters,
    /// The message to the next block, if it is on another stage.
    pub output: Bytes,
}

/// What one block of a class holds on one rank: known without the time of any kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockMemory {
    /// Parameters held.
    pub parameters: LocalParameters,
    /// What a policy keeps from forward to backward.
    pub saved: ByPolicy<Bytes>,
}

impl BlockMemory {
    /// That of `block` in `setting`.
    pub fn new(block: &Block, setting: &Setting, groups: &Groups, hardware: &Hardware) -> Self {
        let work = block.work(setting);
        let coster = Coster::untimed(block, &work, setting, groups, hardware);
        Self { parameters: work.parameters, saved: ByPolicy::new(|policy| coster.saved(policy)) }
    }
}

impl BlockPasses {
    /// Plays the passes of `block` in `setting` on `hardware`.
    pub fn new(block: &Block, setting: &Setting, groups: &Groups, hardware: &Hardware) -> Self {
        Self::with(block, setting, groups, hardware, ExpertTimes::Exact)
    }

    /// What they take at least, however experts are spread over ranks: nothing is exchanged between these,
    /// and each token is computed at the peak. Parameters are those of a rank that has all experts.
    pub fn least(block: &Block, setting: &Setting, groups: &Groups, hardware: &Hardware) -> Self {
        let sharding = Sharding { expert_parallel: 1, ..setting.sharding };
        let setting = Setting { sharding, ..*setting };
        Self::with(block, &setting, groups, hardware, ExpertTimes::Least)
    }

    fn with(
        block: &Block,
        setting: &Setting,
        groups: &Groups,
        hardware: &Hardware,
        experts: ExpertTimes,
    ) -> Self {
        let work = block.work(setting);
        let coster = Coster::new(block, &work, setting, groups, hardware, experts);
        let parts = BlockParts::of(&coster);
        let play = |parts: &[Part]| played(parts, hardware.slowdown_per_mille(), |_| {});
        Self {
            forward: play(&parts.forward),
            backward: play(&parts.backward),
            input_grad: play(&parts.input_grad),
            weight_grad: play(&parts.weight_grad),
            recompute: ByPolicy::new(|policy| play(&parts.recompute[policy])),
            saved: ByPolicy::new(|policy| coster.saved(policy)),
            largest_tensor: coster.largest_tensor(),
            largest_weight: work.largest_weight(),
            dequantised: work.dequantised,
            parameters: work.parameters,
            output: work.output,
        }
    }

    /// The same block where no policy recomputes it.
    pub fn never_recomputed(self) -> Self {
        let saved = self.saved[BlockRecompute::None];
        Self {
            recompute: ByPolicy::default(),
            saved: ByPolicy::new(|_| saved),
            // Nor was the gradient of a vocabulary's weight seen at the peak (SimuMax's runs), as a layer's is.
            largest_weight: 0,
            ..self
        }
    }
}
