//! Input of the rules: evaluated settings, and variants of them.

use rayon::prelude::*;

use super::change::Change;
use super::documents::Documents;
use super::evaluated::{EvalContext, EvaluatedConfig, Variant};
use super::finding::{Cost, Finding, Fix, OptionChange};
use super::rule::{Rule, Severity};
use super::words::{option_changes, places};
use crate::interchange::{Target, Tool, tool};

/// Evaluated settings, with the context for evaluating variants.
pub(super) struct LintContext<'a> {
    /// Model and cluster for evaluations.
    pub(super) eval: EvalContext<'a>,
    /// Files of the settings as given.
    pub(super) given: &'a Documents,
    /// Files with faults fixed.
    pub(super) now: Documents,
    /// Evaluated settings with faults fixed.
    pub(super) base: EvaluatedConfig,
    /// Longest sequence for which the model was made, in tokens.
    pub(super) longest_sequence: Option<u64>,
}

impl LintContext<'_> {
    /// Tool of the settings.
    pub(super) fn tool(&self) -> &'static Tool {
        tool(self.base.imported.source)
    }

    /// Returns whether the settings are arguments of Megatron-LM.
    pub(super) fn is_megatron(&self) -> bool {
        self.base.imported.source == Target::MEGATRON
    }

    /// Variants for several lists of changes, without those that cannot run.
    pub(super) fn variants(&self, all: &[Vec<Change>]) -> Vec<Variant> {
        all.par_iter().filter_map(|changes| self.variant(changes)).collect()
    }

    /// The variant for some changes, if it can run.
    pub(super) fn variant(&self, changes: &[Change]) -> Option<Variant> {
        self.eval.tried(&self.base, changes)
    }

    /// The fastest variant of several that may run.
    pub(super) fn fastest(&self, all: &[Vec<Change>]) -> Option<Variant> {
        Variant::fastest(self.variants(all).into_iter().filter(|it| it.may_run(&self.base)))
    }

    /// A finding of waste: a warning if it is certain that the variant saves time, else a note.
    pub(super) fn waste(
        &self,
        rule: Rule,
        message: impl FnOnce(&str) -> String,
        variant: &Variant,
    ) -> Finding {
        let cost = variant.cost(&self.base);
        let severity = if cost.is_certain() { Severity::Warning } else { Severity::Note };
        self.finding(rule, severity, message(&cost.describe()), Some((variant, cost)), &[])
    }

    /// A finding about the options of the changes `about`, or, if these are empty, of the variant's changes.
    pub(super) fn finding(
        &self,
        rule: Rule,
        severity: Severity,
        message: String,
        variant: Option<(&Variant, Cost)>,
        about: &[Change],
    ) -> Finding {
        let of_trial = variant.iter().flat_map(|(variant, _)| &variant.changes);
        let about: Vec<&Change> =
            if about.is_empty() { of_trial.collect() } else { about.iter().collect() };
        Finding {
            rule,
            severity,
            message,
            options: places(self.given, about),
            cost: variant.map(|(_, cost)| cost),
            fix: variant.and_then(|(variant, _)| self.fix(variant)),
        }
    }

    /// A variant as changes of the tool's options; `None` if the tool has no option for one of its changes.
    pub(super) fn fix(&self, variant: &Variant) -> Option<Fix> {
        let Variant { changes, case, .. } = variant;
        let runs = [&self.base.imported, &case.imported].map(|it| self.eval.run(it));
        let edits = option_changes(&self.now, changes, runs.each_ref())?;
        Some(of_case(self.given, edits, case))
    }
}

/// A fix, with the prediction for the settings that result from it.
pub(super) fn of_case(
    given: &Documents,
    changes: Vec<OptionChange>,
    case: &EvaluatedConfig,
) -> Fix {
    let replacements = given.changed(&changes).map_or_else(Vec::new, |(_, all)| all);
    Fix {
        step_time_seconds: Some(case.found.evaluation.step_time.get()),
        peak_memory_bytes: Some(case.peak().get()),
        ..Fix::unevaluated(changes, replacements)
    }
}
