//! What replicas of a stage exchange, and what each of them updates.

use cost_models::states::{StateBytes, optimizer_step};
use cost_models::{Group, Hardware};
use ir::collective::Collective;
use ir::layout::{Layout, MeshAxis, ZeroStage};
use ir::schedule::Updates;
use ir::units::{Bytes, Nanos, Seconds};
use simulator::Transfer;

use super::holdings::Holdings;
use super::ranks::PipelineRanks;
use crate::problem::Problem;

/// Parameters of a bucket whose gradients are reduced together, at least.
///
/// # Source
///
/// Megatron-Core, `DistributedDataParallelConfig.bucket_size`: the larger of 40 M and 1 M for each
/// data-parallel rank, so that rings over many ranks stay bound by bandwidth.
const BUCKET_PARAMETERS: u64 = 40_000_000;

/// Parameters of a bucket for each data-parallel rank; see [`BUCKET_PARAMETERS`].
const BUCKET_PARAMETERS_PER_RANK: u64 = 1_000_000;

/// The groups that reduce a layout's gradients and gather its parameters.
pub(super) struct Replicas<'a> {
    hardware: &'a Hardware,
    layout: &'a Layout,
    pub(super) bytes: StateBytes,
}

impl<'a> Replicas<'a> {
    pub(super) fn new(problem: &'a Problem, layout: &'a Layout) -> Self {
        let bytes = StateBytes::new(&problem.training);
        Self { hardware: &problem.hardware, layout, bytes }
    }

    /// Ranks that reduce gradients of dense parameters.
    pub(super) fn group(&self) -> Group {
        let mesh = self.layout.mesh();
        Group { size: mesh.replicas(), stride: mesh.stride(MeshAxis::ContextData) }
    }

    /// Whether parameters are updated after each micro-batch, and gradients reduced before that.
    pub(super) fn updates_each(&self) -> bool {
        self.layout.schedule.updates() == Updates::AfterEachMicroBatch
    }

    /// What reduces gradients over the replicas.
    pub(super) fn reduction(&self) -> Collective {
        match self.layout.zero_stage {
            ZeroStage::None => Collective::AllReduce,
            ZeroStage::OptimizerState if self.hardware.framework.reduces_whole_gradients => {
                Collective::AllReduce
            }
            _ => Collective::ReduceScatter,
        }
    }

    /// In how many buckets a stage's parameters are reduced and gathered, with ZeRO-3 one for each block; no
    /// more than it has blocks.
    pub(super) fn buckets(&self, holdings: &Holdings, num_blocks: usize) -> u64 {
        let buckets = if self.layout.zero_stage == ZeroStage::Parameters {
            u64::from(holdings.num_blocks)
        } else {
            let for_ranks = BUCKET_PARAMETERS_PER_RANK * u64::from(self.group().size);
            (holdings.dense + holdings.expert).div_ceil(BUCKET_PARAMETERS.max(for_ranks))
        };
        buckets.min(num_blocks as u64).max(1)
    }

    /// One of the buckets in which a stage's parameters are gathered or its gradients reduced; none where
    /// there is one replica. With hybrid sharding it runs over the shards, and for gradients an all-reduce
    /// of the shard follows over the replicas of it.
    pub(super) fn transfer(
        &self,
        collective: Collective,
        holdings: &Holdings,
        buckets: u64,
    ) -> Option<Transfer> {
        let [all_dense, all_experts] = self.transferred(collective, holdings);
        let network = &self.hardware.network;
        let time = |all: Bytes, replicas: u32, shards: u32, stride: u32| {
            let bytes = all.shard(buckets);
            let sharded = collective != Collective::AllReduce && shards < replicas;
            if !sharded {
                return network.time(collective, Group { size: replicas, stride }, bytes);
            }
            let within = network.time(collective, Group { size: shards, stride }, bytes);
            if collective == Collective::AllGather {
                return within;
            }
            let across = Group { size: replicas / shards, stride: stride * shards };
            let shard = bytes.shard(shards.into());
            within + network.time(Collective::AllReduce, across, shard)
        };
        let mesh = self.layout.mesh();
        let experts = time(
            all_experts,
            mesh.expert_replicas(),
            mesh.expert_shards(self.layout.zero_shard),
            mesh.expert_ranks(),
        );
        let Group { size, stride } = self.group();
        let dense = time(all_dense, size, self.layout.zero_shard, stride);
        let time = Nanos::from((dense + experts) * self.hardware.framework.data_collectives);
        let bytes = (all_dense + all_experts).shard(buckets);
        (time > Nanos::ZERO).then_some(Transfer { collective, time, bytes })
    }

