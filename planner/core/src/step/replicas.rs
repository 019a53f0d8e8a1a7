//! Exchanges between the replicas of a stage, and the update of parameters.

use cost_models::states::{StateBytes, optimizer_step, orthogonalisation, touched_by_host_update};
use cost_models::{Hardware, HostShare, StridedGroup};
use ir::cluster::Precision;
use ir::collective::Collective;
use ir::framework::{ExchangeBuffers, GradientFormat, GradientSum};
use ir::graph::LocalParameters;
use ir::layout::{Layout, LayoutSpec, MeshAxis, ZeroStage};
use ir::plan::{Optimizer, Training};
use ir::replication::{DataParallelMethod, GradientCompression};
use ir::schedule::Updates;
use ir::units::{Bytes, Nanos, Seconds};
use simulator::{SharedWeights, Transfer};
use smallvec::{SmallVec, smallvec};

use super::holdings::Holdings;
use super::ranks::PipelineRanks;
use crate::problem::{Problem, ReplicasByGroup};

/// Minimum number of parameters in a bucket of gradients.
///
/// # Source
///
/// Megatron-Core, `DistributedDataParallelConfig.bucket_size`: the larger of 40 M and 1 M for each
/// data-parallel rank, so that rings over many ranks stay bound by bandwidth.
pub(crate) const BUCKET_PARAMETERS: u64 = 40_000_000;

/// Minimum number of parameters in a bucket for each data-parallel rank; see [`BUCKET_PARAMETERS`].
const BUCKET_PARAMETERS_PER_RANK: u64 = 1_000_000;

/// Bytes of an element of the compression error, which is held in fp32.
const LEFT_OUT_BYTES: u64 = 4;

/// Bytes of a master weight.
const MASTER_BYTES: u64 = 4;

/// True if replicas exchange parameters or gradients with each micro-batch, so that all must have the same number of
/// micro-batches.
pub(crate) fn exchanges_each_micro_batch(problem: &Problem, layout: &Layout) -> bool {
    layout.zero_stage == ZeroStage::Parameters || Replicas::new(problem, layout, 0).reduces_each()
}

/// A collective within one group of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupExchange {
    pub(super) collective: Collective,
    pub(super) group: StridedGroup,
    /// Bytes of the whole buffer, as defined by [`Collective`].
    pub(super) bytes: Bytes,
}

/// Collectives run one after the other: one, or with hybrid sharding two.
pub(super) type GroupExchanges = SmallVec<[GroupExchange; 2]>;

/// Groups that reduce a layout's gradients and gather its parameters.
pub(super) struct Replicas<'a> {
    pub(super) hardware: &'a Hardware,
    pub(super) layout: &'a Layout,
    pub(super) bytes: StateBytes,
    pub(super) precision: Precision,
    pub(super) method: DataParallelMethod,
    pub(super) compression: Option<GradientCompression>,
    /// Groups of GPUs in which the replicas lie, where GPUs are of several kinds.
    groups: Option<&'a ReplicasByGroup>,
}

/// The GPU's share of its host.
pub(super) fn host(hardware: &Hardware) -> HostShare {
    hardware.host.expect("layouts offload where something is known of hosts")
}

impl<'a> Replicas<'a> {
    /// The groups of a pipeline rank whose GPUs are in `group`.
    pub(super) fn new(problem: &'a Problem, layout: &'a Layout, group: usize) -> Self {
        let bytes = problem.state_bytes();
        let Training {
            precision,
            data_parallel_method: method,
            gradient_compression: compression,
            ..
        } = problem.training;
        let hardware = problem.hardware_of(group);
        let groups = problem.replica_groups.as_ref();
        Self { hardware, layout, bytes, precision, method, compression, groups }
    }

    /// Time of a collective over replicas.
    fn time(&self, collective: Collective, group: StridedGroup, bytes: Bytes) -> Seconds {
        let whole = self.layout.ranks_per_stage();
        match self.groups.filter(|_| group.size * group.stride == whole) {
            // Shards of fewer than all replicas lie in one group.
            None => self.hardware.network.time(collective, group, bytes),
            Some(groups) => groups.time(collective, group, bytes),
        }
    }

