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
    /// True if the settings leave the argument out, so that the tool takes its default.
    pub is_left_out: bool,
}

impl Imported {
    /// Arguments of the settings that differ from those of the user's model.
    pub fn differences(&self, plan: &Plan, model: &Model, graph: &Graph) -> Vec<ModelDifference> {
        let view = ExportView::new(plan, model, graph, Vec::new());
        let expected = (tool(self.source).model_arguments)(&view);
        let same = |one: &str, other: &str| match (one.parse::<f64>(), other.parse::<f64>()) {
            (Ok(one), Ok(other)) => one.total_cmp(&other).is_eq(),
            // `RMSNorm` is `rmsnorm` in forks.
            _ => one.eq_ignore_ascii_case(other),
        };
        let differs = |stated: &Argument| {
            let Some(would) = expected.iter().find(|it| it.name == stated.name) else {
                let is_only =
                    tool(self.source).tables.iter().any(|it| it.is_model_only(&stated.name));
                let is_other = is_only && !expected.is_empty();
                let (stated, is_left_out) = (stated.clone(), false);
                return is_other.then_some(ModelDifference { stated, would: None, is_left_out });
            };
            let are_same = stated.values.len() == would.values.len()
                && stated.values.iter().zip(&would.values).all(|(one, other)| same(one, other));
            let (stated, would) = (stated.clone(), Some(would.clone()));
            (!are_same).then_some(ModelDifference { stated, would, is_left_out: false })
        };
        // A switch that is left out differs if the model has it.
        let by_default = |left_out: &Argument| {
            let would = expected.iter().find(|it| it.name == left_out.name)?;
            let difference = if left_out.values.is_empty() {
                let (stated, would) = (left_out.clone(), Some(would.clone()));
                ModelDifference { stated, would, is_left_out: true }
            } else {
                differs(left_out)?
            };
            Some(ModelDifference { is_left_out: true, ..difference })
        };
        let mut all: Vec<ModelDifference> = self.model.iter().filter_map(differs).collect();
        // Values of what is left out follow from the width and the heads, which are then what is wrong.
        let follows = |it: &&Argument| {
            let of = ["--hidden-size", "--num-attention-heads"];
            let is_wrong = all.iter().any(|it| of.contains(&it.stated.name.as_str()));
            is_wrong && !it.values.is_empty()
        };
        let left_out = self.model_defaults.iter().filter(|it| !follows(it));
        let left_out: Vec<ModelDifference> = left_out.filter_map(by_default).collect();
        all.extend(left_out);
        all
    }
}

impl fmt::Display for ModelDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.would {
            Some(would) if self.is_left_out => {
                let Argument { name, values, .. } = &self.stated;
                match values.as_slice() {
                    [] => write!(f, "`{name}` is left out, which it has"),
                    values => {
                        let (values, would) = (values.join(" "), would.words());
                        write!(
                            f,
                            "`{name}` is left out, which makes it {values}, where it has `{would}`"
                        )
                    }
                }
            }
            Some(would) => write!(f, "`{}`, where it has `{}`", self.stated.words(), would.words()),
            None => write!(f, "`{}`, which it has not", self.stated.words()),
        }
    }
}
