//! Table of a tool's options. Exports write it, imports read it, and lint compares it for two runs.
//!
//! A line is an option with its number of values as in [`Vocabulary`](super::options::Vocabulary), or `word` if no
//! parser knows the option. If a plan decides the option, the line continues with a field of the plan, forms of the
//! option's values, and conditions:
//!
//! ```text
//! --cp-comm-type some layout.context_parallel_kind p2p=ring a2a=all_to_all if layout.context_parallel>1
//! ```
//!
//! | form | what it is |
//! |---|---|
//! | `*`, `>*` | the number itself; `>*` is written only |
//! | `word=a\|b` | a word for field values, the first of which it reads as; `given` for a switch without a value |
//! | `<word=a` | a word that is read only |
//! | `>word=a` | a word that is written only |
//! | `-=a` | field value if the option is left out and the conditions hold |
//! | `!a,b` | values that do not depend on the field; `!` alone is a switch |
//! | `code` | values of the tool's own code where no other form applies; it reads the option after the others |
//! | `read` | never written: other options have the value, and the code for them reads this one |
//!
//! An option with `model` instead of a field describes the model; imports compare it with the user's. With `only` after
//! it, a model that would not have the option at all counts as another model.
//!
//! `unplanned` instead of a field marks an option that may change a step but is not part of a plan; its description
//! follows ` # `. Imports report it, unless it is off or has one of the values `word=` that the line lists.
//! `saves-memory` after `unplanned` marks an option with which the prediction of memory is too large.
//!
//! `same` instead of a field marks another name of the option that follows it.
//!
//! A condition is `field=a|b`, `field!=a` or `field>n`. The text after ` # ` is the reason that an export gives, with
//! fields in braces; `[title]` begins a topic.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use super::argument::{Argument, Section};
use super::error::ImportError;
use super::fields::{get, set};
use super::imported::Imported;
use super::index::IndexedRow;
use super::options::{OptionError, ParsedOptions, Vocabulary};
use super::run::Run;
use super::source::{Source, agreed};
use super::unread::Unread;

/// Options to read, with their source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) given: &'a ParsedOptions,
}

/// Values of an option; empty for a switch.
pub(super) type Values = Vec<String>;