    /// Ranks that reduce gradients of dense parameters.
    pub(super) fn group(&self) -> StridedGroup {
        let mesh = self.layout.mesh();
        StridedGroup { size: mesh.replicas(), stride: mesh.stride(MeshAxis::ContextData) }
    }

    /// True if replicas do not wait for each other, and so compute no norm of all gradients.
    pub(super) fn is_asynchronous(&self) -> bool {
        matches!(self.method, DataParallelMethod::Asynchronous { .. })
    }

    /// True if parameters are updated after each micro-batch, and gradients reduced before that.
    pub(super) fn updates_each(&self) -> bool {
        self.layout.schedule.updates() == Updates::AfterEachMicroBatch
    }

    /// True if a rank holds the sum of all gradients of its stages until the last micro-batch and reduces it then,
    /// though it updates only a shard.
    pub(super) fn sums_whole_gradients(&self) -> bool {
        let is_whole = match self.hardware.framework.gradients.sharded_sum {
            GradientSum::Whole => true,
            GradientSum::WholeInPipelines => self.layout.pipeline_parallel > 1,
            GradientSum::Part => false,
        };
        is_whole
            && self.layout.zero_stage >= ZeroStage::Gradients
            && self.layout.num_micro_batches > 1
            && !self.layout.offload.optimizer
    }

    /// True if gradients are reduced with each micro-batch.
    pub(super) fn reduces_each(&self) -> bool {
        let is_sharded = self.layout.zero_stage >= ZeroStage::Gradients;
        is_sharded && !self.sums_whole_gradients() || self.updates_each()
    }

    /// Collective that reduces gradients over the replicas, if they are not compressed.
    fn reduction(&self) -> Collective {
        match self.layout.zero_stage {
            ZeroStage::None => Collective::AllReduce,
            // Muon's ranks need the gradients of whole matrices.
            ZeroStage::OptimizerState
                if self.hardware.framework.gradients.zero_1_sum == GradientSum::Whole
                    || self.bytes.kind == Optimizer::Muon =>
            {
                Collective::AllReduce
            }
            _ => Collective::ReduceScatter,
        }
    }

    /// Number of buckets in which a stage's parameters are gathered and its gradients reduced: at most the number of
    /// blocks, and exactly one for each block with ZeRO-3 or offloaded activations.
    pub(super) fn buckets(&self, holdings: &Holdings, num_blocks: usize) -> u64 {
        let is_by_block = self.layout.zero_stage == ZeroStage::Parameters
            || self.layout.offload.activations.is_some();
        let buckets = if is_by_block {
            u64::from(holdings.num_blocks)
        } else {
            let for_ranks = BUCKET_PARAMETERS_PER_RANK * u64::from(self.group().size);
            holdings.parameters.trained().div_ceil(BUCKET_PARAMETERS.max(for_ranks))
        };
        buckets.min(num_blocks as u64).max(1)
    }

    /// True if replicas reduce their gradients before the update.
    fn brings_gradients_together(&self) -> bool {
        matches!(self.method, DataParallelMethod::AllReduce | DataParallelMethod::ParameterServer)
    }

    /// Reduction of one bucket of a stage's gradients; `None` where there is one replica, or each updates by itself.
    /// Kernels that compress and decompress gradients are overlapped with the passes too.
    pub(super) fn reduce(&self, holdings: &Holdings, buckets: u64) -> Option<Transfer> {
        if !self.brings_gradients_together() {
            return None;
        }
        let group = self.group();
        if self.method == DataParallelMethod::ParameterServer {
            return self.to_one(group, self.gradients(holdings).shard(buckets));
        }
        let Some(compression) = self.compression else {
            return self.transfer(self.reduction(), holdings, buckets);
        };
        let payload = holdings.compressed.shard(buckets);
        let (collective, bytes) = if compression.is_reducible() {
            (Collective::AllReduce, payload)
        } else {
            (Collective::AllGather, payload * u64::from(group.size))
        };
        let sent =
            self.time(collective, group, bytes) * self.hardware.framework.exchanges.over_replicas;
        let elements = holdings.parameters.trained().div_ceil(buckets);
        let coded = self.compression_kernels(compression, elements, bytes);
        let time = Nanos::from(sent + coded);
        (group.size > 1).then_some(Transfer::new(collective, time, bytes))
    }

