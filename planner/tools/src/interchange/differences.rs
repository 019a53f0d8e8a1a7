//! Differences between the model that imported settings describe and the user's.

use std::fmt;

use ir::graph::Graph;
use ir::model::Model;
use ir::plan::Plan;

use super::argument::Argument;
use super::imported::Imported;
use super::tools::tool;
use super::view::ExportView;

/// An argument with which the settings describe another model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDifference {
    /// The argument in the settings.
    pub stated: Argument,
    /// The argument that describes the user's model.
    pub would: Argument,
}

impl Imported {
    /// Arguments of the settings that differ from those of the user's model.
    pub fn differences(&self, plan: &Plan, model: &Model, graph: &Graph) -> Vec<ModelDifference> {
        let view = ExportView::new(plan, model, graph, Vec::new());
        let expected = (tool(self.source).model_arguments)(&view);
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
