//! Differences between the model that imported settings describe and the user's.

use std::fmt;

use ir::framework::JobFacts;
use ir::graph::Graph;
use ir::model::Model;
use ir::plan::Plan;

use super::argument::Argument;
use super::error::ImportError;
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
            // Forks write `rmsnorm` for `RMSNorm`.
            _ if one.eq_ignore_ascii_case(other) => true,
            // BigScience's fork has its own words for positions (`PositionEmbeddingType` in `megatron/enums.py`).
            _ if [one, other] == ["rotary", "rope"] => true,
            _ if [one, other] == ["absolute", "learned_absolute"] => true,
            _ => list(one).is_some_and(|it| Some(it) == list(other)),
        };
        let differs = |stated: &Argument| {
            let Some(would) = expected.iter().find(|it| it.name == stated.name) else {
                let only =
                    tool(self.source).tables.iter().find_map(|it| it.model_only(&stated.name));
                let length = plan.training.sequence_length;
                let is_other = !expected.is_empty()
                    && only.is_some_and(|it| !is_as_none(stated, it, &expected, length));
                let (stated, is_left_out) = (stated.clone(), false);
                return is_other.then_some(ModelDifference { stated, would: None, is_left_out });
            };
            let are_same = stated.values.len() == would.values.len()
                && stated.values.iter().zip(&would.values).all(|(one, other)| same(one, other));
            let (stated, would) = (stated.clone(), Some(would.clone()));
            (!are_same).then_some(ModelDifference { stated, would, is_left_out: false })
        };
        // A switch that is left out differs if the user's model has it.
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
        // Defaults of left-out options follow from the width and the number of heads. If one of these differs, only
        // that is reported.
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

    /// Error for settings with experts, if the user's model has none. Their layout is refused for such a model, so that
    /// there is no plan to compare models with.
    pub(super) fn of_experts(&self, model: &Model, graph: &Graph) -> Option<ImportError> {
        // One expert is a model without experts in Megatron-DeepSpeed.
        let stated = self.model.iter().find(|it| it.name == "--num-experts" && it.values != ["1"]);
        let stated = stated?.clone();
        let difference = ModelDifference { stated, would: None, is_left_out: false };
        let differences = vec![difference.to_string()];
        let is_dense = !JobFacts::of(graph).has_experts;
        is_dense.then(|| ImportError::Model { model: model.name.clone(), differences })
    }
}

/// Returns whether the value of an option leaves the model as it is without the option. Words of the option's line in
/// the table list such values: a value; `with=OPTION`, if the model does not have OPTION, without which this option
/// does nothing; `as=OPTION`, the same value as OPTION's; and `length`, a window at least as long as the sequence.
fn is_as_none(stated: &Argument, only: &[&str], expected: &[Argument], length: u64) -> bool {
    let of_model = |name: &str| expected.iter().find(|it| it.name == name);
    let Some(value) = stated.values.first() else { return false };
    only.iter().copied().any(|word| match word.split_once('=') {
        Some(("with", name)) => of_model(name).is_none(),
        Some((_, name)) => of_model(name).is_some_and(|it| it.values == stated.values),
        None if word == "length" => {
            let before = value.trim_start_matches('(').split(',').next().unwrap_or_default();
            before.parse::<u64>().is_ok_and(|it| it + 1 >= length)
        }
        None => {
            let all = list(value).filter(|it| !it.is_empty());
            value == word || all.is_some_and(|it| it.iter().all(|it| it == word))
        }
    })
}

/// Items of a list in Megatron's form: a Python expression such as `[0]*3+[1]*58`, with or without parentheses.
fn list(text: &str) -> Option<Vec<String>> {
    let plain: String = text.chars().filter(|it| !it.is_whitespace()).collect();
    let plain = plain.strip_prefix('(').and_then(|it| it.strip_suffix(')')).unwrap_or(&plain);
    let term = |term: &str| {
        let (items, times) = term.split_once('*').unwrap_or((term, "1"));
        let (items, times) = if times.starts_with('[') { (times, items) } else { (items, times) };
        let items = items.strip_prefix('[')?.strip_suffix(']')?.split(',').map(str::to_owned);
        let times = times.parse().ok().filter(|it| *it <= MOST_LAYERS)?;
        Some(vec![items.collect::<Vec<_>>(); times].concat())
    };
    let all: Option<Vec<Vec<String>>> = plain.split('+').map(term).collect();
    Some(all?.concat())
}

/// Limit of the layers of a list.
const MOST_LAYERS: usize = 10_000;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_those_of_python() {
        for (one, other) in [
            ("[0]*2+[1]*2", "([0]*2+[1]*2)"),
            ("([0, 0]+[1]*2)", "[0,0,1,1]"),
            ("2*[0] + [1, 1]", "[0]*2+[1]*2"),
        ] {
            assert!(list(one).is_some_and(|it| it.len() == 4));
            assert_eq!(list(one), list(other));
        }
        for other in ["1", "([0]+[1])*2", "[0]*x", "[0]*99999999999"] {
            assert_eq!(list(other), None);
        }
    }
}
