//! Changes as options of the tools.

pub(super) mod bridge;
pub(super) mod megatron;

use super::change::Change;
use super::finding::OptionChange;
use super::keys::Notation;
use super::text;
use crate::interchange::{Difference, Run, StatedStages, Table, Tool, tool};

/// Name of an option of a tool in a text: the Trainer's arguments are keys in files, but options with dashes in
/// scripts; a name that ends with a colon includes its value.
fn name_in(tool: &Tool, text: &str, option: &str) -> String {
    if option.ends_with(':') {
        return text::word_from(text, option).unwrap_or(option).to_owned();
    }
    let is_option = tool.keys_are_flags && !is_file(text);
    if is_option { format!("--{option}") } else { option.to_owned() }
}

/// Changes of options in a text that lead from the settings `before` to `after`, which differ by `changes`: of the
/// options of their tool, or of `planner evaluate` for a plan. `None` if there is no option for one of them, or no option
/// changes.
pub(super) fn option_changes(
    text: &str,
    changes: &[Change],
    [before, after]: [&Run<'_>; 2],
) -> Option<Vec<OptionChange>> {
    let tool = tool(before.source);
    let mut all = Vec::new();
    if let Some(table) = tool.table {
        all = of_table(table, tool, text, changes, [before, after])?;
        all.retain(|change| text::is_changed(text, change));
    } else {
        for change in changes {
            all.extend(change.planner_options()?);
        }
        if let StatedStages::Blocks(counts) = &after.stages
            && changes.contains(&Change::RebalanceStages)
        {
            let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
            all.push(OptionChange::value("--stages", counts.join(",")));
        }
    }
    let mut told: Vec<OptionChange> = Vec::new();
    for change in all {
        if !told.contains(&change) {
            told.push(change);
        }
    }
    (!told.is_empty()).then_some(told)
}

/// Values with which a tool derives an option from others.
const AUTOMATIC: [&str; 2] = ["-1", "auto"];

/// Option changes by a tool's table.
fn of_table(
    table: &Table,
    tool: &Tool,
    text: &str,
    changes: &[Change],
    [before, after]: [&Run<'_>; 2],
) -> Option<Vec<OptionChange>> {
    let is_said = |field: &&&str| !table.options_of(field).is_empty();
    let field = |change: &Change| change.fields().iter().find(is_said).copied();
    let fields: Vec<&str> = changes.iter().map(field).collect::<Option<_>>()?;
    let all = table.differences(before, after, &fields);
    // An option that the tool derives need not be changed, unless its options are in another file.
    let is_here = table.options().any(|option| text::has(text, &name_in(tool, text, option)));
    let follows = |it: &Difference| {
        let name = name_in(tool, text, it.option);
        let is_automatic = text::value(text, &name).is_some_and(|it| AUTOMATIC.contains(&it));
        let is_left_out = is_automatic || !text::has(text, &name);
        is_here && is_left_out && it.before.is_some() && !fields.contains(&it.field)
    };
    let change = |it: Difference| {
        let name = name_in(tool, text, it.option);
        match it.after {
            // The value is part of the name.
            Some(values) if it.option.ends_with(':') => {
                OptionChange::Rename { option: name, to: it.option.to_owned() + &values.concat() }
            }
            Some(values) => {
                let value = (!values.is_empty()).then(|| values.join(" "));
                OptionChange::set(&name, value)
            }
            None => OptionChange::remove(&name),
        }
    };
    let mut changes: Vec<OptionChange> =
        all.into_iter().filter(|it| !follows(it)).map(change).collect();
    // Keys below a removed key are removed with it.
    let is_removed = |it: &&OptionChange| {
        matches!(it, OptionChange::Remove { .. }) && text::is_changed(text, it)
    };
    let left_out: Vec<String> =
        changes.iter().filter(is_removed).map(|it| it.option().to_owned()).collect();
    let is_below = |option: &str| {
        left_out.iter().any(|key| option.strip_prefix(key).is_some_and(|it| it.starts_with('.')))
    };
    changes.retain(|it| !is_below(it.option()));
    changes.sort_by_key(|it| matches!(it, OptionChange::Remove { .. }));
    if tool.is_python { bridge::of_megatron(changes) } else { Some(changes) }
}

/// Returns whether a text is a file of keys, not a script.
fn is_file(text: &str) -> bool {
    Notation::of(text) == Some(Notation::Json) || !text.contains("--")
}

/// Options of a tool that a finding about a change refers to.
pub(super) fn options(tool: &Tool, text: &str, change: &Change) -> Vec<String> {
    let Some(table) = tool.table else { return vec![change.fields()[0].to_owned()] };
    let options: Vec<&str> =
        change.fields().iter().flat_map(|field| table.options_of(field)).collect();
    if tool.is_python {
        return bridge::paths(&options);
    }
    options.into_iter().map(|option| name_in(tool, text, option)).collect()
}
