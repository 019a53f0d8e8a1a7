//! Changes as options of the tools.

pub(super) mod bridge;
pub(super) mod megatron;

use super::change::Change;
use super::documents::{Document, Documents};
use super::finding::{Edit, OptionChange, SourceSpan};
use super::text;
use crate::interchange::{Difference, Run, StatedStages, Table, built_in_stage};

/// Changes of keys in the files that turn the settings `before` into `after`, which differ by `changes`. The keys are
/// options of the files' tool, or of `planner evaluate` for a plan. `None` if a change has no option, or if no option
/// changes.
pub(super) fn option_changes(
    documents: &Documents,
    changes: &[Change],
    [before, after]: [&Run<'_>; 2],
) -> Option<Vec<OptionChange>> {
    let mut all = Vec::new();
    if documents.tool().tables.is_empty() {
        for change in changes {
            all.extend(change.planner_options()?);
        }
        if let StatedStages::Blocks(counts) = &after.stages
            && changes.contains(&Change::RebalanceStages)
        {
            let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
            all.push(OptionChange::value("--stages", counts.join(",")));
        }
    } else {
        all = of_tables(documents, changes, [before, after])?;
    }
    let mut unique: Vec<OptionChange> = Vec::new();
    for change in all {
        if !unique.contains(&change) {
            unique.push(change);
        }
    }
    (!unique.is_empty()).then_some(unique)
}

/// A field, with the file and the table that contain an option for it.
type Field = (&'static str, Option<String>, *const Table);

/// An option of a file that differs between two runs.
struct KeyDifference<'a> {
    document: Document<'a>,
    table: &'static Table,
    difference: Difference,
}

impl KeyDifference<'_> {
    /// Returns whether the file gives the option, with a value that the tool does not derive.
    fn is_given(&self) -> bool {
        let option = self.difference.option;
        self.document.gives(option) && !self.document.is_automatic(option)
    }

    fn field(&self) -> Field {
        (
            self.difference.field,
            self.document.file.map(str::to_owned),
            std::ptr::from_ref(self.table),
        )
    }

    fn change(self) -> Option<Vec<OptionChange>> {
        let Difference { option, after, .. } = self.difference;
        let change = match after {
            // The name includes the value.
            Some(values) if option.ends_with(':') => {
                OptionChange::rename(option, option.to_owned() + &values.concat())
            }
            Some(values) => {
                OptionChange::set(option, (!values.is_empty()).then(|| values.join(" ")))
            }
            None => OptionChange::remove(option),
        };
        self.document.own(&change)
    }
}

/// Option for the number of nodes of a job; tools that start jobs themselves have keys for it.
const NODES: &str = "nodes";

/// Option for the name of a DeepSpeed configuration that a tool ships: `zero3`, `zero2_offload`.
const BUILT_IN: &str = "deepspeed";

/// Returns whether the settings shard by a configuration that their tool ships.
fn is_built_in(documents: &Documents) -> bool {
    documents.value(BUILT_IN).is_some_and(|name| built_in_stage(&name).is_some())
}

/// Returns whether the name of such a configuration decides a field.
fn is_of_built_in(field: &str) -> bool {
    field == "layout.zero_stage" || field.starts_with("layout.offload")
}

