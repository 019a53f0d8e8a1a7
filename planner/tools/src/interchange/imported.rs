//! Settings of other tools in the terms of a plan.

use ir::cluster::{Cluster, Precision};
use ir::expert_load::ExpertLoad;
use ir::framework::{ExpertTensor, Feature, Framework};
use ir::graph::{Adapters, ContextParallelKind, Graph};
use ir::layout::{Layout, LayoutSpec, multiples_around};
use ir::plan::{Optimizer, Plan, Training};
use ir::replication::DataParallelMethod;

use super::argument::Argument;
use super::error::{Divided, ImportError};
use super::options::Repeated;
use super::stages::num_layers;
use super::target::Target;
use super::unread::Unread;
use planner_core::problem::{Problem, usual_load};
use planner_core::step::{ChainIndex, PipelineRanks, Shape, ShapeKey};

/// Settings of a tool, independent of its option names.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Tool of the settings.
    pub source: Target,
    /// The framework that runs the settings, with the habits that they switch on or off.
    pub framework: Framework,
    /// The layout; data parallelism, ZeRO shards and micro-batches are derived from the other fields.
    pub layout: LayoutSpec,
    /// Number of ranks, if stated.
    pub num_gpus: Option<u32>,
    /// Training, as far as stated.
    pub training: StatedTraining,
    /// Stages, as far as stated.
    pub stages: StatedStages,
    /// Number of groups of replicas. Each group holds a full copy of the states, sharded within the group if ZeRO is
    /// on.
    pub shard_groups: u32,
    /// Arguments that describe the model.
    pub model: Vec<Argument>,
    /// True if modules for multi-token prediction are trained.
    pub multi_token_prediction: bool,
    /// True if dropout is applied.
    pub dropout: bool,
    /// Spread of tokens over experts by routers; `None` for the usual one of the model.
    pub expert_load: Option<ExpertLoad>,
    /// Low-rank adapters that are trained instead of the model, if any.
    pub adapters: Option<Adapters>,
    /// Ranks that the settings start on each node, if they say.
    pub ranks_per_node: Option<u32>,
    /// Settings that may change a step and are not part of the plan.
    pub unread: Vec<Unread>,
    /// Options that are given several times with different values.
    pub repeated: Vec<Repeated>,
    /// Options of the model that are left out, with the tool's default values; no value for a switch.
    pub model_defaults: Vec<Argument>,
}

/// Values that the user states in addition to the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// Number of ranks.
    pub num_gpus: Option<u32>,
    /// Tokens in a sequence.
    pub sequence_length: Option<u64>,
    /// Sequences of a micro-batch.
    pub micro_batch_size: Option<u32>,
    /// Sequences in a step.
    pub global_batch_size: Option<u64>,
    /// Pipeline-parallel ranks.
    pub pipeline_parallel: Option<u32>,
    /// True if modules for multi-token prediction are trained.
    pub multi_token_prediction: bool,
    /// True if dropout is applied.
    pub dropout: bool,
}

/// Training of a model, as far as the settings state it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatedTraining {
    /// Tokens in a sequence.
    pub sequence_length: Option<u64>,
    /// Sequences in a step. If `None`, the batch follows from `num_micro_batches`, or is one micro-batch for each
    /// replica.
    pub global_batch_size: Option<u64>,
    /// Micro-batches of a replica in a step, if the tool has an option for them.
    pub num_micro_batches: Option<u32>,
    /// Precision of linear layers.
    pub precision: Precision,
    /// Optimizer.
    pub optimizer: Optimizer,
    /// True if gradients are accumulated in fp32.
    pub fp32_gradients: bool,
    /// True if the optimizer's moments are in bf16.
    pub bf16_moments: bool,
    /// True if there are no fp32 master weights.
    pub no_master_weights: bool,
}

/// Partition of the model into stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatedStages {
    /// Equal numbers of layers, with the embedding on the first stage and the head on the last.
    Even,
    /// Number of blocks of each stage, including the embedding and the head.
    Blocks(Vec<u32>),
    /// The tool's own partition, which is assumed to balance the times of the stages.
    Balanced,
}

/// Settings as a problem with its layout and stages.
#[derive(Clone, Debug)]
pub struct Posed {
    /// Model, training and cluster.
    pub problem: Problem,
    /// The layout.
    pub layout: Layout,
    /// End of each stage, in blocks.
    pub stage_ends: Vec<usize>,
}