    /// Time of the kernels that compress a gradient and decompress the received ones. They read the gradient and the
    /// error of the last step, write the new error, and write a gradient from the received data. Finding the largest
    /// elements takes three more passes, as radix selection has one pass for each of the first digits.
    fn compression_kernels(
        &self,
        compression: GradientCompression,
        elements: u64,
        received: Bytes,
    ) -> Seconds {
        let selections = match compression {
            GradientCompression::TopK(_) => 3,
            _ => 0,
        };
        let left_out = LEFT_OUT_BYTES * elements;
        let gradient = self.bytes.gradient * elements;
        let touched = 2 * gradient + (2 + selections) * left_out;
        let touched = Bytes::new(touched) + received;
        self.hardware.device.training_memory_bound(self.precision, touched)
    }

    /// Compression error of a replica's gradients, which is held for the next step, in bytes.
    pub(super) fn left_out(&self, held: &Holdings) -> Bytes {
        let elements = self.compression.map_or(0, |_| held.parameters.trained());
        Bytes::new(LEFT_OUT_BYTES * elements)
    }

    /// Gradients of other replicas that a parameter server holds at once: those of one block.
    pub(super) fn gathered_gradients(&self, held: &Holdings) -> Bytes {
        if self.method != DataParallelMethod::ParameterServer {
            return Bytes::ZERO;
        }
        let others = u64::from(self.group().size - 1);
        Bytes::new(held.largest_block * self.bytes.gradient * others)
    }

    /// Messages of `bytes` from each other rank to one; `None` if there are no others.
    fn to_one(&self, group: StridedGroup, bytes: Bytes) -> Option<Transfer> {
        let time = self.hardware.network.to_one(group, bytes).into();
        let bytes = bytes * u64::from(group.size.saturating_sub(1));
        (group.size > 1).then_some(Transfer::new(Collective::SendReceive, time, bytes))
    }

    /// Exchange of weights after an update, from a parameter server or with neighbours, and the time of averaging.
    pub(super) fn after_update(&self, held: &Holdings) -> Option<(Transfer, Seconds)> {
        let group = self.group();
        if group.size == 1 {
            return None;
        }
        let elements = held.parameters.trained();
        let weights = Bytes::new(elements * self.bytes.parameter);
        match self.method {
            DataParallelMethod::AllReduce => None,
            DataParallelMethod::ParameterServer => {
                let collective = Collective::Broadcast;
                let time = self.time(collective, group, weights).into();
                Some((Transfer::new(collective, time, weights), Seconds::ZERO))
            }
            DataParallelMethod::RingAveraging => {
                // On a ring of two, both neighbours are the same rank.
                let neighbours = u64::from(group.size - 1).min(2);
                let master =
                    if self.bytes.has_master { MASTER_BYTES } else { self.bytes.parameter };
                let sent = Bytes::new(elements * master) * neighbours;
                let time = self.hardware.to_neighbour(group, sent).into();
                let average = sent + Bytes::new(elements * (2 * master + self.bytes.parameter));
                let collective = Collective::SendReceive;
                let transfer = Transfer::new(collective, time, sent);
                Some((
                    transfer,
                    self.hardware.device.training_memory_bound(self.precision, average),
                ))
            }
            DataParallelMethod::Asynchronous { .. } => {
                let time = self.hardware.to_neighbour(group, weights).into();
                let collective = Collective::SendReceive;
                Some((Transfer::new(collective, time, weights), Seconds::ZERO))
            }
        }
    }

    /// Message of a replica that updates the shared weights asynchronously, with its wait for other replicas.
    pub(super) fn push(&self, held: &Holdings, compute: Nanos) -> Option<Transfer> {
        let shared = self.shared_weights(held, compute)?;
        let gradients = self.gradients(held);
        let push = Nanos::from(self.hardware.to_neighbour(self.group(), gradients));
        let alone = compute + shared.push + shared.pull;
        let time = push + (shared.step_time_of_equals() - alone);
        Some(Transfer::new(Collective::SendReceive, time, gradients))
    }

