//! One block of the model on one rank: its operators forward and backward, with the collectives between them.

mod attention;
mod backward;
mod dropout;
mod experts;
mod forward;
mod head_exchange;
mod loss;
mod moves;
mod norm;
mod parts;
mod program;
mod recurrence;
mod routed;
mod value;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use executor_communicators::{CommunicationError, Communicator, Group, InFlight};
use executor_kernels::array::{Array, Element};
use executor_kernels::ops::Kernels;
use executor_kernels::ops::rotary::Rotary;
use ir::graph::{ContextParallelKind, OpId, Pass, Placement, Rotation};
use ir::layout::LayoutSpec;
use ir::model::Numerics;
use ir::schedule::Action;

use crate::gradient::Gradient;
use crate::mesh::{MeshPosition, part};
use crate::probe::Probe;
use crate::recorder::Recorder;
use crate::weight::Weight;

pub(crate) use program::BlockProgram;
use program::Key;
use value::Extra;
pub(crate) use value::{Further, MicroBatch, SharedMicroBatch, Value};

/// Tables of angles by rotation, features of a head, and whether the positions are sharded by sequence parallelism.
type Angles<B> = RefCell<BTreeMap<(Rotation, usize, bool), Arc<Rotary<B>>>>;

/// State that the blocks of a rank share.
pub(crate) struct Env<B: Kernels> {
    pub(crate) communicator: Arc<dyn Communicator<B>>,
    pub(crate) layout: LayoutSpec,
    pub(crate) place: MeshPosition,
    pub(crate) tensor: Group,
    pub(crate) expert_tensor: Group,
    pub(crate) context: Group,
    pub(crate) expert: Group,
    /// Element type of activations, and of the weights that kernels read.
    pub(crate) element: Element,
    pub(crate) device: B::Device,
    pub(crate) numerics: Numerics,
    /// Seed of the random numbers.
    pub(crate) seed: u64,
    /// Sequences in a micro-batch.
    pub(crate) micro_batch_size: usize,
    /// Tokens in a sequence.
    pub(crate) sequence_length: usize,
    /// The rank's segments of each sequence.
    pub(crate) segments: Vec<Range<usize>>,
    /// The gradient of the step's loss with respect to one target's loss, times the loss scale.
    pub(crate) gradient_scale: Cell<f64>,
    /// Tables of angles at the rank's positions.
    pub(crate) rotary: Angles<B>,
    /// Layers with a mixture of experts in the whole model.
    pub(crate) num_mixtures: usize,
    /// Capacity of an expert in tokens, as a multiple of its even share.
    pub(crate) expert_capacity_factor: Option<f64>,
    /// The load-balancing losses of this step, each times the number of targets.
    pub(crate) auxiliary_losses: RefCell<Vec<Array<B>>>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) probe: Probe,
    /// The current action of the rank.
    pub(crate) action: Cell<Action>,
}

/// Segments of each sequence that rank `context` of `degree` has. In a ring, these are part `context` from the front
/// and part `context` from the back, so that ranks have equal numbers of visible pairs under a causal mask. Where heads
/// are exchanged, or the length is not divisible by twice the degree, it is one contiguous part.
///
/// # Source
///
/// Megatron-LM's context parallelism, and Llama 3 (arXiv 2407.21783, section 3.3.2).
pub(crate) fn segments(
    length: usize,
    kind: ContextParallelKind,
    degree: usize,
    context: usize,
) -> Vec<Range<usize>> {
    let is_ring = kind == ContextParallelKind::Ring;
    if degree == 1 || !is_ring || !length.is_multiple_of(2 * degree) {
        return vec![part(length, degree, context)];
    }
    let half = length / (2 * degree);
    let from_back = 2 * degree - 1 - context;
    [context, from_back].into_iter().map(|part| part * half..(part + 1) * half).collect()
}

