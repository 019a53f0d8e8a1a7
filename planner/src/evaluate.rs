//! Time and memory of one layout with one assignment of blocks to stages.

use cost_models::Group;
use cost_models::block::PassTime;
use cost_models::states::{StateBytes, optimizer_step};
use ir::collective::Collective;
use ir::layout::{LayoutSpec, MeshAxis, ZeroStage};
use ir::plan::{Breakdown, MemoryUse};
use ir::schedule::Updates;
use ir::units::{Bytes, Seconds};

use crate::order::Order;
use crate::pipeline::{self, StageTime};
use crate::problem::Problem;
use crate::stages::{Holdings, PipelineRanks, Stage};

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
    pub(crate) problem: &'a Problem,
    pub(crate) spec: LayoutSpec,
    pub(crate) bytes: StateBytes,
    /// How the schedule is played through, and its stages by chunk.
    pub(crate) in_order: Option<(&'a Order, &'a [Stage])>,
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

/// How long a step takes; in seconds.
struct Timed {
    /// By rank: a micro-batch, all of the rank's chunks together.
    times: Vec<StageTime>,
    /// By rank.
    data: Vec<DataParallel>,
    /// To the last action of the pipeline.
    pipeline: f64,
    /// To the last reduction.
    finish: f64,
}

impl<'a> Evaluator<'a> {
    /// For layouts of `problem` whose schedule has a closed form.
    pub fn new(problem: &'a Problem, spec: LayoutSpec) -> Self {
        Self { problem, spec, bytes: StateBytes::new(&problem.training), in_order: None }
    }

    /// For layouts whose schedule has none: with its order, and the stages by chunk.
    pub fn in_order(self, order: &'a Order, chunks: &'a [Stage]) -> Self {
        Self { in_order: Some((order, chunks)), ..self }
    }

    /// Ranks that reduce gradients of dense parameters.
    pub(crate) fn replicas(&self) -> u32 {
        self.spec.context_parallel * self.spec.data_parallel
    }

    /// Time of a step over `stages`, and where it goes.
    pub fn time(&self, stages: &[Stage]) -> (Seconds, Breakdown) {
        let Timed { times, data, pipeline, finish } = match self.in_order {
            Some((order, chunks)) => self.timed_in_order(stages, order, chunks),
            None => self.timed(stages),
        };
        let update = |stage| self.optimizer(stage).get();
        let slowest = (0..stages.len())
            .max_by(|a, b| times[*a].total().total_cmp(&times[*b].total()).then(b.cmp(a)))
            .unwrap_or(0);
        let m = f64::from(self.spec.num_micro_batches);
        let stage = &stages[slowest];
        // After each micro-batch, an update is part of the pipeline.
        let (updates, last_update) = if self.updates_each() {
            (m * update(stage), 0.0)
        } else {
            let longest = stages.iter().map(update).fold(0.0, f64::max);
            (longest, longest)
        };
        let [input_grad, weight_grad] = self.grads(stage);
        let passes = stage.forward + input_grad + weight_grad;
        let [receive_forward, receive_backward] = self.messages(stage);
        let messages = receive_forward + receive_backward;
        let breakdown = Breakdown {
            compute_seconds: m * passes.compute.get(),
            recompute_seconds: m * (stage.recompute.total() - stage.recompute.host).get(),
            host_seconds: m * (passes.host + stage.recompute.host).get(),
            tensor_parallel_seconds: m * passes.tensor.get(),
            context_parallel_seconds: m * passes.context.get(),
            expert_parallel_seconds: m * passes.expert.get(),
            pipeline_messages_seconds: m * messages.get(),
            pipeline_bubble_seconds: pipeline - m * times[slowest].total(),
            data_parallel_seconds: finish - pipeline
                + m * (data[slowest].forward + data[slowest].backward),
            optimizer_seconds: updates,
        };
        (Seconds::new(finish + last_update), breakdown)
    }

