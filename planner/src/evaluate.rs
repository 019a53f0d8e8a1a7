//! Time and memory of one layout with one assignment of blocks to stages.

use cost_models::Group;
use cost_models::block::PassTime;
use cost_models::states::{ModelStates, StateBytes, optimizer_step};
use ir::collective::Collective;
use ir::layout::{LayoutSpec, MeshAxis, ZeroStage};
use ir::plan::{Breakdown, MemoryUse};
use ir::schedule::ScheduleKind;
use ir::units::{Bytes, Seconds};

use crate::pipeline::{self, StageTime};
use crate::problem::Problem;
use crate::stages::{Holdings, Stage};

/// What CUDA, its libraries and NCCL hold on a GPU beside the allocator: 1113 MiB.
///
/// # Source
///
/// BigScience's notes on their V100 and A100 runs, which subtract this from nvidia-smi's figure.
pub const CONTEXT: Bytes = Bytes::new(1113 << 20);

/// What the caching allocator reserves beyond what is allocated, in per cent.
///
/// # Source
///
/// SimuMax's published runs on 8 B200: the mean of reserved over allocated, 200 ranks of 25 runs.
pub const ALLOCATOR_SLACK_PERCENT: u64 = 4;

/// Blocks whose gathered parameters a rank holds at once under ZeRO-3: the one that computes and the
/// one that is fetched meanwhile (Zhao et al. 2023, *PyTorch FSDP*, arXiv 2304.11277, section 3.4).
const GATHERED_BLOCKS: u64 = 2;

/// Time and memory of a layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Time of a step.
    pub step_time: Seconds,
    /// Where it goes.
    pub breakdown: Breakdown,
    /// Memory of the rank that needs most.
    pub memory: MemoryUse,
    /// That rank's place in the pipeline.
    pub fullest_stage: usize,
}

/// Parameters of a bucket whose gradients are reduced together, at least.
///
/// # Source
///
/// Megatron-Core, `DistributedDataParallelConfig.bucket_size`: the larger of 40 M and 1 M for each
/// data-parallel rank, so that rings over many ranks stay bound by bandwidth.
const BUCKET_PARAMETERS: u64 = 40_000_000;

/// Parameters of a bucket for each data-parallel rank; see [`BUCKET_PARAMETERS`].
const BUCKET_PARAMETERS_PER_RANK: u64 = 1_000_000;

/// A layout about to be evaluated, with the groups that reduce its gradients.
pub struct Evaluator<'a> {
    problem: &'a Problem,
    spec: LayoutSpec,
    pub(crate) bytes: StateBytes,
}

/// What data parallelism adds to a rank.
#[derive(Clone, Copy, Debug, Default)]
struct DataParallel {
    /// To each forward, beyond what it hides.
    forward: f64,
    /// To each backward.
    backward: f64,
    /// Once a step, after the last backward and before the next forward.
    step: f64,
}

impl<'a> Evaluator<'a> {
    /// For layouts of `problem`.
    pub fn new(problem: &'a Problem, spec: LayoutSpec) -> Self {
        Self { problem, spec, bytes: StateBytes::new(&problem.training) }
    }

    /// Ranks that reduce gradients of dense parameters.
    pub(crate) fn replicas(&self) -> u32 {
        self.spec.context_parallel * self.spec.data_parallel
    }

    /// Ranks that share the states of an expert's parameters.
    fn expert_shards(&self) -> u32 {
        (self.spec.zero_shard / self.spec.expert_parallel).max(1)
    }

    /// Time of a step over `stages`, and where it goes.
    pub fn time(&self, stages: &[Stage]) -> (Seconds, Breakdown) {
        let LayoutSpec { schedule, virtual_stages: v, num_micro_batches: m, .. } = self.spec;
        let data: Vec<DataParallel> =
            stages.iter().map(|stage| self.data_parallel(stage)).collect();
        let times: Vec<StageTime> = stages
            .iter()
            .zip(&data)
            .map(|(stage, data)| {
                let [input_grad, weight_grad] = self.grads(stage);
                let backward = input_grad + stage.recompute;
                StageTime {
                    forward: (stage.forward.total() + stage.receive_forward).get() + data.forward,
                    input_grad: (backward.total() + stage.receive_backward).get() + data.backward,
                    weight_grad: weight_grad.total().get(),
                }
            })
            .collect();
        let uneven = stages.first().map_or(0.0, |stage| stage.uneven.get());
        let pipeline = pipeline::step_time(schedule, &times, uneven, v, m);
        let finish = (0..stages.len())
            .map(|rank| {
                pipeline - pipeline::drain_slack(schedule, &times, v, rank) + data[rank].step
            })
            .fold(pipeline, f64::max);
        let optimizer = stages.iter().map(|stage| self.optimizer(stage).get()).fold(0.0, f64::max);
        let slowest = (0..stages.len())
            .max_by(|a, b| times[*a].total().total_cmp(&times[*b].total()).then(b.cmp(a)))
            .unwrap_or(0);
        let m = f64::from(m);
        let stage = &stages[slowest];
        let [input_grad, weight_grad] = self.grads(stage);
        let passes = stage.forward + input_grad + weight_grad;
        let messages = stage.receive_forward + stage.receive_backward;
        let breakdown = Breakdown {
            compute_seconds: m * passes.compute.get(),
            recompute_seconds: m * stage.recompute.total().get(),
            tensor_parallel_seconds: m * passes.tensor.get(),
            context_parallel_seconds: m * passes.context.get(),
            expert_parallel_seconds: m * passes.expert.get(),
            pipeline_messages_seconds: m * messages.get(),
            pipeline_bubble_seconds: pipeline - m * times[slowest].total(),
            data_parallel_seconds: finish - pipeline
                + m * (data[slowest].forward + data[slowest].backward),
            optimizer_seconds: optimizer,
        };
        (Seconds::new(finish + optimizer), breakdown)
    }

