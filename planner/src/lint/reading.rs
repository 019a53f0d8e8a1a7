//! What keeps settings from being read: each fault is put right and the rest is read again, so that all are found.

use crate::interchange::{Import, ImportError, Imported, OptionError, settings};

use super::finding::{Finding, Fix, OptionChange, Place, in_words};
use super::rule::Rule;
use super::text;

/// Settings that were read, if need be after faults were put right.
pub(super) struct Reading {
    /// What was read; absent where a fault could not be put right.
    pub(super) imported: Option<Imported>,
    /// The text that it was read from.
    pub(super) text: String,
    /// The faults.
    pub(super) findings: Vec<Finding>,
}

/// So many faults are put right before the rest is left alone.
const MOST_FAULTS: usize = 32;

/// Reads settings.
///
/// # Errors
///
/// [`ImportError`] where they are none, or depend on what is not known: nothing can be said of them.
pub(super) fn read(import: &Import<'_>) -> Result<Reading, ImportError> {
    let mut text = import.text.to_owned();
    let mut findings: Vec<Finding> = Vec::new();
    let mut imported = None;
    for _ in 0..MOST_FAULTS {
        let error = match settings(&Import { text: &text, ..import.clone() }) {
            Ok(read) => {
                imported = Some(read);
                break;
            }
            Err(ImportError::Option(error)) => error,
            Err(error) => return Err(error),
        };
        if let OptionError::Unresolved { .. } = error {
            return Err(error.into());
        }
        let Fault { rule, options, candidates } = fault(&error, &text);
        let is_put_right = |new: &str| match settings(&Import { text: new, ..import.clone() }) {
            Err(ImportError::Option(other)) => other != error,
            _ => true,
        };
        let repaired = candidates.into_iter().find(|(_, new)| is_put_right(new));
        let severity = rule.most_severe();
        let message = error.to_string().lines().next().unwrap_or_default().to_owned();
        let fix = repaired.as_ref().map(|(changes, _)| Fix {
            changes: changes.clone(),
            text: in_words(changes),
            step_time_seconds: None,
            peak_memory_bytes: None,
            replacements: text::changed(import.text, changes).map_or_else(Vec::new, |(_, all)| all),
        });
        let place = |option: &String| Place {
            option: option.clone(),
            line: text::line_of(import.text, option).or_else(|| text::line_of(&text, option)),
        };
        let options = options.iter().map(place).collect();
        findings.push(Finding { rule, severity, message, options, cost: None, fix });
        match repaired {
            Some((_, new)) => text = new,
            None => break,
        }
    }
    Ok(Reading { imported, text, findings })
}

/// Changes, and the text with them.
type Repair = (Vec<OptionChange>, String);

/// What a fault is, and what might put it right, the likeliest first.
struct Fault {
    rule: Rule,
    options: Vec<String>,
    candidates: Vec<Repair>,
}