    /// Bytes of dense parameters and of experts that a collective over the replicas is for. Where all parameters
    /// are sharded, frozen ones are gathered as they are stored.
    fn transferred(&self, collective: Collective, holdings: &Holdings) -> [Bytes; 2] {
        let Holdings { dense, expert, frozen, .. } = holdings;
        let trained = |element: u64| [*dense, *expert].map(|count| Bytes::new(count * element));
        if collective != Collective::AllGather {
            return trained(self.bytes.gradient);
        }
        let [dense, expert] = trained(self.bytes.parameter);
        if self.layout.zero_stage == ZeroStage::Parameters {
            [dense + frozen.dense, expert + frozen.expert]
        } else {
            [dense, expert]
        }
    }

    fn all_reduce(&self, group: Group, bytes: Bytes) -> Transfer {
        let collective = Collective::AllReduce;
        let time = self.hardware.network.time(collective, group, bytes).into();
        Transfer { collective, time, bytes }
    }

    /// The reduction of tied weights between the ranks that have them: the first and the last.
    pub(super) fn tied_reduction(&self, holdings: &Holdings) -> Transfer {
        let between = self.layout.pipeline_parallel.saturating_sub(1).max(1);
        let stride = self.layout.mesh().stride(MeshAxis::Pipeline) * between;
        let bytes = Bytes::new(holdings.tied * self.bytes.gradient);
        self.all_reduce(Group { size: 2, stride }, bytes)
    }

    /// The reduction of a stage's gradients over its two copies, where it has two. The replicas of each
    /// have reduced theirs, and each exchanges its part of them with its counterpart.
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
        let parameters = holdings.dense.div_ceil(self.group().size.into())
            + holdings.expert.div_ceil(self.layout.mesh().expert_replicas().into());
        let bytes = Bytes::new(parameters * self.bytes.gradient);
        Some(self.all_reduce(Group { size: 2, stride }, bytes))
    }

    /// The reduction of norms' gradients over tensor-parallel ranks.
    pub(super) fn partial_reduction(&self, holdings: &Holdings) -> Transfer {
        let bytes = Bytes::new(holdings.partial_gradients * self.bytes.gradient);
        let stride = self.layout.mesh().stride(MeshAxis::Tensor);
        self.all_reduce(Group { size: self.layout.tensor_parallel, stride }, bytes)
    }

    /// The norm of all gradients: a number from every GPU.
    pub(super) fn norm(&self) -> Transfer {
        self.all_reduce(Group::contiguous(self.layout.num_gpus()), Bytes::new(4))
    }

    /// The update of what a rank owns.
    pub(super) fn update(&self, held: &Holdings) -> Seconds {
        let sharded = self.layout.zero_stage >= ZeroStage::OptimizerState;
        let owned = |parameters: u64, shards: u32| {
            if sharded { parameters.div_ceil(shards.into()) } else { parameters }
        };
        let owned = owned(held.dense, self.layout.zero_shard)
            + owned(held.expert, self.layout.mesh().expert_shards(self.layout.zero_shard));
        optimizer_step(owned, self.bytes, &self.hardware.device)
    }
}
