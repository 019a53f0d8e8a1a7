//! The problem of a search: a model, its training, and a number of GPUs.

mod choices;
mod documents;
mod expert_load;
mod frameworks;
mod gpu_groups;
mod groups;
mod stage_rule;
mod stages;

use cost_models::Hardware;
use cost_models::constants;
use cost_models::residuals::{Spread, SpreadOf, full_deviation};
use cost_models::states::StateBytes;
use ir::cluster::{Architecture, Cluster, Precision};
use ir::documents::{Documents, DocumentsError};
use ir::expert_load::{ExpertLoad, ExpertLoadError};
use ir::framework::{Feature, Features, Framework, JobFacts};
use ir::graph::{ClassId, DocumentSizes, Extent, Graph, LossGradient, ParameterCounts};
use ir::layout::Limits;
use ir::plan::{MemoryUse, Training};
use ir::replication::{DataParallelMethod, GradientCompression};
use ir::units::{Bytes, Flops, FlopsPerSecond};

pub use choices::{Choices, default_sequence_length, usual_precision_with};
pub(crate) use documents::BatchSplit;
pub use documents::Sequences;
pub use expert_load::{RankLoads, usual_load};
pub use frameworks::{ON_GPUS, attention_kernel, default_framework, stacks, with_usual_modules};
pub use gpu_groups::{GpuGroup, GpuGroups, ReplicasByGroup};
pub use stage_rule::StageRule;
pub use stages::{GivenStages, StagesError};

/// A planning problem, ready to be searched.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The model's graph.
    pub graph: Graph,
    /// The training: sequence, batch, precision, optimizer.
    pub training: Training,
    /// Limits that a layout must respect.
    pub limits: Limits,
    /// Facts of model and training that decide which layouts a framework runs.
    pub facts: JobFacts,
    /// The GPUs and the network.
    pub hardware: Hardware,
    /// GPUs of several kinds; `None` where all have [`Self::hardware`]. Otherwise [`Self::hardware`] is that of the
    /// first group.
    pub groups: Option<GpuGroups>,
    /// The groups of all replicas, in a problem of the replicas that lie in one of the groups.
    pub replica_groups: Option<ReplicasByGroup>,
    /// FLOPs of the model in one step: forward, and backward as twice the forward, or once for frozen weights.
    /// Query-key pairs hidden by a causal mask are not counted.
    pub model_flops: Flops,
    /// FLOPs of a step with every query-key pair of a causal mask counted, as Megatron-LM and PaLM do.
    pub model_flops_with_every_pair: Flops,
    /// True if every pipeline rank has a part of the vocabulary: the first and the last block of the graph are then on
    /// every rank.
    ///
    /// # Source
    ///
    /// Yeung et al. 2024, *Balancing Pipeline Parallelism with Vocabulary Parallelism* (arXiv 2411.05288).
    pub vocabulary_parallel: bool,
    /// The stages of every layout, if they are given by hand.
    pub stages: Option<GivenStages>,
    /// Memory of a GPU that a plan may use by prediction; the rest is headroom.
    pub memory_budget: Bytes,
    /// Documents from which sequences are made; `None` if each sequence is one document.
    pub sequences: Option<Sequences>,
    /// Tokens that go to the experts of each rank: equally many to each expert, unless [`Self::with_expert_load`] says
    /// otherwise.
    pub expert_load: RankLoads,
}

