//! Construction of a rank: its units, stages and layers.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use executor_communicators::{Communicator, Group};
use executor_kernels::ops::Kernels;
use ir::graph::Op;
use ir::layout::ZeroStage;
use ir::replication::DataParallelMethod;
use ir::schedule::{Action, ActionKind};

use super::layers::layers;
use super::{LocalStage, Rank, UnitAt, WeightAt};
use crate::batches::Source;
use crate::block::{Env, segments};
use crate::flat_parameter::{FlatParameterPlan, Role};
use crate::frozen::FrozenParameterPlan;
use crate::host::Host;
use crate::mesh::{MeshPosition, ReplicaGroups};
use crate::optimizer::num_moments;
use crate::parameters::{LocalParameter, Sharing, is_expert};
use crate::probe::Probe;
use crate::program::Program;
use crate::recorder::Recorder;
use crate::reducer::Reducer;
use crate::scaler::Scaler;

impl<B: Kernels> Rank<B> {
    /// The rank of `program` whose messages `communicator` carries, with the values that `values` gives for each
    /// parameter's part.
    ///
    /// # Errors
    ///
    /// Errors of `values`.
    pub fn new<E>(
        program: Arc<Program>,
        source: Arc<Source>,
        communicator: Arc<dyn Communicator<B>>,
        device: B::Device,
        mut values: impl FnMut(&LocalParameter) -> Result<Vec<f64>, E>,
    ) -> Result<Self, E> {
        let layout = program.layout;
        let place = MeshPosition::new(&layout, communicator.rank());
        let recorder = Arc::new(Recorder::new());
        let settings = &program.settings;
        let length = program.sequence_length as usize;
        let degree = layout.context_parallel as usize;
        let env = Env {
            tensor: place.tensor_group(&layout),
            expert_tensor: place.expert_tensor_group(&layout),
            context: place.context_group(&layout),
            expert: place.expert_group(&layout),
            element: settings.compute,
            numerics: program.numerics,
            seed: settings.seed,
            micro_batch_size: layout.micro_batch_size as usize,
            sequence_length: length,
            segments: segments(
                length,
                layout.context_parallel_kind,
                degree,
                place.context as usize,
            ),
            num_mixtures: program.num_mixtures(),
            expert_capacity_factor: settings.expert_capacity_factor,
            auxiliary_losses: RefCell::default(),
            probe: Probe::default(),
            gradient_scale: Cell::new(0.0),
            rotary: RefCell::new(BTreeMap::new()),
            recorder: Arc::clone(&recorder),
            action: Cell::new(Action { stage: 0, kind: ActionKind::Forward, micro_batch: 0 }),
            communicator: Arc::clone(&communicator),
            device,
            layout,
            place,
        };
        let Plans { trained, frozen, stages } = plans(&program, &place);
        let host = layout
            .offload
            .is_some()
            .then(|| Arc::new(Host::new(place.rank, Arc::clone(&recorder), env.device.clone())));
        let moments = num_moments(settings.optimizer.kind);
        let elements = [settings.compute, settings.master, settings.moments];
        let units = trained
            .into_iter()
            .enumerate()
            .map(|(number, plan)| {
                plan.build(number, moments, elements, (&env.device, host.as_ref()), &mut values)
            })
            .collect::<Result<_, E>>()?;
        let frozen = frozen.into_iter();
        let frozen = frozen
            .map(|plan| plan.build(settings.compute, &env.device, &mut values))
            .collect::<Result<_, E>>()?;
        let mut rank = Self {
            reducer: Reducer::new(
                communicator,
                recorder,
                settings,
                host.clone().filter(|_| layout.offload.optimizer),
            ),
            layers: Vec::new(),
            scaler: Scaler::new(settings.loss_scaling),
            program,
            source,
            env,
            units,
            frozen,
            stages,
            inbox: BTreeMap::new(),
            outbox: BTreeMap::new(),
            kept: BTreeMap::new(),
            micro_batches: BTreeMap::new(),
            gathering: BTreeMap::new(),
            losses: Vec::new(),
            uses_left: Vec::new(),
            held_stages: BTreeSet::new(),
            loss_scale: 1.0,
            own_norm: 0.0,
            num_steps: 0,
            peak_memory: 0,
            peak_host_memory: 0,
        };
        rank.layers = layers(&mut rank, host.as_ref());
        Ok(rank)
    }
}

