//! Programs: a plan, lowered to the operators and actions of each rank.

mod error;
mod objective;
mod reading;
mod support;

use std::ops::Range;

use ir::cluster::Precision;
use ir::graph::{
    AdapterError, Adapters, AttentionMask, BlockRecompute, EmbeddedRows, Graph, Node, Op, OpKind,
};
use ir::layout::{Layout, LayoutSpec, Limits, ZeroStage};
use ir::model::transformer::DropoutRates;
use ir::model::{Description, GraphOptions, Model, Numerics};
use ir::plan::{Plan, PlannedModel};
use ir::schedule::{
    GenerateError, Schedule, ScheduleKind, Updates, add_communication, add_optimizer_steps,
    add_reduction, generate,
};
use ir::units::Flops;

use crate::block::BlockProgram;
use crate::checkpoint::ParameterId;
use crate::settings::Settings;
use error::{unsupported, unsupported_but};
use support::{
    check_frequent_updates, check_offload, check_operators, check_optimizer, check_positions,
    check_replication,
};

pub use error::ProgramError;
pub(crate) use objective::DECODER_TOKENS;
pub use objective::Objective;
pub use reading::read_plan;

/// A model with its layout, schedule and settings, shared by all ranks.
#[derive(Debug)]
pub struct Program {
    /// Name of the model.
    pub model_name: String,
    /// Name of the model's class in transformers, or the architecture in the short form.
    pub(crate) architecture: String,
    /// The description that the model was read from.
    pub description: String,
    /// Adapters that are trained instead of the model's own parameters, if any.
    pub adapters: Option<Adapters>,
    /// The model as a graph of operators, with its adapters.
    pub graph: Graph,
    pub(crate) numerics: Numerics,
    /// Layout of the step over ranks.
    pub layout: LayoutSpec,
    /// Actions of every pipeline rank, in order, for the replicas with the most micro-batches.
    pub schedule: Schedule,
    /// Numbers of replicas in each group of GPUs, with their schedules; empty where all replicas have the same.
    groups: Vec<(u32, Schedule)>,
    /// The blocks of each stage.
    pub(crate) stages: Vec<Range<usize>>,
    /// Programs of blocks, by class.
    pub(crate) classes: Vec<BlockProgram>,
    /// The class of each block.
    pub(crate) chain: Vec<usize>,
    /// Tokens in a sequence.
    pub sequence_length: u64,
    /// Sequences in a step.
    pub global_batch_size: u64,
    /// Training settings that the plan does not fix.
    pub settings: Settings,
    /// Identity of the frozen weights, which differs for other files or seeds; none where nothing is frozen.
    pub base: Option<String>,
    /// True where the model's description has dropout, and the plan leaves it out.
    pub leaves_out_dropout: bool,
}

/// Parts of which a program is built.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The model's description: a Hugging Face configuration, the short form or a native graph.
    pub description: String,
    /// Options of the model's graph: which parts are trained.
    pub options: GraphOptions,
    /// Adapters that are trained instead of the model's own parameters, if any.
    pub adapters: Option<Adapters>,
    /// Name of the model.
    pub model_name: String,
    /// Layout of the step over ranks.
    pub layout: LayoutSpec,
    /// Number of replicas in each group of GPUs, where the number of micro-batches depends on the group; else empty.
    pub replicas_by_group: Vec<u32>,
    /// Actions of every pipeline rank, at least its passes, for the replicas with the most micro-batches.
    pub schedule: Schedule,
    /// Number of blocks of each stage.
    pub stage_sizes: Vec<usize>,
    /// Tokens in a sequence.
    pub sequence_length: u64,
    /// Sequences in a step.
    pub global_batch_size: u64,
    /// Training settings that the plan does not fix.
    pub settings: Settings,
}

impl Parts {
    /// A model under a layout, with stages of equal size; where blocks do not divide evenly, the first stages have one
    /// more. There are no adapters.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] where the model cannot be read, or the schedule cannot be generated.
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
            replicas_by_group: Vec::new(),
            schedule,
            stage_sizes: (0..stages).map(size).collect(),
            sequence_length: if graph.has_sequence() { sequence_length } else { 1 },
            global_batch_size,
            settings,
        })
    }
}