/// Reason why a problem cannot be posed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// An invalid load of experts.
    #[error("the load of experts")]
    ExpertLoad(#[from] ExpertLoadError),
    /// Invalid lengths of documents.
    #[error("the lengths of documents")]
    DocumentLengths(#[from] DocumentsError),
    /// Documents that no sequence can hold.
    #[error(
        "documents of {longest:.0} tokens, but sequences have {sequence_length}\nhint: a longer `--seq-len`, or documents \
         that are cut as they are for training"
    )]
    Documents {
        /// Tokens of the longest document, or of the mean one of a distribution.
        longest: f64,
        /// Tokens of a sequence.
        sequence_length: u64,
    },
    /// Counts of tokens for other numbers of experts or layers than the model has.
    #[error(
        "counts for {counted} experts in {num_rows} layers, but the model has {num_experts} in {num_layers}\nhint: one \
         row for all layers with experts, or one for each; a count for each expert in each row"
    )]
    ExpertCounts {
        /// Counts in each row.
        counted: u64,
        /// Experts of a layer.
        num_experts: u64,
        /// Rows.
        num_rows: usize,
        /// Layers with experts.
        num_layers: usize,
    },
    /// Precision that the GPU does not have.
    #[error("{gpu} has no `{precision}`; it has {known}")]
    Precision {
        /// The GPU.
        gpu: String,
        /// The precision that was requested.
        precision: Precision,
        /// The precisions that the GPU has.
        known: String,
    },
    /// Another number of GPUs than the groups have.
    #[error(
        "{num_gpus} GPUs, but the cluster's groups have {all}\nhint: `--gpus {all}`, of which the \
         fastest use is found; or other numbers of nodes, as in `--cluster a100:4,h100:2`"
    )]
    GpusOfGroups {
        /// Number of GPUs that was asked for.
        num_gpus: u32,
        /// Number of GPUs in all groups.
        all: u32,
    },
    /// A count of zero or beyond what can be planned.
    #[error("{name} is {value}, but must be between 1 and {most}")]
    OutOfRange {
        /// Name of the count.
        name: &'static str,
        /// Value of the count.
        value: u64,
        /// The largest value.
        most: u64,
    },
    /// Compression of gradients that are not reduced.
    #[error(
        "data-parallel method {method} does not reduce gradients, so {compression} has nothing to compress\n\
         hint: leave out one of `--gradient-compression` and `--data-parallel-method`"
    )]
    NothingToCompress {
        /// The method by which replicas bring their weights together.
        method: DataParallelMethod,
        /// The compression of gradients.
        compression: GradientCompression,
    },
    /// Tensors larger than can be counted.
    #[error(
        "a tensor of `{op}` has up to {elements:.1e} elements in a step, more than 2^60\nhint: a \
         shorter sequence or a smaller batch"
    )]
    TensorTooLarge {
        /// The operator whose output it is.
        op: String,
        /// Elements of the tensor for the whole batch.
        elements: f64,
    },
    /// A step that would take years.
    #[error(
        "a step of {flops} takes {years:.0} years even at the peak of {num_gpus} GPUs, {peak} each; at most {most:.0} are planned\n\
         hint: a smaller batch, a shorter sequence or more GPUs, if `peak_flops_per_second` of the cluster is what its \
         GPUs have"
    )]
    StepTooLong {
        /// FLOPs of the step.
        flops: Flops,
        /// Years on all GPUs.
        years: f64,
        /// Number of GPUs.
        num_gpus: u32,
        /// Peak rate of each GPU.
        peak: FlopsPerSecond,
        /// The largest number of years.
        most: f64,
    },
    /// More blocks than the search can partition.
    #[error("the model has {blocks} blocks in its chain; at most {most} can be partitioned")]
    TooManyBlocks {
        /// Blocks of the chain.
        blocks: usize,
        /// The largest number of blocks.
        most: usize,
    },
}

/// The largest number of GPUs: an order of magnitude beyond the largest clusters.
pub const MOST_GPUS: u32 = 1 << 20;

/// The longest sequence, in tokens.
pub const LONGEST_SEQUENCE: u64 = 1 << 28;

/// The most sequences in a step.
pub const LARGEST_BATCH: u64 = 1 << 28;

/// The most elements of a tensor, so that its bytes are counted in 64 bits.
const MOST_ELEMENTS: f64 = (1u64 << 60) as f64;

/// The longest step at peak rate, in years. Timelines end after 584 years, and steps need not run at the peak.
const LONGEST_STEP_YEARS: f64 = 3.0;

