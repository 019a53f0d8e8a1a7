//! Settings that people run, judged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use cost_models::clusters;
use ir::cluster::Cluster;
use ir::model::Model;
use planner_evidence::validation::read_rows;
use planner_evidence::validation::setup::Setup;
use planner_tools::interchange::{Import, Stated};
use planner_tools::lint::{Finding, Fix, LintReport, Severity, changed, lint, lint_run};
use rayon::prelude::*;
use serde_json::Value;
use tempfile::TempDir;
use traces::reference::REFERENCE;

use crate::cli::{planner, root};

pub(crate) static NO_VARIABLES: BTreeMap<String, String> = BTreeMap::new();

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

    fn import<'a>(&'a self, text: &'a str) -> Import<'a> {
        Import {
            text,
            set: &NO_VARIABLES,
            model: &self.model,
            model_text: &self.model_text,
            cluster: &self.cluster,
            from: None,
            files: &NO_VARIABLES,
            stated: Stated { num_gpus: self.gpus, ..Stated::default() },
            command: String::new(),
        }
    }

    fn lint(&self, text: &str) -> LintReport {
        lint(&self.import(text), 0).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// A finding in words.
pub(crate) fn words(report: &LintReport, at_least: Severity) -> String {
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
            let failure = |what: &str, report: &LintReport| {
                let found = words(report, Severity::Note);
                Some(format!("{rule} in {settings}, {changes:?}: {what}{found}"))
            };
            let report = published.lint(&text);
            let Some(finding) = report.findings.iter().find(|it| it.rule.id() == rule) else {
                return failure("not found", &report);
            };
            let is_told = finding.message.contains(|it: char| it.is_ascii_digit());
            if rule.ends_with("not-divide") && !is_told {
                return failure("the numbers are not told", &report);
            }
            if rule == "sequence-longer-than-model" {
                return None;
            }
            let Some(fix) = &finding.fix else { return failure("no fix", &report) };
            let lint = |text: &str| published.lint(text);
            let (what, after) = unfixed(&text, rule, fix, &report, lint)?;
            failure(&what, &after)
        })
        .collect();
    assert!(failures.is_empty(), "{} of {}\n{}", failures.len(), faults.len(), failures.join("\n"));
}

/// What of a fix does not hold, with the report that shows it: written into the text it fixes what the rule found,
/// at the time that it promised, and no error comes of it.
pub(crate) fn unfixed(
    text: &str,
    rule: &str,
    fix: &Fix,
    report: &LintReport,
    lint: impl Fn(&str) -> LintReport,
) -> Option<(String, LintReport)> {
    let Some(fixed) = changed(text, &fix.changes) else {
        return Some(("a fix that has no place".to_owned(), report.clone()));
    };
    let after = lint(&fixed);
    let errors = |report: &LintReport| -> BTreeSet<&str> {
        let all = report.findings.iter().filter(|it| it.severity == Severity::Error);
        all.map(|it| it.rule.id()).collect()
    };
    let is_gone = after.findings.iter().all(|it| it.rule.id() != rule);
    let is_worse = errors(&after).iter().any(|it| !errors(report).contains(it));
    if !is_gone || is_worse {
        return Some((format!("not fixed by {}:\n{fixed}\nthen", fix.text), after));
    }
    let promised = fix.step_time_seconds.zip(after.prediction.as_ref());
    let is_kept = promised.is_none_or(|(promised, after)| {
        after.with_errors_fixed || (promised / after.step_time_seconds - 1.0).abs() < 1e-6
    });
    (!is_kept).then(|| ("another time than was promised".to_owned(), after))
}

/// Every measured step that ships ran: one in a thousand at most is an error, and what is a warning is a waste that the
/// sources went to look for: full recompute with room to spare, fewer micro-batches than stages, vocabularies that make one
/// stage the slowest, tensor parallelism that the memory does not need.
#[test]
fn measured_steps_ran() {
    let is_slow = std::env::var_os("RUN_SLOW_TESTS").is_some();
    let rows: Vec<_> = REFERENCE
        .iter()
        .flat_map(|(file, _, text)| read_rows(file, text).unwrap())
        .filter(|row| !row.ran_out_of_memory)
        .collect();
    let linted: Vec<LintReport> = rows
        .par_iter()
        .enumerate()
        .filter(|(index, _)| is_slow || index % 40 == 0)
        .filter_map(|(_, row)| {
            let run = Setup::of(row).ok().filter(|run| !run.is_layer)?;
            lint_run(&run.problem, &run.layout, &run.stage_ends, &run.cluster, &row.id)
        })
        // How many of those that worked are warned of their memory is a limit of `accuracy`.
        .filter(|it| {
            let is_warned =
                |it: &Finding| it.rule.id() == "out-of-memory" && it.severity < Severity::Error;
            !it.findings.iter().any(is_warned)
        })
        .collect();
    assert!(linted.len() > if is_slow { 800 } else { 15 }, "{} rows", linted.len());
    let with = |at_least: Severity| -> Vec<String> {
        let some = linted.iter().filter(|it| it.count(at_least) > 0);
        some.map(|it| format!("{}{}", it.model, words(it, at_least))).collect()
    };
    let errors = with(Severity::Error);
    assert!(errors.len() * 1000 <= linted.len(), "{}", errors.join("\n"));
    let warned = with(Severity::Warning);
    let share = warned.len() as f64 / linted.len() as f64;
    let most = if is_slow { 0.2 } else { 0.4 };
    assert!(share < most, "{} of {}\n{}", warned.len(), linted.len(), warned.join("\n"));
}