    /// Gradients of activations and of parameters, as the schedule runs them.
    fn grads(&self, stage: &Stage) -> [PassTime; 2] {
        if self.spec.schedule.splits_backward() {
            stage.grads_apart
        } else {
            [stage.input_grad, stage.weight_grad]
        }
    }

    /// What data parallelism adds to `stage`, beyond what computation hides.
    ///
    /// Gradients are reduced piece by piece while the backward goes on, and parameters are gathered
    /// so while the forward does: what is left is the last piece, or what exceeds the computation.
    /// A piece is a bucket, or under ZeRO-3 a block. ZeRO-0 and 1 reduce once a step, during the last
    /// micro-batch; ZeRO-2 with each micro-batch, as its gradients are sharded; ZeRO-3 gathers in each
    /// forward and each backward too.
    fn data_parallel(&self, stage: &Stage) -> DataParallel {
        let forward = stage.forward.total().get();
        let backward =
            (stage.input_grad.total() + stage.weight_grad.total() + stage.recompute.total()).get();
        let pieces = self.pieces(&stage.holdings);
        // Gathering ahead ends with the chunk, as nobody knows the next.
        let v = u64::from(self.spec.virtual_stages);
        let is_gathered = self.spec.zero_stage == ZeroStage::Parameters;
        let ahead = if is_gathered { pieces.div_ceil(v) } else { pieces };
        let exposed = |time: f64, beside: f64| {
            let share = 1.0 / ahead as f64;
            if time == 0.0 { 0.0 } else { (time * share).max(time - beside * (1.0 - share)) }
        };
        let gradients =
            |kind| self.over_replicas(kind, &stage.holdings, self.bytes.gradient, pieces);
        let parameters = self.over_replicas(
            Collective::AllGather,
            &stage.holdings,
            self.bytes.parameter,
            pieces,
        );
        let mut data = DataParallel { step: self.small_reductions(stage), ..Default::default() };
        match self.spec.zero_stage {
            ZeroStage::None => {
                data.step += exposed(gradients(Collective::AllReduce), backward);
            }
            ZeroStage::OptimizerState => {
                data.step += exposed(gradients(Collective::ReduceScatter), backward);
                data.step += exposed(parameters, forward);
            }
            ZeroStage::Gradients => {
                data.backward += exposed(gradients(Collective::ReduceScatter), backward);
                data.step += exposed(parameters, forward);
            }
            ZeroStage::Parameters => {
                data.forward += exposed(parameters, forward);
                let reduce = gradients(Collective::ReduceScatter);
                data.backward += exposed(parameters + reduce, backward);
            }
        }
        data
    }

    /// In how many pieces a rank's parameters are reduced and gathered.
    pub(crate) fn pieces(&self, holdings: &Holdings) -> u64 {
        if self.spec.zero_stage == ZeroStage::Parameters {
            return u64::from(holdings.num_blocks.max(1));
        }
        let for_ranks = BUCKET_PARAMETERS_PER_RANK * u64::from(self.replicas());
        (holdings.dense + holdings.expert).div_ceil(BUCKET_PARAMETERS.max(for_ranks)).max(1)
    }

    /// Time to run `kind` over the replicas of dense parameters and of experts, in equal pieces; with
    /// hybrid sharding over the shards, and for gradients an all-reduce of the shard over the replicas
    /// of it.
    pub(crate) fn over_replicas(
        &self,
        kind: Collective,
        holdings: &Holdings,
        element: u64,
        pieces: u64,
    ) -> f64 {
        let LayoutSpec { expert_parallel, zero_shard, .. } = self.spec;
        let stride = self.spec.mesh().stride(MeshAxis::ContextData);
        let time = |parameters: u64, replicas: u32, shards: u32, stride: u32| {
            let bytes = Bytes::new(parameters * element).shard(pieces);
            let network = &self.problem.hardware.network;
            let sharded = kind != Collective::AllReduce && shards < replicas;
            if !sharded {
                return network.time(kind, Group { size: replicas, stride }, bytes).get();
            }
            let within = network.time(kind, Group { size: shards, stride }, bytes).get();
            if kind == Collective::AllGather {
                return within;
            }
            let across = Group { size: replicas / shards, stride: stride * shards };
            let shard = bytes.shard(shards.into());
            within + network.time(Collective::AllReduce, across, shard).get()
        };
        let experts = time(
            holdings.expert,
            (self.replicas() / expert_parallel).max(1),
            self.expert_shards(),
            stride * expert_parallel,
        );
        (time(holdings.dense, self.replicas(), zero_shard, stride) + experts) * pieces as f64
    }

