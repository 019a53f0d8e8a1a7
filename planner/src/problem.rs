//! What is to be laid out: a model, a batch, and the GPUs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cost_models::block::{BlockCost, Groups};
use cost_models::residuals::comparable;
use cost_models::{Group, Hardware};
use ir::cluster::{Cluster, Precision};
use ir::graph::{ClassId, Extent, Graph, ParameterCounts, Recompute, Setting, Sharding, Sizes};
use ir::layout::{LayoutSpec, Limits, Mesh, MeshAxis};
use ir::plan::Training;
use ir::schedule::Placement;
use ir::units::Flops;

use crate::partition::{balanced, folded};

/// A planning problem, ready to be searched.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The model's graph.
    pub graph: Graph,
    /// How it is trained.
    pub training: Training,
    /// What a layout must respect.
    pub limits: Limits,
    /// GPUs and links.
    pub hardware: Hardware,
    /// Operations of the model itself in one step: forward, and backward as twice that.
    pub model_flops: Flops,
    /// Whether the first and the last block of the graph are each rank's part of a vocabulary that all
    /// pipeline ranks share, and so every rank has them.
    ///
    /// # Source
    ///
    /// Yeung et al. 2024, *Balancing Pipeline Parallelism with Vocabulary Parallelism* (arXiv 2411.05288).
    pub vocabulary_parallel: bool,
}

/// Why there is no problem to search.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// Precision that the GPU does not have.
    #[error("{gpu} has no `{precision}`; it has {known}")]
    Precision {
        /// The GPU.
        gpu: String,
        /// What was asked for.
        precision: Precision,
        /// What there is.
        known: String,
    },
    /// A count of zero or beyond what can be planned.
    #[error("{name} is {value}, but must be between 1 and {most}")]
    OutOfRange {
        /// Which.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The most.
        most: u64,
    },
    /// Tensors larger than can be counted.
    #[error(
        "a tensor of `{op}` has up to {elements:.1e} elements in a step, more than 2^60\nhint: a \
         shorter sequence or a smaller batch"
    )]
    TensorTooLarge {
        /// The operator that puts it out.
        op: String,
        /// Its elements for the whole batch.
        elements: f64,
    },
    /// More blocks than the search can partition.
    #[error("the model has {blocks} blocks in its chain; at most {most} can be partitioned")]
    TooManyBlocks {
        /// How many.
        blocks: usize,
        /// The most.
        most: usize,
    },
}

/// The most GPUs that are planned for: an order of magnitude beyond the largest clusters.
pub const MOST_GPUS: u32 = 1 << 20;

/// The longest sequence, in tokens.
pub const LONGEST_SEQUENCE: u64 = 1 << 28;

/// The most sequences in a step.
pub const LARGEST_BATCH: u64 = 1 << 28;

/// The most elements of a tensor, so that its bytes are counted in 64 bits.
const MOST_ELEMENTS: f64 = (1u64 << 60) as f64;

/// The longest chain of blocks: its partition takes time quadratic in its length.
pub const MOST_BLOCKS: usize = 4096;

impl Problem {
    /// The problem of training `graph` on `num_gpus` of `cluster`.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] where a number is out of range or the GPU lacks the precision.
    pub fn new(
        graph: Graph,
        training: Training,
        cluster: &Cluster,
        num_gpus: u32,
    ) -> Result<Self, ProblemError> {
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
        check_tensors(&graph, &training)?;
        let hardware = Hardware::new(cluster, &training).ok_or_else(|| {
            let known: Vec<&str> = cluster.gpu.peak.keys().map(|p| p.name()).collect();
            ProblemError::Precision {
                gpu: cluster.gpu.name.clone(),
                precision: training.precision,
                known: known.join(", "),
            }
        })?;
        let Training { global_batch_size, sequence_length, .. } = training;
        let limits = Limits::new(&graph, num_gpus, global_batch_size, sequence_length);
        let sequence = graph.forward_flops(sequence_length).full;
        let model_flops = sequence * (3.0 * global_batch_size as f64);
        let vocabulary_parallel = false;
        Ok(Self { graph, training, limits, hardware, model_flops, vocabulary_parallel })
    }

    /// Parameters of the model.
    pub fn parameters(&self) -> ParameterCounts {
        self.graph.parameter_counts()
    }

    /// Whose measured steps its own are comparable to, the nearest first.
    pub fn comparable(&self) -> [String; 3] {
        let has_experts = !self.limits.experts.is_empty();
        comparable(&self.hardware, self.training.framework, has_experts)
    }

    /// Whether blocks of a class stand first or last. Those are never recomputed, as frameworks
    /// recompute layers only: the embedding keeps nothing but tokens, and the backward of head and
    /// loss follows their forward at once.
    pub(crate) fn is_end(&self, class: ClassId) -> bool {
        let chain = self.graph.chain();
        let ends = [chain.first(), chain.last()];
        ends.into_iter().flatten().any(|run| run.class == class)
    }

    /// The circumstances in which blocks of class `class` work.
    pub fn setting(&self, shape: &ShapeKey, class: usize) -> Setting {
        Setting {
            sizes: Sizes {
                micro_batch_size: shape.micro_batch_size.into(),
                sequence_length: self.training.sequence_length,
            },
            sharding: shape.sharding(),
            compute_bytes: self.training.compute_bytes(),
            takes_data: class == 0,
            fuses_projections: self.hardware.framework.fuses_projections,
        }
    }
}