    /// Weights that asynchronous replicas share, where each replica computes for a time of `compute`; `None` for other
    /// methods.
    pub(super) fn shared_weights(&self, held: &Holdings, compute: Nanos) -> Option<SharedWeights> {
        let DataParallelMethod::Asynchronous { staleness } = self.method else { return None };
        let group = self.group();
        let sent = self.hardware.to_neighbour(group, self.gradients(held));
        let push = Nanos::from(sent) + Nanos::from(self.update(held));
        let pull = self.after_update(held)?.0.time;
        let compute = vec![compute; group.size as usize];
        Some(SharedWeights { compute, push, pull, staleness })
    }

    /// Bytes of a replica's gradients.
    fn gradients(&self, held: &Holdings) -> Bytes {
        Bytes::new(held.parameters.trained() * self.bytes.gradient)
    }

    /// Gather of one bucket of a stage's parameters, or reduction of its gradients; `None` where there is one replica.
    /// With hybrid sharding it runs over the shards, and for gradients an all-reduce of the shard over its replicas
    /// follows.
    pub(super) fn transfer(
        &self,
        collective: Collective,
        holdings: &Holdings,
        buckets: u64,
    ) -> Option<Transfer> {
        let [all_dense, all_experts] = self.transferred(collective, holdings);
        let time = |exchanges: GroupExchanges| -> Seconds {
            exchanges.iter().map(|it| self.time(it.collective, it.group, it.bytes)).sum()
        };
        let [dense, experts] = self.group_exchanges(collective, holdings, buckets).map(time);
        let framework = &self.hardware.framework;
        let mut time = Nanos::from((dense + experts) * framework.exchanges.over_replicas);
        if collective == Collective::AllGather && self.layout.zero_stage != ZeroStage::Parameters {
            let shards = f64::from(self.layout.zero_shard) / buckets as f64;
            let each = framework.parameters.microseconds_per_shard * 1e-6;
            time += Nanos::from(Seconds::new(shards * each));
        }
        let bytes = (all_dense + all_experts).shard(buckets);
        (time > Nanos::ZERO).then_some(Transfer::new(collective, time, bytes))
    }

    /// Collectives of one bucket, for dense parameters and for experts.
    pub(super) fn group_exchanges(
        &self,
        collective: Collective,
        holdings: &Holdings,
        buckets: u64,
    ) -> [GroupExchanges; 2] {
        let of = |all: Bytes, replicas: u32, shards: u32, stride: u32| -> GroupExchanges {
            let bytes = all.shard(buckets);
            let sharded = collective != Collective::AllReduce && shards < replicas;
            let size = if sharded { shards } else { replicas };
            let within = GroupExchange { collective, group: StridedGroup { size, stride }, bytes };
            if !sharded || collective == Collective::AllGather {
                return smallvec![within];
            }
            let group = StridedGroup { size: replicas / shards, stride: stride * shards };
            let bytes = bytes.shard(shards.into());
            let across = GroupExchange { collective: Collective::AllReduce, group, bytes };
            smallvec![within, across]
        };
        let [dense, experts] = self.transferred(collective, holdings);
        let mesh = self.layout.mesh();
        let StridedGroup { size, stride } = self.group();
        let expert_shards = mesh.expert_shards(self.layout.zero_shard);
        [
            of(dense, size, self.layout.zero_shard, stride),
            of(experts, mesh.expert_replicas(), expert_shards, mesh.expert_ranks()),
        ]
    }

    /// Bytes of dense parameters and of experts in a collective over the replicas. With ZeRO-3, frozen parameters are
    /// gathered in the format in which they are stored.
    fn transferred(&self, collective: Collective, holdings: &Holdings) -> [Bytes; 2] {
        let LocalParameters { dense, expert, frozen, .. } = holdings.parameters;
        let trained = |element: u64| [dense, expert].map(|count| Bytes::new(count * element));
        if collective != Collective::AllGather {
            return trained(match self.hardware.framework.gradients.reduced_as {
                GradientFormat::Held => self.bytes.gradient,
                GradientFormat::Fp32 => self.bytes.gradient.max(4),
            });
        }
        let [dense, expert] = trained(self.bytes.parameter);
        if self.layout.zero_stage == ZeroStage::Parameters {
            [dense + frozen.dense, expert + frozen.expert]
        } else {
            [dense, expert]
        }
    }