/// The longest chain of blocks.
pub const MOST_BLOCKS: usize = 4096;

impl Problem {
    /// Bytes of model state for each parameter, with the framework's shards of weights.
    pub fn state_bytes(&self) -> StateBytes {
        let shards = self.hardware.framework.parameters.zero_3_shards;
        StateBytes::new(&self.training).with_shards(shards)
    }

    /// The problem of training `graph` on `num_gpus` of `cluster` with a framework.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] where a number is out of range or the GPU lacks the precision.
    pub fn new(
        graph: Graph,
        training: Training,
        cluster: &Cluster,
        framework: Framework,
        num_gpus: u32,
    ) -> Result<Self, ProblemError> {
        let of = |cluster: &Cluster| hardware(cluster, framework.clone(), &training);
        let groups = GpuGroups::new(cluster, of)?;
        let first = groups.as_ref().map(|groups| groups.all[0].hardware.clone());
        let hardware = first.map_or_else(|| hardware(cluster, framework, &training), Ok)?;
        let problem = Self::on(graph, training, hardware, num_gpus)?;
        problem.with_groups(groups)
    }

    /// The problem of training `graph` on `num_gpus` of `hardware`.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] where a number is out of range.
    pub fn on(
        graph: Graph,
        training: Training,
        mut hardware: Hardware,
        num_gpus: u32,
    ) -> Result<Self, ProblemError> {
        let graph = hardware.framework.selective_recompute.marked(graph);
        for (name, value, most) in [
            ("number of GPUs", num_gpus.into(), MOST_GPUS.into()),
            ("sequence length", training.sequence_length, LONGEST_SEQUENCE),
            ("global batch size", training.global_batch_size, LARGEST_BATCH),
        ] {
            if value == 0 || value > most {
                return Err(ProblemError::OutOfRange { name, value, most });
            }
        }
        if graph.num_blocks() > MOST_BLOCKS {
            let blocks = graph.num_blocks();
            return Err(ProblemError::TooManyBlocks { blocks, most: MOST_BLOCKS });
        }
        let method = training.data_parallel_method;
        if let Some(compression) = training.gradient_compression
            && method != DataParallelMethod::AllReduce
        {
            return Err(ProblemError::NothingToCompress { method, compression });
        }
        check_tensors(&graph, &training)?;
        let Training { global_batch_size, sequence_length, .. } = training;
        let mut limits = Limits::new(&graph, num_gpus, global_batch_size, sequence_length);
        limits.has_host = hardware.host.is_some();
        hardware = hardware.among(num_gpus);
        let facts = JobFacts::of(&graph).with_training(&training).with(of_hardware(&hardware));
        let forward = graph.forward_flops(sequence_length);
        let batch = global_batch_size as f64;
        let model_flops = forward.of_step() * batch;
        check_time(model_flops, hardware.peak, num_gpus)?;
        let (vocabulary_parallel, stages, memory_budget) = (false, None, hardware.memory);
        let (expert_load, sequences) = (RankLoads::default(), None);
        Ok(Self {
            graph,
            training,
            limits,
            facts,
            hardware,
            groups: None,
            replica_groups: None,
            model_flops,
            model_flops_with_every_pair: forward.of_step_with_every_pair() * batch,
            vocabulary_parallel,
            stages,
            memory_budget,
            expert_load,
            sequences,
        })
    }

    /// The problem where all pipeline ranks share the vocabulary, or not.
    pub fn with_vocabulary_parallel(self, vocabulary_parallel: bool) -> Self {
        Self { vocabulary_parallel, ..self }
    }

    /// The problem with stages that are given by hand, or not.
    pub fn with_stages(self, stages: Option<GivenStages>) -> Self {
        Self { stages, ..self }
    }

