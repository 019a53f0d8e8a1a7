//! From a plan to what each rank runs.

mod error;
mod objective;
mod reading;
mod support;

use std::ops::Range;

use ir::cluster::Precision;
use ir::graph::{
    AdapterError, Adapters, AttentionMask, BlockRecompute, EmbeddedRows, Graph, Node, Op, OpKind,
};
use ir::layout::{Layout, LayoutSpec, Limits};
use ir::model::transformer::DropoutRates;
use ir::model::{Description, GraphOptions, Model, Numerics};
use ir::plan::{Plan, PlannedModel};
use ir::schedule::{
    Schedule, ScheduleKind, Updates, add_communication, add_optimizer_steps, add_reduction,
    generate,
};
use ir::units::Flops;

use crate::block::BlockProgram;
use crate::checkpoint::ParameterId;
use crate::settings::Settings;
use error::unsupported;
use support::{
    check_frequent_updates, check_offload, check_operators, check_positions, check_replication,
};

pub use error::ProgramError;
pub(crate) use objective::DECODER_TOKENS;
pub use objective::Objective;
pub use reading::read_plan;

/// A model with its layout, schedule and settings: all that ranks share.
#[derive(Debug)]
pub struct Program {
    /// What the model is called.
    pub model_name: String,
    /// The class that transformers builds, or the short form's word.
    pub(crate) architecture: String,
    /// The description that it was read from.
    pub description: String,
    /// Adapters that are trained instead of the model's own parameters, if there are any.
    pub adapters: Option<Adapters>,
    /// The model as operators, with its adapters.
    pub graph: Graph,
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
    /// What tells the frozen weights from those of other files or seeds; none where nothing is frozen.
    pub base: Option<String>,
    /// Whether the model's description has dropout, and the plan leaves it out.
    pub leaves_out_dropout: bool,
}

/// What a program is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The model's description: a Hugging Face configuration, the short form or a native graph.
    pub description: String,
    /// What of the model is trained.
    pub options: GraphOptions,
    /// Adapters that are trained instead of the model's own parameters, if there are any.
    pub adapters: Option<Adapters>,
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

impl Parts {
    /// A model under a layout, with stages as even as can be, the first ones larger. Adapters and the like are left to
    /// be added.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] where the model cannot be read, or the schedule not be made.
    pub fn even(
        description: String,
        model_name: &str,
        options: GraphOptions,
        layout: LayoutSpec,
        [global_batch_size, sequence_length]: [u64; 2],
        settings: Settings,
    ) -> Result<Self, ProgramError> {
        let [p, m, v] = [layout.pipeline_parallel, layout.num_micro_batches, layout.virtual_stages];
        let schedule = generate(layout.schedule, p, m, v)?;
        let graph = Model::from_json(&description, model_name)?;
        let graph = graph.graph(options).map_err(AdapterError::from)?;
        let (stages, blocks) = (schedule.num_stages() as usize, graph.num_blocks());
        let size = |stage| blocks / stages + usize::from(stage < blocks % stages);
        Ok(Self {
            description,
            options,
            adapters: None,
            model_name: model_name.to_owned(),
            layout,
            schedule,
            stage_sizes: (0..stages).map(size).collect(),
            sequence_length: if graph.has_sequence() { sequence_length } else { 1 },
            global_batch_size,
            settings,
        })
    }
}

impl Program {
    /// The program of a plan.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] where the plan contradicts itself, or asks for what is not run.
    pub fn from_plan(plan: &Plan, settings: Settings) -> Result<Self, ProgramError> {
        match plan.training.precision {
            Precision::Fp8 => return Err(unsupported("8-bit precision")),
            Precision::Fp4 => return Err(unsupported("4-bit precision")),
            Precision::Fp32 | Precision::Fp16 | Precision::Bf16 => {}
        }
        if plan.training.no_master_weights {
            return Err(ProgramError::Unsupported {
                what: "an update of 16-bit weights without master weights in fp32".to_owned(),
                instead: Some("a plan without `--no-master-weights`".to_owned()),
            });
        }
        let PlannedModel { multi_token_prediction, dropout, .. } = plan.model;
        let options = GraphOptions { multi_token_prediction, dropout, ..GraphOptions::default() };
        let description = plan.model.description.to_string();
        let model = Model::from_json(&description, &plan.model.name)?;
        let adapters = plan.model.adapters.clone();
        let graph = recomputing(model.training_graph(options, adapters.as_ref())?, &plan.layout)?;
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
            options,
            adapters,
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
        let rates = match &model.description {
            Description::Transformer(it) => it.dropout,
            _ => DropoutRates::default(),
        };
        if parts.options.dropout && rates.layers.0 > 0.0 {
            return Err(unsupported("dropout of whole layers (`layerdrop`)"));
        }
        let leaves_out_dropout = !parts.options.dropout && rates != DropoutRates::default();
        let graph = model.training_graph(parts.options, parts.adapters.as_ref())?;
        let graph = recomputing(graph, &spec)?;
        let num_gpus = spec.num_gpus();
        let limits = Limits::new(&graph, num_gpus, parts.global_batch_size, parts.sequence_length);
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
        let last = graph.classes().len() - 1;
        let classes = graph.classes().map(|(class, block)| {
            // The ends are not computed again: the planner does not plan it either.
            let is_end = class.0 == 0 || class.0 == last;
            let recompute = spec.recompute.of_other_layers();
            let recompute = if is_end { BlockRecompute::None } else { recompute };
            BlockProgram::new(block, spec.sharding(), class.0 == 0, recompute)
        });
        let classes: Vec<BlockProgram> = classes.collect();
        check_operators(&classes, &spec)?;
        check_positions(&classes, parts.sequence_length)?;
        parts.settings.replication.check_layout(&spec)?;
        check_replication(&parts.settings)?;
        check_offload(&spec, parts.adapters.is_some())?;
        if schedule.updates() == Updates::AfterEachMicroBatch {
            check_frequent_updates(&parts.settings)?;
        }
        let schedule = add_optimizer_steps(&add_reduction(&add_communication(&schedule)));
        Ok(Self {
            model_name: model.name,
            architecture: model.architecture,
            description,
            adapters: parts.adapters,
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
            base: None,
            leaves_out_dropout,
        })
    }