    /// Bytes that kernels read and write to bring a stage's gathered parameters out of the buffer of the collective, or
    /// its gradients into it.
    pub(super) fn buffer_copies(&self, collective: Collective, holdings: &Holdings) -> Bytes {
        let is_gather = collective == Collective::AllGather;
        let is_copied = match self.hardware.framework.parameters.buffers {
            ExchangeBuffers::InPlace => false,
            ExchangeBuffers::GradientsCopied => !is_gather,
            ExchangeBuffers::Copied => true,
        };
        if !is_copied || self.layout.zero_stage == ZeroStage::None {
            return Bytes::ZERO;
        }
        let LocalParameters { dense, expert, .. } = holdings.parameters;
        let sent = self.transferred(collective, holdings);
        // Autograd makes gradients in the precision of parameters.
        let made = [dense, expert].map(|count| Bytes::new(count * self.bytes.parameter));
        let other = if is_gather { sent } else { made };
        let replicas = [self.group().size, self.layout.mesh().expert_replicas()];
        let exchanged = sent.into_iter().zip(other).zip(replicas).filter(|(_, size)| *size > 1);
        exchanged.map(|((sent, other), _)| sent + other).sum()
    }

    fn all_reduce(&self, group: StridedGroup, bytes: Bytes) -> Transfer {
        let collective = Collective::AllReduce;
        let time = self.hardware.network.time(collective, group, bytes).into();
        Transfer::new(collective, time, bytes)
    }

    /// The reduction of tied weights' gradients between the `num_ranks` pipeline ranks that hold them, which are spread
    /// from the first to the last.
    pub(super) fn tied_reduction(&self, holdings: &Holdings, num_ranks: u32) -> Transfer {
        let size = num_ranks.max(2);
        let between = self.layout.pipeline_parallel.saturating_sub(1) / (size - 1);
        let stride = self.layout.mesh().stride(MeshAxis::Pipeline) * between.max(1);
        let bytes = Bytes::new(holdings.parameters.tied * self.bytes.gradient);
        let ranks = StridedGroup { size, stride };
        self.all_reduce(self.groups.map_or(ranks, |groups| groups.pipeline(ranks)), bytes)
    }

    /// The reduction of a stage's gradients over its two copies, if it has two. The replicas of each copy have reduced
    /// their gradients, and each exchanges its part with its counterpart.
    ///
    /// # Source
    ///
    /// Li and Hoefler 2021, *Chimera* (arXiv 2107.06925): bidirectional pipelines reduce over the copies of
    /// a stage as over replicas.
    pub(super) fn reduction_of_copies(
        &self,
        ranks: &PipelineRanks,
        stage: usize,
        holdings: &Holdings,
    ) -> Option<Transfer> {
        let mut with = ranks.with(stage);
        let (first, second) = (with.next()?, with.next()?);
        let stride = ranks.group.stride * first.abs_diff(second) as u32;
        let parameters = holdings.parameters.dense.div_ceil(self.group().size.into())
            + holdings.parameters.expert.div_ceil(self.layout.mesh().expert_replicas().into());
        let bytes = Bytes::new(parameters * self.bytes.gradient);
        let ends = StridedGroup { size: 2, stride };
        Some(self.all_reduce(self.groups.map_or(ends, |groups| groups.pipeline(ends)), bytes))
    }

    /// Reductions of gradients that are partial sums over tensor-parallel ranks: of norms, of adapters, of replicated
    /// key-value heads, and of experts' adapters.
    pub(super) fn partial_reductions(
        &self,
        holdings: &Holdings,
    ) -> impl Iterator<Item = (StridedGroup, Transfer)> + use<> {
        let LayoutSpec { tensor_parallel, expert_tensor_parallel, .. } = **self.layout;
        let of = |elements: u64, size, axis| {
            let group = StridedGroup { size, stride: self.layout.mesh().stride(axis) };
            (group, self.all_reduce(group, Bytes::new(elements * self.bytes.gradient)))
        };
        let dense = of(holdings.parameters.partial_gradients, tensor_parallel, MeshAxis::Tensor);
        let experts = of(
            holdings.parameters.expert_partial_gradients,
            expert_tensor_parallel,
            MeshAxis::ExpertTensor,
        );
        let copied =
            of(holdings.parameters.copied, holdings.parameters.num_copies.max(1), MeshAxis::Tensor);
        [dense, copied, experts].into_iter().filter(|(_, it)| it.time > Nanos::ZERO)
    }