/// Whether every tensor of a step can be counted. In floating point, which does not overflow.
fn check_tensors(graph: &Graph, training: &Training) -> Result<(), ProblemError> {
    for node in graph.classes().flat_map(|(_, block)| block.nodes()) {
        let extents = node.op.output.dims.iter().map(|dim| match dim.extent {
            Extent::Fixed(size) => size as f64,
            Extent::Batch => training.global_batch_size as f64,
            Extent::Sequence => training.sequence_length as f64,
        });
        let elements: f64 = extents.product();
        if elements > MOST_ELEMENTS {
            return Err(ProblemError::TensorTooLarge { op: node.op.name.clone(), elements });
        }
    }
    Ok(())
}

/// How operators are sharded, and how much each takes at a time: all that the cost of a block depends
/// on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeKey {
    /// Tensor-parallel ranks.
    pub tensor_parallel: u32,
    /// Whether they share the sequence too.
    pub sequence_parallel: bool,
    /// Context-parallel ranks.
    pub context_parallel: u32,
    /// Expert-parallel ranks.
    pub expert_parallel: u32,
    /// Whether tensor-parallel ranks are among those, and each expert is whole.
    pub whole_experts: bool,
    /// Sequences in a micro-batch.
    pub micro_batch_size: u32,
}

impl ShapeKey {
    /// The shard shape of a layout.
    pub fn of(layout: &LayoutSpec) -> Self {
        Self {
            tensor_parallel: layout.tensor_parallel,
            sequence_parallel: layout.sequence_parallel,
            context_parallel: layout.context_parallel,
            expert_parallel: layout.expert_parallel,
            whole_experts: layout.whole_experts,
            micro_batch_size: layout.micro_batch_size,
        }
    }

    /// How operators are sharded.
    pub fn sharding(&self) -> Sharding {
        Sharding {
            tensor_parallel: self.tensor_parallel.into(),
            sequence_parallel: self.sequence_parallel,
            context_parallel: self.context_parallel.into(),
            expert_parallel: self.expert_parallel.into(),
            whole_experts: self.whole_experts,
        }
    }

    /// How far apart the ranks of its groups lie, with so many replicas.
    pub fn mesh(&self, data_parallel: u32) -> Mesh {
        let Self { tensor_parallel, context_parallel, .. } = *self;
        let expert_tensor_parallel = if self.whole_experts { 1 } else { tensor_parallel };
        Mesh { tensor_parallel, expert_tensor_parallel, context_parallel, data_parallel }
    }

    /// Where the groups lie.
    pub fn groups(&self) -> Groups {
        // Groups within a stage do not depend on the number of replicas.
        let mesh = self.mesh(1);
        let group = |size, axis| Group { size, stride: mesh.stride(axis) };
        Groups {
            tensor: group(self.tensor_parallel, MeshAxis::Tensor),
            context: group(self.context_parallel, MeshAxis::Context),
            expert: group(self.expert_parallel, MeshAxis::Expert),
        }
    }
}

/// Where chunks end, by policy, number of chunks and where they lie; none if there are fewer blocks.
type Assignments = BTreeMap<(Recompute, usize, Placement), Option<Vec<usize>>>;

/// The costs of all block classes for one shard shape, and what follows for the chain.
#[derive(Clone, Debug)]
pub struct Shape {
    /// What it is.
    pub key: ShapeKey,
    /// Cost of each class.
    pub costs: Vec<BlockCost>,
    /// Time of forward, input and weight gradients of the first `i` blocks, with what each
    /// [`Recompute`] policy adds; in seconds.
    pub prefix: [Vec<f64>; 3],
    /// The fastest assignments that were asked for: as many chunks come of several numbers of ranks.
    balanced: Arc<Mutex<Assignments>>,
}

impl Shape {
    /// Costs every class of the problem's graph.
    pub fn new(problem: &Problem, key: ShapeKey) -> Self {
        let groups = key.groups();
        let costs: Vec<BlockCost> = problem
            .graph
            .classes()
            .map(|(class, block)| {
                let setting = problem.setting(&key, class.0);
                let cost = BlockCost::new(block, &setting, &groups, &problem.hardware);
                if problem.is_end(class) { cost.never_recomputed() } else { cost }
            })
            .collect();
        let prefix = Recompute::ALL.map(|recompute| {
            let mut sum = 0.0;
            let times: Vec<f64> = costs
                .iter()
                .map(|cost| (cost.forward.total() + cost.backward(recompute).total()).get())
                .collect();
            let mut prefix = vec![0.0];
            prefix.extend(problem.graph.blocks().map(|class| {
                sum += times[class.0];
                sum
            }));
            prefix
        });
        Self { key, costs, prefix, balanced: Arc::default() }
    }

    /// Where chunks end so that the slowest is as fast as can be; or, where the first shares its rank with
    /// the last and so on inwards, the slowest rank. None if there are fewer blocks.
    pub fn balanced(
        &self,
        recompute: Recompute,
        num_chunks: usize,
        placement: &Placement,
    ) -> Option<Vec<usize>> {
        let known = || self.balanced.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (recompute, num_chunks, placement.clone());
        if let Some(ends) = known().get(&key) {
            return ends.clone();
        }
        let prefix = &self.prefix[recompute as usize];
        let ends = match placement {
            Placement::V | Placement::Bidirectional => folded(prefix, num_chunks),
            Placement::Loop | Placement::Table(_) => balanced(prefix, num_chunks),
        };
        known().insert(key, ends.clone());
        ends
    }

    /// Time of all blocks for one micro-batch, in seconds.
    pub fn total(&self, recompute: Recompute) -> f64 {
        self.prefix[recompute as usize].last().copied().unwrap_or(0.0)
    }
}
