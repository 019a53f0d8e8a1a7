//! Requirements on layouts that follow from model, batch and number of GPUs.

use std::collections::BTreeSet;

use super::error::{LayoutError, largest_divisor};
use super::mesh::{MeshAxis, common_divisor};
use super::offload::OffloadedActivations;
use super::spec::LayoutSpec;
use super::zero::ZeroStage;
use crate::graph::{
    ContextParallelKind, DimName, Graph, Node, OffloadModules, OpKind, Recompute, RecomputeModules,
};
use crate::schedule::ScheduleKind;

/// Sizes of model and job that a layout must respect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of GPUs, all of which are used.
    pub num_gpus: u32,
    /// Number of GPUs of each group, where they are of several kinds; else empty.
    pub gpus_by_group: Vec<u32>,
    /// Sequences in a step.
    pub global_batch_size: u64,
    /// Tokens in a sequence.
    pub sequence_length: u64,
    /// Blocks in the chain.
    pub num_blocks: u64,
    /// Every distinct number of query heads.
    pub heads: Vec<u64>,
    /// Every distinct number of key-value heads.
    pub kv_heads: Vec<u64>,
    /// Every distinct number of groups of heads that share the inputs and outputs of a recurrent state, or a
    /// projection.
    pub groups: Vec<u64>,
    /// Every distinct number of heads of a recurrent state; a context-parallel rank has each of its heads for all
    /// positions.
    pub state_heads: Vec<u64>,
    /// Every distinct inner width, except those of experts.
    pub intermediate_sizes: Vec<u64>,
    /// Every distinct inner width of an expert.
    pub expert_intermediate_sizes: Vec<u64>,
    /// Every distinct number of experts.
    pub experts: Vec<u64>,
    /// True if shapes depend on the sequence length.
    pub has_sequence: bool,
    /// Modules that selective recompute applies to, where these were chosen.
    pub recomputed_modules: Option<RecomputeModules>,
    /// Modules whose activations can be offloaded individually.
    pub offload_modules: Option<OffloadModules>,
    /// True if the memory of the hosts is known.
    pub has_host: bool,
}

/// A requirement of a layout whose degrees and counts are at least 1; the error names values that meet it.
type Requirement = fn(&Limits, &LayoutSpec) -> Result<(), LayoutError>;

/// All requirements, in the order in which they are reported. A search checks each requirement separately, as soon as
/// the fields that it reads are decided.
const REQUIREMENTS: [Requirement; 12] = [
    Limits::degrees_fill_gpus,
    Limits::heads_divide,
    Limits::sequence_divides,
    Limits::expert_widths_divide,
    Limits::experts_divide,
    Limits::replicas_lie_in_groups,
    Limits::batch_divides,
    Limits::shards_divide,
    Limits::recompute_is_of_graph,
    Limits::offload_is_possible,
    Limits::stages_have_blocks,
    Limits::schedule_runs,
];

impl Limits {
    pub(super) fn check(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        if let Some(name) = spec.zero() {
            return Err(LayoutError::Zero { name });
        }
        REQUIREMENTS.iter().try_for_each(|requirement| requirement(self, spec))
    }

