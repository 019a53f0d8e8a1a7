//! From a plan to what each rank runs.

use std::ops::Range;

use ir::cluster::Precision;
use ir::graph::{Graph, GraphError, OpKind, Recompute, Sharding};
use ir::layout::{Layout, LayoutError, LayoutSpec, Limits};
use ir::model::{GraphOptions, Model, ModelError, Numerics};
use ir::plan::{PLAN_VERSION, Plan};
use ir::schedule::{
    GenerateError, Schedule, ScheduleKind, Updates, add_communication, add_optimizer_steps,
    add_reduction, generate,
};

use crate::block::BlockProgram;
use crate::settings::Settings;

/// Why a plan cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// Written by a program with another format.
    #[error(
        "the plan has version {version}, but this program reads {PLAN_VERSION}\nhint: make it again with `{command}`"
    )]
    Version {
        /// The version in the file.
        version: u64,
        /// The command in the file.
        command: String,
    },
    /// Something else that is JSON.
    #[error("this is {found}, not a plan\nhint: {instead}")]
    NotAPlan {
        /// What it is.
        found: &'static str,
        /// What would work.
        instead: &'static str,
    },
    /// Not JSON, or not of the form of a plan.
    #[error(
        "no plan that can be read: line {line}, column {column}: {problem}\nhint: `planner search MODEL \
         --gpus N -o plan.json` writes one"
    )]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong.
        problem: String,
    },
    /// The model in the plan cannot be read, or not run.
    #[error("the plan's `model`: {0}")]
    Model(#[from] ModelError),
    /// The model in the plan has no graph.
    #[error("the plan's `model`: {0}")]
    Graph(#[from] GraphError),
    /// The layout is not valid for model, batch and ranks.
    #[error("the plan's `layout`: {0}")]
    Layout(#[from] LayoutError),
    /// The schedule cannot be made.
    #[error("the plan's `layout`: {0}")]
    Schedule(#[from] GenerateError),
    /// Two parts of the plan disagree.
    #[error("the plan contradicts itself: {0}\nhint: make it again with its `provenance.command`")]
    Contradiction(String),
    /// Something that can be planned, but is not run.
    #[error("{what} is not run yet{}", .instead.as_ref().map_or(String::new(), |i| format!("\nhint: {i}")))]
    Unsupported {
        /// What it is.
        what: String,
        /// What would work.
        instead: Option<String>,
    },
}

fn unsupported(what: impl Into<String>) -> ProgramError {
    ProgramError::Unsupported { what: what.into(), instead: None }
}

/// A model with its layout, schedule and settings: all that ranks share.
#[derive(Debug)]
pub struct Program {
    /// What the model is called.
    pub model_name: String,
    /// The class that transformers builds, or the short form's word.
    pub(crate) architecture: String,
    /// The description that it was read from.
    pub description: String,
    pub(crate) graph: Graph,
    pub(crate) numerics: Numerics,
    /// How the step is spread over ranks.
    pub layout: LayoutSpec,
    /// What every pipeline rank does, in order.
    pub schedule: Schedule,
    /// The blocks of each stage.
    pub(crate) stages: Vec<Range<usize>>,
    /// By class of blocks.
    pub(crate) classes: Vec<BlockProgram>,
    /// The class of each block.
    pub(crate) chain: Vec<usize>,
    /// Tokens in a sequence.
    pub sequence_length: u64,
    /// Sequences in a step.
    pub global_batch_size: u64,
    /// Numbers of training that the plan does not fix.
    pub settings: Settings,
}

/// What a program is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The model's description: a Hugging Face configuration, the short form or a native graph.
    pub description: String,
    /// What the model is called.
    pub model_name: String,
    /// How the step is spread over ranks.
    pub layout: LayoutSpec,
    /// What every pipeline rank does, computation at least.
    pub schedule: Schedule,
    /// How many blocks each stage has.
    pub stage_sizes: Vec<usize>,
    /// Tokens in a sequence.
    pub sequence_length: u64,
    /// Sequences in a step.
    pub global_batch_size: u64,
    /// Numbers of training that the plan does not fix.
    pub settings: Settings,
}

/// Reads a plan.
///
/// # Errors
///
/// [`ProgramError`] where the text is no plan of this version.
pub fn read_plan(text: &str) -> Result<Plan, ProgramError> {
    let json = |error: serde_json::Error| ProgramError::Json {
        line: error.line(),
        column: error.column(),
        problem: error.to_string().split(" at line ").next().unwrap_or_default().to_owned(),
    };
    let value: serde_json::Value = serde_json::from_str(text).map_err(json)?;
    if let Some((found, instead)) = something_else(&value) {
        return Err(ProgramError::NotAPlan { found, instead });
    }
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if let Some(version) = version.filter(|version| *version != u64::from(PLAN_VERSION)) {
        let command = value.pointer("/provenance/command").and_then(serde_json::Value::as_str);
        let command = command.unwrap_or("planner search").to_owned();
        return Err(ProgramError::Version { version, command });
    }
    serde_json::from_str(text).map_err(json)
}

/// What a file is that was probably taken for a plan, and what to do about it.
fn something_else(value: &serde_json::Value) -> Option<(&'static str, &'static str)> {
    let has = |key| value.get(key).is_some();
    let model = "`planner search MODEL --gpus N -o plan.json` plans it";
    if has("traceEvents") {
        Some(("a timeline", "run the plan that it is of; `planner chart` draws the timeline"))
    } else if has("model_type") || has("architectures") || has("architecture") || has("nodes") {
        Some(("a model", model))
    } else if has("levels") && has("gpu") {
        Some((
            "a cluster",
            "`planner search MODEL --gpus N --cluster FILE -o plan.json` plans for it",
        ))
    } else {
        None
    }
}

impl Program {
    /// The program of a plan.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] where the plan contradicts itself, or asks for what is not run.
    pub fn from_plan(plan: &Plan, settings: Settings) -> Result<Self, ProgramError> {
        if plan.training.precision == Precision::Fp8 {
            return Err(unsupported("8-bit precision"));
        }
        if plan.model.multi_token_prediction {
            return Err(unsupported("multi-token prediction"));
        }
        let description = plan.model.description.to_string();
        let graph = Model::from_json(&description, &plan.model.name)?;
        let graph = graph.graph(GraphOptions::default())?;
        let num_parameters = graph.parameter_counts().total;
        if num_parameters != plan.model.num_parameters {
            let text = format!(
                "{} parameters, but its `model` has {num_parameters}",
                plan.model.num_parameters
            );
            return Err(ProgramError::Contradiction(text));
        }
        let spec = plan.layout;
        let training = &plan.training;
        let (batch, length) = (training.global_batch_size, training.sequence_length);
        // Before anything is made of these numbers.
        Layout::new(spec, &Limits::new(&graph, plan.num_gpus, batch, length))?;
        let [p, m, v] = [spec.pipeline_parallel, spec.num_micro_batches, spec.virtual_stages];
        let schedule = generate(spec.schedule, p, m, v)?;
        let mut next = 0;
        for (index, stage) in (0..).zip(&plan.stages) {
            let rank = schedule.placement().rank(p, index, 0);
            if stage.stage != index
                || Some(stage.pipeline_rank) != rank
                || stage.first_block != next
            {
                let text = format!("`stages[{index}]` does not follow the stage before it");
                return Err(ProgramError::Contradiction(text));
            }
            next = next.saturating_add(stage.num_blocks);
        }
        Self::new(Parts {
            description,
            model_name: plan.model.name.clone(),
            layout: spec,
            schedule,
            stage_sizes: plan.stages.iter().map(|stage| stage.num_blocks as usize).collect(),
            sequence_length: length,
            global_batch_size: batch,
            settings,
        })
    }

    /// The program of a model under a layout and a schedule.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] where they do not fit, or ask for what is not run.
    pub fn new(parts: Parts) -> Result<Self, ProgramError> {
        let Parts { description, model_name, layout: spec, schedule, stage_sizes, .. } = parts;
        let model = Model::from_json(&description, &model_name)?;
        let numerics = Model::numerics(&description)?;
        let graph = model.graph(GraphOptions::default())?;
        let num_ranks = spec.tensor_parallel
            * spec.context_parallel
            * spec.data_parallel
            * spec.pipeline_parallel;
        let limits = Limits::new(&graph, num_ranks, parts.global_batch_size, parts.sequence_length);
        // The schedule at hand was checked; what a layout may say of it does not matter.
        let plain = LayoutSpec { schedule: ScheduleKind::OneFOneB, virtual_stages: 1, ..spec };
        Layout::new(plain, &limits)?;
        if schedule.num_ranks() != spec.pipeline_parallel
            || schedule.num_micro_batches() != spec.num_micro_batches
            || schedule.num_stages() as usize != stage_sizes.len()
        {
            return Err(ProgramError::Contradiction(format!(
                "the schedule has {} ranks, {} micro-batches and {} stages, but the layout {}, {} and {}",
                schedule.num_ranks(),
                schedule.num_micro_batches(),
                schedule.num_stages(),
                spec.pipeline_parallel,
                spec.num_micro_batches,
                stage_sizes.len()
            )));
        }
        let num_blocks = graph.num_blocks();
        if stage_sizes.iter().sum::<usize>() != num_blocks || stage_sizes.contains(&0) {
            return Err(ProgramError::Contradiction(format!(
                "`stages` have {} blocks, but the model has {num_blocks}, at least one for each stage",
                stage_sizes.iter().sum::<usize>()
            )));
        }
        let mut start = 0;
        let stages = stage_sizes.iter().map(|size| {
            start += size;
            start - size..start
        });
        let stages = stages.collect();
        let sharding = Sharding {
            tensor_parallel: spec.tensor_parallel.into(),
            sequence_parallel: spec.sequence_parallel,
            context_parallel: spec.context_parallel.into(),
            expert_parallel: spec.expert_parallel.into(),
        };
        let last = graph.classes().len() - 1;
        let classes = graph.classes().map(|(class, block)| {
            // The ends are not computed again: the planner does not plan it either.
            let is_end = class.0 == 0 || class.0 == last;
            let recompute = if is_end { Recompute::None } else { spec.recompute };
            BlockProgram::new(block, sharding, class.0 == 0, recompute)
        });
        let classes: Vec<BlockProgram> = classes.collect();
        check_operators(&classes, spec.tensor_parallel)?;
        if schedule.updates() == Updates::AfterEachMicroBatch
            && parts.settings.max_gradient_norm.is_some()
        {
            return Err(ProgramError::Unsupported {
                what: "a limit on the norm of all gradients with updates after each micro-batch"
                    .into(),
                instead: Some("leave the limit out".into()),
            });
        }
        let schedule = add_optimizer_steps(&add_reduction(&add_communication(&schedule)));
        Ok(Self {
            model_name: model.name,
            architecture: model.architecture,
            description,
            chain: graph.blocks().map(|class| class.0).collect(),
            graph,
            numerics,
            layout: spec,
            schedule,
            stages,
            classes,
            sequence_length: parts.sequence_length,
            global_batch_size: parts.global_batch_size,
            settings: parts.settings,
        })
    }

    /// How many ranks run it.
    pub fn num_ranks(&self) -> u32 {
        let LayoutSpec { tensor_parallel, context_parallel, .. } = self.layout;
        tensor_parallel
            * context_parallel
            * self.layout.data_parallel
            * self.layout.pipeline_parallel
    }

    /// How many token ids the model knows; none if it takes no tokens.
    pub fn vocab_size(&self) -> Option<u64> {
        let nodes = self.block(0).block.nodes();
        nodes.into_iter().find_map(|node| match (&node.op.kind, node.op.parameters.first()) {
            (OpKind::Embedding { .. }, Some(table)) if node.op.name.ends_with(".tokens") => {
                match table.dims[0].extent {
                    ir::graph::Extent::Fixed(rows) => Some(rows),
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// Layers with a mixture of experts.
    pub(crate) fn num_mixtures(&self) -> usize {
        let routes = |class: &&usize| {
            let mut nodes = self.classes[**class].block.nodes();
            nodes.any(|node| matches!(node.op.kind, OpKind::Router { .. }))
        };
        self.chain.iter().filter(routes).count()
    }

    /// Tokens of a step, or samples where the model takes none.
    pub fn tokens_per_step(&self) -> u64 {
        self.num_targets()
    }

    /// The number of targets of a step: tokens, or samples.
    pub(crate) fn num_targets(&self) -> u64 {
        if self.graph.has_sequence() {
            self.global_batch_size * self.sequence_length
        } else {
            self.global_batch_size
        }
    }

    /// The program of a block.
    pub(crate) fn block(&self, block: usize) -> &BlockProgram {
        &self.classes[self.chain[block]]
    }

    /// The block and operator that a tied parameter is of.
    pub(crate) fn tie_target(&self, name: &str) -> Option<(usize, ir::graph::OpId)> {
        let mut blocks = self.chain.iter().enumerate();
        blocks.find_map(|(block, class)| {
            let mut nodes = self.classes[*class].block.nodes();
            let node = nodes.find(|node| node.op.name == name)?;
            Some((block, node.id))
        })
    }

    /// The pipeline ranks that hold a stage: one, or two where micro-batches run both ways.
    pub(crate) fn holders(&self, stage: u32) -> Vec<u32> {
        let mut holders = vec![self.schedule.rank(stage, 0)];
        if self.schedule.num_micro_batches() > 1 {
            let other = self.schedule.rank(stage, 1);
            if !holders.contains(&other) {
                holders.push(other);
            }
        }
        holders
    }
}

/// Operators that a graph may have, but that are not run.
fn check_operators(classes: &[BlockProgram], tensor_parallel: u32) -> Result<(), ProgramError> {
    for program in classes {
        for node in program.block.nodes() {
            let name = &node.op.name;
            match &node.op.kind {
                OpKind::Attention { relative_buckets: Some(_), .. } => {
                    return Err(unsupported(format!("relative position bias (`{name}`)")));
                }
                OpKind::Attention { sinks: true, .. } => {
                    return Err(unsupported(format!("attention sinks (`{name}`)")));
                }
                OpKind::AttentionScores
                | OpKind::AttentionValues
                | OpKind::Softmax { .. }
                | OpKind::Dropout
                | OpKind::Slice { .. }
                | OpKind::Concat { .. }
                | OpKind::PrependParameter
                | OpKind::PatchesToSequence
                | OpKind::FirstToken => {
                    return Err(unsupported(format!("operator `{name}` ({:?})", node.op.kind)));
                }
                OpKind::Norm { .. }
                    if program.placements.sharded_reductions.contains(&node.id)
                        && tensor_parallel > 1 =>
                {
                    return Err(unsupported(format!("norm `{name}` over sharded features")));
                }
                _ => {}
            }
            let heads = node.op.parameters.iter().flat_map(|p| &p.dims);
            for dim in heads.filter(|dim| dim.name == ir::graph::DimName::KvHeads) {
                let ir::graph::Extent::Fixed(size) = dim.extent else { continue };
                if size < tensor_parallel.into() {
                    return Err(ProgramError::Unsupported {
                        what: format!(
                            "`tensor_parallel` {tensor_parallel} over {size} key-value heads"
                        ),
                        instead: Some(format!("a degree of at most {size}")),
                    });
                }
            }
        }
    }
    Ok(())
}