impl Imported {
    /// Settings with the tool's default for every option; multi-token prediction and dropout are as the user states.
    pub(super) fn unset(tool: Target, num_gpus: Option<u32>, stated: Stated) -> Self {
        Self {
            source: tool,
            framework: tool.framework(),
            layout: LayoutSpec::ONE_RANK,
            num_gpus,
            training: StatedTraining {
                sequence_length: None,
                global_batch_size: None,
                num_micro_batches: None,
                precision: Precision::Fp32,
                optimizer: Optimizer::AdamW,
                fp32_gradients: false,
                bf16_moments: false,
                no_master_weights: false,
            },
            stages: StatedStages::Even,
            shard_groups: 1,
            model: Vec::new(),
            multi_token_prediction: stated.multi_token_prediction,
            dropout: stated.dropout,
            expert_load: None,
            adapters: None,
            ranks_per_node: None,
            unread: Vec::new(),
            repeated: Vec::new(),
            model_defaults: Vec::new(),
        }
    }

    /// Keeps weights, gradients and moments in 16 bits alone: the weights are loaded so, and nothing copies them.
    pub(super) fn keep_16_bits(&mut self) {
        self.training.fp32_gradients = false;
        self.training.no_master_weights = true;
        self.training.bf16_moments = true;
        let abilities = &mut self.framework.abilities;
        abilities
            .exclusions
            .retain(|it| !(it.set().has(Feature::Zero0) && it.set().has(Feature::Gradients16)));
        abilities.no_master_weights = true;
        abilities.moments.push(Precision::Bf16);
    }

    /// Settings that equal a plan.
    pub(crate) fn of_plan(plan: &Plan) -> Self {
        let blocks = plan.stages.iter().map(|it| it.num_blocks).collect();
        let Plan { framework, layout, num_gpus, training, model, .. } = plan;
        Self {
            multi_token_prediction: model.multi_token_prediction,
            dropout: model.dropout,
            expert_load: Some(plan.expert_load.clone()),
            adapters: model.adapters.clone(),
            ..Self::of_run(framework.clone(), *layout, *num_gpus, training, blocks)
        }
    }

    /// Settings of a run whose stages have these numbers of blocks.
    pub(crate) fn of_run(
        framework: Framework,
        layout: LayoutSpec,
        num_gpus: u32,
        training: &Training,
        blocks: Vec<u32>,
    ) -> Self {
        Self {
            framework,
            layout,
            training: StatedTraining::of(training),
            stages: StatedStages::Blocks(blocks),
            shard_groups: shard_groups(&layout),
            expert_load: Some(ExpertLoad::Balanced),
            ..Self::unset(Target::EXECUTOR, Some(num_gpus), Stated::default())
        }
    }

    /// Poses the problem of the settings, with their layout and stages.
    ///
    /// # Errors
    ///
    /// [`ImportError`] where they contradict each other, the model, or the number of GPUs.
    pub fn posed(
        &self,
        graph: &Graph,
        cluster: &Cluster,
        num_gpus: Option<u32>,
    ) -> Result<Posed, ImportError> {
        let num_gpus = self.ranks(num_gpus)?;
        let training = self.training(num_gpus)?;
        let layout = self.spec(num_gpus, &training)?;
        let framework = self.framework.clone();
        let graph = graph.clone();
        let problem = Problem::new(graph, training, cluster, framework, num_gpus)?;
        let usual = || usual_load(&problem.graph);
        let load = self.expert_load.clone().unwrap_or_else(usual);
        let problem = problem.with_expert_load(load)?;
        let headroom = problem.usual_headroom();
        let problem = problem.with_headroom(headroom);
        let layout = self.with_heads(self.with_experts(layout, &problem), &problem);
        let layout = Layout::new(layout, &problem.limits)?;
        let stage_ends = self.stage_ends(&problem, &layout)?;
        Ok(Posed { problem, layout, stage_ends })
    }

    /// Sets expert tensor parallelism, where the tool supports one degree only.
    fn with_experts(&self, layout: LayoutSpec, problem: &Problem) -> LayoutSpec {
        let ability = self.framework.abilities.experts.as_ref().map(|it| it.tensor);
        let LayoutSpec { expert_parallel, tensor_parallel, .. } = layout;
        let only = match ability {
            Some(ExpertTensor::Any) => None,
            Some(ability) if problem.facts.has_experts => {
                ability.only(expert_parallel, tensor_parallel)
            }
            _ => Some(tensor_parallel),
        };
        let expert_tensor_parallel = only.unwrap_or(layout.expert_tensor_parallel);
        LayoutSpec { expert_tensor_parallel, ..layout }
    }

