//! What rules work with: settings that were evaluated, and others beside them.

use rayon::prelude::*;

use super::case::{Case, Ground, Trial};
use super::change::Change;
use super::finding::{Cost, Finding, Fix, OptionChange, Place, in_words};
use super::rule::{Rule, Severity};
use super::text;
use super::words::{Speech, option_changes, options};

/// Settings that were evaluated, and what others are evaluated with.
pub(super) struct Bench<'a> {
    /// What settings are evaluated with.
    pub(super) ground: Ground<'a>,
    /// Whose words are spoken.
    pub(super) speech: Speech,
    /// The settings as they were given.
    pub(super) text: &'a str,
    /// The same, faults put right.
    pub(super) now: &'a str,
    /// The settings, faults put right.
    pub(super) base: Case,
    /// The longest sequence that the model was made for.
    pub(super) longest_sequence: Option<u64>,
}

impl Bench<'_> {
    /// What several changes lead to, one after the other; those that cannot be are left out.
    pub(super) fn trials(&self, all: &[Vec<Change>]) -> Vec<Trial> {
        let tried = |changes: &Vec<Change>| self.ground.tried(&self.base, changes);
        all.par_iter().filter_map(tried).collect()
    }

    /// The fastest of several changes that may run.
    pub(super) fn fastest(&self, all: &[Vec<Change>]) -> Option<Trial> {
        let may = self.trials(all).into_iter().filter(|it| it.may_run(&self.base));
        may.max_by(|one, other| one.saves.total_cmp(&other.saves))
    }

    /// A finding of waste: a warning where the time that is saved is beyond noise, else a note.
    pub(super) fn waste(
        &self,
        rule: Rule,
        message: impl FnOnce(&str) -> String,
        trial: &Trial,
    ) -> Finding {
        let cost = trial.cost(&self.base);
        let severity = if cost.is_certain() { Severity::Warning } else { Severity::Note };
        self.finding(rule, severity, message(&cost.in_words()), Some((trial, cost)), &[])
    }

    /// A finding about the options of some changes, and those of its trial.
    pub(super) fn finding(
        &self,
        rule: Rule,
        severity: Severity,
        message: String,
        trial: Option<(&Trial, Cost)>,
        about: &[Change],
    ) -> Finding {
        let of_trial = trial.iter().flat_map(|(trial, _)| &trial.changes);
        let about: Vec<&Change> =
            if about.is_empty() { of_trial.collect() } else { about.iter().collect() };
        Finding {
            rule,
            severity,
            message,
            options: places(self.speech, self.text, about),
            cost: trial.map(|(_, cost)| cost),
            fix: trial.and_then(|(trial, _)| self.fix(trial)),
        }
    }

    /// A trial in the tool's words.
    pub(super) fn fix(&self, trial: &Trial) -> Option<Fix> {
        let Trial { changes, case, .. } = trial;
        let runs = [&self.base.imported, &case.imported].map(|it| self.ground.run(it));
        let told = option_changes(self.speech, self.now, changes, runs.each_ref())?;
        Some(of_case(self.text, told, case))
    }
}

/// A fix whose settings were evaluated.
pub(super) fn of_case(text: &str, changes: Vec<OptionChange>, case: &Case) -> Fix {
    let replacements = text::changed(text, &changes).map_or_else(Vec::new, |(_, all)| all);
    Fix {
        text: in_words(&changes),
        changes,
        step_time_seconds: Some(case.found.evaluation.step_time.get()),
        peak_memory_bytes: Some(case.peak().get()),
        replacements,
    }
}

/// The options that changes are of, and where they stand: of each the first that is given, or else the first.
pub(super) fn places<'a>(
    speech: Speech,
    text: &str,
    changes: impl IntoIterator<Item = &'a Change>,
) -> Vec<Place> {
    let mut all: Vec<Place> = Vec::new();
    for change in changes {
        let names = options(speech, text, change);
        let place =
            |option: &String| Place { option: option.clone(), line: text::line_of(text, option) };
        let given = names.iter().map(place).find(|it| it.line.is_some());
        let place = given.or_else(|| names.first().map(place));
        all.extend(place.filter(|it| !all.contains(it)));
    }
    all
}
