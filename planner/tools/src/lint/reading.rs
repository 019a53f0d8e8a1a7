//! Faults in the text of settings. Each is fixed and the rest is read again, so that all are found.

use ir::text::typeset;

use crate::interchange::{Divided, Import, ImportError, Imported, OptionError};

use super::documents::Documents;
use super::finding::{Finding, Fix, OptionChange};
use super::rule::Rule;
use super::words::megatron;

/// Result of reading settings, with faults fixed.
pub(super) struct Reading {
    /// Settings that were read; `None` if a fault could not be fixed.
    pub(super) imported: Option<Imported>,
    /// Files from which the settings were read, with the fixes.
    pub(super) documents: Documents,
    /// Findings, one for each fault.
    pub(super) findings: Vec<Finding>,
}

/// Limit of faults that are fixed.
const MOST_FAULTS: usize = 32;

/// Reads settings, and fixes faults in a copy of their text.
///
/// # Errors
///
/// [`ImportError`] if the text is not settings of a tool, or depends on unknown values, so that nothing can be found.
pub(super) fn read(import: &Import<'_>, given: &Documents) -> Result<Reading, ImportError> {
    let mut documents = given.clone();
    let mut findings: Vec<Finding> = Vec::new();
    let mut imported = None;
    for _ in 0..MOST_FAULTS {
        let error = match documents.settings(import) {
            Ok(read) => {
                imported = Some(read);
                break;
            }
            Err(ImportError::Option(error)) => error,
            // A contradiction with the command line is not a fault of the settings.
            Err(ref error @ ImportError::Divides { of, instead, .. }) if of != Divided::Stated => {
                let (message, now) = (error.in_one_line(), &documents);
                let (finding, new) = undivided(import, [given, now], of, instead, message);
                findings.push(finding);
                match new {
                    Some(new) => documents = new,
                    None => break,
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        if let OptionError::Unresolved { .. } = error {
            return Err(error.into());
        }
        let Fault { rule, options, candidates } = fault(&error, given.tool().option_of);
        let mut candidates = candidates.into_iter().filter_map(|changes| {
            let changes = documents.own(changes)?;
            let new = documents.changed(&changes)?.0;
            Some((changes, new))
        });
        let is_put_right = |new: &Documents| match new.settings(import) {
            Err(ImportError::Option(other)) => !is_same_fault(&other, &error),
            _ => true,
        };
        let repaired = candidates.find(|(_, new)| is_put_right(new));
        let message = error.to_string().lines().next().unwrap_or_default().to_owned();
        let fix = repaired.as_ref().map(|(changes, _)| {
            let all = given.changed(changes).map_or_else(Vec::new, |(_, all)| all);
            Fix::unevaluated(changes.clone(), all)
        });
        let place = |option: &String| {
            let first = given.place(option);
            if first.line.is_some() { first } else { documents.place(option) }
        };
        let options = options.iter().map(place).collect();
        findings.push(Finding { fix, ..Finding::new(rule, message, options) });
        match repaired {
            Some((_, new)) => documents = new,
            None => break,
        }
    }
    Ok(Reading { imported, documents, findings })
}

/// True if both are the same error of the same option, whatever its value.
fn is_same_fault(one: &OptionError, other: &OptionError) -> bool {
    match (one, other) {
        (OptionError::Value { name: one, .. }, OptionError::Value { name: other, .. }) => {
            one == other
        }
        _ => one == other,
    }
}

/// Options of the number of replicas or of the division of a batch, in the order in which changes to them are tried to
/// fix a product.
const FACTORS: [&str; 5] = [
    "--parallelism.data_parallel_shard_degree",
    "parallelism.dp",
    "parallelism_config.parallelism_config_dp_shard_size",
    "parallelism_config.parallelism_config_dp_replicate_size",
    "gradient_accumulation_steps",
];

/// Options of degrees within a replica, tried if no number of replicas fixes a product.
const DEGREES: [&str; 2] = [
    "parallelism_config.parallelism_config_tp_size",
    "parallelism_config.parallelism_config_cp_size",
];

/// Option of the number of ranks.
const RANKS: &str = "num_processes";

/// Largest value that is tried for a factor.
const MOST_REPLICAS: u32 = 1024;

/// Finding of numbers that contradict each other; and, if a candidate fix can be read, the files with it.
fn undivided(
    import: &Import<'_>,
    [given, now]: [&Documents; 2],
    of: Divided,
    instead: Option<(&str, u64)>,
    message: String,
) -> (Finding, Option<Documents>) {
    // The user's number of GPUs is tried first.
    let ranks = import.stated.num_gpus.filter(|_| now.gives(RANKS));
    let mut candidates: Vec<OptionChange> =
        ranks.iter().map(|it| OptionChange::value(RANKS, it)).collect();
    for option in FACTORS.into_iter().filter(|it| now.gives(it)) {
        let values =
            std::iter::once("-1".to_owned()).chain((1..=MOST_REPLICAS).map(|it| it.to_string()));
        candidates.extend(values.map(|it| OptionChange::set(option, Some(it))));
    }
    // Degrees are tried in the order of their distance from the present value.
    for option in DEGREES.into_iter().filter(|it| now.gives(it)) {
        let Some(degree) = now.value(option).and_then(|it| it.parse::<u32>().ok()) else {
            continue;
        };
        let mut by_distance: Vec<u32> = (1..=degree.saturating_mul(2).min(MOST_REPLICAS)).collect();
        by_distance.sort_by_key(|it| it.abs_diff(degree));
        candidates.extend(by_distance.iter().map(|it| OptionChange::value(option, it)));
    }
    candidates.extend(instead.map(|(option, value)| OptionChange::value(option, value)));
    let fixed = candidates.into_iter().find_map(|change| {
        let changes = now.own(vec![change])?;
        let (new, replacements) = now.changed(&changes)?;
        new.settings(import).is_ok().then(|| (Fix::unevaluated(changes, replacements), new))
    });
    let (fix, new) = fixed.unzip();
    let options = FACTORS.iter().map(|it| given.place(it)).filter(|it| it.line.is_some()).collect();
    (Finding { fix, ..Finding::new(of.rule(), message, options) }, new)
}

impl Divided {
    /// The rule for this kind of fault.
    pub(super) const fn rule(self) -> Rule {
        match self {
            Self::Batch => Rule::BatchDoesNotDivide,
            Self::Stages => Rule::StagesUneven,
            Self::ShardGroups => Rule::ShardGroupsDoNotDivide,
            Self::Ranks | Self::Stated => Rule::NodesDoNotDivide,
        }
    }
}

/// Rule and options of a fault, with candidate repairs, the likeliest first.
struct Fault {
    rule: Rule,
    options: Vec<String>,
    candidates: Vec<Vec<OptionChange>>,
}

fn fault(error: &OptionError, option_of: fn(&str) -> String) -> Fault {
    let renamed = |name: &str, to: Option<String>| {
        let rename = to.map(|to| vec![OptionChange::rename(name, to)]);
        rename.into_iter().chain([vec![OptionChange::remove(name)]]).collect()
    };
    let (rule, name, candidates) = match error {
        OptionError::Unknown { name, nearest, .. } => {
            (Rule::UnknownOption, name, renamed(name, nearest.clone()))
        }
        OptionError::Twice { name, second, .. } => {
            // The last value counts, as in the tool's parser.
            let value = second.trim_matches('`');
            let value = (second != "as a switch").then(|| value.to_owned());
            (Rule::OptionGivenTwice, name, vec![vec![OptionChange::set(name, value)]])
        }
        OptionError::Values { name, .. } => {
            (Rule::OptionValue, name, vec![vec![OptionChange::remove(name)]])
        }
        OptionError::Stray { word, .. } => {
            (Rule::OptionValue, word, renamed(word, typeset(word).map(|it| it.plain)))
        }
        OptionError::Value { name, value, works } => {
            let option = option_of(name);
            let is_of_stages = megatron::cuts_stages(&option);
            let rule = if is_of_stages { Rule::StagesUneven } else { Rule::OptionValue };
            (rule, name, values(&option, value, works))
        }
        OptionError::Missing { name, .. } => {
            (Rule::OptionMissing, name, vec![megatron::added(&option_of(name))])
        }
        OptionError::Contradiction { one, other, .. } => {
            let both = [one, other].map(|it| {
                let plain = it.replace('`', "");
                let (no, name) = match plain.strip_prefix("no ") {
                    Some(name) => ("no ", name),
                    None => ("", plain.as_str()),
                };
                let (name, value) = name.split_at(name.find(' ').unwrap_or(name.len()));
                format!("{no}{}{value}", option_of(name))
            });
            let named = |it: &String| {
                it.trim_start_matches("no ").split(' ').next().unwrap_or_default().to_owned()
            };
            let options = both.iter().map(named).collect();
            let candidates = megatron::contradiction(&both[0], &both[1]);
            return Fault { rule: Rule::OptionsContradict, options, candidates };
        }
        _ => return Fault { rule: Rule::OptionValue, options: Vec::new(), candidates: Vec::new() },
    };
    Fault { rule, options: vec![option_of(name)], candidates }
}

/// Candidate changes of an option with a wrong value.
fn values(name: &str, value: &str, works: &str) -> Vec<Vec<OptionChange>> {
    let set = |value: String| vec![OptionChange::set(name, Some(value))];
    let mut all = Vec::new();
    if let Some(listed) =
        works.strip_prefix("one of ").and_then(|it| it.strip_suffix(" is expected"))
    {
        let mut known: Vec<&str> = listed.split(", ").collect();
        let likeness = |it: &&str| likeness(value, it);
        known.sort_by(|one, other| likeness(other).total_cmp(&likeness(one)));
        all.extend(known.into_iter().map(|it| set(it.to_owned())));
    }
    // A number is rounded. Other text yields no candidate, since the intended number is unknown.
    if works.starts_with("a whole number")
        && let Some(number) = value.parse::<f64>().ok().filter(|it| it.is_finite())
    {
        all.push(set(format!("{:.0}", number.max(1.0))));
    }
    all.extend(megatron::fewer_layers(name, value));
    all.push(vec![OptionChange::remove(name)]);
    all.extend(megatron::without_both_ends(name));
    all
}

/// Similarity of two values: for numbers, minus their distance; for words, the similarity of spelling.
fn likeness(one: &str, other: &str) -> f64 {
    match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => -(one - other).abs(),
        _ => strsim::normalized_damerau_levenshtein(&one.to_lowercase(), &other.to_lowercase()),
    }
}
