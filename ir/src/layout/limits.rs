//! What model, batch and number of GPUs allow.

use super::error::{LayoutError, largest_divisor};
use super::mesh::{Mesh, MeshAxis};
use super::offload::{Offload, OffloadedActivations};
use super::spec::LayoutSpec;
use super::zero::ZeroStage;
use crate::graph::{
    ContextParallelKind, DimName, Extent, Graph, OpKind, Recompute, RecomputeModules, Sharding,
};
use crate::schedule::ScheduleKind;

/// What a layout must respect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// GPUs to be used, all of them.
    pub num_gpus: u32,
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
    /// Every distinct inner width, but those of experts.
    pub intermediate_sizes: Vec<u64>,
    /// Every distinct inner width of an expert.
    pub expert_intermediate_sizes: Vec<u64>,
    /// Every distinct number of experts.
    pub experts: Vec<u64>,
    /// Whether shapes depend on the sequence length.
    pub has_sequence: bool,
    /// What selective recompute is of, where modules were chosen.
    pub recomputed_modules: Option<RecomputeModules>,
    /// Whether anything is known of the hosts' memory.
    pub has_host: bool,
}

impl Limits {
    /// The limits that a graph sets.
    pub fn new(graph: &Graph, num_gpus: u32, global_batch_size: u64, sequence_length: u64) -> Self {
        let mut limits = Self {
            num_gpus,
            global_batch_size,
            sequence_length,
            num_blocks: graph.num_blocks() as u64,
            heads: Vec::new(),
            kv_heads: Vec::new(),
            intermediate_sizes: Vec::new(),
            expert_intermediate_sizes: Vec::new(),
            experts: Vec::new(),
            has_sequence: graph.has_sequence(),
            recomputed_modules: graph.recomputed_modules(),
            has_host: true,
        };
        for (_, block) in graph.classes() {
            for node in block.nodes() {
                let mut intermediate_sizes = &mut limits.intermediate_sizes;
                if let OpKind::GroupedLinear { num_experts, .. } = node.op.kind {
                    limits.experts.push(num_experts);
                    intermediate_sizes = &mut limits.expert_intermediate_sizes;
                }
                for dim in node.op.parameters.iter().flat_map(|parameter| &parameter.dims) {
                    let Extent::Fixed(size) = dim.extent else { continue };
                    match dim.name {
                        DimName::Heads => limits.heads.push(size),
                        DimName::KvHeads => limits.kv_heads.push(size),
                        DimName::Intermediate => intermediate_sizes.push(size),
                        _ => {}
                    }
                }
            }
        }
        for sizes in [
            &mut limits.heads,
            &mut limits.kv_heads,
            &mut limits.intermediate_sizes,
            &mut limits.expert_intermediate_sizes,
            &mut limits.experts,
        ] {
            sizes.sort_unstable();
            sizes.dedup();
        }
        limits
    }