    /// Reductions of tied weights between stages, and of norms over tensor-parallel ranks.
    fn small_reductions(&self, stage: &Stage) -> f64 {
        (self.tied_reduction(&stage.holdings) + self.partial_reduction(&stage.holdings)).get()
    }

    /// The reduction of tied weights between the stages that have them: the first and the last.
    pub(crate) fn tied_reduction(&self, holdings: &Holdings) -> Seconds {
        let tied = Bytes::new(holdings.tied * self.bytes.gradient);
        self.problem.hardware.network.time(Collective::AllReduce, self.tied_group(), tied)
    }

    /// The first and the last rank of a pipeline.
    pub(crate) fn tied_group(&self) -> Group {
        let stages_between = self.spec.pipeline_parallel.saturating_sub(1).max(1);
        let stride = self.spec.mesh().stride(MeshAxis::Pipeline) * stages_between;
        Group { size: 2, stride }
    }

    /// The reduction of norms' gradients over tensor-parallel ranks.
    pub(crate) fn partial_reduction(&self, holdings: &Holdings) -> Seconds {
        let partial = Bytes::new(holdings.partial_gradients * self.bytes.gradient);
        let stride = self.spec.mesh().stride(MeshAxis::Tensor);
        let tensor = Group { size: self.spec.tensor_parallel, stride };
        self.problem.hardware.network.time(Collective::AllReduce, tensor, partial)
    }

    /// The update of what a rank owns.
    pub(crate) fn optimizer(&self, stage: &Stage) -> Seconds {
        let sharded = self.spec.zero_stage >= ZeroStage::OptimizerState;
        let owned = |parameters: u64, shards: u32| {
            if sharded { parameters.div_ceil(shards.into()) } else { parameters }
        };
        let owned = owned(stage.holdings.dense, self.spec.zero_shard)
            + owned(stage.holdings.expert, self.expert_shards());
        optimizer_step(owned, self.bytes, &self.problem.hardware.device)
    }

    /// Memory of pipeline rank `rank`.
    pub fn memory(&self, stage: &Holdings, rank: usize) -> MemoryUse {
        let LayoutSpec { schedule, zero_stage: zero, zero_shard, .. } = self.spec;
        let [p, v, m] =
            [self.spec.pipeline_parallel, self.spec.virtual_stages, self.spec.num_micro_batches]
                .map(u64::from);
        let states = ModelStates::new(stage.dense, zero, zero_shard.into(), self.bytes)
            + ModelStates::new(stage.expert, zero, self.expert_shards().into(), self.bytes);
        let gathered = if zero == ZeroStage::Parameters {
            let gather = GATHERED_BLOCKS * self.bytes.parameter + self.bytes.gradient;
            Bytes::new(stage.largest_block * gather)
        } else {
            Bytes::ZERO
        };
        let chunks = schedule.peak_chunks_in_flight(rank as u64, p, v, m);
        // The last block's backward follows its forward at once, unless all forwards come first.
        let last = match schedule {
            ScheduleKind::GPipe | ScheduleKind::LoopedBfs => m,
            _ => 1,
        };
        let activations =
            Bytes::new((stage.saved * chunks).get().div_ceil(v)) + stage.saved_by_last * last;
        let mut memory = MemoryUse {
            parameters_bytes: states.parameters,
            gradients_bytes: states.gradients,
            optimizer_bytes: states.optimizer,
            gathered_bytes: gathered,
            activations_bytes: activations,
            recompute_bytes: stage.recompute_working_set,
            // The gradient that comes in and the one that goes out.
            workspace_bytes: stage.largest_tensor * 2,
            // One message on its way in each direction, and one being used.
            buffers_bytes: stage.message * 4,
            ..MemoryUse::default()
        };
        memory.allocator_bytes = Bytes::new(memory.total().get() / 100 * ALLOCATOR_SLACK_PERCENT);
        memory.context_bytes = CONTEXT;
        memory
    }

    /// Memory of the rank that needs most, and which it is.
    pub fn peak_memory(&self, stages: &[Stage]) -> (MemoryUse, usize) {
        let mut fullest = (self.memory(&stages[0].holdings, 0), 0);
        for (rank, stage) in stages.iter().enumerate().skip(1) {
            let memory = self.memory(&stage.holdings, rank);
            if memory.total() > fullest.0.total() {
                fullest = (memory, rank);
            }
        }
        fullest
    }

    /// Time and memory together.
    pub fn evaluate(&self, stages: &[Stage]) -> Evaluation {
        let (step_time, breakdown) = self.time(stages);
        let (memory, fullest_stage) = self.peak_memory(stages);
        Evaluation { step_time, breakdown, memory, fullest_stage }
    }
}