    /// The problem of the same graph with other training on another cluster, with the same documents, load of experts,
    /// stages and headroom.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] where a number is out of range.
    pub fn like(
        &self,
        training: Training,
        cluster: &Cluster,
        framework: Framework,
        num_gpus: u32,
    ) -> Result<Self, ProblemError> {
        let problem = Self::new(self.graph.clone(), training, cluster, framework, num_gpus)?;
        // The usual headroom depends on the GPUs; a given headroom is kept.
        let is_usual = self.headroom() == self.usual_headroom();
        let headroom = if is_usual { problem.usual_headroom() } else { self.headroom() };
        let problem = problem.with_stages(self.stages.clone()).with_headroom(headroom);
        let problem = problem.with_vocabulary_parallel(self.vocabulary_parallel);
        let problem = problem.with_expert_load(self.expert_load.load.clone())?;
        problem.with_documents(self.sequences.as_ref().map(|it| it.documents.clone()))
    }

    /// The problem with another graph.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] where it is too large.
    pub fn with_graph(&self, graph: Graph) -> Result<Self, ProblemError> {
        Self { graph, ..self.clone() }.posed(self.training, self.limits.num_gpus)
    }

    /// The problem with another training.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] where a number is out of range.
    pub fn with_training(&self, training: Training) -> Result<Self, ProblemError> {
        self.posed(training, self.limits.num_gpus)
    }

    /// The problem on another number of GPUs.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] where the number is out of range.
    pub fn with_gpus(&self, num_gpus: u32) -> Result<Self, ProblemError> {
        self.posed(self.training, num_gpus)
    }

    /// The problem with GPUs of several kinds, if there are any.
    fn with_groups(mut self, groups: Option<GpuGroups>) -> Result<Self, ProblemError> {
        let Some(groups) = groups else { return Ok(self) };
        let (num_gpus, all) = (self.limits.num_gpus, groups.all.iter().map(|it| it.num_gpus).sum());
        if num_gpus != all {
            return Err(ProblemError::GpusOfGroups { num_gpus, all });
        }
        self.limits.gpus_by_group = groups.all.iter().map(|it| it.num_gpus).collect();
        for group in &groups.all {
            self.facts = self.facts.with(of_hardware(&group.hardware));
            self.limits.has_host &= group.hardware.host.is_some();
        }
        self.groups = Some(groups);
        Ok(self)
    }

    fn posed(&self, training: Training, num_gpus: u32) -> Result<Self, ProblemError> {
        let problem = Self::on(self.graph.clone(), training, self.hardware.clone(), num_gpus)?;
        let problem = problem.with_groups(self.groups.clone())?.with_stages(self.stages.clone());
        let problem = problem.with_vocabulary_parallel(self.vocabulary_parallel);
        let documents = self.sequences.as_ref().map(|it| it.documents.clone());
        let problem = problem.with_documents(documents)?;
        let (memory_budget, expert_load) = (self.memory_budget, self.expert_load.clone());
        Ok(Self { memory_budget, expert_load, ..problem })
    }

    /// The problem with sequences made of documents, if there are any.
    ///
    /// # Errors
    ///
    /// [`ProblemError::Documents`] where the model has no sequence, or documents are longer than it.
    pub fn with_documents(self, documents: Option<Documents>) -> Result<Self, ProblemError> {
        let Some(documents) = documents else { return Ok(self) };
        documents.lengths.check()?;
        let Training { sequence_length, global_batch_size, .. } = self.training;
        let longest = documents.lengths.longest();
        if !self.limits.has_sequence || longest > sequence_length as f64 {
            return Err(ProblemError::Documents { longest, sequence_length });
        }
        let sequences = Sequences::new(documents, sequence_length);
        let sizes = sequences.of(BatchSplit::whole(global_batch_size));
        let real = sequences.real_share(global_batch_size);
        let forward = self.graph.forward_flops_of(sequence_length, sizes);
        let scaled = |flops: Flops| flops * (global_batch_size as f64 * real);
        Ok(Self {
            model_flops: scaled(forward.of_step()),
            model_flops_with_every_pair: scaled(forward.of_step_with_every_pair()),
            sequences: Some(sequences),
            ..self
        })
    }