    /// By the closed form of the schedule.
    fn timed(&self, stages: &[Stage]) -> Timed {
        let LayoutSpec { schedule, virtual_stages: v, num_micro_batches: m, .. } = self.spec;
        let data: Vec<DataParallel> =
            stages.iter().map(|stage| self.data_parallel(stage, v)).collect();
        let times: Vec<StageTime> =
            stages.iter().zip(&data).map(|(stage, data)| self.stage_time(stage, data)).collect();
        let uneven = stages.first().map_or(0.0, |stage| stage.uneven.get());
        let mut pipeline = pipeline::step_time(schedule, &times, uneven, v, m);
        if self.updates_each() && stages.iter().any(|stage| stage.holdings.tied > 0) {
            pipeline = pipeline.max(pipeline::in_step(&times, m));
        }
        let finish = (0..stages.len())
            .map(|rank| {
                pipeline - pipeline::drain_slack(schedule, &times, v, rank) + data[rank].step
            })
            .fold(pipeline, f64::max);
        Timed { times, data, pipeline, finish }
    }

    /// By playing the schedule through, chunk by chunk.
    fn timed_in_order(&self, stages: &[Stage], order: &Order, chunks: &[Stage]) -> Timed {
        let of_chunks: Vec<(StageTime, DataParallel)> = chunks
            .iter()
            .map(|chunk| {
                let data = self.data_parallel(chunk, 1);
                (self.stage_time(chunk, &data), data)
            })
            .collect();
        let ranks = PipelineRanks::of(&self.spec);
        let share = ranks.share();
        let of_rank = |rank| {
            let (mut time, mut data) = (StageTime::default(), DataParallel::default());
            for chunk in ranks.chunks(rank, chunks.len()) {
                let (of_chunk, its_data) = of_chunks[chunk];
                time = time + of_chunk * share;
                data.forward += its_data.forward * share;
                data.backward += its_data.backward * share;
                let between_copies = self.reduction_of_copies(&chunks[chunk].holdings, chunk);
                data.step += its_data.step + between_copies.get();
            }
            (time, data)
        };
        let (times, data): (Vec<StageTime>, Vec<DataParallel>) =
            (0..stages.len()).map(of_rank).unzip();
        let chunk_times: Vec<StageTime> = of_chunks.iter().map(|(time, _)| *time).collect();
        let ends = order.ends(&chunk_times);
        let finish = ends.ranks.iter().zip(&data).map(|(end, data)| end + data.step);
        let finish = finish.fold(ends.step, f64::max);
        Timed { times, data, pipeline: ends.step, finish }
    }

    /// What a stage waits for in forward and in backward of a micro-batch: its messages, and where it waits
    /// for these, what all ranks exchange.
    pub(crate) fn messages(&self, stage: &Stage) -> [Seconds; 2] {
        let [forward, backward] =
            if self.waits_for_messages() { stage.exchanges } else { [Seconds::ZERO; 2] };
        [stage.receive_forward + forward, stage.receive_backward + backward]
    }

    /// Whether ranks compute nothing while they exchange messages. Zero-bubble schedules never wait, or
    /// there were bubbles.
    pub(crate) fn waits_for_messages(&self) -> bool {
        let framework = &self.problem.hardware.framework;
        framework.waits_for_messages && !self.spec.schedule.splits_backward()
    }

    /// What a micro-batch costs a stage, all in all.
    fn stage_time(&self, stage: &Stage, data: &DataParallel) -> StageTime {
        let [input_grad, weight_grad] = self.grads(stage);
        let backward = input_grad + stage.recompute;
        let update = if self.updates_each() { self.optimizer(stage).get() } else { 0.0 };
        let [receive_forward, receive_backward] = self.messages(stage);
        StageTime {
            forward: (stage.forward.total() + receive_forward).get() + data.forward,
            input_grad: (backward.total() + receive_backward).get() + data.backward,
            weight_grad: weight_grad.total().get() + update,
        }
    }

