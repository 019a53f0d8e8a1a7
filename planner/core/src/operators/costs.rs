//! Cost of a way of splitting an operator, on one rank.

use cost_models::block::BlockPasses;
use cost_models::states::{ModelStates, StateBytes, optimizer_step};
use cost_models::{Hardware, StridedGroup};
use ir::collective::Collective;
use ir::graph::{
    AxisPlacement, BlockRecompute, ByMeshAxis, ElementType, MESH_AXES, SavedPart, ShardContext,
    Sharding, SplitOp, Switches, Tensor,
};
use ir::layout::ZeroStage;
use ir::units::{Bytes, Nanos, Seconds};

use super::graph::Operator;
use crate::problem::Problem;
use crate::step::{BUCKET_PARAMETERS, ShapeKey};

/// Times of kernels and exchanges by which ways of splitting are compared.
pub trait SplitCosts: Sync {
    /// Time of a collective over the ranks of these axes, on a whole buffer of `bytes`.
    fn exchange(&self, collective: Collective, axes: ByMeshAxis<bool>, bytes: Bytes) -> Seconds;

    /// Kernels of one rank's part of an operator, and the memory that they take.
    fn kernels(&self, split: &SplitOp, operator: &Operator<'_>, reads_data: bool) -> SplitKernels;

    /// Time to add up two gradients of `bytes` each.
    fn gradient_sum(&self, bytes: Bytes) -> Seconds;

    /// True if linear layers that read one tensor run as one product, which adds up their gradients.
    fn fuses_projections(&self) -> bool;

    /// Bytes of an element in the precision of the step.
    fn compute_bytes(&self) -> u64;

    /// Times, as a part of a bucket, of reducing the gradients of `elements` parameters over these axes, and of
    /// gathering these parameters where each rank has a share of them.
    fn replication(&self, axes: ByMeshAxis<bool>, elements: u64) -> [Seconds; 2];

    /// Time of the update of `elements`.
    fn update(&self, elements: u64) -> Seconds;

    /// Time of the host between two steps.
    fn between_steps(&self) -> Seconds {
        Seconds::ZERO
    }

    /// Bytes of the states of a rank that holds `held` parameters and updates `owned` of them.
    fn states(&self, held: u64, owned: u64) -> f64;

    /// ZeRO stage: the states that are sharded over the ranks that have the same parameters.
    fn zero(&self) -> ZeroStage;
}

/// Kernels of an operator on one rank, and the memory that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SplitKernels {
    /// Time of forward and of backward on the device.
    pub device: [Seconds; 2],
    /// Time of the host to launch them.
    pub host: [Seconds; 2],
    /// Bytes that are saved for backward.
    pub saved: Bytes,
    /// Bytes that backward takes in addition.
    pub working: Bytes,
}

/// A way of splitting an operator, with its costs on a rank.
#[derive(Clone, Debug)]
pub struct SplitChoice {
    /// The splits.
    pub split: SplitOp,
    /// Its kernels.
    pub kernels: SplitKernels,
    /// Time that forward and backward wait for its own exchanges.
    pub waits: [Seconds; 2],
    /// Time of the reduction of its gradients, and of a gather of its parameters.
    pub replication: [Seconds; 2],
    /// Time of its update.
    pub update: Seconds,
    /// Parameters that the rank uses.
    pub held: u64,
    /// Parameters that the rank updates.
    pub owned: u64,
    /// Bytes of its model states.
    pub states: f64,
}

impl SplitChoice {
    /// A way of splitting with its costs.
    pub fn new(
        costs: &impl SplitCosts,
        split: SplitOp,
        operator: &Operator<'_>,
        reads_data: bool,
        mesh: ByMeshAxis<u32>,
    ) -> Self {
        let kernels = costs.kernels(&split, operator, reads_data);
        let mut waits = [Seconds::ZERO; 2];
        for exchange in &split.exchanges {
            let bytes = exchange.elements * exchange.element.bytes(costs.compute_bytes());
            let axes = std::array::from_fn(|axis| axis == exchange.axis);
            let time = costs.exchange(exchange.collective, axes, Bytes::new(bytes));
            let backward = if reads_data { 0 } else { exchange.times[1] };
            waits[0] += time * f64::from(exchange.times[0]);
            waits[1] += time * f64::from(backward);
        }
        let mut replication = [Seconds::ZERO; 2];
        let (mut held, mut owned) = (0, 0);
        for parameter in &split.parameters {
            if parameter.is_summed.contains(&true) {
                let times = costs.replication(parameter.is_summed, parameter.elements);
                replication.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
            }
            // Ranks that add up its gradient share its states; ranks that compute the same gradient do not.
            let copies: u64 = (0..MESH_AXES)
                .filter(|axis| costs.zero() > ZeroStage::None && parameter.is_summed[*axis])
                .map(|axis| u64::from(mesh[axis]))
                .product();
            held += parameter.elements;
            if !parameter.is_tied {
                owned += parameter.elements.div_ceil(copies);
            }
        }
        let update = costs.update(owned);
        let states = costs.states(held, owned);
        Self { split, kernels, waits, replication, update, held, owned, states }
    }
}