impl Program {
    /// Builds the program of a plan.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] where the plan contradicts itself, or has unsupported features.
    pub fn from_plan(plan: &Plan, settings: Settings) -> Result<Self, ProgramError> {
        match plan.training.precision {
            Precision::Fp8 => return Err(unsupported("8-bit precision")),
            Precision::Fp4 => return Err(unsupported("4-bit precision")),
            Precision::Fp32 | Precision::Fp16 | Precision::Bf16 => {}
        }
        if plan.training.no_master_weights {
            let what = "an update of 16-bit weights without master weights in fp32";
            return Err(unsupported_but(what, "a plan without `--no-master-weights`"));
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
        let replicas_by_group = plan.replicas_by_group();
        // These numbers are checked before they decide what is allocated.
        let limits = Limits::new(&graph, plan.num_gpus, batch, length);
        Layout::new(spec, &with_groups(limits, &replicas_by_group, &spec)?)?;
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
            replicas_by_group,
            schedule,
            stage_sizes: plan.stages.iter().map(|stage| stage.num_blocks as usize).collect(),
            sequence_length: length,
            global_batch_size: batch,
            settings,
        })
    }

    /// Builds the program of a model under a layout and a schedule.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] where model, layout and schedule do not fit together, or have unsupported features.
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
        let limits = with_groups(limits, &parts.replicas_by_group, &spec)?;
        // The given schedule was checked; the layout's own schedule kind does not matter.
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
            // The first and last blocks are not recomputed, nor does the planner plan it.
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
        check_optimizer(parts.settings.optimizer.kind)?;
        check_offload(&spec, parts.adapters.is_some())?;
        if schedule.updates() == Updates::AfterEachMicroBatch {
            check_frequent_updates(&parts.settings)?;
        }
        let whole =
            |passes: &Schedule| add_optimizer_steps(&add_reduction(&add_communication(passes)));
        let numbers = spec.micro_batches_by_group.numbers();
        let groups = parts.replicas_by_group.iter().zip(numbers).map(|(replicas, number)| {
            if *number == schedule.num_micro_batches() {
                return Ok((*replicas, whole(&schedule)));
            }
            let [p, v] = [spec.pipeline_parallel, spec.virtual_stages];
            Ok((*replicas, whole(&generate(spec.schedule, p, *number, v)?)))
        });
        let groups: Vec<(u32, Schedule)> = groups.collect::<Result<_, GenerateError>>()?;
        let schedule = whole(&schedule);
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
            groups,
            stages,
            classes,
            sequence_length: parts.sequence_length,
            global_batch_size: parts.global_batch_size,
            settings: parts.settings,
            base: None,
            leaves_out_dropout,
        })
    }

    /// Standard deviation of initial weights, where the model's description has one.
    pub(crate) fn initializer_range(&self) -> Option<f64> {
        self.graph.has_sequence().then_some(self.numerics.initializer_range)
    }

    /// Number of trained parameters of the model.
    pub fn num_trained_parameters(&self) -> u64 {
        self.graph.parameter_counts().trained
    }

    /// Number of separately averaged losses of a step: one, or one for each replica where replicas update by their own
    /// gradients.
    pub(crate) fn num_means(&self) -> f64 {
        if self.settings.replication.method.is_synchronous() {
            1.0
        } else {
            f64::from(self.layout.data_parallel)
        }
    }

    /// Returns whether a block of a stage is recomputed from its inputs. The first and last blocks never are.
    pub(crate) fn is_recomputed(&self, stage: u32, block: usize) -> bool {
        if block == 0 || block + 1 == self.chain.len() {
            return false;
        }
        let first = self.stages[stage as usize].start.max(1);
        let is_first =
            self.layout.recompute.first_layers().is_none_or(|n| block - first < n as usize);
        is_first && self.layout.recompute.of_first_layers() == BlockRecompute::Full
    }

    /// Number of ranks that run the program.
    pub fn num_ranks(&self) -> u32 {
        self.layout.num_gpus()
    }

    /// Size of the vocabulary; none if the model takes no tokens.
    pub fn vocab_size(&self) -> Option<u64> {
        let nodes = self.block(0).block.nodes();
        nodes.into_iter().find_map(|node| match (&node.op.kind, node.op.parameters.first()) {
            (OpKind::Embedding { rows: EmbeddedRows::Tokens { .. }, .. }, Some(table)) => {
                table.dims[0].extent.fixed()
            }
            _ => None,
        })
    }

    /// Training objective of a model of tokens, derived from its attention.
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

    /// Number of tokens beyond the next one that the model predicts.
    pub(crate) fn most_ahead(&self) -> usize {
        let nodes = self.classes.iter().flat_map(|program| program.block.nodes());
        let ahead = nodes.filter_map(|node| match node.op.kind {
            OpKind::CrossEntropy { ahead, .. } => Some(ahead as usize),
            _ => None,
        });
        ahead.max().unwrap_or(0)
    }

    /// Number of layers with a mixture of experts.
    pub fn num_mixtures(&self) -> usize {
        let routes = |class: &&usize| {
            let mut nodes = self.classes[**class].block.nodes();
            nodes.any(|node| matches!(node.op.kind, OpKind::Router { .. }))
        };
        self.chain.iter().filter(routes).count()
    }

    /// Floating-point operations of a step, without recomputation.
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

    /// Returns whether the model has the parameter `id`.
    pub(crate) fn has_parameter(&self, id: &ParameterId) -> bool {
        self.operator(id).is_some_and(|op| op.parameters.iter().any(|p| p.name == id.name))
    }

    /// The schedule of a replica.
    pub(crate) fn schedule_of(&self, replica: u32) -> &Schedule {
        let mut end = 0;
        let of_replica = self.groups.iter().find(|(replicas, _)| {
            end += replicas;
            replica < end
        });
        of_replica.map_or(&self.schedule, |(_, schedule)| schedule)
    }

    /// Index of a replica's micro-batch among those of the step: first comes the first micro-batch of each replica,
    /// then the second of each replica that has two, and so on, so that a step has the same micro-batches whatever the
    /// number of replicas.
    pub(crate) fn micro_batch_of_step(&self, replica: u32, micro_batch: u32) -> u64 {
        let before = |other: u32| {
            let number = self.schedule_of(other).num_micro_batches();
            number.min(micro_batch + u32::from(other < replica))
        };
        (0..self.layout.data_parallel).map(|other| u64::from(before(other))).sum()
    }

    /// The kind of the operator that a parameter belongs to.
    pub(crate) fn op_kind(&self, id: &ParameterId) -> &OpKind {
        &self.operator(id).expect("a parameter of the model has an operator").kind
    }

    fn operator(&self, id: &ParameterId) -> Option<&Op> {
        let block = self.chain.get(id.block as usize)?;
        let mut nodes = self.classes[*block].block.nodes();
        nodes.find(|node| node.op.name == id.op).map(|node| node.op)
    }

    /// The operator called `name`, to which parameters may be tied, with its block.
    pub(crate) fn tie_target(&self, name: &str) -> Option<(usize, ir::graph::OpId)> {
        let mut blocks = self.chain.iter().enumerate();
        blocks.find_map(|(block, class)| {
            let mut nodes = self.classes[*class].block.nodes();
            let node = nodes.find(|node| node.op.name == name)?;
            Some((block, node.id))
        })
    }

    /// The pipeline ranks that hold a stage: one, or two in a bidirectional schedule.
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

