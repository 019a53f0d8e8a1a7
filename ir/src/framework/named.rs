//! Comparison of the fields that a user names with the abilities of a framework.

use super::job::is_hybrid;
use super::{
    Abilities, ActivationOffload, ExpertAbilities, ExpertTensor, Feature, Features, JobFacts,
    OverlapAbility, SequenceAbility, ShardGroups, ZeroAbility,
};
use crate::graph::{ContextParallelKind, CudaGraphs, ExpertOverlap, Recompute, TokenDispatcher};
use crate::layout::{Choice, Offload, PartialLayout, ZeroStage};
use crate::schedule::ScheduleKind;

impl Abilities {
    /// Descriptions of the named layout fields that the framework cannot run; empty where it can run all. If no kind
    /// of context parallelism is named, one of the framework's kinds must be able to run them.
    pub fn lacks(&self, named: &PartialLayout, facts: JobFacts) -> Vec<String> {
        if named.context_parallel_kind.is_any() && named.context_parallel.least() > Some(1) {
            let of = |kind: &ContextParallelKind| {
                let context_parallel_kind = Choice::One(*kind);
                self.lacks_of(&PartialLayout { context_parallel_kind, ..*named }, facts)
            };
            if self.context_parallel.iter().any(|kind| of(kind).is_empty()) {
                return Vec::new();
            }
        }
        self.lacks_of(named, facts)
    }

    fn lacks_of(&self, named: &PartialLayout, facts: JobFacts) -> Vec<String> {
        let mut lacks = Vec::new();
        let mut need = |has: bool, what: String| {
            if !has {
                lacks.push(what);
            }
        };
        let named = &self.easiest(named, facts);
        let tensor = named.tensor_parallel.unwrap_or(1);
        let pipeline = named.pipeline_parallel.unwrap_or(1);
        if self.sequence_parallel == SequenceAbility::NoTensorParallelism {
            need(tensor == 1, "tensor parallelism".to_owned());
        } else if tensor > 1
            && let Some(is_on) = named.sequence_parallel.one()
        {
            let how = if is_on { "with" } else { "without" };
            let of_experts = if facts.has_experts { " of a model with experts" } else { "" };
            let has = self.supports_tensor(tensor, is_on, facts.has_experts);
            need(has, format!("tensor parallelism {how} sequence parallelism{of_experts}"));
        }
        if let Some(context) = named.context_parallel.one() {
            let kind = self.context_of(named);
            need(
                self.supports_context(context, kind),
                format!("context parallelism by {}", kind.name()),
            );
        }
        need(pipeline == 1 || !self.schedules.is_empty(), "pipelines".to_owned());
        // A single rank follows no schedule, but a named schedule implies several ranks.
        let schedules = named.schedule.listed();
        let has = |it: &ScheduleKind| *it == ScheduleKind::OneFOneB || self.has_schedule(*it);
        let is_told = pipeline > 1 && self.schedules.is_empty();
        if !schedules.is_empty() && !is_told {
            need(schedules.iter().any(has), format!("schedule {}", joined(schedules)));
        }
        for lacked in
            named.zero_stage.one().into_iter().filter_map(|stage| self.lacks_of_zero(stage, named))
        {
            need(false, lacked);
        }
        self.lacks_of_experts(named, facts, &mut need);
        if let Some(recompute) = named.recompute.one() {
            need(self.supports_recompute(recompute), format!("recompute of {recompute}"));
        }
        if let Some(offload) = named.offload.one() {
            let recompute = named.recompute.unwrap_or(match self.activation_offload {
                ActivationOffload::WithFullRecompute => Recompute::Full,
                _ => Recompute::None,
            });
            let graphs = named.cuda_graphs.unwrap_or(CudaGraphs::None);
            let has = self.supports_offload(offload, facts.num_blocks)
                && self.supports_offload_with(offload, pipeline, recompute, graphs);
            need(has, self.offload_with(offload));
        }
        if let Some(graphs) = named.cuda_graphs.one() {
            need(self.supports_graphs(graphs), format!("CUDA graphs of {graphs}"));
        }
        for excluded in self.excluded(self.refused_features(named, facts)) {
            need(false, excluded.to_string());
        }
        lacks
    }

