//! Changes as options of the tools.

pub(super) mod bridge;
pub(super) mod megatron;

use super::change::Change;
use super::finding::OptionChange;
use super::keys::Notation;
use super::text;
use crate::interchange::{Difference, Run, StatedStages, Table, Target, Tool, tool};

/// Naming of options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Options of a tool.
    Tool(Target),
    /// Options of `planner evaluate`, for a plan.
    Planner,
}

impl Dialect {
    /// The tool; none for a plan.
    fn tool(self) -> Option<&'static Tool> {
        match self {
            Self::Tool(target) => Some(tool(target)),
            Self::Planner => None,
        }
    }

    /// Table of the tool's options.
    pub(super) fn table(self) -> Option<&'static Table> {
        self.tool()?.table
    }

    /// Returns whether settings are Python of Megatron-Bridge, with the options of the table under other names.
    fn is_python(self) -> bool {
        self.tool().is_some_and(|it| it.is_python)
    }

    /// Name of an option in a text: the Trainer's arguments are keys in files, but options with dashes in scripts; a
    /// name that ends with a colon includes its value.
    fn name_in(self, text: &str, option: &str) -> String {
        if option.ends_with(':') {
            return text::word_from(text, option).unwrap_or(option).to_owned();
        }
        let is_option = self.tool().is_some_and(|it| it.keys_are_flags) && !is_file(text);
        if is_option { format!("--{option}") } else { option.to_owned() }
    }
}

/// Changes of options in a text that lead from the settings `before` to `after`, which differ by `changes`. `None` if
/// the tool has no option for one of them, or no option changes.
pub(super) fn option_changes(
    dialect: Dialect,
    text: &str,
    changes: &[Change],
    [before, after]: [&Run<'_>; 2],
) -> Option<Vec<OptionChange>> {
    let mut all = Vec::new();
    match dialect.table() {
        Some(table) => all = of_table(table, dialect, text, changes, [before, after])?,
        None => {
            for change in changes {
                all.extend(change.planner_options()?);
            }
        }
    }
    if let (Dialect::Planner, StatedStages::Blocks(counts)) = (dialect, &after.stages)
        && changes.contains(&Change::RebalanceStages)
    {
        let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
        all.push(OptionChange::value("--stages", counts.join(",")));
    }
    if dialect != Dialect::Planner {
        all.retain(|change| text::is_changed(text, change));
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
    dialect: Dialect,
    text: &str,
    changes: &[Change],
    [before, after]: [&Run<'_>; 2],
) -> Option<Vec<OptionChange>> {
    let is_said = |field: &&&str| !table.options_of(field).is_empty();
    let field = |change: &Change| change.fields().iter().find(is_said).copied();
    let fields: Vec<&str> = changes.iter().map(field).collect::<Option<_>>()?;
    let all = table.differences(before, after, &fields);
    // An option that the tool derives need not be changed, unless its options are in another file.
    let is_here = table.options().any(|option| text::has(text, &dialect.name_in(text, option)));
    let follows = |it: &Difference| {
        let name = dialect.name_in(text, it.option);
        let is_automatic = text::value(text, &name).is_some_and(|it| AUTOMATIC.contains(&it));
        let is_left_out = is_automatic || !text::has(text, &name);
        is_here && is_left_out && it.before.is_some() && !fields.contains(&it.field)
    };
    let change = |it: Difference| {
        let name = dialect.name_in(text, it.option);
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
    if dialect.is_python() { bridge::of_megatron(changes) } else { Some(changes) }
}

/// Returns whether a text is a file of keys, not a script.
fn is_file(text: &str) -> bool {
    Notation::of(text) == Some(Notation::Json) || !text.contains("--")
}

/// Options of a tool that a finding about a change refers to.
pub(super) fn options(dialect: Dialect, text: &str, change: &Change) -> Vec<String> {
    let Some(table) = dialect.table() else { return vec![change.fields()[0].to_owned()] };
    let options: Vec<&str> =
        change.fields().iter().flat_map(|field| table.options_of(field)).collect();
    if dialect.is_python() {
        return bridge::paths(&options);
    }
    options.into_iter().map(|option| dialect.name_in(text, option)).collect()
}