/// `limits` with the number of GPUs in each group, where the number of micro-batches depends on the group.
fn with_groups(
    limits: Limits,
    replicas: &[u32],
    spec: &LayoutSpec,
) -> Result<Limits, ProgramError> {
    let by_group = spec.micro_batches_by_group;
    if by_group.is_empty() {
        return Ok(limits);
    }
    if replicas.iter().sum::<u32>() != spec.data_parallel {
        return Err(ProgramError::Contradiction(format!(
            "its `ranks` have {} replicas, but `data_parallel` is {}",
            replicas.iter().sum::<u32>(),
            spec.data_parallel
        )));
    }
    if !by_group.are_equal() && spec.zero_stage >= ZeroStage::Gradients {
        let what = format!(
            "ZeRO-{} of replicas with {by_group} micro-batches by their group, which exchange data with each",
            spec.zero_stage.number()
        );
        return Err(unsupported_but(what, "`--zero 1`"));
    }
    let gpus_by_group = replicas.iter().map(|number| number * spec.gpus_per_replica()).collect();
    Ok(Limits { gpus_by_group, ..limits })
}

/// The graph with recomputation of the modules that the layout names, if any.
fn recomputing(graph: Graph, layout: &LayoutSpec) -> Result<Graph, AdapterError> {
    match layout.recompute.modules() {
        Some(modules) => Ok(graph.recomputing(modules)?),
        None => Ok(graph),
    }
}