    /// For tools that have both kinds, sets a ring instead of an exchange of heads where the key-value heads do not
    /// divide over the ranks: such tools repeat heads (verl), or combine a ring with exchanges (ms-swift).
    fn with_heads(&self, layout: LayoutSpec, problem: &Problem) -> LayoutSpec {
        let is_undivided = problem.facts.key_value_heads.is_some_and(|heads| {
            let ranks = u64::from(layout.tensor_parallel) * u64::from(layout.context_parallel);
            !heads.is_multiple_of(ranks)
        });
        let ring = ContextParallelKind::Ring;
        let has = |kind| self.framework.abilities.context_parallel.contains(&kind);
        let exchange = ContextParallelKind::AllToAll;
        let is_exchange = layout.context_parallel_kind == exchange && has(exchange) && has(ring);
        let context_parallel_kind =
            if is_exchange && is_undivided { ring } else { layout.context_parallel_kind };
        LayoutSpec { context_parallel_kind, ..layout }
    }

    fn ranks(&self, given: Option<u32>) -> Result<u32, ImportError> {
        match (self.num_gpus, given) {
            (Some(stated), Some(asked)) if stated != asked => Err(ImportError::divides(
                Divided::Stated,
                format!("the settings start {stated} ranks, not {asked}"),
                "leave out `--gpus`",
            )),
            (stated, asked) => stated.or(asked).ok_or_else(|| {
                ImportError::unknown(
                    "the settings do not say how many ranks there are",
                    "`--gpus 64`",
                )
            }),
        }
    }

    /// Settings that may change a step but are not part of a plan on this cluster.
    pub fn unread(&self, cluster: &Cluster) -> Vec<Unread> {
        let mut all = self.unread.clone();
        let has = cluster.gpus_per_node;
        let each = self.ranks_per_node.filter(|each| *each != has);
        if let Some(each) = each.filter(|each| self.num_gpus.is_some_and(|all| all > *each)) {
            let why =
                format!("nodes of {each} ranks, but nodes of {} have {has} GPUs", cluster.name);
            all.push(Unread::new("nproc-per-node", why));
        }
        all
    }

    /// Number of replicas, if the number of ranks is known and divides.
    pub fn known_replicas(&self) -> Option<u32> {
        self.replicas(self.num_gpus?).ok()
    }

    fn replicas(&self, num_gpus: u32) -> Result<u32, ImportError> {
        let LayoutSpec { tensor_parallel, context_parallel, pipeline_parallel, .. } = self.layout;
        let degrees = [tensor_parallel, context_parallel, pipeline_parallel].map(u64::from);
        let others = degrees.into_iter().fold(1, u64::saturating_mul);
        let has = u64::from(num_gpus);
        if num_gpus == 0 || !has.is_multiple_of(others) {
            return Err(ImportError::divides(
                Divided::Ranks,
                format!(
                    "tensor {tensor_parallel} x context {context_parallel} x pipeline {pipeline_parallel} are \
                     {others} ranks, which do not divide {num_gpus}"
                ),
                format!("{} ranks", has.next_multiple_of(others.max(1))),
            ));
        }
        Ok((has / others) as u32)
    }

    fn training(&self, num_gpus: u32) -> Result<Training, ImportError> {
        let StatedTraining { sequence_length, global_batch_size, num_micro_batches, .. } =
            self.training;
        let each = u64::from(self.replicas(num_gpus)?) * u64::from(self.layout.micro_batch_size);
        let in_rounds = |rounds: u32| each.saturating_mul(rounds.into());
        Ok(Training {
            sequence_length: sequence_length.ok_or_else(|| {
                ImportError::unknown(
                    "the settings do not say how long a sequence is",
                    "`--seq-len N`, the tokens of a sequence in this run",
                )
            })?,
            global_batch_size: match (global_batch_size, num_micro_batches) {
                (Some(batch), Some(rounds)) if batch != in_rounds(rounds) => {
                    return Err(ImportError::divides(
                        Divided::Batch,
                        format!(
                            "a batch of {batch} is not micro-batches of {} x {rounds} of them x {} replicas, which are {}",
                            self.layout.micro_batch_size,
                            each / u64::from(self.layout.micro_batch_size.max(1)),
                            in_rounds(rounds)
                        ),
                        format!("a batch of {}", in_rounds(rounds)),
                    ));
                }
                (Some(batch), _) => batch,
                (None, rounds) => in_rounds(rounds.unwrap_or(1)),
            },
            precision: self.training.precision,
            optimizer: self.training.optimizer,
            fp32_gradients: self.training.fp32_gradients,
            bf16_moments: self.training.bf16_moments,
            no_master_weights: self.training.no_master_weights,
            data_parallel_method: DataParallelMethod::AllReduce,
            gradient_compression: None,
        })
    }