    /// The limits that follow from a graph. Hosts are assumed to be known.
    pub fn new(graph: &Graph, num_gpus: u32, global_batch_size: u64, sequence_length: u64) -> Self {
        let nodes = || graph.classes().flat_map(|(_, block)| block.nodes());
        let num_experts = |node: &Node<'_>| match node.op.kind {
            OpKind::GroupedLinear { num_experts, .. } => Some(num_experts),
            _ => None,
        };
        // Sizes of a dimension of parameters, of operators with such experts or without.
        let sizes = |name: DimName, is_meant: fn(Option<u64>) -> bool| {
            let nodes = nodes().filter(|node| is_meant(num_experts(node)));
            let dims = nodes.flat_map(|node| &node.op.parameters).flat_map(|it| &it.dims);
            distinct(dims.filter(|dim| dim.name == name).filter_map(|dim| dim.extent.fixed()))
        };
        let state_heads = graph.classes().flat_map(|(_, block)| {
            block.nodes().filter_map(move |node| block.state_heads(node.id))
        });
        Self {
            num_gpus,
            gpus_by_group: Vec::new(),
            global_batch_size,
            sequence_length,
            num_blocks: graph.num_blocks() as u64,
            heads: sizes(DimName::Heads, |_| true),
            kv_heads: sizes(DimName::KvHeads, |_| true),
            groups: sizes(DimName::Groups, |_| true),
            state_heads: distinct(state_heads),
            intermediate_sizes: sizes(DimName::Intermediate, |experts| experts.is_none()),
            expert_intermediate_sizes: sizes(DimName::Intermediate, |experts| experts.is_some()),
            experts: distinct(nodes().filter_map(|node| num_experts(&node))),
            has_sequence: graph.has_sequence(),
            recomputed_modules: graph.recomputed_modules(),
            offload_modules: graph.offload_modules(),
            has_host: true,
        }
    }

    /// Requires that the tensor-parallel degree divides heads and inner widths, except those of experts. There may be
    /// fewer key-value heads than ranks, which then replicate them in groups. The vocabulary is padded.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] with the size that is not divisible.
    pub fn heads_divide(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let degree = spec.tensor_parallel.into();
        let sharded =
            [&self.heads, &self.groups, &self.intermediate_sizes, &self.expert_intermediate_sizes];
        if degree > 1 && sharded.into_iter().all(Vec::is_empty) {
            return Err(LayoutError::NothingToShard { axis: "tensor_parallel", degree });
        }
        let Some((what, size)) = self.undivided_by(degree) else { return Ok(()) };
        let fits = |other: &u64| {
            u64::from(self.num_gpus).is_multiple_of(*other) && self.undivided_by(*other).is_none()
        };
        let works = (1..degree.min(size + 1)).rev().find(fits).unwrap_or(1);
        Err(LayoutError::NotDivisible { what, size, by: "`tensor_parallel`", degree, works })
    }

    /// The first size that is not divisible by a tensor-parallel degree, with its name.
    fn undivided_by(&self, degree: u64) -> Option<(&'static str, u64)> {
        let all = [
            ("attention heads", &self.heads),
            ("groups of heads", &self.groups),
            ("intermediate size", &self.intermediate_sizes),
        ];
        let whole = all.into_iter().find_map(|(what, sizes)| {
            let size = sizes.iter().find(|size| !size.is_multiple_of(degree))?;
            Some((what, *size))
        });
        let is_cut = |size: &&u64| !size.is_multiple_of(degree) && !degree.is_multiple_of(**size);
        let shared = self.kv_heads.iter().find(is_cut);
        whole.or_else(|| Some(("key-value heads", *shared?)))
    }

    /// Requires that the sequence divides over context and sequence parallelism. For equal work in a ring with a causal
    /// mask, each context-parallel rank takes two parts, one from either end. Exchanged heads must divide too.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] with the length that is not divisible.
    pub fn sequence_divides(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let [context, tensor] = [spec.context_parallel, spec.tensor_parallel].map(u64::from);
        let sequence_parallel = spec.sequence_parallel;
        if sequence_parallel && tensor == 1 {
            return Err(LayoutError::SequenceParallelAlone);
        }
        if !self.has_sequence {
            return if context > 1 {
                Err(LayoutError::NothingToShard { axis: "context_parallel", degree: context })
            } else if sequence_parallel {
                Err(LayoutError::NothingToShard { axis: "sequence_parallel", degree: tensor })
            } else {
                Ok(())
            };
        }
        let is_ring = spec.context_parallel_kind == ContextParallelKind::Ring;
        if !is_ring {
            self.head_exchange(spec)?;
        }
        if let Some(heads) = self.state_heads.iter().find(|it| **it % (tensor * context) != 0)
            && context > 1
        {
            let by =
                "`tensor_parallel` x `context_parallel`, between whose ranks they are exchanged:";
            return Err(LayoutError::undivided("state heads", *heads, by, tensor * context));
        }
        let parts = if context > 1 && is_ring { 2 * context } else { context };
        let parts = if sequence_parallel { parts * tensor } else { parts };
        if self.sequence_length.is_multiple_of(parts) {
            Ok(())
        } else {
            let twice = if is_ring { ", two on each rank of the ring" } else { "" };
            let of_context = format!("`context_parallel` {context}{twice}");
            let of_tensor = format!("`sequence_parallel` over `tensor_parallel` {tensor}");
            let of = [(context > 1, of_context), (sequence_parallel, of_tensor)];
            Err(LayoutError::SequenceUndivided {
                length: self.sequence_length,
                parts,
                of: of.into_iter().filter_map(|(is_cut, what)| is_cut.then_some(what)).collect(),
            })
        }
    }

    /// Requires that heads can be exchanged between context-parallel ranks: these ranks must divide each
    /// tensor-parallel rank's heads, and its key-value heads too, as no head is replicated.
    fn head_exchange(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let context = u64::from(spec.context_parallel);
        if context == 1 {
            return Err(LayoutError::HeadExchangeAlone);
        }
        if self.heads.is_empty() {
            return Err(LayoutError::NothingToShard { axis: "context_parallel", degree: context });
        }
        let degree = u64::from(spec.tensor_parallel) * context;
        let all = [("attention heads", &self.heads), ("key-value heads", &self.kv_heads)];
        for (what, sizes) in all {
            if let Some(size) = sizes.iter().find(|size| **size % degree != 0) {
                let by = "`tensor_parallel` x `context_parallel`, between whose ranks `all_to_all` exchanges them:";
                return Err(LayoutError::undivided(what, *size, by, degree));
            }
        }
        Ok(())
    }

    /// Requires that experts divide over their ranks, and that these fit within tensor, context and data parallelism.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] with the number that is not divisible.
    pub fn experts_divide(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let (mesh, sharding) = (spec.mesh(), spec.sharding());
        let expert = u64::from(sharding.expert_parallel);
        if expert > 1 && self.experts.is_empty() {
            return Err(LayoutError::NothingToShard { axis: "expert_parallel", degree: expert });
        }
        let ranks = u64::from(mesh.stride(MeshAxis::Pipeline) / sharding.expert_tensor_parallel);
        if let Some(size) = self.experts.iter().find(|size| **size % expert != 0) {
            return Err(LayoutError::NotDivisible {
                what: "experts",
                size: *size,
                by: "`expert_parallel`",
                degree: expert,
                works: largest_divisor(common_divisor(*size, ranks), expert),
            });
        }
        let what = match sharding.expert_tensor_parallel {
            cut if cut == sharding.tensor_parallel => "context x data parallel ranks",
            1 => "tensor x context x data parallel ranks",
            _ => "tensor x context x data parallel ranks over `expert_tensor_parallel`,",
        };
        if !ranks.is_multiple_of(expert) {
            return Err(LayoutError::NotDivisible {
                what,
                size: ranks,
                by: "`expert_parallel`",
                degree: expert,
                works: self.experts.iter().fold(largest_divisor(ranks, expert), |most, experts| {
                    largest_divisor(common_divisor(ranks, *experts), most)
                }),
            });
        }
        Ok(())
    }

    /// Requires that experts can be sharded over `expert_tensor_parallel` ranks. That number may be below the
    /// tensor-parallel degree only if each tensor-parallel rank has separate tokens to send to the experts.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] with the size that is not divisible, or the missing requirement.
    pub fn expert_widths_divide(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let (degree, tensor_parallel) = (spec.expert_tensor_parallel, spec.tensor_parallel);
        let is_cut_as_all = degree == tensor_parallel;
        if !tensor_parallel.is_multiple_of(degree) {
            let [size, degree] = [tensor_parallel, degree].map(u64::from);
            let by = "`expert_tensor_parallel`";
            return Err(LayoutError::undivided("`tensor_parallel`", size, by, degree));
        }
        let needs = if self.experts.is_empty() {
            Some("a model with experts")
        } else if !spec.sequence_parallel {
            Some("`sequence_parallel`")
        } else {
            None
        };
        if let Some(needs) = needs.filter(|_| !is_cut_as_all) {
            return Err(LayoutError::ExpertTensor { needs, degree, tensor_parallel });
        }
        let mut sizes = self.expert_intermediate_sizes.iter();
        match sizes.find(|size| !size.is_multiple_of(degree.into())) {
            Some(size) => Err(LayoutError::NotDivisible {
                what: "intermediate size of experts",
                size: *size,
                by: if is_cut_as_all { "`tensor_parallel`" } else { "`expert_tensor_parallel`" },
                degree: degree.into(),
                works: common_divisor(*size, degree.into()),
            }),
            None => Ok(()),
        }
    }

    /// Requires a block for every stage.
    ///
    /// # Errors
    ///
    /// [`LayoutError::TooManyStages`] with the number of stages and of blocks.
    pub fn stages_have_blocks(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let stages = u64::from(spec.pipeline_parallel) * u64::from(spec.virtual_stages);
        let blocks = self.num_blocks;
        if stages > blocks { Err(LayoutError::TooManyStages { stages, blocks }) } else { Ok(()) }
    }

    /// Requires that the schedule can run with these numbers of ranks, stages of each and micro-batches.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] with the requirement of the schedule.
    pub fn schedule_runs(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let schedule = spec.schedule;
        let [p, v, m] = [spec.pipeline_parallel, spec.virtual_stages, spec.num_micro_batches];
        let problem = |needs: String| Err(LayoutError::Schedule { schedule, needs });
        if schedule.is_interleaved() && (v < 2 || p < 2) {
            return problem(format!(
                "`virtual_stages` and `pipeline_parallel` of at least 2, not {v} and {p}\nhint: `--virtual-stages 2` and `--pp 2`, \
                 or more"
            ));
        }
        if schedule == ScheduleKind::Interleaved && m % p != 0 {
            let works = super::error::multiples_around(m.into(), p.into());
            return problem(format!(
                "micro-batches that divide by the {p} ranks, not {m}\nhint: a batch that makes {works}, or smaller micro-batches"
            ));
        }
        if p == 1 && schedule != ScheduleKind::OneFOneB {
            let needs = "`pipeline_parallel` of at least 2\nhint: `--pp 2` or more, or leave the schedule out: one rank has no \
                         order to choose";
            return problem(needs.to_owned());
        }
        Ok(schedule.check_numbers(p, m, v)?)
    }

    /// Requires that the degrees multiply to the number of GPUs.
    fn degrees_fill_gpus(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let LayoutSpec { tensor_parallel, context_parallel, pipeline_parallel, .. } = *spec;
        let degrees = [tensor_parallel, context_parallel, pipeline_parallel];
        let model_parallel: u128 = degrees.into_iter().map(u128::from).product();
        let (needs, has) = (model_parallel * u128::from(spec.data_parallel), self.num_gpus);
        if needs == u128::from(has) {
            return Ok(());
        }
        let fits = u128::from(has).is_multiple_of(model_parallel);
        let fitting_data_parallel = fits.then(|| (u128::from(has) / model_parallel) as u32);
        let layout = spec.to_string();
        Err(LayoutError::GpuCount { layout, needs, has, fitting_data_parallel })
    }

    /// Requires that the batch is a whole number of micro-batches over all replicas.
    fn batch_divides(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let LayoutSpec { data_parallel, micro_batch_size, num_micro_batches, .. } = *spec;
        if !spec.micro_batches_by_group.is_empty() {
            let (batch, sequences) = (self.global_batch_size, self.sequences_by_group(spec));
            let error = LayoutError::BatchByGroup { global_batch_size: batch, sequences };
            return if sequences == u128::from(batch) { Ok(()) } else { Err(error) };
        }
        let [d, b, m] = [data_parallel, micro_batch_size, num_micro_batches].map(u64::from);
        if d.checked_mul(b).and_then(|db| db.checked_mul(m)) == Some(self.global_batch_size) {
            return Ok(());
        }
        Err(LayoutError::Batch {
            global_batch_size: self.global_batch_size,
            data_parallel: d,
            micro_batch_size: b,
            num_micro_batches: m,
        })
    }

    /// Sequences of all replicas in a step, where groups of replicas differ.
    fn sequences_by_group(&self, spec: &LayoutSpec) -> u128 {
        let gpus = self.gpus_by_group.iter().zip(spec.micro_batches_by_group.numbers());
        let replicas = gpus.map(|(gpus, micro_batches)| {
            u128::from(gpus / spec.gpus_per_replica()) * u128::from(*micro_batches)
        });
        replicas.sum::<u128>() * u128::from(spec.micro_batch_size)
    }

    /// Requirements on replicas whose numbers of micro-batches differ by group: each replica lies within one group,
    /// the schedule can run each group's number of micro-batches, and ranks that share experts are in one group.
    fn replicas_lie_in_groups(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let numbers = spec.micro_batches_by_group.numbers();
        if numbers.is_empty() {
            return Ok(());
        }
        let largest = numbers.iter().max() == Some(&spec.num_micro_batches);
        if numbers.len() != self.gpus_by_group.len() || !largest {
            let (by_group, groups) = (spec.micro_batches_by_group, self.gpus_by_group.len());
            let num_micro_batches = spec.num_micro_batches;
            return Err(LayoutError::MicroBatchesByGroup { by_group, groups, num_micro_batches });
        }
        self.replicas_fill_groups(spec)?;
        (0..numbers.len()).try_for_each(|group| self.schedule_runs(&spec.of_group(group)))
    }

    /// Requires that each group's GPUs form whole replicas, and its ranks of a stage whole sets of experts.
    ///
    /// # Errors
    ///
    /// [`LayoutError::GroupsOfReplicas`], with a number of GPUs per replica that would work.
    pub fn replicas_fill_groups(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let gpus_per_replica = spec.gpus_per_replica();
        let expert_ranks = spec.mesh().expert_ranks();
        let fills = |gpus: &u32| {
            gpus.is_multiple_of(gpus_per_replica)
                && (gpus / spec.pipeline_parallel).is_multiple_of(expert_ranks)
        };
        if self.gpus_by_group.iter().all(fills) {
            return Ok(());
        }
        let all = self.gpus_by_group.iter().copied().map(u64::from);
        let works = all.fold(0, common_divisor) as u32;
        let gpus = self.gpus_by_group.clone();
        Err(LayoutError::GroupsOfReplicas { gpus_per_replica, expert_ranks, gpus, works })
    }

    /// Requires that the ranks that shard states divide the replicas. Also requires that the ranks which together hold
    /// one copy of all states, `zero_shard` for each tensor-parallel rank, hold every expert equally often.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] with the number of ranks that is not divisible.
    pub fn shards_divide(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let (mesh, shards) = (spec.mesh(), u64::from(spec.zero_shard));
        let replicas = u64::from(mesh.replicas());
        if !replicas.is_multiple_of(shards) {
            let what = "context x data parallel ranks";
            return Err(LayoutError::undivided(what, replicas, "`zero_shard`", shards));
        }
        let (tensor, ranks) = (u64::from(spec.tensor_parallel), u64::from(mesh.expert_ranks()));
        if spec.zero_stage == ZeroStage::None || (shards * tensor).is_multiple_of(ranks) {
            return Ok(());
        }
        let by = if spec.expert_tensor_parallel == spec.tensor_parallel {
            "`expert_parallel`"
        } else {
            "the ranks of each tensor-parallel place over which experts are spread:"
        };
        let degree = ranks / common_divisor(ranks, tensor);
        Err(LayoutError::undivided("zero_shard", shards, by, degree))
    }

    /// Requirements on offload: a host, states sharded so that they can be offloaded, no more blocks than the model
    /// has, and a schedule that supports it.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] with the conflict.
    pub fn offload_is_possible(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let LayoutSpec { offload, zero_stage, schedule, .. } = *spec;
        if offload.is_some() && !self.has_host {
            return Err(LayoutError::UnknownHost { offload });
        }
        if !offload.works_with_zero(zero_stage) {
            return Err(LayoutError::OffloadedParameters { offload, zero_stage });
        }
        if let OffloadedActivations::Blocks(each) = offload.activations
            && u64::from(each.get()) > self.num_blocks
        {
            let (blocks, num_blocks) = (each.get(), self.num_blocks);
            return Err(LayoutError::OffloadedBlocks { blocks, num_blocks });
        }
        if let OffloadedActivations::Modules(modules) = offload.activations
            && !self
                .offload_modules
                .is_some_and(|known| modules.iter().any(|it| known.contains(it)))
        {
            return Err(LayoutError::OffloadedModules { modules, known: self.offload_modules });
        }
        if !offload.works_with_schedule(schedule) {
            let needs = format!(
                "what it keeps to be on the device, not `offload` {offload}: it has two backwards for each forward, \
                 stages on two ranks, or updates after each micro-batch"
            );
            return Err(LayoutError::Schedule { schedule, needs });
        }
        Ok(())
    }

    /// Requires selective recompute of the same modules in the layout and in the graph.
    fn recompute_is_of_graph(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        let recompute = spec.recompute;
        let is_selective = recompute == Recompute::Selective || recompute.modules().is_some();
        if is_selective && recompute.modules() != self.recomputed_modules {
            let modules = self.recomputed_modules.map(Recompute::Modules);
            let of_graph = modules.unwrap_or(Recompute::Selective);
            return Err(LayoutError::Recompute { recompute, of_graph });
        }
        Ok(())
    }
}

/// The distinct numbers, in order.
fn distinct(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    numbers.collect::<BTreeSet<_>>().into_iter().collect()
}
