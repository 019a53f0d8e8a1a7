//! Findings as SARIF, the Static Analysis Results Interchange Format, version 2.1.0.
//!
//! # Source
//!
//! OASIS 2020, *SARIF Version 2.1.0*, <https://docs.oasis-open.org/sarif/sarif/v2.1.0/>.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::finding::{Finding, Fix, Replacement};
use super::report::LintReport;
use super::rule::Rule;
use super::text::line_at;

/// Settings of a report: their path and text, and the texts of the files next to them that they name.
struct Artifacts<'a> {
    path: &'a str,
    text: &'a str,
    named: &'a BTreeMap<String, String>,
}

impl Artifacts<'_> {
    /// Location of a file that the settings name, or of the settings.
    fn location(&self, file: Option<&str>) -> Value {
        let sibling = |name: &str| match self.path.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{name}"),
            None => name.to_owned(),
        };
        json!({ "uri": uri(&file.map_or_else(|| self.path.to_owned(), sibling)) })
    }

    fn text(&self, file: Option<&str>) -> &str {
        file.map_or(self.text, |name| self.named.get(name).map_or("", String::as_str))
    }
}

/// A report as a SARIF log of one run. `path` and `text` belong to the settings; `named` has the texts of files that
/// they name.
pub fn sarif(
    report: &LintReport,
    path: &str,
    text: &str,
    named: &BTreeMap<String, String>,
) -> Value {
    let artifacts = Artifacts { path, text, named };
    let rules = Rule::ALL.iter().map(|rule| {
        json!({
            "id": rule.id(),
            "shortDescription": { "text": rule.description() },
            "defaultConfiguration": { "level": rule.most_severe().name() },
        })
    });
    let results = report.findings.iter().map(|finding| result(finding, &artifacts));
    json!({
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "planner lint",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules.collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "results": results.collect::<Vec<_>>(),
        }],
    })
}

fn result(finding: &Finding, artifacts: &Artifacts<'_>) -> Value {
    let Finding { rule, severity, message, options, cost, fix } = finding;
    let places = options.iter().filter_map(|place| Some((place.file.as_deref(), place.line?)));
    let mut locations: Vec<Value> = places
        .map(|(file, line)| {
            let artifact = artifacts.location(file);
            let region = json!({ "startLine": line });
            json!({ "physicalLocation": { "artifactLocation": artifact, "region": region } })
        })
        .collect();
    // The first location is the location of the result; the others are related locations.
    let related = if locations.is_empty() { Vec::new() } else { locations.split_off(1) };
    if locations.is_empty() {
        let artifact = artifacts.location(None);
        locations.push(json!({ "physicalLocation": { "artifactLocation": artifact } }));
    }
    let said = match fix {
        Some(fix) => format!("{message}\nfix: {}", fix.text),
        None => message.clone(),
    };
    let mut result = json!({
        "ruleId": rule.id(),
        "ruleIndex": Rule::ALL.iter().position(|it| it == rule).unwrap_or_default(),
        "level": severity.name(),
        "message": { "text": said },
        "locations": locations,
        "properties": {
            "options": options.iter().map(|it| &it.option).collect::<Vec<_>>(),
            "cost": cost,
            "fix": fix,
        },
    });
    if !related.is_empty() {
        result["relatedLocations"] = related.into();
    }
    if let Some(fix) = fix
        && !fix.replacements.is_empty()
    {
        result["fixes"] = json!([fixed(fix, artifacts)]);
    }
    result
}

fn fixed(fix: &Fix, artifacts: &Artifacts<'_>) -> Value {
    let replacement = |it: &Replacement| {
        let text = artifacts.text(it.file.as_deref());
        let [from, to] = [it.from, it.to].map(|at| at.min(text.len()));
        let [start, end] = [from, to].map(|at| place(text, at));
        json!({
            "deletedRegion": {
                "startLine": start[0], "startColumn": start[1], "endLine": end[0], "endColumn": end[1],
            },
            "insertedContent": { "text": it.with },
        })
    };
    let files = fix.replacements.chunk_by(|one, other| one.file == other.file);
    let changes = files.map(|all| {
        let replacements: Vec<Value> = all.iter().map(replacement).collect();
        json!({
            "artifactLocation": artifacts.location(all[0].file.as_deref()),
            "replacements": replacements,
        })
    });
    json!({
        "description": { "text": fix.text },
        "artifactChanges": changes.collect::<Vec<_>>(),
    })
}

/// Line and column, from 1, of a byte offset in a text.
fn place(text: &str, at: usize) -> [usize; 2] {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    [line_at(text, before.len()), line.chars().count() + 1]
}

/// URI reference of a path; relative paths stay relative.
fn uri(path: &str) -> String {
    let path = path.replace('\\', "/");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let escaped: String = path
        .bytes()
        .map(
            |byte| {
                if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
            },
        )
        .collect();
    if escaped.starts_with('/') { format!("file://{escaped}") } else { escaped }
}
