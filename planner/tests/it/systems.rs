//! Every system of parallel training is planned by the command that says so; CI runs the other one too.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::cli::{planner, root};

#[test]
fn every_system_is_planned() {
    let folder = tempfile::tempdir().unwrap();
    let systems = planner(&["systems", "--format", "json"]).json();
    let systems = systems.as_array().unwrap();
    assert!(systems.len() > 30);
    for system in systems {
        let command = system["plan"].as_str().unwrap();
        let words: Vec<String> = command
            .split_whitespace()
            .skip(1)
            .map(|word| match word.strip_prefix("models/") {
                Some(model) => root().join("models").join(model).display().to_string(),
                None => word.to_owned(),
            })
            .collect();
        let output = Command::new(env!("CARGO_BIN_EXE_planner"))
            .args(&words)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        let run = system["run"].as_str().unwrap();
        if let Some(plan) = run.strip_prefix("planner run ") {
            let file = folder.path().join(plan.split_whitespace().next().unwrap());
            let plan: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
            assert_eq!(plan["version"], ir::plan::PLAN_VERSION, "{command}");
        }
    }
}
