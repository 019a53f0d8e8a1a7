//! The plan of imported settings, and differences between their model and the user's.

use std::fmt;

use ir::cluster::Cluster;
use ir::graph::Graph;
use ir::model::Model;
use ir::plan::{Plan, PlannedModel, Provenance};

use super::argument::Argument;
use super::error::ImportError;
use super::imported::{Imported, Posed};
use super::view::ExportView;
use super::write;
use planner_core::plan;
use planner_core::search::simulated;

/// An argument with which the settings describe another model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDifference {
    /// The argument in the settings.
    pub stated: Argument,
    /// The argument that describes the user's model.
    pub would: Argument,
}

/// Context of an import that settings do not have: the model and the cluster.
#[derive(Clone, Debug)]
pub struct ImportContext<'a> {
    /// The model.
    pub model: &'a Model,
    /// Graph of the model, as trained with these settings.
    pub graph: &'a Graph,
    /// Entry of the model in the plan.
    pub planned: PlannedModel,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Number of GPUs, where the settings do not say.
    pub num_gpus: Option<u32>,
    /// Provenance that is written into the plan.
    pub provenance: Provenance,
}

impl Imported {
    /// The plan of the settings.
    ///
    /// # Errors
    ///
    /// [`ImportError`] where they contradict each other, the model, or the context.
    pub fn plan(&self, given: &ImportContext<'_>) -> Result<Plan, ImportError> {
        let ImportContext { model, graph, planned, cluster, num_gpus, provenance } = given;
        let Posed { problem, layout, stage_ends } = self.posed(graph, cluster, *num_gpus)?;
        let (found, _) = simulated(&problem, layout, &stage_ends);
        let plan = plan::make(&problem, cluster, planned.clone(), &found, &[], provenance.clone());
        let differences = self.differences(&plan, model, graph);
        if !differences.is_empty() {
            let texts = differences.iter().map(ToString::to_string).collect();
            return Err(ImportError::Model { model: planned.name.clone(), differences: texts });
        }
        Ok(plan)
    }

    /// Arguments of the settings that differ from those of the user's model.
    pub fn differences(&self, plan: &Plan, model: &Model, graph: &Graph) -> Vec<ModelDifference> {
        let view = ExportView::new(plan, model, graph, Vec::new());
        let expected = write::model_arguments(self.source, &view);
        let same = |one: &str, other: &str| match (one.parse::<f64>(), other.parse::<f64>()) {
            (Ok(one), Ok(other)) => one.total_cmp(&other).is_eq(),
            _ => one == other,
        };
        let differs = |stated: &Argument| {
            let would = expected.iter().find(|it| it.name == stated.name)?;
            let are_same = stated.values.len() == would.values.len()
                && stated.values.iter().zip(&would.values).all(|(one, other)| same(one, other));
            let (stated, would) = (stated.clone(), would.clone());
            (!are_same).then_some(ModelDifference { stated, would })
        };
        self.model.iter().filter_map(differs).collect()
    }
}

impl fmt::Display for ModelDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, where it has `{}`", self.stated.words(), self.would.words())
    }
}