    /// Features of the named fields; if no ZeRO stage is named and none runs with these, also the features of the
    /// lowest stage.
    fn refused_features(&self, named: &PartialLayout, facts: JobFacts) -> Features {
        let features = facts.features_with(named);
        let is_open = named.zero_stage.is_any() && self.zero_stages_with(features).next().is_none();
        let plainest = self.zero.iter().map(|it| it.stage).min().filter(|_| is_open);
        plainest.map_or(features, |stage| features.and(Features::of([Feature::of_zero(stage)])))
    }

    /// The kind of context parallelism that is named, or the default one.
    fn context_of(&self, named: &PartialLayout) -> ContextParallelKind {
        let named = named.context_parallel_kind.one();
        named.or_else(|| self.usual_context()).unwrap_or_default()
    }

    /// Description of the missing offload, with the related one that the framework has.
    fn offload_with(&self, offload: Offload) -> String {
        let hint = match self.activation_offload {
            _ if !offload.activations.is_some() => "",
            _ if !self.offload.contains(&offload.of_all_blocks()) => "",
            ActivationOffload::WithFullRecompute => {
                " (it has `activations`, those of all blocks, with full recompute)"
            }
            ActivationOffload::OfSomeLayers => {
                " (it has `activations:N`, those of fewer than all layers, without recompute, pipelines and CUDA graphs, \
                 and those of modules, such as `activations:attention+attention_output`, without full recompute)"
            }
            ActivationOffload::Any => "",
        };
        format!("offload of {offload}{hint}")
    }

    /// The layout with a single value for each field with several named values. It is the value that is easiest to
    /// support: the smallest degree, and a ZeRO stage that the framework has.
    fn easiest(&self, named: &PartialLayout, facts: JobFacts) -> PartialLayout {
        let least = |degrees: Choice<u32>| degrees.least().map_or(degrees, Choice::One);
        let degrees = PartialLayout {
            tensor_parallel: least(named.tensor_parallel),
            context_parallel: least(named.context_parallel),
            pipeline_parallel: least(named.pipeline_parallel),
            ..*named
        };
        let listed = named.zero_stage.listed();
        let has = |stage: &&ZeroStage| {
            let named = PartialLayout { zero_stage: Choice::One(**stage), ..degrees };
            self.lacks_of_zero(**stage, &degrees).is_none()
                && self.combines(facts.features_with(&named))
        };
        let stage = listed.iter().find(has).or(listed.first()).copied();
        PartialLayout { zero_stage: stage.into(), ..degrees }
    }

    /// The missing part of a ZeRO stage, without regard to other features.
    fn lacks_of_zero(&self, stage: ZeroStage, named: &PartialLayout) -> Option<String> {
        let number = stage.number();
        let Some(it) = self.zero.iter().find(|it| it.stage == stage) else {
            return Some(format!("ZeRO {number}"));
        };
        let context = named.context_parallel.unwrap_or(1);
        let shards = named.zero_shard.unwrap_or(context);
        let lacks_groups = is_hybrid(named) && !it.shards.supports(shards, shards + 1, context);
        lacks_groups.then(|| format!("ZeRO {number} over some of the replicas"))
    }

    fn lacks_of_experts(
        &self,
        named: &PartialLayout,
        facts: JobFacts,
        need: &mut impl FnMut(bool, String),
    ) {
        if !facts.has_experts {
            return;
        }
        let Some(experts) = &self.experts else {
            return need(false, "mixtures of experts".to_owned());
        };
        let expert_parallel = named.expert_parallel.unwrap_or(1);
        if expert_parallel > 1 {
            need(!experts.dispatchers.is_empty(), "expert parallelism".to_owned());
        }
        if let Some(cut) = named.expert_tensor_parallel.one() {
            let only = experts.tensor.only(expert_parallel, named.tensor_parallel);
            let has = only.is_none_or(|only| only.allows(cut));
            need(has, format!("experts cut over {cut} tensor-parallel ranks"));
        }
        if let Some(dispatcher) = named.token_dispatcher.one() {
            need(self.supports_dispatcher(dispatcher), format!("token dispatcher {dispatcher}"));
        }
        if let Some(overlap) = named.expert_overlap.one() {
            let pipeline =
                [named.pipeline_parallel.unwrap_or(1), named.virtual_stages.unwrap_or(2)];
            let recompute = named.recompute.unwrap_or(Recompute::None);
            let has = self.supports_overlap(overlap, pipeline, recompute);
            need(
                has,
                "exchanges of experts beside another micro-batch, in such a pipeline".to_owned(),
            );
        }
    }