/// Option changes by the tables of the files' tools.
fn of_tables(
    documents: &Documents,
    changes: &[Change],
    [before, after]: [&Run<'_>; 2],
) -> Option<Vec<OptionChange>> {
    let files = documents.each();
    let tables =
        || files.iter().flat_map(|it| it.tool.tables.iter().map(move |table| (*it, *table)));
    if let [Change::Gpus(ranks)] = changes
        && let Some(each) = before.ranks_per_node.filter(|each| ranks.is_multiple_of(*each))
        && documents.gives(NODES)
    {
        return documents.own(vec![OptionChange::value(NODES, ranks / each)]);
    }
    let is_built_in = is_built_in(documents);
    let is_said = |field: &&&str| {
        is_built_in && is_of_built_in(field)
            || tables()
                .any(|(file, table)| table.options_of(field).iter().any(|it| file.has_key(it)))
    };
    let field = |change: &Change| change.fields().iter().find(is_said).copied();
    let fields: Vec<&str> = changes.iter().map(field).collect::<Option<_>>()?;
    let mut all: Vec<KeyDifference<'_>> = Vec::new();
    for (document, table) in tables() {
        let differences = table.differences(before, after, &fields).into_iter();
        let differences = differences.filter(|it| document.has_key(it.option));
        all.extend(differences.map(|difference| KeyDifference { document, table, difference }));
    }
    // An option that the tool derives from others need not be changed, unless those are in another file.
    let is_here = |file: &Document<'_>| {
        let mut options = file.tool.tables.iter().flat_map(|it| it.options());
        options.any(|option| file.gives(option))
    };
    let follows = |it: &KeyDifference<'_>| {
        let Difference { option, field, before, .. } = &it.difference;
        let is_derived = before.is_some() || ["copies", "shards", "replicas"].contains(field);
        let is_left_out = is_here(&it.document) && !it.is_given() && is_derived;
        (is_left_out || it.document.is_automatic(option)) && !fields.contains(field)
    };
    let is_same = |it: &KeyDifference<'_>| it.difference.before == it.difference.after;
    all.retain(|it| !follows(it) && (it.is_given() || !is_same(it)));
    all.retain(|it| !is_built_in || !is_of_built_in(it.difference.field));
    // For each field, only the tables whose option is given count; if none is given, the first one.
    let mut of_fields: Vec<Field> =
        all.iter().filter(|it| it.is_given()).map(KeyDifference::field).collect();
    for key in &all {
        let is_known = of_fields.iter().any(|it| it.0 == key.difference.field);
        if !is_known && !key.document.is_automatic(key.difference.option) {
            of_fields.push(key.field());
        }
    }
    all.retain(|it| {
        let has_place = of_fields.iter().any(|of| of.0 == it.difference.field);
        !has_place || of_fields.contains(&it.field())
    });
    let mut changes = Vec::new();
    if is_built_in && fields.iter().any(|it| is_of_built_in(it)) {
        let offload = if after.layout.offload.optimizer { "_offload" } else { "" };
        let name = format!("zero{}{offload}", after.layout.zero_stage);
        changes.extend(documents.own(vec![OptionChange::value(BUILT_IN, name)])?);
    }
    for key in all {
        let document = key.document;
        let is_changed = |it: &OptionChange| text::is_changed(document.text, it);
        changes.extend(key.change()?.into_iter().filter(is_changed));
    }
    // Keys below a removed key are removed with it.
    let is_removed = |it: &&OptionChange| matches!(it.edit, Edit::Remove { .. });
    let left_out: Vec<String> =
        changes.iter().filter(is_removed).map(|it| it.option().to_owned()).collect();
    let is_below = |option: &str| {
        left_out.iter().any(|key| option.strip_prefix(key).is_some_and(|it| it.starts_with('.')))
    };
    changes.retain(|it| !is_below(it.option()));
    changes.sort_by_key(|it| matches!(it.edit, Edit::Remove { .. }));
    Some(changes)
}

/// Options of changes, and their places: for each change the first option that is given, else the first one.
pub(super) fn places<'a>(
    documents: &Documents,
    changes: impl IntoIterator<Item = &'a Change>,
) -> Vec<SourceSpan> {
    let mut all: Vec<SourceSpan> = Vec::new();
    for change in changes {
        let mut names: Vec<SourceSpan> = Vec::new();
        for document in documents.each() {
            let tables = document.tool.tables.iter();
            let options = |field: &&str| {
                tables.clone().flat_map(|table| table.options_of(field)).collect::<Vec<_>>()
            };
            let options = change.fields().iter().flat_map(options);
            let is_job = matches!(change, Change::Gpus(_));
            let options = options.chain([NODES].into_iter().filter(|_| is_job));
            let options = options.filter(|option| document.has_key(option));
            names.extend(options.map(|option| document.place(option)));
        }
        if documents.tool().tables.is_empty() {
            names.push(documents.place(change.fields()[0]));
        }
        if is_of_built_in(change.fields()[0]) && is_built_in(documents) {
            names.insert(0, documents.place(BUILT_IN));
        }
        let place = names.iter().find(|it| it.line.is_some()).or(names.first()).cloned();
        all.extend(place.filter(|it| !all.contains(it)));
    }
    all
}
