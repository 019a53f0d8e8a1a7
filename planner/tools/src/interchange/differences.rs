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
    /// The argument that describes the user's model, if it has one of this name.
    pub would: Option<Argument>,
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
            let Some(would) = expected.iter().find(|it| it.name == stated.name) else {
                let is_only =
                    tool(self.source).tables.iter().any(|it| it.is_model_only(&stated.name));
                let is_other = is_only && !expected.is_empty();
                return is_other.then(|| ModelDifference { stated: stated.clone(), would: None });
            };
            let are_same = stated.values.len() == would.values.len()
                && stated.values.iter().zip(&would.values).all(|(one, other)| same(one, other));
            let (stated, would) = (stated.clone(), Some(would.clone()));
            (!are_same).then_some(ModelDifference { stated, would })
        };
        self.model.iter().filter_map(differs).collect()
    }
}

impl fmt::Display for ModelDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.would {
            Some(would) => write!(f, "`{}`, where it has `{}`", self.stated.words(), would.words()),
            None => write!(f, "`{}`, which it has not", self.stated.words()),
        }
    }
}