impl<B: Kernels> Env<B> {
    /// The segments of all context-parallel ranks, rank by rank.
    pub(crate) fn all_segments(&self) -> Vec<Range<usize>> {
        let (length, degree) = (self.sequence_length, self.context.len());
        let kind = self.layout.context_parallel_kind;
        (0..degree).flat_map(|rank| segments(length, kind, degree, rank)).collect()
    }

    /// The rank's part of `size` items that tensor-parallel ranks share.
    fn tensor_part(&self, size: usize) -> Range<usize> {
        part(size, self.tensor.len(), self.place.tensor as usize)
    }

    /// The positions of the rank's tokens, in the rank's order.
    pub(crate) fn positions(&self) -> Vec<u32> {
        self.segments.iter().flat_map(|part| part.clone().map(|p| p as u32)).collect()
    }
}

/// Activations that a rank saves of one block for a micro-batch, from forward to backward.
#[derive(Debug)]
pub(crate) struct SavedActivations<B: Kernels> {
    values: BTreeMap<Key, Value<B>>,
    /// Gathers in flight to the placements in which tensors are taken.
    in_flight: BTreeMap<Key, InFlight<Array<B>>>,
    extras: BTreeMap<OpId, Extra<B>>,
    /// Output gradients of operators whose weight gradients are not yet computed.
    pending: Vec<(OpId, Value<B>)>,
    /// Gradients of parameters that were computed together with the gradients of inputs, by operator.
    of_parameters: BTreeMap<OpId, Vec<(usize, Array<B>)>>,
    micro_batch: SharedMicroBatch<B>,
}

impl<B: Kernels> SavedActivations<B> {
    /// Bytes of all saved tensors.
    pub(crate) fn num_bytes(&self) -> u64 {
        let pending = self.pending.iter().map(|(_, gradient)| gradient);
        let values = self.values.values().chain(pending).map(Value::num_bytes).sum::<u64>();
        let of_parameters = self.of_parameters.values().flatten();
        let of_parameters = of_parameters.map(|(_, gradient)| gradient.num_bytes()).sum::<u64>();
        values + of_parameters + self.extras.values().map(Extra::num_bytes).sum::<u64>()
    }

    fn new(micro_batch: SharedMicroBatch<B>) -> Self {
        Self {
            values: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            extras: BTreeMap::new(),
            pending: Vec::new(),
            of_parameters: BTreeMap::new(),
            micro_batch,
        }
    }
}

/// Receives the gradient of a parameter: its operator, its index within the operator, and the gradient.
pub(crate) type Gradients<'a, B> = dyn FnMut(OpId, usize, Gradient<B>) + 'a;

/// A block with its weights, by operator and parameter.
pub(crate) struct BlockRun<'a, B: Kernels> {
    pub(crate) program: &'a BlockProgram,
    pub(crate) env: &'a Env<B>,
    pub(crate) weights: &'a [Vec<Weight<B>>],
    /// Index of the block in the chain.
    pub(crate) number: usize,
}

impl<B: Kernels> BlockRun<'_, B> {
    fn weight(&self, id: OpId, name: &str) -> Option<Array<B>> {
        let index = self.program.op(id).parameters.iter().position(|p| p.name == name)?;
        Some(self.weights[id.index()][index].array())
    }

    /// Records the time of operator `id` in a pass.
    fn lap(&self, id: OpId, pass: Pass) {
        self.env.probe.lap::<B>(&self.env.device, self.number, id, pass);
    }

    fn wanted(&self, id: OpId, slot: usize) -> Placement {
        self.program.placements.wanted[id.index()][slot]
    }

    /// Returns whether this rank adds the bias, which only one summand of a partial sum may have.
    fn adds_bias(&self, id: OpId) -> bool {
        let is_routed = self.program.op(id).output.is_routed();
        let place = self.env.place;
        let summand = if is_routed { place.expert_tensor } else { place.tensor };
        self.program.placements.outputs[id.index()] != Placement::Partial || summand == 0
    }
}

type Result<T> = std::result::Result<T, CommunicationError>;