    /// All-reduce of the gradient norm: one number from every GPU.
    pub(super) fn norm(&self) -> Transfer {
        let (collective, bytes) = (Collective::AllReduce, Bytes::new(4));
        let time = self.time(collective, StridedGroup::contiguous(self.layout.num_gpus()), bytes);
        Transfer::new(collective, time.into(), bytes)
    }

    /// Number of parameters that a rank updates.
    pub(super) fn owned(&self, held: &Holdings) -> u64 {
        let [dense, expert] = self.shards();
        held.parameters.dense.div_ceil(dense) + held.parameters.expert.div_ceil(expert)
    }

    /// Time of the update of the parameters that a rank owns, and of the host between steps. Where replicas lie in
    /// groups, it is the longest of all groups, as the step ends with that.
    pub(super) fn update(&self, held: &Holdings) -> Seconds {
        let Some(groups) = self.groups else { return self.update_on(self.hardware, held) };
        groups.slowest(|group| self.update_on(&group.hardware, held))
    }

    fn update_on(&self, hardware: &Hardware, held: &Holdings) -> Seconds {
        let owned = self.owned(held);
        if self.layout.offload.optimizer {
            let touched = touched_by_host_update(owned, held.mean_bytes(self.bytes));
            return host(hardware).update(touched) + hardware.host_time_of_step();
        }
        let precision = hardware.precision.activation();
        let counts = [held.parameters.trained(), owned];
        let (bytes, device) = (held.mean_bytes(self.bytes), &hardware.device);
        optimizer_step(counts, bytes, precision, device)
            + self.orthogonalisation(hardware, held)
            + hardware.host_time_of_step()
    }

    /// Time to make momenta orthogonal, where each rank treats the matrices that it owns; zero except for Muon.
    fn orthogonalisation(&self, hardware: &Hardware, held: &Holdings) -> Seconds {
        if self.bytes.kind != Optimizer::Muon {
            return Seconds::ZERO;
        }
        let [dense, expert] = self.shards();
        let flops = held.parameters.dense_shapes.iteration_flops / dense
            + held.parameters.expert_shapes.iteration_flops / expert;
        orthogonalisation(flops, hardware.precision.activation(), &hardware.device)
    }

    /// Numbers of ranks that share the update of dense parameters and that of experts.
    fn shards(&self) -> [u64; 2] {
        if self.layout.zero_stage == ZeroStage::None {
            return [1; 2];
        }
        let expert = self.layout.mesh().expert_shards(self.layout.zero_shard);
        [self.layout.zero_shard, expert].map(u64::from)
    }

    /// Exchange that brings the momenta of whole matrices to the ranks that make them orthogonal, or the updates back,
    /// where a rank has rows of every matrix: Muon with sharded gradients or parameters.
    pub(super) fn exchange_of_matrices(&self, held: &Holdings) -> Option<Transfer> {
        let is_cut = self.layout.zero_stage >= ZeroStage::Gradients;
        if self.bytes.kind != Optimizer::Muon || !is_cut || self.layout.offload.optimizer {
            return None;
        }
        let LocalParameters { dense, expert, dense_shapes, expert_shapes, .. } = held.parameters;
        let [dense_shards, expert_shards] = self.shards();
        let owned = dense.saturating_sub(dense_shapes.outside_matrices) / dense_shards
            + expert.saturating_sub(expert_shapes.outside_matrices) / expert_shards;
        let bytes = Bytes::from_f64(owned as f64 * self.bytes.moment);
        let group = self.group();
        let time = self.time(Collective::AllToAll, group, bytes)
            * self.hardware.framework.exchanges.over_replicas;
        (group.size > 1).then(|| Transfer::new(Collective::AllToAll, time.into(), bytes))
    }
}