/// The units and stages of a rank, before units have values.
#[derive(Default)]
struct Plans {
    trained: Vec<FlatParameterPlan>,
    frozen: Vec<FrozenParameterPlan>,
    stages: BTreeMap<u32, LocalStage>,
}

/// Kind of the parameters of a block that form one unit. Kinds differ in the ranks that hold the parameters, or in the
/// treatment of the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum UnitKind {
    /// Parameters that every replica has.
    Dense,
    /// Parameters of experts.
    Expert,
    /// A tied table that a block of another stage has too.
    Tied,
    /// Frozen parameters that every replica has.
    FrozenDense,
    /// Frozen parameters of experts.
    FrozenExpert,
}

impl UnitKind {
    /// The kind of unit for the parameters of `op`; `is_tied` if other stages have the parameter too.
    fn of(op: &Op, is_tied: bool) -> Self {
        match (op.is_frozen(), is_expert(&op.kind)) {
            (true, true) => Self::FrozenExpert,
            (true, false) => Self::FrozenDense,
            (false, _) if is_tied => Self::Tied,
            (false, true) => Self::Expert,
            (false, false) => Self::Dense,
        }
    }
}

impl Plans {
    /// Adds a unit of which the ranks `replicas` have copies or shards. For a tied table, `tied` are the ranks that
    /// have it, and `is_home` says whether this rank has the table itself.
    fn add_unit(
        &mut self,
        program: &Program,
        place: &MeshPosition,
        kind: UnitKind,
        replicas: ReplicaGroups,
        (tied, is_home): (Option<Group>, bool),
    ) -> UnitAt {
        let (parameters, rank) = (Vec::new(), place.rank);
        let is_cut = program.layout.zero_stage == ZeroStage::Parameters;
        if matches!(kind, UnitKind::FrozenDense | UnitKind::FrozenExpert) {
            self.frozen.push(FrozenParameterPlan { parameters, replicas, rank, is_cut });
            return UnitAt::Frozen(self.frozen.len() - 1);
        }
        let first = replicas.replicate.ranks()[0] == rank;
        let method = program.settings.replication.method;
        let is_home = kind != UnitKind::Tied || is_home;
        self.trained.push(FlatParameterPlan {
            parameters,
            replicas,
            rank,
            frees_weights: is_cut,
            offload: program.layout.offload,
            tied: tied.filter(|_| kind == UnitKind::Tied),
            role: match method {
                DataParallelMethod::ParameterServer | DataParallelMethod::Asynchronous { .. }
                    if !first =>
                {
                    Role::Served
                }
                _ if first && is_home => Role::First,
                _ if method.is_synchronous() || !is_home => Role::Copy,
                _ => Role::Independent,
            },
        });
        UnitAt::Trained(self.trained.len() - 1)
    }

    fn parameters(&mut self, unit: UnitAt) -> &mut Vec<LocalParameter> {
        match unit {
            UnitAt::Trained(unit) => &mut self.trained[unit].parameters,
            UnitAt::Frozen(unit) => &mut self.frozen[unit].parameters,
        }
    }
}

