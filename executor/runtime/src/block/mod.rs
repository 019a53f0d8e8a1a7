//! One block of the model on one rank: its operators forward and backward, with the collectives that
//! stand between them.

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
use ir::collective::Collective;
use ir::graph::{ContextParallelKind, OpId, Pass, Placement, Rotation};
use ir::layout::LayoutSpec;
use ir::model::Numerics;
use ir::schedule::Action;

use traces::timeline::Activity;

use crate::gradient::Gradient;
use crate::mesh::MeshPosition;
use crate::probe::Probe;
use crate::recorder::Recorder;
use crate::weight::Weight;

pub(crate) use program::BlockProgram;
use program::Key;
use value::Extra;
pub(crate) use value::{Further, MicroBatch, SharedMicroBatch, Value};

/// Tables of angles by rotation, features of a head, and whether for a part of the rank's positions.
type Angles<B> = RefCell<BTreeMap<(Rotation, usize, bool), Arc<Rotary<B>>>>;

/// What the blocks of a rank share.
pub(crate) struct Env<B: Kernels> {
    pub(crate) communicator: Arc<dyn Communicator<B>>,
    pub(crate) layout: LayoutSpec,
    pub(crate) place: MeshPosition,
    pub(crate) tensor: Group,
    pub(crate) expert_tensor: Group,
    pub(crate) context: Group,
    pub(crate) expert: Group,
    /// What activations and the weights that kernels read are made of.
    pub(crate) element: Element,
    pub(crate) device: B::Device,
    pub(crate) numerics: Numerics,
    /// Which random numbers.
    pub(crate) seed: u64,
    /// Sequences in a micro-batch.
    pub(crate) micro_batch_size: usize,
    /// Tokens in a sequence.
    pub(crate) sequence_length: usize,
    /// The parts of each sequence that the rank has.
    pub(crate) segments: Vec<Range<usize>>,
    /// The gradient of the step's loss with respect to one target's loss, times the loss scale.
    pub(crate) gradient_scale: Cell<f64>,
    /// Angles at the positions that the rank has.
    pub(crate) rotary: Angles<B>,
    /// Layers with a mixture of experts in the whole model.
    pub(crate) num_mixtures: usize,
    /// The most tokens that an expert takes, over its even share.
    pub(crate) expert_capacity_factor: Option<f64>,
    /// The losses that balance the load of experts in this step, each times the targets that it is for.
    pub(crate) auxiliary_losses: RefCell<Vec<Array<B>>>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) probe: Probe,
    /// What the rank is in the midst of.
    pub(crate) action: Cell<Action>,
}

/// Shares of each sequence that rank `context` of `degree` has. In a ring the `context`th part from the front
/// and from the back, so that all have as many visible pairs of a causal mask; the plain part where heads are
/// exchanged for positions, or the length does not divide so.
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
        return vec![crate::mesh::part(length, degree, context)];
    }
    let half = length / (2 * degree);
    let from_back = 2 * degree - 1 - context;
    [context, from_back].into_iter().map(|part| part * half..(part + 1) * half).collect()
}

impl<B: Kernels> Env<B> {
    /// What a collective of replicas is on the timeline.
    pub(crate) fn of_replicas(&self, collective: Collective) -> Activity {
        Activity::Collective { collective, action: self.action.get() }
    }

    /// The positions of the tokens that the rank has, in the order in which it has them.
    pub(crate) fn positions(&self) -> Vec<u32> {
        self.segments.iter().flat_map(|part| part.clone().map(|p| p as u32)).collect()
    }
}

/// What a block keeps of a micro-batch from forward to backward.
#[derive(Debug)]
pub(crate) struct SavedActivations<B: Kernels> {
    values: BTreeMap<Key, Value<B>>,
    /// Tensors on their way to where they are wanted.
    in_flight: BTreeMap<Key, InFlight<Array<B>>>,
    extras: BTreeMap<OpId, Extra<B>>,
    /// Gradients of the outputs of operators whose weight gradients are still to be computed.
    pending: Vec<(OpId, Value<B>)>,
    /// Gradients of parameters that came with those of inputs, by operator.
    of_parameters: BTreeMap<OpId, Vec<(usize, Array<B>)>>,
    micro_batch: SharedMicroBatch<B>,
}

impl<B: Kernels> SavedActivations<B> {
    /// Bytes of all tensors kept.
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

/// Takes the gradient of a parameter: its operator, which of its parameters, and the gradient.
pub(crate) type Gradients<'a, B> = dyn FnMut(OpId, usize, Gradient<B>) + 'a;

/// A block with the weights that it reads, by operator and parameter.
pub(crate) struct BlockRun<'a, B: Kernels> {
    pub(crate) program: &'a BlockProgram,
    pub(crate) env: &'a Env<B>,
    pub(crate) weights: &'a [Vec<Weight<B>>],
    /// Its number in the chain.
    pub(crate) number: usize,
}

impl<B: Kernels> BlockRun<'_, B> {
    fn weight(&self, id: OpId, name: &str) -> Option<Array<B>> {
        let index = self.program.op(id).parameters.iter().position(|p| p.name == name)?;
        Some(self.weights[id.index()][index].array())
    }

    /// Operator `id` is done in a pass.
    fn lap(&self, id: OpId, pass: Pass) {
        self.env.probe.lap::<B>(&self.env.device, self.number, id, pass);
    }

    fn wanted(&self, id: OpId, slot: usize) -> Placement {
        self.program.placements.wanted[id.index()][slot]
    }

    /// Whether this rank adds what only one summand of a partial sum may hold.
    fn adds_bias(&self, id: OpId) -> bool {
        let is_routed = self.program.op(id).output.is_routed();
        let place = self.env.place;
        let summand = if is_routed { place.expert_tensor } else { place.tensor };
        self.program.placements.outputs[id.index()] != Placement::Partial || summand == 0
    }
}

type Result<T> = std::result::Result<T, CommunicationError>;