/// Times of bringing a tensor from one placement to another in forward, and of bringing its gradient back.
pub fn moved(
    costs: &impl SplitCosts,
    mesh: ByMeshAxis<u32>,
    tensor: &Tensor,
    elements: u64,
    [from, to]: [ByMeshAxis<AxisPlacement>; 2],
    requires_grad: bool,
) -> [Seconds; 2] {
    let bytes = elements * tensor.element.bytes(costs.compute_bytes());
    let both: [ByMeshAxis<Option<Collective>>; 2] = {
        let moves: ByMeshAxis<_> = std::array::from_fn(|axis| from[axis].moved_to(to[axis]));
        [moves.map(|it| it[0]), moves.map(|it| it[1])]
    };
    let is_shard = |placements: ByMeshAxis<AxisPlacement>| {
        placements.map(|it| matches!(it, AxisPlacement::Shard(_)))
    };
    let forward = in_turn(costs, mesh, bytes, both[0], [is_shard(from), is_shard(to)]);
    if !requires_grad || tensor.element == ElementType::Index {
        return [forward, Seconds::ZERO];
    }
    let backward = in_turn(costs, mesh, bytes, both[1], [is_shard(to), is_shard(from)]);
    [forward, backward]
}

/// Time of collectives along the axes of a mesh, one after the other, or over both axes together where the collectives
/// are alike. A collective that makes the tensor smaller comes before one that makes it larger.
fn in_turn(
    costs: &impl SplitCosts,
    mesh: ByMeshAxis<u32>,
    bytes: u64,
    collectives: ByMeshAxis<Option<Collective>>,
    [before, after]: [ByMeshAxis<bool>; 2],
) -> Seconds {
    let [inner, outer] = collectives;
    if let (Some(first), Some(second)) = (inner, outer)
        && first == second
        && first != Collective::AllToAll
    {
        return costs.exchange(first, [true; MESH_AXES], Bytes::new(bytes));
    }
    let order = if inner == Some(Collective::AllGather) { [1, 0] } else { [0, 1] };
    let mut is_shard = before;
    let mut time = Seconds::ZERO;
    for axis in order {
        if let Some(collective) = collectives[axis] {
            let shards = |axis: usize| if is_shard[axis] { u64::from(mesh[axis]) } else { 1 };
            let own = if collective == Collective::AllToAll { shards(axis) } else { 1 };
            let bytes = Bytes::new(bytes / shards(1 - axis) / own);
            let axes = std::array::from_fn(|other| other == axis);
            time += costs.exchange(collective, axes, bytes);
        }
        is_shard[axis] = after[axis];
    }
    time
}

/// The costs of a cluster and a framework.
pub struct OnHardware<'a> {
    problem: &'a Problem,
    mesh: ByMeshAxis<u32>,
    setting: ShardContext,
    bytes: StateBytes,
    zero: ZeroStage,
    /// Time of an update, for each parameter.
    update: f64,
}

impl<'a> OnHardware<'a> {
    /// Costs of micro-batches of `micro_batch_size` samples over all ranks of a mesh.
    pub fn new(
        problem: &'a Problem,
        mesh: ByMeshAxis<u32>,
        micro_batch_size: u64,
        zero: ZeroStage,
    ) -> Self {
        let key = ShapeKey {
            sharding: Sharding::NONE,
            micro_batch_size: u32::try_from(micro_batch_size).unwrap_or(u32::MAX),
            switches: Switches::USUAL,
            gathers_by_operator: false,
            documents: None,
            offloaded: None,
            loaded_stages: 1,
        };
        let Hardware { precision, device, .. } = &problem.hardware;
        let bytes = problem.state_bytes();
        let parameters = problem.parameters().trained.max(1);
        let update = optimizer_step([parameters; 2], bytes, precision.activation(), device);
        let update = update.get() / parameters as f64;
        Self { problem, mesh, setting: key.setting(problem, 0), bytes, zero, update }
    }