    /// Documents in the sequences of the replica that all others wait for; `None` where each sequence is one.
    pub(crate) fn document_sizes(&self, split: BatchSplit) -> Option<DocumentSizes> {
        self.sequences.as_ref().map(|sequences| sequences.of(split))
    }

    /// Ratio of the tokens of documents in a step to the tokens of its sequences at full length.
    pub fn real_share(&self) -> f64 {
        let batch = self.training.global_batch_size;
        self.sequences.as_ref().map_or(1.0, |sequences| sequences.real_share(batch))
    }

    /// The problem with routers that spread tokens over experts like this; unchanged for a model without experts.
    ///
    /// # Errors
    ///
    /// [`ProblemError::ExpertCounts`] where there are counts of other numbers of experts or layers than the model has.
    pub fn with_expert_load(self, load: ExpertLoad) -> Result<Self, ProblemError> {
        let has_experts = |class| self.graph.class(class).has_experts();
        let layers: Vec<ClassId> = self.graph.blocks().filter(|it| has_experts(*it)).collect();
        if layers.is_empty() {
            return Ok(self);
        }
        let top_k = layers.iter().filter_map(|it| self.graph.class(*it).top_k()).max();
        load.check(top_k.unwrap_or_default())?;
        if let ExpertLoad::Counts(rows) = &load {
            let routers = layers.iter().filter_map(|it| self.graph.class(*it).num_experts());
            let num_experts = routers.max().unwrap_or_default();
            let counted = rows[0].len() as u64;
            if counted != num_experts || ![1, layers.len()].contains(&rows.len()) {
                let (num_rows, num_layers) = (rows.len(), layers.len());
                return Err(ProblemError::ExpertCounts {
                    counted,
                    num_experts,
                    num_rows,
                    num_layers,
                });
            }
        }
        Ok(Self { expert_load: RankLoads::new(load, layers.len()), ..self })
    }

    /// The problem where routers spread tokens, and documents attention, as badly as at this quantile of the random
    /// draws.
    #[must_use]
    pub fn at_quantile(&self, quantile: f64) -> Self {
        Self {
            expert_load: self.expert_load.at(quantile),
            sequences: self.sequences.as_ref().map(|sequences| sequences.at(quantile)),
            ..self.clone()
        }
    }

    /// The problem with a headroom: memory that stays free on each GPU. Where GPUs are of several kinds, it is that of
    /// the smallest GPU, and larger GPUs leave the same share free.
    #[must_use]
    pub fn with_headroom(mut self, headroom: Bytes) -> Self {
        let least = self.smallest_hardware().memory.as_f64().max(1.0);
        let left = |memory: Bytes| {
            memory.saturating_sub(Bytes::from_f64(headroom.as_f64() * (memory.as_f64() / least)))
        };
        self.memory_budget = left(self.hardware.memory);
        for group in self.groups.iter_mut().flat_map(|groups| &mut groups.all) {
            group.memory_budget = left(group.hardware.memory);
        }
        self
    }

    /// Memory that stays free on each GPU; on the smallest, where GPUs are of several kinds.
    pub fn headroom(&self) -> Bytes {
        let of =
            |group| self.hardware_of(group).memory.saturating_sub(self.memory_budget_of(group));
        (0..self.num_groups()).map(of).min().unwrap_or_default()
    }

    /// The headroom with which nine of ten plans that are predicted to fit do fit, from the ratio of measured to
    /// predicted peak memory of comparable steps.
    pub fn usual_headroom(&self) -> Bytes {
        let hardware = self.smallest_hardware();
        let (_, spread) = Spread::shipped(SpreadOf::PeakMemoryBytes, hardware);
        let memory = hardware.memory;
        let ratio = (spread.ninth_decile * full_deviation(memory)).exp();
        memory.saturating_sub(Bytes::from_f64(memory.as_f64() / ratio.max(1.0)))
    }

    /// True if the memory fits a GPU with the headroom left free, and its part of the host.
    pub fn fits_with_headroom(&self, memory: &MemoryUse) -> bool {
        memory.total() <= self.memory_budget && self.fits_host(memory)
    }