/// Writer of an option that has `code` among its forms.
type Write = fn(&str, &Run<'_>) -> Option<Values>;

/// Reader of an option that has `code` among its forms.
type Read = fn(&str, Reader<'_>, &mut Imported) -> Result<(), ImportError>;

/// Options of a tool that a plan decides.
#[derive(Debug)]
pub(crate) struct Table {
    /// All options of the tool, whether a plan decides them or not.
    pub(super) vocabulary: Vocabulary,
    write: Write,
    read: Read,
    /// Options of the vocabulary that no plan decides for this tool.
    without: &'static [&'static str],
    rows: OnceLock<Vec<Row>>,
}

/// A row of the table: an option and its field.
#[derive(Clone, Debug)]
struct Row {
    topic: &'static str,
    option: &'static str,
    field: &'static str,
    forms: Vec<Form>,
    conditions: Vec<Condition>,
    why: &'static str,
}

#[derive(Clone, Debug)]
enum Form {
    Number { reads: bool },
    Word { word: &'static str, values: &'static str, reads: bool, writes: bool },
    LeftOut(&'static str),
    Constant(&'static str),
    Code,
    Read,
}

impl Form {
    fn of(text: &'static str) -> Self {
        if let Some(values) = text.strip_prefix('!') {
            return Self::Constant(values);
        }
        match text.split_once('=') {
            None if text == "code" => Self::Code,
            None if text == "read" => Self::Read,
            None => Self::Number { reads: text == "*" },
            Some(("-", value)) => Self::LeftOut(value),
            Some((word, values)) => {
                let (reads, writes) = (!word.starts_with('>'), !word.starts_with('<'));
                Self::Word { word: word.trim_start_matches(['<', '>']), values, reads, writes }
            }
        }
    }
}

/// Condition for an option to be written.
#[derive(Clone, Debug)]
struct Condition {
    field: &'static str,
    is: char,
    values: &'static str,
}

impl Condition {
    fn of(text: &'static str) -> Option<Self> {
        let place = text.find(['!', '=', '>'])?;
        let (field, rest) = text.split_at(place);
        let values = rest.trim_start_matches(['!', '=', '>']);
        Some(Self { field, is: rest.chars().next()?, values })
    }

    fn holds(&self, run: &Run<'_>) -> bool {
        let Some(value) = get(run, self.field) else { return false };
        let is_one = self.values.split('|').any(|it| it == value);
        match self.is {
            '!' => !is_one,
            '>' => value.parse::<u64>().ok() > self.values.parse().ok(),
            _ => is_one,
        }
    }
}

/// An option whose values differ between two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) option: &'static str,
    /// Field of the plan.
    pub(crate) field: &'static str,
    /// Values in the first run; `None` if the option is not given.
    pub(crate) before: Option<Values>,
    /// Values in the second run.
    pub(crate) after: Option<Values>,
}

/// Word instead of the field, for an option that describes the model.
const MODEL: &str = "model";

/// Word instead of the field, for an option that is not part of a plan.
const UNPLANNED: &str = "unplanned";

/// Word instead of the field, for another name of an option; that option follows.
const SAME: &str = "same";

/// Word that stands for a switch without a value.
const GIVEN: &str = "given";

/// Returns whether a field is `whole` or a part of it.
fn is_of(field: &str, whole: &str) -> bool {
    field.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Group of fields whose options change together.
fn group(field: &str) -> &str {
    match field {
        "layout.pipeline_parallel" | "layout.virtual_stages" => "stages",
        "layout.offload.all_layers" | "layout.offload.num_layers" | "layout.offload.modules" => {
            "layout.offload.activations"
        }
        _ => field,
    }
}

impl Row {
    fn of(row: &IndexedRow) -> Option<Self> {
        let IndexedRow { topic, name: option, becomes, why, .. } = *row;
        let field = becomes.filter(|it| ![MODEL, UNPLANNED, SAME].contains(it))?;
        let mut words = row.words.iter().copied();
        let forms = words.by_ref().take_while(|word| *word != "if").map(Form::of).collect();
        let conditions = words.filter_map(Condition::of).collect();
        Some(Self { topic, option, field, forms, conditions, why })
    }

    fn applies(&self, run: &Run<'_>) -> bool {
        self.conditions.iter().all(|it| it.holds(run))
    }

    /// Returns whether the option is ever written.
    fn writes(&self) -> bool {
        self.forms.iter().any(|form| match form {
            Form::Word { writes, .. } => *writes,
            Form::LeftOut(_) | Form::Read => false,
            _ => true,
        })
    }

    fn values(&self, run: &Run<'_>, table: &Table) -> Option<Values> {
        if !self.applies(run) {
            return None;
        }
        let value = get(run, self.field);
        self.forms.iter().find_map(|form| match form {
            Form::Number { .. } => value.clone().map(|it| vec![it]),
            Form::Word { word, values, writes: true, .. } => {
                let is_it = value.as_deref().is_some_and(|it| values.split('|').any(|of| of == it));
                is_it.then(|| listed(if *word == GIVEN { "" } else { word }))
            }
            Form::Constant(values) => Some(listed(values)),
            Form::Code => (table.write)(self.option, run),
            Form::Word { .. } | Form::LeftOut(_) | Form::Read => None,
        })
    }

    fn argument(&self, run: &Run<'_>, table: &Table) -> Option<Argument> {
        let values = self.values(run, table)?;
        let mut why = String::new();
        for (index, part) in self.why.split(['{', '}']).enumerate() {
            let is_field = index % 2 == 1;
            why += &if is_field { get(run, part).unwrap_or_default() } else { part.to_owned() };
        }
        Some(Argument { name: self.option.to_owned(), values, why })
    }

    fn read(
        &self,
        reader: Reader<'_>,
        settings: &mut Imported,
        table: &Table,
    ) -> Result<(), ImportError> {
        if let Some(value) = self.stated(reader, settings)? {
            set(settings, self.field, &value).map_err(|_| {
                let works = "another value is expected".to_owned();
                OptionError::value(self.option, value, works)
            })?;
        }
        let is_code = self.forms.iter().any(|form| matches!(form, Form::Code));
        if is_code { (table.read)(self.option, reader, settings) } else { Ok(()) }
    }

    /// Field value that the options state, as text.
    fn stated(
        &self,
        reader: Reader<'_>,
        settings: &Imported,
    ) -> Result<Option<String>, ImportError> {
        let given = reader.given;
        let name = self.option;
        if self.forms.iter().any(|form| matches!(form, Form::Number { reads: true })) {
            return self.number(reader);
        }
        let words = self.forms.iter().filter_map(|form| match form {
            Form::Word { word, values, reads: true, .. } => {
                Some((word.trim_matches('"'), values.split('|').next()?))
            }
            _ => None,
        });
        let words: Vec<(&str, &str)> = words.collect();
        let is_flag = |(word, _): &(&str, &str)| ["true", "false"].contains(word);
        let value = match words.as_slice() {
            [] => None,
            [(GIVEN, value), ..] => given.has(name).then_some(*value),
            words if words.iter().all(is_flag) => given.flag(name)?.and_then(|is_on| {
                let word = if is_on { "true" } else { "false" };
                words.iter().find(|it| it.0 == word).map(|it| it.1)
            }),
            words => given.one_of(name, words)?,
        };
        let left_out = self.forms.iter().find_map(|form| match form {
            Form::LeftOut(value) if !given.has(name) => Some(*value),
            _ => None,
        });
        let left_out = left_out.filter(|_| {
            let num_gpus = reader.source.num_gpus();
            let known = &Imported { num_gpus, ..settings.clone() };
            let has_experts = given.has("--num-experts") || reader.source.has_experts;
            self.applies(&Run { settings: known, stages: Vec::new(), has_experts })
        });
        Ok(value.or(left_out).map(str::to_owned))
    }

    /// Number that the options state, else the user's.
    fn number(&self, reader: Reader<'_>) -> Result<Option<String>, ImportError> {
        let (option, stated) = (self.option, reader.source.stated);
        let of_user = match self.field {
            "training.sequence_length" => Some((stated.sequence_length, "--seq-len")),
            "training.global_batch_size" => Some((stated.global_batch_size, "--global-batch-size")),
            "layout.micro_batch_size" => {
                Some((stated.micro_batch_size.map(u64::from), "--micro-batch-size"))
            }
            _ => None,
        };
        let left_out = self.forms.iter().find_map(|form| match form {
            Form::LeftOut(value) => Some((*value).to_owned()),
            _ => None,
        });
        let count = reader.given.count::<u64>(option)?;
        let count = match of_user {
            Some((stated, name)) => agreed(count, option, stated, name)?,
            None => count,
        };
        Ok(count.map(|it| it.to_string()).or(left_out))
    }
}

/// Values separated by commas.
fn listed(values: &str) -> Values {
    values.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

impl Table {
    /// Table of the lines of a vocabulary; `write` and `read` are for the options that have `code` among their forms.
    pub(super) const fn new(vocabulary: Vocabulary, write: Write, read: Read) -> Self {
        Self { vocabulary, write, read, without: &[], rows: OnceLock::new() }
    }

    /// The table without the rows of some options.
    pub(super) const fn without(mut self, without: &'static [&'static str]) -> Self {
        self.without = without;
        self
    }

    fn rows(&self) -> &[Row] {
        self.rows.get_or_init(|| {
            let rows = self.vocabulary.index().rows.iter().filter_map(Row::of);
            rows.filter(|row| !self.without.contains(&row.option)).collect()
        })
    }

    /// Options of a run, each with its reason.
    pub(super) fn arguments(&self, run: &Run<'_>) -> Vec<Argument> {
        self.rows().iter().filter_map(|row| row.argument(run, self)).collect()
    }

    /// Options of a run by topic.
    pub(super) fn sections(&self, run: &Run<'_>) -> Vec<Section> {
        let topics = self.rows().chunk_by(|one, other| one.topic == other.topic);
        let section = |rows: &[Row]| {
            let arguments = rows.iter().filter_map(|row| row.argument(run, self)).collect();
            Section::new(rows[0].topic, arguments)
        };
        topics.map(section).collect()
    }

    /// Reads the options of all rows, in their order.
    pub(super) fn read(
        &self,
        reader: Reader<'_>,
        settings: &mut Imported,
    ) -> Result<(), ImportError> {
        self.rows().iter().try_for_each(|row| row.read(reader, settings, self))?;
        settings.unread.extend(self.unread(reader.given));
        settings.repeated.extend_from_slice(reader.given.repeated());
        Ok(())
    }

    /// Options under their main names (`same`).
    pub(super) fn by_one_name(&self, given: ParsedOptions) -> ParsedOptions {
        let other = |name: &str| {
            let row = self.vocabulary.index().named(name)?;
            row.words.first().filter(|_| row.becomes == Some(SAME)).copied()
        };
        given.renamed(|name| other(name).unwrap_or(name).to_owned())
    }

    /// Options that are given and may change a step, but are not part of a plan.
    pub(super) fn unread(&self, given: &ParsedOptions) -> Vec<Unread> {
        // If an option has several lines, the first describes it.
        let mut known = BTreeSet::new();
        let rows = self.vocabulary.index().rows.iter();
        let unplanned = rows.filter(|row| known.insert(row.name) && row.becomes == Some(UNPLANNED));
        given.unread(unplanned.map(|row| (row.name, row)), self.vocabulary.program())
    }

    /// Words after `only` in an option's line: conditions under which a model without the option equals one with it.
    /// `None` without `only`.
    pub(super) fn model_only(&self, option: &str) -> Option<&[&'static str]> {
        let mut rows = self.vocabulary.index().rows.iter();
        rows.find_map(|row| match row.words.as_slice() {
            ["only", rest @ ..] if row.name == option && row.becomes == Some(MODEL) => Some(rest),
            _ => None,
        })
    }

    /// Options that describe the model. An option whose value is unknown is not compared with the user's model, but
    /// reported.
    pub(super) fn model_arguments(
        &self,
        given: &ParsedOptions,
        unread: &mut Vec<Unread>,
    ) -> Result<Vec<Argument>, OptionError> {
        let mut all = Vec::new();
        let rows = self.vocabulary.index().rows.iter();
        for IndexedRow { name, .. } in rows.filter(|row| row.becomes == Some(MODEL)) {
            match given.values(name) {
                Ok(values) => all.extend(values.map(|it| Argument::values(name, it, ""))),
                Err(OptionError::Unresolved { .. }) => {
                    let why = "of the model; its value is not known, and not compared";
                    unread.push(Unread::new(name, why));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Returns whether the program has an option.
    pub(crate) fn knows(&self, option: &str) -> bool {
        self.vocabulary.arity(option).is_some()
    }

    /// All options that a plan decides.
    pub(crate) fn options(&self) -> impl Iterator<Item = &'static str> {
        self.rows().iter().map(|row| row.option)
    }

    /// Options of a field and its parts; options that are written come first.
    pub(crate) fn options_of(&self, field: &str) -> Vec<&'static str> {
        let mut rows: Vec<&Row> = self.rows().iter().filter(|it| is_of(it.field, field)).collect();
        rows.sort_by_key(|row| !row.writes());
        rows.into_iter().map(|row| row.option).collect()
    }

    /// Options to change from one run to another: all options of each group that has a difference or one of `fields`.
    pub(crate) fn differences(
        &self,
        before: &Run<'_>,
        after: &Run<'_>,
        fields: &[&str],
    ) -> Vec<Difference> {
        let mut all: Vec<Difference> = Vec::new();
        for row in self.rows() {
            let Row { option, field, .. } = *row;
            let [before, after] = [before, after].map(|run| row.values(run, self));
            match all.iter_mut().find(|it| it.option == option) {
                // An option may have several rows, of which at most one is written.
                Some(known) => {
                    known.before = known.before.take().or(before);
                    known.after = known.after.take().or(after);
                }
                None => all.push(Difference { option, field, before, after }),
            }
        }
        let is_changed = |it: &&Difference| {
            it.before != it.after || fields.iter().any(|field| is_of(it.field, field))
        };
        let groups: Vec<&str> = all.iter().filter(is_changed).map(|it| group(it.field)).collect();
        all.retain(|it| groups.contains(&group(it.field)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields::STATED;
    use super::super::imported::Stated;
    use super::super::target::Target;
    use super::super::tools::tools;
    use super::*;

    /// Quantities that are derived from several fields.
    const DERIVED: [&str; 10] = [
        "training.adapters",
        "experts",
        "even_stages",
        "replicated",
        "replicas",
        "copies",
        "shards",
        "stages",
        "pipeline_batch",
        "layout.num_micro_batches",
    ];

    fn check(table: &Table) {
        let is_known = |field: &str| {
            STATED.contains(&field)
                || DERIVED.contains(&field)
                || group(field) == "layout.offload.activations"
        };
        for row in table.rows() {
            assert!(is_known(row.field), "{row:?}");
            for condition in &row.conditions {
                assert!(is_known(condition.field), "{row:?}");
            }
            for form in &row.forms {
                let values = match form {
                    Form::Word { values, .. } => values,
                    Form::LeftOut(value) => value,
                    _ => continue,
                };
                for value in values.split('|') {
                    let mut settings = Imported::unset(Target::MEGATRON, None, Stated::default());
                    set(&mut settings, row.field, value).unwrap_or_else(|_| panic!("{row:?}"));
                    let run = Run { settings: &settings, stages: Vec::new(), has_experts: true };
                    if STATED.contains(&row.field) {
                        assert_eq!(get(&run, row.field).as_deref(), Some(value), "{row:?}");
                    }
                }
            }
            assert!(row.why.is_empty() != row.writes(), "a reason, where it is written: {row:?}");
        }
    }

    /// Every field and every value in the tables belongs to a plan.
    #[test]
    fn tables_are_of_plans() {
        tools().flat_map(|tool| tool.tables).for_each(|it| check(it));
    }
}
