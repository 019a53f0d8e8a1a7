//! The default framework by which a step is predicted, and the layouts that a framework cannot run.

use cost_models::frameworks;
use ir::cluster::Architecture;
use ir::framework::{AttentionLibrary, Framework, IDEAL, JobFacts, KernelHabits, StageLayers};
use ir::graph::{Graph, Loss, RecomputeModule, RecomputeModules};
use ir::layout::{LayoutSpec, PartialLayout};
use ir::model::AttentionKernel;
use ir::plan::Training;
use ir::replication::Replication;

use super::Problem;

/// Modules of a mixture of experts that save many bytes for little recompute time, as published recipes choose
/// (Megatron-Bridge's `layernorm`, `moe_act` and `mla_up_proj`).
const CHEAP: [RecomputeModule; 5] = [
    RecomputeModule::Norms,
    RecomputeModule::SeparateNorms,
    RecomputeModule::Activations,
    RecomputeModule::ExpertActivations,
    RecomputeModule::LatentProjections,
];

/// The graph for a search with recompute left open. Selective recompute becomes recompute of the cheap modules that
/// both framework and model have. This applies to mixtures of experts, and to any model if the framework names modules,
/// but not the activation functions.
pub fn with_usual_modules(graph: Graph, framework: &Framework, facts: JobFacts) -> Graph {
    let has = |module: &RecomputeModule| {
        framework.abilities.recompute_modules.contains(module) && graph.has_module(*module)
    };
    let modules = RecomputeModules::new(CHEAP.into_iter().filter(has));
    let named = &framework.abilities.recompute_modules;
    let lacks_activations = !named.is_empty() && !named.contains(&RecomputeModule::Activations);
    match modules.filter(|_| facts.has_experts || lacks_activations) {
        Some(modules) => graph.clone().recomputing(modules).unwrap_or(graph),
        None => graph,
    }
}

/// Frameworks tried by default on GPUs; the first that can run the layout is taken.
pub const ON_GPUS: [&str; 4] = ["megatron-core", "torchtitan", "fsdp2", "deepspeed"];

/// The default framework: the first of those in use on such hardware that can run the named options of a layout with
/// this training and loss. It is `ideal`, which has no limits, where none can, and on GPUs for models that are
/// not transformers. The second value is the reason, in words, why it is not the first of the list.
///
/// # Panics
///
/// Never: the frameworks that are tried ship.
pub fn default_framework(
    (architecture, has_unlike_gpus): (Architecture, bool),
    is_transformer: bool,
    training: &Training,
    loss: Option<Loss>,
    named: &PartialLayout,
    facts: JobFacts,
) -> (Framework, Option<String>) {
    let usual: &[&str] = match architecture {
        Architecture::Cpu => &["executor"],
        Architecture::Tpu => &["maxtext"],
        _ if training.replication() != Replication::default() => &["executor-cuda"],
        _ if !is_transformer => &[],
        _ => &ON_GPUS,
    };
    let mut why_not_first = None;
    for framework in usual.iter().filter_map(|name| frameworks::preset(name)) {
        let abilities = &framework.abilities;
        let training = training.with_gradients_of(abilities, facts);
        let mut lacks = abilities.lacks(named, facts.with_training(&training));
        lacks.extend(training.lacked_by(abilities));
        if let Some(loss) = loss.filter(|loss| framework.clone().with_loss(*loss).is_none()) {
            lacks.push(format!("`--loss {loss}`"));
        }
        if has_unlike_gpus && !abilities.unlike_gpus {
            lacks.push("GPUs of several kinds in a pipeline".to_owned());
        }
        if !framework.runs_on(architecture.platform()) {
            lacks.push("on such hardware".to_owned());
        }
        if lacks.is_empty() {
            return (framework, why_not_first);
        }
        let why = || format!("{} does not run {}", framework.name, lacks.join("; "));
        why_not_first.get_or_insert_with(why);
    }
    (frameworks::preset(IDEAL).expect("`ideal` ships"), why_not_first)
}

impl Problem {
    /// Reasons why the framework does not run the named options of a layout with a training.
    pub fn unsupported(&self, named: &PartialLayout) -> Vec<String> {
        let abilities = &self.hardware.framework.abilities;
        let mut unsupported = abilities.lacks(named, self.facts);
        unsupported.extend(self.training.lacked_by(abilities));
        unsupported.extend(self.unsupported_stages(named));
        unsupported.extend(self.unsupported_groups(named));
        unsupported
    }

    /// Reason why the framework cannot train on GPUs of several kinds, where the named options need a pipeline over
    /// them. Replicas with equal shares of the batch run with any framework.
    fn unsupported_groups(&self, named: &PartialLayout) -> Option<String> {
        let groups = self.groups.as_ref()?;
        let spec = named.or(LayoutSpec::ONE_RANK);
        let may_be_replicas =
            self.supports_replica_groups() && self.limits.replicas_fill_groups(&spec).is_ok();
        let is_able = self.hardware.framework.abilities.unlike_gpus || may_be_replicas;
        let names: Vec<&str> = groups.all.iter().map(|group| group.name.as_str()).collect();
        (!is_able).then(|| format!("GPUs of several kinds in a pipeline ({})", names.join(" and ")))
    }

    /// The problem with a framework that runs the named options as well.
    #[must_use]
    pub fn granting(mut self, named: &PartialLayout) -> Self {
        let cannot_cut = self.unsupported_stages(named).is_some();
        let abilities = self.training.granted(self.hardware.framework.abilities.clone());
        let mut abilities = abilities.with(named, self.facts);
        abilities.unlike_gpus |= self.groups.is_some();
        if cannot_cut {
            abilities.stage_layers = StageLayers::Any;
        }
        self.hardware.framework.abilities = abilities;
        self
    }
}

/// The problem with each framework that its own framework stands for; else the problem itself. The attention kernels
/// remain those of its own framework, as they are known of the stack itself.
pub fn stacks(problem: &Problem) -> Vec<Problem> {
    let own = &problem.hardware.framework;
    let members = own.stands_for.iter().filter_map(|name| frameworks::preset(name));
    let with = |framework: Framework| {
        let mut problem = problem.clone();
        let kernels = KernelHabits {
            attention: own.kernels.attention,
            attention_by_architecture: own.kernels.attention_by_architecture.clone(),
            ..framework.kernels
        };
        problem.hardware.framework = Framework { kernels, ..framework };
        problem.graph = problem.hardware.framework.selective_recompute.marked(problem.graph);
        problem
    };
    let members: Vec<Problem> = members.map(with).collect();
    if members.is_empty() { vec![problem.clone()] } else { members }
}

/// The kernels of attention that a graph has with a framework.
pub fn attention_kernel(framework: &Framework) -> AttentionKernel {
    match framework.kernels.attention {
        AttentionLibrary::Unfused => AttentionKernel::Unfused,
        _ => AttentionKernel::Flash,
    }
}
