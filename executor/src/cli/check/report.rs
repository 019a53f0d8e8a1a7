//! A check as a page of text, and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use executor::check::{CheckFinding, Verdict};
use ir::units::Seconds;
use serde_json::{Value, json};

use super::args::CheckPart;
use crate::cli::choices::word;

/// Findings and time of a part.
pub(super) struct Section {
    pub(super) part: CheckPart,
    pub(super) findings: Vec<CheckFinding>,
    pub(super) elapsed: Duration,
}

/// Maximum width of the column of names.
const WIDEST_NAME: usize = 36;

impl Section {
    /// The part's lines, below its name and time.
    pub(super) fn text(&self) -> String {
        let mut text =
            format!("{} ({})\n", word(&self.part), Seconds::new(self.elapsed.as_secs_f64()));
        let widest = self.findings.iter().map(|it| it.name.chars().count()).max().unwrap_or(0);
        let width = widest.min(WIDEST_NAME);
        for (index, CheckFinding { name, verdict, said, hint, .. }) in
            self.findings.iter().enumerate()
        {
            let verdict = match verdict {
                Verdict::Pass => "pass",
                Verdict::Fail => "FAIL",
                Verdict::Skip => "skip",
            };
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {verdict}  {name:<width$}  {said}");
            // Equal hints of consecutive findings are printed once, below the last.
            let next = self.findings.get(index + 1).and_then(|next| next.hint.as_ref());
            if let Some(hint) = hint.as_ref().filter(|hint| next != Some(*hint)) {
                let _ = writeln!(text, "        hint: {hint}");
            }
        }
        text
    }

    fn json(&self) -> Value {
        json!({
            "name": word(&self.part),
            "elapsed_seconds": self.elapsed.as_secs_f64(),
            "findings": self.findings,
        })
    }
}

/// Numbers of findings that passed, that failed and that were skipped.
pub(super) fn counts(sections: &[Section]) -> [usize; 3] {
    let findings = || sections.iter().flat_map(|section| &section.findings);
    let count = |verdict| findings().filter(|finding| finding.verdict == verdict).count();
    [Verdict::Pass, Verdict::Fail, Verdict::Skip].map(count)
}

/// The last line of the page.
pub(super) fn summary([passed, failed, skipped]: [usize; 3], elapsed: Duration) -> String {
    let time = Seconds::new(elapsed.as_secs_f64());
    format!("{passed} passed, {failed} failed, {skipped} skipped in {time}\n")
}

/// The whole report as JSON.
pub(super) fn json(backend: &str, sections: &[Section], elapsed: Duration) -> Value {
    let [passed, failed, skipped] = counts(sections);
    json!({
        "backend": backend,
        "has_passed": failed == 0,
        "num_passed": passed,
        "num_failed": failed,
        "num_skipped": skipped,
        "elapsed_seconds": elapsed.as_secs_f64(),
        "sections": sections.iter().map(Section::json).collect::<Vec<_>>(),
    })
}