    /// Whether parameters are updated after each micro-batch, and gradients reduced before that.
    pub(crate) fn updates_each(&self) -> bool {
        self.spec.schedule.updates() == Updates::AfterEachMicroBatch
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
    /// forward and each backward too. Where each micro-batch is followed by an update, all stages reduce
    /// with each, and what an update gathers is not hidden. `v` is the number of the stage's chunks.
    fn data_parallel(&self, stage: &Stage, v: u32) -> DataParallel {
        let forward = stage.forward.total().get();
        let backward =
            (stage.input_grad.total() + stage.weight_grad.total() + stage.recompute.total()).get();
        let pieces = self.pieces(&stage.holdings);
        // Gathering ahead ends with the chunk, as nobody knows the next.
        let is_gathered = self.spec.zero_stage == ZeroStage::Parameters;
        let ahead = if is_gathered { pieces.div_ceil(v.into()) } else { pieces };
        let framework = &self.problem.hardware.framework;
        let exposed = |time: f64, beside: f64| {
            let share = 1.0 / ahead as f64;
            if time == 0.0 { 0.0 } else { (time * share).max(time - beside * (1.0 - share)) }
        };
        let reduction = |time: f64| {
            if framework.overlaps_gradients { exposed(time, backward) } else { time }
        };
        let gradients =
            |kind| self.over_replicas(kind, &stage.holdings, self.bytes.gradient, pieces);
        let parameters = self.over_replicas(
            Collective::AllGather,
            &stage.holdings,
            self.bytes.parameter,
            pieces,
        );
        let each = self.updates_each();
        let waits = each || !framework.overlaps_parameters;
        let gathered = if waits { parameters } else { exposed(parameters, forward) };
        let mut data = DataParallel { step: self.small_reductions(stage), ..Default::default() };
        match self.spec.zero_stage {
            ZeroStage::None => data.step += reduction(gradients(self.reduction())),
            ZeroStage::OptimizerState => {
                data.step += reduction(gradients(self.reduction())) + gathered;
            }
            ZeroStage::Gradients => {
                data.backward += reduction(gradients(self.reduction()));
                data.step += gathered;
            }
            ZeroStage::Parameters => {
                data.forward += exposed(parameters, forward);
                let reduce = gradients(self.reduction());
                data.backward += exposed(parameters + reduce, backward);
            }
        }
        if each {
            data.backward += std::mem::take(&mut data.step);
        }
        data
    }

    /// What reduces gradients over the replicas.
    pub(crate) fn reduction(&self) -> Collective {
        let reduces_whole = self.problem.hardware.framework.reduces_whole_gradients;
        match self.spec.zero_stage {
            ZeroStage::None => Collective::AllReduce,
            ZeroStage::OptimizerState if reduces_whole => Collective::AllReduce,
            _ => Collective::ReduceScatter,
        }
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
        let mesh = self.spec.mesh();
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
            self.spec.expert_replicas(),
            self.spec.expert_shards(),
            mesh.expert_ranks(expert_parallel),
        );
        let stride = mesh.stride(MeshAxis::ContextData);
        let dense = time(holdings.dense, self.replicas(), zero_shard, stride);
        let alone = (dense + experts) * pieces as f64;
        alone * self.problem.hardware.framework.data_collectives
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

    /// The reduction of a chunk's gradients over its two copies, where it has two. The replicas of each
    /// have reduced theirs, and each exchanges its part of them with its counterpart.
    ///
    /// # Source
    ///
    /// Li and Hoefler 2021, *Chimera* (arXiv 2107.06925): bidirectional pipelines reduce over the copies of
    /// a stage as over replicas.
    pub(crate) fn reduction_of_copies(&self, holdings: &Holdings, chunk: usize) -> Seconds {
        let Some(copies) = self.copies(chunk) else { return Seconds::ZERO };
        let bytes = self.bytes_between_copies(holdings);
        self.problem.hardware.network.time(Collective::AllReduce, copies, bytes)
    }

    /// Gradients of a chunk that a rank exchanges with the one that has the other copy.
    pub(crate) fn bytes_between_copies(&self, holdings: &Holdings) -> Bytes {
        let parameters = holdings.dense.div_ceil(self.replicas().into())
            + holdings.expert.div_ceil(self.spec.expert_replicas().into());
        Bytes::new(parameters * self.bytes.gradient)
    }

    /// The ranks with the copies of a chunk, where there are two.
    pub(crate) fn copies(&self, chunk: usize) -> Option<Group> {
        let ranks = PipelineRanks::of(&self.spec);
        let mut with = ranks.with(chunk);
        let (first, second) = (with.next()?, with.next()?);
        let stride = ranks.group.stride * first.abs_diff(second) as u32;
        Some(Group { size: 2, stride })
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
            + owned(stage.holdings.expert, self.spec.expert_shards());
        optimizer_step(owned, self.bytes, &self.problem.hardware.device)
    }

    /// Time and memory together.
    pub fn evaluate(&self, stages: &[Stage]) -> Evaluation {
        let (step_time, breakdown) = self.time(stages);
        let (memory, fullest_stage) = self.peak_memory(stages);
        Evaluation { step_time, breakdown, memory, fullest_stage }
    }
}