    fn spec(&self, num_gpus: u32, training: &Training) -> Result<LayoutSpec, ImportError> {
        let data_parallel = self.replicas(num_gpus)?;
        let each = u64::from(data_parallel) * u64::from(self.layout.micro_batch_size);
        let batch = training.global_batch_size;
        if !batch.is_multiple_of(each) || batch == 0 {
            return Err(ImportError::divides(
                Divided::Batch,
                format!(
                    "a global batch of {batch} is no number of micro-batches of {} on {data_parallel} replicas",
                    self.layout.micro_batch_size
                ),
                multiples_around(batch, each),
            ));
        }
        let replicas = data_parallel * self.layout.context_parallel;
        if !replicas.is_multiple_of(self.shard_groups) {
            return Err(ImportError::divides(
                Divided::ShardGroups,
                format!(
                    "{replicas} replicas do not divide into {} groups over which states are sharded",
                    self.shard_groups
                ),
                "a number of groups that divides them",
            ));
        }
        let num_micro_batches = (batch / each).min(u64::from(u32::MAX)) as u32;
        let zero_shard = replicas / self.shard_groups;
        Ok(LayoutSpec { data_parallel, num_micro_batches, zero_shard, ..self.layout })
    }

    fn stage_ends(&self, problem: &Problem, layout: &Layout) -> Result<Vec<usize>, ImportError> {
        let num_stages = layout.num_stages() as usize;
        let blocks = problem.graph.num_blocks();
        let as_text = || {
            let LayoutSpec { pipeline_parallel, virtual_stages, .. } = **layout;
            match virtual_stages {
                0 | 1 => format!("{num_stages} stages"),
                each => {
                    format!("{num_stages} stages ({each} on each of {pipeline_parallel} ranks)")
                }
            }
        };
        match &self.stages {
            StatedStages::Blocks(counts) => {
                let given: u64 = counts.iter().copied().map(u64::from).sum();
                if given != blocks as u64 || counts.len() != num_stages {
                    return Err(ImportError::divides(
                        Divided::Stages,
                        format!(
                            "the stages have {given} blocks in {} stages, but the model has {blocks} and the layout {}",
                            counts.len(),
                            as_text()
                        ),
                        "as many layers as the model has, with embedding and head",
                    ));
                }
                let ends = counts.iter().scan(0, |end, count| {
                    *end += *count as usize;
                    Some(*end)
                });
                Ok(ends.collect())
            }
            StatedStages::Even => {
                let layers = num_layers(&problem.graph);
                if !layers.is_multiple_of(num_stages) {
                    return Err(ImportError::divides(
                        Divided::Stages,
                        format!(
                            "{layers} layers do not divide into {}: {} would be left over",
                            as_text(),
                            layers % num_stages
                        ),
                        "a layout of stages, with as many layers as are wanted in each",
                    ));
                }
                let each = layers / num_stages;
                let end =
                    |stage: usize| if stage == num_stages { blocks } else { 1 + stage * each };
                Ok((1..=num_stages).map(end).collect())
            }
            StatedStages::Balanced => {
                let chain = ChainIndex::new(problem);
                let shape = Shape::new(problem, &chain, ShapeKey::of(layout, problem));
                let ranks = PipelineRanks::of(layout);
                let ends = shape.balanced(problem, &chain, layout.recompute, num_stages, &ranks);
                ends.map(|ends| ends.to_vec()).ok_or_else(|| {
                    ImportError::divides(
                        Divided::Stages,
                        format!("{blocks} blocks do not make {num_stages} stages"),
                        "fewer stages",
                    )
                })
            }
        }
    }
}

impl StatedTraining {
    /// Training with all values stated.
    const fn of(training: &Training) -> Self {
        Self {
            sequence_length: Some(training.sequence_length),
            global_batch_size: Some(training.global_batch_size),
            num_micro_batches: None,
            precision: training.precision,
            optimizer: training.optimizer,
            fp32_gradients: training.fp32_gradients,
            bf16_moments: training.bf16_moments,
            no_master_weights: training.no_master_weights,
        }
    }
}

/// Number of groups of replicas that each hold a full copy of the states.
fn shard_groups(layout: &LayoutSpec) -> u32 {
    (layout.context_parallel * layout.data_parallel / layout.zero_shard.max(1)).max(1)
}
