//! Settings that people run, judged.

use std::collections::BTreeMap;

use planner::lint::{Severity, lint_run};
use planner::validation::read_rows;
use planner::validation::reference::REFERENCE;
use planner::validation::setup::Setup;
use rayon::prelude::*;

/// Every measured step that ships ran: no error, and few warnings.
#[test]
fn measured_steps_ran() {
    let rows: Vec<_> = REFERENCE
        .iter()
        .flat_map(|(name, text)| read_rows(name, text).unwrap())
        .filter(|row| !row.ran_out_of_memory())
        .collect();
    let linted: Vec<_> = rows
        .par_iter()
        .filter_map(|row| {
            let setup = Setup::of(row).ok()?;
            lint_run(&setup, &row.id)
        })
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