fn fault(error: &OptionError, text: &str) -> Fault {
    let repairs = |all: Vec<Vec<OptionChange>>| -> Vec<Repair> {
        let of =
            |changes: Vec<OptionChange>| Some((changes.clone(), text::changed(text, &changes)?.0));
        all.into_iter().filter_map(of).collect()
    };
    match error {
        OptionError::Unknown { name, nearest, .. } => {
            let rename = nearest
                .as_ref()
                .map(|to| vec![OptionChange::Rename { option: name.clone(), to: to.clone() }]);
            let all = rename.into_iter().chain([vec![OptionChange::remove(name)]]).collect();
            Fault {
                rule: Rule::UnknownOption,
                options: vec![name.clone()],
                candidates: repairs(all),
            }
        }
        OptionError::Twice { name, second, .. } => {
            // The parser takes the last, and so do we.
            let value = second.trim_matches('`');
            let value = (second != "as a switch").then(|| value.to_owned());
            let change = vec![OptionChange::Set { option: name.clone(), value }];
            Fault {
                rule: Rule::OptionGivenTwice,
                options: vec![name.clone()],
                candidates: repairs(vec![change]),
            }
        }
        OptionError::Values { name, .. } => Fault {
            rule: Rule::OptionValue,
            options: vec![name.clone()],
            candidates: repairs(vec![vec![OptionChange::remove(name)]]),
        },
        OptionError::Stray { word, .. } => Fault {
            rule: Rule::OptionValue,
            options: vec![word.clone()],
            candidates: repairs(vec![vec![OptionChange::remove(word)]]),
        },
        OptionError::Value { name, value, works } => Fault {
            rule: match name.as_str() {
                "--num-layers-per-virtual-pipeline-stage"
                | "--pipeline-model-parallel-layout"
                | "--decoder-first-pipeline-num-layers"
                | "--account-for-embedding-in-pipeline-split" => Rule::StagesUneven,
                _ => Rule::OptionValue,
            },
            options: vec![name.clone()],
            candidates: repairs(values(name, value, works)),
        },
        OptionError::Contradiction { one, other, .. } => {
            let [one, other] = [one, other].map(|it| it.replace('`', ""));
            let named = |it: &str| {
                it.trim_start_matches("no ").split(' ').next().unwrap_or_default().to_owned()
            };
            Fault {
                rule: Rule::OptionsContradict,
                options: vec![named(&one), named(&other)],
                candidates: repairs(contradiction(&one, &other)),
            }
        }
        OptionError::Missing { name, .. } => {
            let added = match name.as_str() {
                "--recompute-method" => vec![
                    OptionChange::set(name, Some("uniform".to_owned())),
                    OptionChange::set("--recompute-num-layers", Some("1".to_owned())),
                ],
                _ => vec![OptionChange::set(name, Some("1".to_owned()))],
            };
            Fault {
                rule: Rule::OptionMissing,
                options: vec![name.clone()],
                candidates: repairs(vec![added]),
            }
        }
        _ => Fault { rule: Rule::OptionValue, options: Vec::new(), candidates: Vec::new() },
    }
}

/// Values that an option could have instead.
fn values(name: &str, value: &str, works: &str) -> Vec<Vec<OptionChange>> {
    let set = |value: String| vec![OptionChange::set(name, Some(value))];
    let mut all = Vec::new();
    if let Some(listed) =
        works.strip_prefix("one of ").and_then(|it| it.strip_suffix(" is expected"))
    {
        let mut known: Vec<&str> = listed.split(", ").collect();
        let likeness =
            |it: &&str| strsim::normalized_damerau_levenshtein(&value.to_lowercase(), it);
        known.sort_by(|one, other| likeness(other).total_cmp(&likeness(one)));
        all.extend(known.into_iter().map(|it| set(it.to_owned())));
    }
    if works.starts_with("a whole number") {
        let number = value.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 1.0);
        all.push(set(number.map_or_else(|| "1".to_owned(), |it| format!("{it:.0}"))));
    }
    if name == "--num-layers-per-virtual-pipeline-stage" {
        let most = value.parse::<u32>().unwrap_or(1).min(64);
        all.extend((1..=most).rev().map(|each| set(each.to_string())));
    }
    all.push(vec![OptionChange::remove(name)]);
    // Of what says the same for the other end of the pipeline.
    let ends = [
        ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"],
        ["--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"],
    ];
    if let Some(ends) = ends.into_iter().find(|ends| ends.contains(&name)) {
        all.push(ends.map(OptionChange::remove).to_vec());
    }
    all
}

/// What of two options that contradict each other could go, or what the one needs.
fn contradiction(one: &str, other: &str) -> Vec<Vec<OptionChange>> {
    let Some(needed) = other.strip_prefix("no ") else {
        // Of two formats of 16 bits the one with the larger range stays; of two ways to say the same, the newer.
        let (first, second) = if one == "--fp16" { (one, other) } else { (other, one) };
        return vec![vec![OptionChange::remove(first)], vec![OptionChange::remove(second)]];
    };
    let value = match needed {
        "--recompute-granularity" => Some("selective".to_owned()),
        "--context-parallel-size" => return vec![vec![OptionChange::remove(one)]],
        _ => None,
    };
    vec![vec![OptionChange::set(needed, value)], vec![OptionChange::remove(one)]]
}