    /// Whether heads and inner widths divide by a tensor-parallel degree. Those of experts have
    /// [their own](Self::check_expert_tensor).
    ///
    /// Key-value heads may be fewer than ranks, which then hold the same head in groups. The
    /// vocabulary is padded.
    ///
    /// # Errors
    ///
    /// What does not divide.
    pub fn check_tensor(&self, degree: u64) -> Result<(), LayoutError> {
        let sharded = [&self.heads, &self.intermediate_sizes, &self.expert_intermediate_sizes];
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

    /// What does not divide by a tensor-parallel degree, with its size.
    fn undivided_by(&self, degree: u64) -> Option<(&'static str, u64)> {
        let all =
            [("attention heads", &self.heads), ("intermediate size", &self.intermediate_sizes)];
        let whole = all.into_iter().find_map(|(what, sizes)| {
            let size = sizes.iter().find(|size| !size.is_multiple_of(degree))?;
            Some((what, *size))
        });
        let is_cut = |size: &&u64| !size.is_multiple_of(degree) && !degree.is_multiple_of(**size);
        let shared = self.kv_heads.iter().find(is_cut);
        whole.or_else(|| Some(("key-value heads", *shared?)))
    }

    /// Whether the sequence divides over context and sequence parallelism. In a ring with a causal mask each
    /// context-parallel rank takes two parts, one from either end, so that all have equal work. Where heads are
    /// exchanged, these must divide.
    ///
    /// # Errors
    ///
    /// What does not divide.
    pub fn check_sequence(&self, sharding: &Sharding) -> Result<(), LayoutError> {
        let [context, tensor] =
            [sharding.context_parallel, sharding.tensor_parallel].map(u64::from);
        let sequence_parallel = sharding.sequence_parallel;
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
        let is_ring = sharding.context_parallel_kind == ContextParallelKind::Ring;
        if !is_ring {
            self.check_head_exchange(sharding)?;
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

    /// Whether heads can be exchanged between context-parallel ranks: each tensor-parallel rank's divide over
    /// these, and key-value heads too, as none is held twice.
    fn check_head_exchange(&self, sharding: &Sharding) -> Result<(), LayoutError> {
        let context = u64::from(sharding.context_parallel);
        if context == 1 {
            return Err(LayoutError::HeadExchangeAlone);
        }
        if self.heads.is_empty() {
            return Err(LayoutError::NothingToShard { axis: "context_parallel", degree: context });
        }
        let degree = u64::from(sharding.tensor_parallel) * context;
        let all = [("attention heads", &self.heads), ("key-value heads", &self.kv_heads)];
        for (what, sizes) in all {
            if let Some(size) = sizes.iter().find(|size| **size % degree != 0) {
                return Err(LayoutError::NotDivisible {
                    what,
                    size: *size,
                    by: "`tensor_parallel` x `context_parallel`, between whose ranks `all_to_all` exchanges them:",
                    degree,
                    works: largest_divisor(*size, degree),
                });
            }
        }
        Ok(())
    }

    /// Whether experts divide, and their ranks fit within tensor, context and data parallelism.
    ///
    /// # Errors
    ///
    /// What does not.
    pub fn check_expert(&self, mesh: &Mesh) -> Result<(), LayoutError> {
        let sharding = mesh.sharding;
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

    /// Whether experts can be cut over so many of the tensor-parallel ranks: over fewer than all, if each of
    /// these has tokens of its own to send them.
    ///
    /// # Errors
    ///
    /// What does not divide, or what it takes.
    pub fn check_expert_tensor(&self, sharding: &Sharding) -> Result<(), LayoutError> {
        let (degree, tensor_parallel) = (sharding.expert_tensor_parallel, sharding.tensor_parallel);
        let is_cut_as_all = degree == tensor_parallel;
        if !tensor_parallel.is_multiple_of(degree) {
            let [size, degree] = [tensor_parallel, degree].map(u64::from);
            return Err(LayoutError::NotDivisible {
                what: "`tensor_parallel`",
                size,
                by: "`expert_tensor_parallel`",
                degree,
                works: largest_divisor(size, degree),
            });
        }
        let needs = if self.experts.is_empty() {
            Some("a model with experts")
        } else if !sharding.sequence_parallel {
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

    /// Whether a schedule can run with these numbers of ranks, stages of each and micro-batches.
    ///
    /// # Errors
    ///
    /// What it needs.
    pub fn check_schedule(
        &self,
        schedule: ScheduleKind,
        [p, v, m]: [u64; 3],
    ) -> Result<(), LayoutError> {
        let problem = |needs: String| Err(LayoutError::Schedule { schedule, needs });
        if p * v > self.num_blocks {
            return Err(LayoutError::TooManyStages { stages: p * v, blocks: self.num_blocks });
        }
        if schedule.is_interleaved() && (v < 2 || p < 2) {
            return problem(format!(
                "`virtual_stages` and `pipeline_parallel` of at least 2, not {v} and {p}\nhint: `--virtual-stages 2` and `--pp 2`, \
                 or more"
            ));
        }
        if schedule == ScheduleKind::Interleaved && m % p != 0 {
            let works = super::error::multiples_around(m, p);
            return problem(format!(
                "micro-batches that divide by the {p} ranks, not {m}\nhint: a batch that makes {works}, or smaller micro-batches"
            ));
        }
        if p == 1 && schedule != ScheduleKind::OneFOneB {
            let needs = "`pipeline_parallel` of at least 2\nhint: `--pp 2` or more, or leave the schedule out: one rank has no \
                         order to choose";
            return problem(needs.to_owned());
        }
        let [p, v, m] = [p, v, m].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        Ok(schedule.check_numbers(p, m, v)?)
    }

    pub(super) fn check(&self, spec: &LayoutSpec) -> Result<(), LayoutError> {
        if let Some(name) = spec.zero() {
            return Err(LayoutError::Zero { name });
        }
        let [t, c, p, v, d] = [
            spec.tensor_parallel,
            spec.context_parallel,
            spec.pipeline_parallel,
            spec.virtual_stages,
            spec.data_parallel,
        ]
        .map(u64::from);
        let model_parallel = u128::from(t) * u128::from(c) * u128::from(p);
        if model_parallel * u128::from(d) != u128::from(self.num_gpus) {
            let fits = u128::from(self.num_gpus) % model_parallel == 0;
            return Err(LayoutError::GpuCount {
                layout: spec.to_string(),
                needs: model_parallel * u128::from(d),
                has: self.num_gpus,
                fitting_data_parallel: fits
                    .then(|| (u128::from(self.num_gpus) / model_parallel) as u32),
            });
        }
        self.check_tensor(t)?;
        let mesh = spec.mesh();
        self.check_sequence(&mesh.sharding)?;
        self.check_expert_tensor(&mesh.sharding)?;
        self.check_expert(&mesh)?;
        let (b, m) = (u64::from(spec.micro_batch_size), u64::from(spec.num_micro_batches));
        if d.checked_mul(b).and_then(|db| db.checked_mul(m)) != Some(self.global_batch_size) {
            return Err(LayoutError::Batch {
                global_batch_size: self.global_batch_size,
                data_parallel: d,
                micro_batch_size: b,
                num_micro_batches: m,
            });
        }
        if (c * d) % u64::from(spec.zero_shard) != 0 {
            return Err(LayoutError::NotDivisible {
                what: "context x data parallel ranks",
                size: c * d,
                by: "`zero_shard`",
                degree: spec.zero_shard.into(),
                works: largest_divisor(c * d, spec.zero_shard.into()),
            });
        }
        if spec.zero_stage != ZeroStage::None {
            check_expert_shards(spec.zero_shard, &mesh)?;
        }
        self.check_recompute(spec.recompute)?;
        self.check_offload(spec.offload, spec.zero_stage, spec.schedule)?;
        self.check_schedule(spec.schedule, [p, v, m])
    }

    /// Whether there is a host to put anything on, and states that are sharded so, so many blocks and a schedule
    /// can be offloaded so.
    ///
    /// # Errors
    ///
    /// What is in the way.
    pub fn check_offload(
        &self,
        offload: Offload,
        zero_stage: ZeroStage,
        schedule: ScheduleKind,
    ) -> Result<(), LayoutError> {
        if offload.is_some() && !self.has_host {
            return Err(LayoutError::UnknownHost { offload });
        }
        if !offload.takes_zero(zero_stage) {
            return Err(LayoutError::OffloadedParameters { offload, zero_stage });
        }
        if let OffloadedActivations::Blocks(each) = offload.activations
            && u64::from(each.get()) > self.num_blocks
        {
            let (blocks, num_blocks) = (each.get(), self.num_blocks);
            return Err(LayoutError::OffloadedBlocks { blocks, num_blocks });
        }
        if !offload.takes_schedule(schedule) {
            let needs = format!(
                "what it keeps to be on the device, not `offload` {offload}: it has two backwards for each forward, \
                 stages on two ranks, or updates after each micro-batch"
            );
            return Err(LayoutError::Schedule { schedule, needs });
        }
        Ok(())
    }

    /// Whether selective recompute is of the same modules in the layout and in the graph.
    fn check_recompute(&self, recompute: Recompute) -> Result<(), LayoutError> {
        let is_selective = recompute == Recompute::Selective || recompute.modules().is_some();
        if is_selective && recompute.modules() != self.recomputed_modules {
            let modules = self.recomputed_modules.map(Recompute::Modules);
            let of_graph = modules.unwrap_or(Recompute::Selective);
            return Err(LayoutError::Recompute { recompute, of_graph });
        }
        Ok(())
    }
}

/// Whether the ranks over which one copy of all states is sharded, `zero_shard` of each place along tensor
/// parallelism, have every expert equally often.
///
/// # Errors
///
/// By which number of ranks they do not divide.
pub fn check_expert_shards(zero_shard: u32, mesh: &Mesh) -> Result<(), LayoutError> {
    let (tensor, ranks) = (mesh.sharding.tensor_parallel, mesh.expert_ranks());
    let shards = u64::from(zero_shard) * u64::from(tensor);
    if shards.is_multiple_of(ranks.into()) {
        return Ok(());
    }
    let ranks = u64::from(ranks);
    let degree = ranks / common_divisor(ranks, tensor.into());
    let by = if mesh.sharding.expert_tensor_parallel == tensor {
        "`expert_parallel`"
    } else {
        "the ranks of each tensor-parallel place over which experts are spread:"
    };
    Err(LayoutError::NotDivisible {
        what: "zero_shard",
        size: zero_shard.into(),
        by,
        degree,
        works: largest_divisor(zero_shard.into(), degree),
    })
}

/// The largest number that divides both.
fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