    /// The setting in which operators are counted.
    pub const fn setting(&self) -> &ShardContext {
        &self.setting
    }

    fn group(&self, axes: ByMeshAxis<bool>) -> StridedGroup {
        let [inner, outer] = self.mesh;
        match axes {
            [true, true] => StridedGroup::contiguous(inner * outer),
            [true, false] => StridedGroup::contiguous(inner),
            [false, true] => StridedGroup { size: outer, stride: inner },
            [false, false] => StridedGroup::contiguous(1),
        }
    }
}

impl SplitCosts for OnHardware<'_> {
    fn exchange(&self, collective: Collective, axes: ByMeshAxis<bool>, bytes: Bytes) -> Seconds {
        let Hardware { network, framework, .. } = &self.problem.hardware;
        network.time(collective, self.group(axes), bytes) * framework.exchanges.within_blocks
    }

    fn kernels(&self, split: &SplitOp, operator: &Operator<'_>, reads_data: bool) -> SplitKernels {
        let hardware = &self.problem.hardware;
        let setting = ShardContext { reads_data, ..self.setting };
        let groups = ShapeKey::groups_of(&Sharding::NONE);
        let passes = BlockPasses::new(&split.block, &setting, &groups, hardware);
        let seconds = |time: Nanos| Seconds::from(time);
        // The total is the root sum of squares of the times of device and host.
        let host = |device: Nanos, total: Nanos| {
            let [device, total] = [device, total].map(|it| seconds(it).get());
            Seconds::new((total * total - device * device).max(0.0).sqrt())
        };
        let both = [passes.forward, passes.backward];
        let work = split.block.work(&setting);
        let all = work.saved_bytes(BlockRecompute::None);
        let of_first = work.saved.iter().filter(|saved| {
            let of_input = operator.saves_first.get(saved.op.index());
            !saved.is_start
                && (!matches!(saved.part, SavedPart::Value | SavedPart::Cast)
                    || of_input.is_none_or(|is_first| *is_first))
        });
        let first: Bytes = of_first.map(|saved| saved.bytes).sum();
        let share = if all == Bytes::ZERO { 0.0 } else { first.as_f64() / all.as_f64() };
        let of_weight = passes.largest_weight * (self.bytes.parameter + self.bytes.gradient);
        SplitKernels {
            device: both.map(|it| seconds(it.compute)),
            host: both.map(|it| host(it.compute, it.total())),
            saved: Bytes::from_f64(passes.saved[BlockRecompute::None].as_f64() * share),
            working: passes.gradients.max(Bytes::new(of_weight)),
        }
    }

    fn gradient_sum(&self, bytes: Bytes) -> Seconds {
        let Hardware { precision, device, framework, .. } = &self.problem.hardware;
        // Two are read, and one is written.
        let touched = 3.0 * bytes.as_f64() * framework.kernels.elementwise_traffic;
        device.training_memory_bound(precision.activation(), Bytes::from_f64(touched))
    }

    fn fuses_projections(&self) -> bool {
        self.setting.fuses_projections
    }

    fn compute_bytes(&self) -> u64 {
        self.setting.compute_bytes
    }

    fn replication(&self, axes: ByMeshAxis<bool>, elements: u64) -> [Seconds; 2] {
        let factor = self.problem.hardware.framework.exchanges.over_replicas;
        let time = |collective, element: u64| {
            let bucket = Bytes::new(BUCKET_PARAMETERS * element);
            let share = elements as f64 / BUCKET_PARAMETERS as f64;
            let network = &self.problem.hardware.network;
            network.time(collective, self.group(axes), bucket) * (factor * share)
        };
        if self.zero > ZeroStage::None {
            let reduce = time(Collective::ReduceScatter, self.bytes.gradient);
            [reduce, time(Collective::AllGather, self.bytes.parameter)]
        } else {
            [time(Collective::AllReduce, self.bytes.gradient), Seconds::ZERO]
        }
    }

    fn update(&self, elements: u64) -> Seconds {
        Seconds::new(self.update * elements as f64)
    }

    fn between_steps(&self) -> Seconds {
        self.problem.hardware.host_time_of_step()
    }

    fn states(&self, held: u64, owned: u64) -> f64 {
        ModelStates::of_rank([held, owned], self.zero, self.bytes).total().as_f64()
    }

    fn zero(&self) -> ZeroStage {
        self.zero
    }
}
