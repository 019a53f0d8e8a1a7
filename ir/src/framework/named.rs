//! What a user names, held against what a framework can do.

use super::{
    Abilities, ActivationOffload, ExpertAbilities, ExpertTensor, NeverBeside, OverlapAbility,
    SequenceAbility, ShardGroups, StageLayers, WithPipelines, ZeroAbility,
};
use crate::graph::{CudaGraphs, ExpertOverlap, Graph, OpKind, Recompute, TokenDispatcher};
use crate::layout::{Offload, PartialLayout, ZeroStage};
use crate::schedule::ScheduleKind;

/// A model, as far as abilities depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelFacts {
    /// Whether it has experts.
    pub has_experts: bool,
    /// Blocks of its chain, embedding and head among them.
    pub num_blocks: u64,
}

impl ModelFacts {
    /// Those of a graph.
    pub fn of(graph: &Graph) -> Self {
        let mut ops = graph.classes().flat_map(|(_, block)| block.nodes());
        let has_experts = ops.any(|node| matches!(node.op.kind, OpKind::GroupedLinear { .. }));
        Self { has_experts, num_blocks: graph.num_blocks() as u64 }
    }
}

impl Abilities {
    /// What is named of a layout and cannot be run, in words; nothing where all can.
    pub fn lacks(&self, named: &PartialLayout, model: ModelFacts) -> Vec<String> {
        let mut lacks = Vec::new();
        let mut need = |has: bool, what: String| {
            if !has {
                lacks.push(what);
            }
        };
        let tensor = named.tensor_parallel.unwrap_or(1);
        let pipeline = named.pipeline_parallel.unwrap_or(1);
        let stages = named.virtual_stages.unwrap_or(1);
        if self.sequence_parallel == SequenceAbility::NoTensorParallelism {
            need(tensor == 1, "tensor parallelism".to_owned());
        } else if tensor > 1
            && let Some(is_on) = named.sequence_parallel
        {
            let how = if is_on { "with" } else { "without" };
            let beside = if model.has_experts { " of a model with experts" } else { "" };
            let has = self.takes_tensor(tensor, is_on, model.has_experts);
            need(has, format!("tensor parallelism {how} sequence parallelism{beside}"));
        }
        if let Some(context) = named.context_parallel {
            let kind =
                named.context_parallel_kind.or_else(|| self.usual_context()).unwrap_or_default();
            need(
                self.takes_context(context, kind),
                format!("context parallelism by {}", kind.name()),
            );
        }
        need(pipeline == 1 || !self.schedules.is_empty(), "pipelines".to_owned());
        if let Some(schedule) = named.schedule.filter(|_| !self.schedules.is_empty()) {
            // One rank has no schedule to follow, but who names one means several.
            let one = schedule == ScheduleKind::OneFOneB;
            need(one || self.has_schedule(schedule), format!("schedule {schedule}"));
        }
        if named.pipeline_parallel.is_some() && (stages > 1 || named.virtual_stages.is_some()) {
            let all = u64::from(pipeline) * u64::from(stages);
            need(
                pipeline == 1 || self.takes_stages(model.num_blocks, all),
                format!(
                    "{all} stages of {} layers, which do not divide",
                    model.num_blocks.saturating_sub(2)
                ),
            );
        }
        if let Some(stage) = named.zero_stage {
            let number = stage.number();
            match self.zero.iter().find(|it| it.stage == stage) {
                None => need(false, format!("ZeRO {number}")),
                Some(it) => {
                    let has = pipeline == 1 || it.pipelines == WithPipelines::Any;
                    need(has, format!("ZeRO {number} beside pipelines"));
                    let context = named.context_parallel.unwrap_or(1);
                    let shards = named.zero_shard.unwrap_or(context);
                    let has = !is_hybrid(named) || it.shards.takes(shards, shards + 1, context);
                    need(has, format!("ZeRO {number} over some of the replicas"));
                    for other in it.never_beside.iter().filter(|it| it.is_named(named)) {
                        need(false, format!("ZeRO {number} beside {}", other.words()));
                    }
                }
            }
        }
        self.lacks_of_experts(named, model, &mut need);
        if let Some(recompute) = named.recompute {
            need(self.takes_recompute(recompute), format!("recompute of {recompute}"));
        }
        if let Some(offload) = named.offload {
            let recompute = named.recompute.unwrap_or(match self.activation_offload {
                ActivationOffload::WithFullRecompute => Recompute::Full,
                _ => Recompute::None,
            });
            let graphs = named.cuda_graphs.unwrap_or(CudaGraphs::None);
            let has = self.takes_offload(offload, model.num_blocks)
                && self.takes_offload_with(offload, pipeline, recompute, graphs);
            need(has, self.offload_with(offload));
        }
        if let Some(graphs) = named.cuda_graphs {
            need(self.takes_graphs(graphs), format!("CUDA graphs of {graphs}"));
        }
        lacks
    }