    /// True if the memory fits a GPU of a group with the headroom left free, and its part of the host.
    pub(crate) fn fits_group_with_headroom(&self, group: usize, memory: &MemoryUse) -> bool {
        let host = self.hardware_of(group).host.map_or(Bytes::ZERO, |host| host.memory());
        memory.total() <= self.memory_budget_of(group) && memory.host_bytes <= host
    }

    /// True if the memory fits a GPU without headroom, and its part of the host.
    pub fn fits(&self, memory: &MemoryUse) -> bool {
        memory.total() <= self.hardware.memory && self.fits_host(memory)
    }

    fn fits_host(&self, memory: &MemoryUse) -> bool {
        let of_host = self.hardware.host.map_or(Bytes::ZERO, |host| host.memory());
        memory.host_bytes <= of_host
    }

    /// Number of parameters of the model.
    pub fn parameters(&self) -> ParameterCounts {
        self.graph.parameter_counts()
    }
}

/// Bandwidth of PCIe 6 x16, in bytes per second each way: the fastest link within a node that is not NVLink.
const FASTEST_PCIE: f64 = 128e9;

/// Features of the GPUs, of their links within a node, and of the loss that the framework computes.
fn of_hardware(hardware: &Hardware) -> Features {
    let is_new = matches!(hardware.architecture, Architecture::Hopper | Architecture::Blackwell);
    let within = hardware.network.innermost_bandwidth().get();
    let loss = hardware.framework.kernels.loss.gradient;
    Features::which([
        (Feature::BeforeHopper, !is_new),
        (Feature::OffTpu, hardware.architecture != Architecture::Tpu),
        (Feature::NoNvlink, hardware.domain > 1 && within <= FASTEST_PCIE),
        (Feature::FusedLoss, loss == LossGradient::WithHead),
    ])
}

/// Hardware of a cluster, for a training with a framework.
///
/// # Errors
///
/// [`ProblemError::Precision`] where its GPUs lack the precision.
pub fn hardware(
    cluster: &Cluster,
    framework: Framework,
    training: &Training,
) -> Result<Hardware, ProblemError> {
    let mut hardware = Hardware::new(cluster, framework, training).ok_or_else(|| {
        let known: Vec<&str> = cluster.gpu.peak.keys().map(|p| p.name()).collect();
        ProblemError::Precision {
            gpu: cluster.gpu.name.clone(),
            precision: training.precision,
            known: known.join(", "),
        }
    })?;
    constants::calibrate(&mut hardware);
    Ok(hardware)
}

/// Checks that a step takes no longer than [`LONGEST_STEP_YEARS`] at peak rate.
fn check_time(flops: Flops, peak: FlopsPerSecond, num_gpus: u32) -> Result<(), ProblemError> {
    const SECONDS_OF_A_YEAR: f64 = 365.25 * 24.0 * 3600.0;
    let most = LONGEST_STEP_YEARS;
    let years = flops.get() / peak.get() / f64::from(num_gpus) / SECONDS_OF_A_YEAR;
    if years > most {
        return Err(ProblemError::StepTooLong { flops, years, num_gpus, peak, most });
    }
    Ok(())
}

/// Checks that the elements of every tensor of a step can be counted, in floating point, which does not overflow.
fn check_tensors(graph: &Graph, training: &Training) -> Result<(), ProblemError> {
    for node in graph.classes().flat_map(|(_, block)| block.nodes()) {
        let extents = node.op.output.dims.iter().map(|dim| match dim.extent {
            Extent::Fixed(size) => size as f64,
            Extent::Batch => training.global_batch_size as f64,
            Extent::Sequence | Extent::Blocks(_) => training.sequence_length as f64,
        });
        let elements: f64 = extents.product();
        if elements > MOST_ELEMENTS {
            return Err(ProblemError::TensorTooLarge { op: node.op.name.clone(), elements });
        }
    }
    Ok(())
}
