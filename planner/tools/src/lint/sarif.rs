//! Findings as SARIF, the Static Analysis Results Interchange Format, version 2.1.0.
//!
//! # Source
//!
//! OASIS 2020, *SARIF Version 2.1.0*, <https://docs.oasis-open.org/sarif/sarif/v2.1.0/>.

use serde_json::{Value, json};

use super::finding::{Finding, Fix, Replacement};
use super::report::Report;
use super::rule::Rule;
use super::text::line_at;

/// A report as a SARIF log of one run; `file` and `text` are the path and the content of the settings.
pub fn sarif(report: &Report, file: &str, text: &str) -> Value {
    let uri = uri(file);
    let rules = Rule::ALL.iter().map(|rule| {
        json!({
            "id": rule.id(),
            "shortDescription": { "text": rule.description() },
            "defaultConfiguration": { "level": rule.most_severe().name() },
        })
    });
    let results = report.findings.iter().map(|finding| result(finding, &uri, text));
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

fn result(finding: &Finding, uri: &str, text: &str) -> Value {
    let Finding { rule, severity, message, options, cost, fix } = finding;
    let artifact = json!({ "uri": uri });
    let lines = options.iter().filter_map(|place| place.line);
    let mut locations: Vec<Value> = lines
        .map(|line| {
            let region = json!({ "startLine": line });
            json!({ "physicalLocation": { "artifactLocation": artifact, "region": region } })
        })
        .collect();
    // The first location is that of the result, the others are related locations.
    let related = if locations.is_empty() { Vec::new() } else { locations.split_off(1) };
    if locations.is_empty() {
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
        result["fixes"] = json!([fixed(fix, &artifact, text)]);
    }
    result
}

fn fixed(fix: &Fix, artifact: &Value, text: &str) -> Value {
    let replacement = |it: &Replacement| {
        let [from, to] = [it.from, it.to].map(|at| at.min(text.len()));
        let [start, end] = [from, to].map(|at| place(text, at));
        json!({
            "deletedRegion": {
                "startLine": start[0], "startColumn": start[1], "endLine": end[0], "endColumn": end[1],
            },
            "insertedContent": { "text": it.with },
        })
    };
    let replacements: Vec<Value> = fix.replacements.iter().map(replacement).collect();
    json!({
        "description": { "text": fix.text },
        "artifactChanges": [{ "artifactLocation": artifact, "replacements": replacements }],
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