    /// What is missing where something is offloaded, and what would not be.
    fn offload_with(&self, offload: Offload) -> String {
        let takes = match self.activation_offload {
            _ if !offload.activations.is_some() => "",
            _ if !self.offload.contains(&offload.of_all_blocks()) => "",
            ActivationOffload::WithFullRecompute => {
                " (it has `activations`, those of all blocks, with full recompute)"
            }
            ActivationOffload::OfSomeLayers => {
                " (it has `activations:N`, those of fewer than all layers, without recompute, pipelines and CUDA graphs)"
            }
            ActivationOffload::Any => "",
        };
        format!("offload of {offload}{takes}")
    }

    fn lacks_of_experts(
        &self,
        named: &PartialLayout,
        model: ModelFacts,
        need: &mut impl FnMut(bool, String),
    ) {
        if !model.has_experts {
            return;
        }
        let Some(experts) = &self.experts else {
            return need(false, "mixtures of experts".to_owned());
        };
        if named.expert_parallel.is_some_and(|degree| degree > 1) {
            need(!experts.dispatchers.is_empty(), "expert parallelism".to_owned());
        }
        if let Some(cut) = named.expert_tensor_parallel {
            let has = match experts.tensor {
                ExpertTensor::Any => true,
                ExpertTensor::All => named.tensor_parallel.is_none_or(|tensor| tensor == cut),
                ExpertTensor::None => cut == 1,
                ExpertTensor::AllUnlessSpread => match named.expert_parallel {
                    Some(2..) => cut == 1,
                    _ => named.tensor_parallel.is_none_or(|tensor| tensor == cut),
                },
            };
            need(has, format!("experts cut over {cut} tensor-parallel ranks"));
        }
        if let Some(dispatcher) = named.token_dispatcher {
            need(self.takes_dispatcher(dispatcher), format!("token dispatcher {dispatcher}"));
        }
        if let Some(overlap) = named.expert_overlap {
            let pipeline =
                [named.pipeline_parallel.unwrap_or(1), named.virtual_stages.unwrap_or(2)];
            let recompute = named.recompute.unwrap_or(Recompute::None);
            let has = self.takes_overlap(overlap, pipeline, recompute);
            need(
                has,
                "exchanges of experts beside another micro-batch, in such a pipeline".to_owned(),
            );
        }
    }

