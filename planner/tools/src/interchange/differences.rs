//! The plan that settings are, unless they are of another model than the one that is given.

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

/// Something that settings say of another model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDifference {
    /// What they say.
    pub stated: Argument,
    /// What they would say of the model that was given.
    pub would: Argument,
}

/// What settings do not say: for which model, on what.
#[derive(Clone, Debug)]
pub struct ImportContext<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its graph, as the settings train it.
    pub graph: &'a Graph,
    /// Its file, as the plan will hold it.
    pub planned: PlannedModel,
    /// The GPUs.
    pub cluster: &'a Cluster,
    /// How many, where the settings do not say.
    pub num_gpus: Option<u32>,
    /// What the plan says of where it comes from.
    pub provenance: Provenance,
}

impl Imported {
    /// The plan that the settings are.
    ///
    /// # Errors
    ///
    /// [`ImportError`] where they contradict each other, the model, or what was given beside them.
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

    /// What is said of the model and is not what would be said of the one that was given.
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
