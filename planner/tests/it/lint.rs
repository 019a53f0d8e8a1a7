//! Settings that people run, judged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use cost_models::clusters;
use ir::cluster::Cluster;
use ir::model::Model;
use planner::interchange::Import;
use planner::lint::{Report, Severity, changed, lint, lint_run};
use planner::validation::read_rows;
use planner::validation::reference::REFERENCE;
use planner::validation::setup::Setup;
use rayon::prelude::*;

use crate::cli::root;

/// Settings that were published: what they run, and on what, is said at their head.
struct Published {
    name: String,
    text: String,
    model: Model,
    model_text: String,
    cluster: Cluster,
    gpus: Option<u32>,
}

impl Published {
    fn read(name: &str) -> Self {
        let cases = root().join("planner/tests/it/cases/lint/published");
        let text = fs::read_to_string(cases.join(format!("{name}.sh"))).unwrap();
        let said = |what: &str| {
            let start = format!("# {what}: ");
            text.lines().find_map(|line| line.strip_prefix(&start)).map(str::to_owned)
        };
        said("source").expect("a source");
        let path = root().join(said("model").expect("a model"));
        let path = if path.is_dir() { path.join("config.json") } else { path };
        let model_text = fs::read_to_string(path).unwrap();
        let model = Model::from_json(&model_text, "model").unwrap();
        let cluster = clusters::preset(&said("cluster").expect("a cluster")).unwrap();
        let gpus = said("gpus").map(|it| it.parse().unwrap());
        Self { name: name.to_owned(), text, model, model_text, cluster, gpus }
    }

    fn all() -> Vec<Self> {
        let cases = root().join("planner/tests/it/cases/lint/published");
        let mut names: Vec<String> = fs::read_dir(cases)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names.iter().map(|name| Self::read(name)).collect()
    }

    fn lint(&self, text: &str) -> Report {
        let import = Import {
            text,
            set: &BTreeMap::new(),
            model: &self.model,
            model_text: &self.model_text,
            cluster: &self.cluster,
            num_gpus: self.gpus,
            command: String::new(),
        };
        lint(&import, 0).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// A finding in words.
fn words(report: &Report, at_least: Severity) -> String {
    let all = report.findings.iter().filter(|it| it.severity >= at_least);
    let all = all.map(|it| {
        let fix = it.fix.as_ref().map_or("none", |fix| fix.text.as_str());
        format!("\n  {}[{}]: {}\n    fix: {fix}", it.severity.name(), it.rule.id(), it.message)
    });
    all.collect()
}

/// What is known to run is neither refused nor warned of.
#[test]
fn published_settings_raise_no_alarm() {
    let alarms: Vec<String> = Published::all()
        .par_iter()
        .filter_map(|published| {
            let report = published.lint(&published.text);
            let is_quiet = report.count(Severity::Warning) == 0 && report.prediction.is_some();
            (!is_quiet).then(|| format!("{}{}", published.name, words(&report, Severity::Warning)))
        })
        .collect();
    assert!(alarms.is_empty(), "{}", alarms.join("\n"));
}

/// Faults, each with its rule, the settings that it is planted in, and what is replaced.
fn faults() -> Vec<(String, String, Vec<[String; 2]>)> {
    let text = fs::read_to_string(root().join("planner/tests/it/cases/lint/faults.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let fault = |line: &str| {
        let [rule, settings, changes] = line
            .split('|')
            .map(str::trim)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap_or_else(|_| panic!("rule, settings and changes: {line}"));
        let changes = changes.split(';').map(|change| {
            let (from, to) = change.split_once("=>").expect("from => to");
            [from.trim().to_owned(), to.trim().to_owned()]
        });
        (rule.to_owned(), settings.to_owned(), changes.collect())
    };
    lines.map(fault).collect()
}

/// Settings with a fault planted.
fn planted(text: &str, changes: &[[String; 2]]) -> String {
    changes.iter().fold(text.to_owned(), |text, [from, to]| {
        let anchor = "--micro-batch-size";
        let (from, to) = match from.as_str() {
            "^" => (anchor, format!("{to} {anchor}")),
            from => (from, to.clone()),
        };
        assert!(text.contains(from), "no `{from}` in\n{text}");
        text.replacen(from, &to, 1)
    })
}

/// Every planted fault is found by its rule, and what is offered puts it right: the finding is gone, and no error is
/// new.
#[test]
fn planted_faults_are_found_and_fixed() {
    let faults = faults();
    assert!(faults.len() >= 50, "{} faults", faults.len());
    let failures: Vec<String> = faults
        .par_iter()
        .filter_map(|(rule, settings, changes)| {
            let published = Published::read(settings);
            let text = planted(&published.text, changes);
            let failure = |what: &str, report: &Report| {
                let found = words(report, Severity::Note);
                Some(format!("{rule} in {settings}, {changes:?}: {what}{found}"))
            };
            let report = published.lint(&text);
            let Some(finding) = report.findings.iter().find(|it| it.rule.id() == rule) else {
                return failure("not found", &report);
            };
            if rule == "sequence-longer-than-model" {
                return None;
            }
            let Some(fix) = &finding.fix else { return failure("no fix", &report) };
            let Some(fixed) = changed(&text, &fix.changes) else {
                return failure("a fix that has no place", &report);
            };
            let after = published.lint(&fixed);
            let errors = |report: &Report| -> BTreeSet<&str> {
                let all = report.findings.iter().filter(|it| it.severity == Severity::Error);
                all.map(|it| it.rule.id()).collect()
            };
            let is_gone = after.findings.iter().all(|it| it.rule.id() != rule);
            let is_worse = errors(&after).iter().any(|it| !errors(&report).contains(it));
            if !is_gone || is_worse {
                return failure(&format!("not fixed by {}, then", fix.text), &after);
            }
            let promised = fix.step_time_seconds.zip(after.prediction.as_ref());
            let is_kept = promised.is_none_or(|(promised, after)| {
                after.with_errors_fixed || (promised / after.step_time_seconds - 1.0).abs() < 1e-6
            });
            (!is_kept).then(|| failure("another time than was promised", &after)).flatten()
        })
        .collect();
    let (all, failed) = (faults.len(), failures.len());
    println!("{} of {all} planted faults found and fixed", all - failed);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Every measured step that ships ran: no error, and few warnings.
#[test]
fn measured_steps_ran() {
    let is_slow = std::env::var_os("RUN_SLOW_TESTS").is_some();
    let rows: Vec<_> = REFERENCE
        .iter()
        .flat_map(|(name, text)| read_rows(name, text).unwrap())
        .filter(|row| !row.ran_out_of_memory())
        .collect();
    let linted: Vec<_> = rows
        .par_iter()
        .enumerate()
        .filter(|(index, _)| is_slow || index % 16 == 0)
        .filter_map(|(_, row)| lint_run(&Setup::of(row).ok()?, &row.id))
        .collect();
    let mut counts: BTreeMap<(Severity, &str), Vec<String>> = BTreeMap::new();
    for report in &linted {
        for finding in &report.findings {
            let key = (finding.severity, finding.rule.id());
            counts.entry(key).or_default().push(format!("{} {}", report.model, finding.message));
        }
    }
    println!("{} rows", linted.len());
    for ((severity, rule), all) in &counts {
        println!("{} {rule}: {}", severity.name(), all.len());
    }
    for ((severity, rule), all) in &counts {
        if *severity >= Severity::Warning {
            for one in all {
                println!("{} {rule} {one}", severity.name());
            }
        }
    }
}