    /// The same, if what is named could be run as well.
    #[must_use]
    pub fn with(&self, named: &PartialLayout, model: ModelFacts) -> Self {
        let mut able = self.clone();
        let (tensor, pipeline) =
            (named.tensor_parallel.unwrap_or(1), named.pipeline_parallel.unwrap_or(1));
        let sequence = named.sequence_parallel;
        let takes = |is_on| self.takes_tensor(tensor.max(2), is_on, model.has_experts);
        if tensor > 1 && !sequence.map_or(takes(true) || takes(false), takes)
            || sequence == Some(true) && !takes(true)
        {
            able.sequence_parallel = SequenceAbility::Optional;
        }
        if named.context_parallel.is_some_and(|degree| degree > 1) {
            let kind =
                named.context_parallel_kind.or_else(|| self.usual_context()).unwrap_or_default();
            push(&mut able.context_parallel, kind);
        }
        if pipeline > 1 && able.schedules.is_empty() {
            able.schedules.push(ScheduleKind::OneFOneB);
        }
        if let Some(schedule) = named.schedule
            && !able.has_schedule(schedule)
        {
            push(&mut able.schedules, schedule);
        }
        if pipeline > 1 {
            let all = u64::from(pipeline) * u64::from(named.virtual_stages.unwrap_or(1));
            if !able.takes_stages(model.num_blocks, all) {
                able.stage_layers = StageLayers::Any;
            }
        }
        able.zero = able.zero_with(named, pipeline);
        if model.has_experts {
            able.experts = Some(self.experts_with(named));
        }
        if let Some(recompute) = named.recompute.filter(|it| !self.takes_recompute(*it)) {
            let all = Self::all();
            match recompute {
                Recompute::Modules(_) => able.recompute_modules = all.recompute_modules,
                _ => able.recompute = all.recompute,
            }
        }
        if let Some(offload) = named.offload {
            push(&mut able.offload, offload.of_all_blocks());
            let recompute = named.recompute.unwrap_or(Recompute::None);
            let graphs = named.cuda_graphs.unwrap_or(CudaGraphs::None);
            if !able.takes_offload(offload, model.num_blocks)
                || !able.takes_offload_with(offload, pipeline, recompute, graphs)
            {
                able.activation_offload = ActivationOffload::Any;
            }
        }
        if let Some(graphs) = named.cuda_graphs.filter(|it| *it != CudaGraphs::None) {
            push(&mut able.cuda_graphs, graphs);
        }
        able
    }

    fn zero_with(&self, named: &PartialLayout, pipeline: u32) -> Vec<ZeroAbility> {
        let mut all = self.zero.clone();
        if let Some(stage) = named.zero_stage
            && all.iter().all(|it| it.stage != stage)
        {
            all.push(ZeroAbility {
                stage,
                pipelines: WithPipelines::Any,
                shards: ShardGroups::All,
                never_beside: Vec::new(),
            });
        }
        // With ZeRO open, nothing beside the pipeline may be left but what no shards are.
        let needs_one = pipeline > 1 && all.iter().all(|it| it.pipelines == WithPipelines::None);
        for it in &mut all {
            let is_named = named
                .zero_stage
                .map_or(needs_one && it.stage == ZeroStage::None, |stage| it.stage == stage);
            if is_named && pipeline > 1 {
                it.pipelines = WithPipelines::Any;
            }
            if is_named && is_hybrid(named) {
                it.shards = ShardGroups::Any;
            }
            if named.zero_stage == Some(it.stage) {
                it.never_beside.retain(|other| !other.is_named(named));
            }
        }
        all
    }

    fn experts_with(&self, named: &PartialLayout) -> ExpertAbilities {
        let all_to_all = TokenDispatcher::AllToAll;
        let plain = ExpertAbilities {
            dispatchers: Vec::new(),
            tensor: ExpertTensor::All,
            overlap: OverlapAbility::Never,
        };
        let mut experts = self.experts.clone().unwrap_or(plain);
        if named.expert_parallel.is_some_and(|degree| degree > 1) && experts.dispatchers.is_empty()
        {
            experts.dispatchers.push(all_to_all);
        }
        if let Some(dispatcher) = named.token_dispatcher {
            push(&mut experts.dispatchers, dispatcher);
        }
        if named.expert_tensor_parallel.is_some() {
            experts.tensor = ExpertTensor::Any;
        }
        if named.expert_overlap == Some(ExpertOverlap::MicroBatch) {
            experts.overlap = OverlapAbility::Always;
        }
        experts
    }
}

/// Whether states are to be sharded over fewer replicas than there are, as far as that is named.
fn is_hybrid(named: &PartialLayout) -> bool {
    let replicas = named.data_parallel.map(|data| data * named.context_parallel.unwrap_or(1));
    named.zero_shard.is_some_and(|shards| replicas.is_none_or(|replicas| shards < replicas))
}

impl NeverBeside {
    /// Whether a layout is named that has it.
    fn is_named(self, named: &PartialLayout) -> bool {
        let is_cut = |degree: Option<u32>| degree.is_some_and(|degree| degree > 1);
        match self {
            Self::Tensor => is_cut(named.tensor_parallel),
            Self::Context => is_cut(named.context_parallel),
            Self::SpreadExperts => is_cut(named.expert_parallel),
            Self::Gradients16 | Self::Gradients32 => false,
        }
    }
}

fn push<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if !all.contains(&one) {
        all.push(one);
    }
}