    /// The deviation of first weights, where the model's description says.
    pub(crate) fn initializer_range(&self) -> Option<f64> {
        self.graph.has_sequence().then_some(self.numerics.initializer_range)
    }

    /// How many of the model's parameters are trained.
    pub fn num_trained_parameters(&self) -> u64 {
        self.graph.parameter_counts().trained
    }

    /// Over how many parts of a step's targets losses are means of their own: where replicas update by their
    /// own gradients, over each replica's.
    pub(crate) fn num_means(&self) -> f64 {
        if self.settings.replication.method.is_synchronous() {
            1.0
        } else {
            f64::from(self.layout.data_parallel)
        }
    }

    /// Whether a block of a stage keeps its inputs only, and computes all else again. The ends never do.
    pub(crate) fn is_recomputed(&self, stage: u32, block: usize) -> bool {
        if block == 0 || block + 1 == self.chain.len() {
            return false;
        }
        let first = self.stages[stage as usize].start.max(1);
        let is_first =
            self.layout.recompute.first_layers().is_none_or(|n| block - first < n as usize);
        is_first && self.layout.recompute.of_first_layers() == BlockRecompute::Full
    }

    /// How many ranks run it.
    pub fn num_ranks(&self) -> u32 {
        self.layout.num_gpus()
    }

    /// How many token ids the model knows; none if it takes no tokens.
    pub fn vocab_size(&self) -> Option<u64> {
        let nodes = self.block(0).block.nodes();
        nodes.into_iter().find_map(|node| match (&node.op.kind, node.op.parameters.first()) {
            (OpKind::Embedding { rows: EmbeddedRows::Tokens { .. }, .. }, Some(table)) => {
                match table.dims[0].extent {
                    ir::graph::Extent::Fixed(rows) => Some(rows),
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// What a model of tokens is trained to do, which its attention decides.
    pub fn objective(&self) -> Objective {
        let nodes = || self.classes.iter().flat_map(|program| program.block.nodes());
        let is_full = |node: Node<'_>| {
            matches!(node.op.kind, OpKind::Attention { mask: AttentionMask::Full, .. })
        };
        let has_decoder = nodes().any(|node| node.op.name == DECODER_TOKENS);
        match (nodes().any(is_full), has_decoder) {
            (false, _) => Objective::NextToken,
            (true, false) => Objective::FillIn,
            (true, true) => Objective::Restore,
        }
    }

    /// How many tokens further than the next one the model predicts.
    pub(crate) fn most_ahead(&self) -> usize {
        let nodes = self.classes.iter().flat_map(|program| program.block.nodes());
        let ahead = nodes.filter_map(|node| match node.op.kind {
            OpKind::CrossEntropy { ahead, .. } => Some(ahead as usize),
            _ => None,
        });
        ahead.max().unwrap_or(0)
    }

    /// Layers with a mixture of experts.
    pub fn num_mixtures(&self) -> usize {
        let routes = |class: &&usize| {
            let mut nodes = self.classes[**class].block.nodes();
            nodes.any(|node| matches!(node.op.kind, OpKind::Router { .. }))
        };
        self.chain.iter().filter(routes).count()
    }

    /// Operations of a step, without what is computed again.
    pub fn operations_per_step(&self) -> Flops {
        let of_sequence = self.graph.forward_flops(self.sequence_length).of_step();
        of_sequence * self.global_batch_size as f64
    }

    /// Tokens of a step, or samples where the model takes none.
    pub fn tokens_per_step(&self) -> u64 {
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

    /// Whether the model has such a parameter.
    pub(crate) fn has_parameter(&self, id: &ParameterId) -> bool {
        self.operator(id).is_some_and(|op| op.parameters.iter().any(|p| p.name == id.name))
    }

    /// What the operator of a parameter computes.
    pub(crate) fn op_kind(&self, id: &ParameterId) -> &OpKind {
        &self.operator(id).expect("a parameter of the model has an operator").kind
    }

    fn operator(&self, id: &ParameterId) -> Option<&Op> {
        let block = self.chain.get(id.block as usize)?;
        let mut nodes = self.classes[*block].block.nodes();
        nodes.find(|node| node.op.name == id.op).map(|node| node.op)
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

/// The graph whose blocks recompute the modules that the layout names, if it does.
fn recomputing(graph: Graph, layout: &LayoutSpec) -> Result<Graph, AdapterError> {
    match layout.recompute.modules() {
        Some(modules) => Ok(graph.recomputing(modules)?),
        None => Ok(graph),
    }
}