/// Plans the units and stages of a rank.
fn plans(program: &Program, place: &MeshPosition) -> Plans {
    let layout = &program.layout;
    let sharing = Sharing {
        tensor: (place.tensor as usize, layout.tensor_parallel as usize),
        expert_tensor: (place.expert_tensor as usize, layout.expert_tensor_parallel as usize),
        expert: (place.expert(layout) as usize, layout.expert_parallel as usize),
    };
    let initializer_range = program.initializer_range();
    let mut plans = Plans::default();
    // Locations on this rank of parameters that other parameters are tied to.
    let mut places: BTreeMap<(usize, ir::graph::OpId), WeightAt> = BTreeMap::new();
    let num_stages = program.stages.len() as u32;
    let held = (0..num_stages).filter(|stage| program.holders(*stage).contains(&place.pipeline));
    for stage in held {
        let holders = program.holders(stage);
        let mut blocks = Vec::new();
        for block in program.stages[stage as usize].clone() {
            let block_program = program.block(block);
            let mut weights: Vec<Vec<WeightAt>> = Vec::new();
            let mut own: BTreeMap<UnitKind, UnitAt> = BTreeMap::new();
            for node in block_program.block.nodes() {
                let mut of_op = Vec::new();
                for (index, parameter) in node.op.parameters.iter().enumerate() {
                    let target =
                        parameter.tied_to.as_ref().and_then(|name| program.tie_target(name));
                    let key = target.unwrap_or((block, node.id));
                    let is_transposed = target.is_some_and(|(block, op)| {
                        let table = &program.block(block).op(op).parameters[0];
                        table.dims != parameter.dims
                    });
                    if let Some(at) = places.get(&key).filter(|_| index == 0) {
                        of_op.push(WeightAt { is_transposed, ..*at });
                        continue;
                    }
                    let tied = tied_holders(program, key, place);
                    let kind = UnitKind::of(node.op, tied.is_some() && index == 0);
                    let replicas = match kind {
                        UnitKind::Expert | UnitKind::FrozenExpert => {
                            place.expert_replicas(layout, &holders)
                        }
                        UnitKind::Dense | UnitKind::Tied | UnitKind::FrozenDense => {
                            place.replicas(layout, &holders)
                        }
                    };
                    // The unit of a tied table has no other parameters.
                    let new =
                        || plans.add_unit(program, place, kind, replicas, (tied, target.is_none()));
                    let unit = *own.entry(kind).or_insert_with(new);
                    // A tied copy has the initial values of the original.
                    let (of_block, of_op_id) = if index == 0 { key } else { (block, node.id) };
                    let parameters = plans.parameters(unit);
                    parameters.push(LocalParameter::new(
                        program.block(of_block),
                        of_block as u32,
                        of_op_id,
                        index,
                        sharing,
                        initializer_range,
                    ));
                    let at = WeightAt { unit, index: parameters.len() - 1, is_transposed };
                    if index == 0 {
                        places.insert(key, at);
                    }
                    of_op.push(at);
                }
                weights.push(of_op);
            }
            blocks.push(weights);
        }
        plans.stages.insert(
            stage,
            LocalStage { blocks: program.stages[stage as usize].clone(), weights: blocks },
        );
    }
    plans
}

/// The ranks that have a copy of a table which blocks of several pipeline ranks use, at this rank's position in their
/// stages; none if one pipeline rank has all uses.
fn tied_holders(
    program: &Program,
    (block, op): (usize, ir::graph::OpId),
    place: &MeshPosition,
) -> Option<Group> {
    let name = &program.block(block).op(op).name;
    let uses = program.chain.iter().enumerate().filter(|(other, class)| {
        let nodes = program.classes[**class].block.nodes();
        let tied = |p: &ir::graph::Parameter| p.tied_to.as_ref() == Some(name);
        *other == block || nodes.flat_map(|node| &node.op.parameters).any(tied)
    });
    let holders_of = |block: usize| {
        let stage = program.stages.iter().position(|blocks| blocks.contains(&block));
        program.holders(stage.expect("every block has a stage") as u32)
    };
    let holders: BTreeSet<u32> = uses.flat_map(|(block, _)| holders_of(block)).collect();
    // Ranks that hold every use sum their gradients locally.
    if holders_of(block).len() == holders.len() {
        return None;
    }
    let ranks: Vec<u32> =
        holders.iter().map(|pipeline| place.on_pipeline_rank(&program.layout, *pipeline)).collect();
    (ranks.len() > 1).then(|| Group::new(ranks))
}