    /// The abilities, extended by those that the named fields need.
    #[must_use]
    pub fn with(&self, named: &PartialLayout, facts: JobFacts) -> Self {
        let mut able = self.clone();
        let named = &self.easiest(named, facts);
        let (tensor, pipeline) =
            (named.tensor_parallel.unwrap_or(1), named.pipeline_parallel.unwrap_or(1));
        let sequence = named.sequence_parallel.one();
        let supports = |is_on| self.supports_tensor(tensor.max(2), is_on, facts.has_experts);
        if tensor > 1 && !sequence.map_or(supports(true) || supports(false), supports)
            || sequence == Some(true) && !supports(true)
        {
            able.sequence_parallel = SequenceAbility::Optional;
        }
        if named.context_parallel.unwrap_or(1) > 1 {
            push(&mut able.context_parallel, self.context_of(named));
        }
        if pipeline > 1 && able.schedules.is_empty() {
            able.schedules.push(ScheduleKind::OneFOneB);
        }
        for schedule in named.schedule.listed() {
            if !able.has_schedule(*schedule) {
                push(&mut able.schedules, *schedule);
            }
        }
        able.zero = self.zero_with(named);
        let refused = able.refused_features(named, facts);
        able.exclusions.retain(|it| !refused.contain(it.set()));
        if facts.has_experts {
            able.experts = Some(self.experts_with(named));
        }
        if let Some(recompute) = named.recompute.one().filter(|it| !self.supports_recompute(*it)) {
            let all = Self::all();
            match recompute {
                Recompute::Modules(_) => able.recompute_modules = all.recompute_modules,
                _ => able.recompute = all.recompute,
            }
        }
        if let Some(offload) = named.offload.one() {
            push(&mut able.offload, offload.of_all_blocks());
            let recompute = named.recompute.unwrap_or(Recompute::None);
            let graphs = named.cuda_graphs.unwrap_or(CudaGraphs::None);
            if !able.supports_offload(offload, facts.num_blocks)
                || !able.supports_offload_with(offload, pipeline, recompute, graphs)
            {
                able.activation_offload = ActivationOffload::Any;
            }
        }
        if let Some(graphs) = named.cuda_graphs.one().filter(|it| *it != CudaGraphs::None) {
            push(&mut able.cuda_graphs, graphs);
        }
        able
    }

    fn zero_with(&self, named: &PartialLayout) -> Vec<ZeroAbility> {
        let mut all = self.zero.clone();
        let Some(stage) = named.zero_stage.one() else { return all };
        if all.iter().all(|it| it.stage != stage) {
            all.push(ZeroAbility { stage, shards: ShardGroups::All });
        }
        if is_hybrid(named) {
            all.iter_mut()
                .filter(|it| it.stage == stage)
                .for_each(|it| it.shards = ShardGroups::Any);
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
        if named.expert_parallel.unwrap_or(1) > 1 && experts.dispatchers.is_empty() {
            experts.dispatchers.push(all_to_all);
        }
        if let Some(dispatcher) = named.token_dispatcher.one() {
            push(&mut experts.dispatchers, dispatcher);
        }
        if named.expert_tensor_parallel.one().is_some() {
            experts.tensor = ExpertTensor::Any;
        }
        if named.expert_overlap == Choice::One(ExpertOverlap::MicroBatch) {
            experts.overlap = OverlapAbility::Always;
        }
        experts
    }
}

/// Alternatives in words: `1 or 2`.
fn joined(all: &[impl std::fmt::Display]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

fn push<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if !all.contains(&one) {
        all.push(one);
    }
}