/// A script with a few faults, in a folder of its own.
fn faulty(folder: &TempDir) -> String {
    let published = Published::read("megatron-mixtral-8x7b");
    let text =
        published.text.replace("--bf16", "--fp16").replace("batch-size 256", "batch-size 250");
    let path = folder.path().join("pretrain.sh");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const MIXTRAL: [&str; 4] = ["--model", "models/mixtral-8x7b", "--gpus", "64"];

/// What a person sees, and exit codes that a pipeline of checks goes by.
#[test]
fn findings_are_told_with_their_lines_and_fixes() {
    let folder = TempDir::new().unwrap();
    let path = faulty(&folder);
    let run = |more: &[&str]| planner(&[&["lint", &path], &MIXTRAL[..], more].concat());
    let text = run(&[]);
    assert_eq!(text.code, Some(1), "{text:?}");
    for part in [
        "pretrain.sh:37: error[batch-does-not-divide]: a global batch of 250 is no number of micro-batches of 1 on 16",
        "  fix: `--global-batch-size 256`",
        "pretrain.sh:40: warning[fp16-where-bf16]: ",
        "  fix: `--bf16`, `--accumulate-allreduce-grads-in-fp32`, without `--fp16`",
        "note[sequence-parallel-without-tensor-parallel]",
        "tp1-ep8-pp4-dp16",
        "1 error, 1 warning, 1 note",
    ] {
        assert!(text.stdout.contains(part), "no `{part}` in\n{}", text.stdout);
    }
    for (fail_on, code) in [("error", 1), ("note", 1), ("never", 0)] {
        assert_eq!(run(&["--fail-on", fail_on, "--nearest", "0"]).code, Some(code), "{fail_on}");
    }
    let json = run(&["--format", "json", "--nearest", "0"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    let first = &json["findings"][0];
    assert_eq!(first["rule"], "batch-does-not-divide");
    assert_eq!(first["options"][0]["line"], 37);
    assert_eq!(first["fix"]["changes"][0]["do"], "set");
    assert_eq!(first["fix"]["changes"][0]["value"], "256");
    assert_eq!(json["prediction"]["ranks"].as_array().unwrap().len(), 4);
    let missing = planner(&["lint", &path, "--gpus", "64"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("hint: `--model "), "{missing:?}");
    let unknown = planner(&["lint", "README.md", "--model", "models/gpt2", "--gpus", "8"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
}

/// A plan is judged too, in the words of this command.
#[test]
fn plans_are_judged() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("plan.json");
    let path = path.to_str().unwrap();
    let asked = ["--layout", "tp2-sp-pp4-dp2", "--recompute", "full", "--global-batch-size", "64"];
    let plan = ["evaluate", "models/llama-3.1-8b", "--gpus", "16", "--quiet", "-o", path];
    let run = planner(&[&plan[..], &asked].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let run = planner(&["lint", path]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stdout.contains("warning[recompute-not-needed]: "), "{run:?}");
    assert!(run.stdout.contains("fix: `--recompute none`"), "{run:?}");
    let run = planner(&["lint", path, "--model", "models/gpt2"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    let rules = planner(&["list", "rules"]);
    assert!(rules.stdout.contains("out-of-memory"), "{rules:?}");
}

/// Whatever is done to a script, something is said of it, or why not; nothing panics.
#[test]
fn broken_scripts_are_told_of() {
    let published = Published::read("bridge-llama3-70b-h100");
    let words: Vec<&str> = published.text.split_inclusive([' ', '\n']).collect();
    let broken: Vec<String> = (0..words.len())
        .step_by(3)
        .flat_map(|place| {
            let mut without = words.clone();
            let word = without.remove(place);
            let mut twice = words.clone();
            twice.insert(place, word);
            let mut other = words.clone();
            other[place] = "0 ";
            [without, twice, other].map(|words| words.concat())
        })
        .collect();
    broken.par_iter().for_each(|text| {
        let import = published.import(text);
        if let Ok(report) = lint(&import, 0) {
            assert!(report.prediction.is_some() || !report.findings.is_empty(), "{text}");
        }
    });
}
