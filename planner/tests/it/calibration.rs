//! Calibration of a machine by a few measured steps.

use std::collections::BTreeMap;

use cost_models::{constants, frameworks};
use planner_evidence::calibration::{CalibrationError, Measured, calibrate, calibrated};
use planner_evidence::validation::predict;
use planner_evidence::validation::read_rows;
use planner_evidence::validation::setup::Setup;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::bad_input::Workplace;
use crate::cli::planner;
use crate::random::drawn;

/// Layouts of one model on 16 GPUs: tensor, pipeline and data parallelism.
const LAYOUTS: [[u32; 3]; 6] = [[1, 1, 16], [2, 1, 8], [2, 2, 4], [4, 1, 4], [1, 4, 4], [8, 1, 2]];

fn row(index: usize, gpu: &str) -> Value {
    let [tp, pp, dp] = LAYOUTS[index];
    json!({
        "id": format!("tp{tp}pp{pp}"), "gpu": gpu, "gpus_per_node": 8, "n_gpus": 16, "n_layers": 32,
        "hidden": 4096, "n_heads": 32, "ffn_hidden": 11008, "gated_mlp": true, "vocab": 32000,
        "seq_len": 4096, "tp": tp, "pp": pp, "dp": dp, "micro_batch_size": 1, "global_batch_size": 64,
        "recompute": "none", "precision": "bf16", "schedule": "1F1B", "distributed_optimizer": true,
        "sequence_parallel": tp > 1, "zero_stage": 1, "step_time_s": 10.0,
        "extra": { "framework": "Megatron-Core" },
    })
}

fn setups() -> Vec<Setup> {
    let rows: Vec<Value> = (0..LAYOUTS.len()).map(|index| row(index, "H100-SXM5-80GB")).collect();
    let rows = read_rows("runs.json", &Value::from(rows).to_string()).unwrap();
    rows.iter().map(|row| Setup::of(row).unwrap()).collect()
}

/// The time of a step on a machine some of whose constants are others.
fn on_another(setup: &Setup, factors: &BTreeMap<&str, f64>) -> f64 {
    let mut setup = setup.clone();
    for constant in constants::all() {
        if let Some(factor) = factors.get(constant.name) {
            constant.scale(&mut setup.problem.hardware, *factor);
        }
    }
    predict(&setup).step_time_seconds
}

fn measured(setup: &Setup, seconds: f64) -> Measured {
    let step_time_seconds = Some(seconds);
    Measured { id: setup.layout.to_string(), setup: setup.clone(), step_time_seconds, memory: None }
}

fn error(setup: &Setup, seconds: f64) -> f64 {
    (predict(setup).step_time_seconds / seconds).ln().abs()
}

proptest! {
    #![proptest_config(drawn(24))]

    /// Of a machine whose products and exchanges take longer, or less, than is known, three steps tell the times of the
    /// others: errors in the mean fall by two fifths wherever they were more than what a step may be off by itself.
    #[test]
    fn three_steps_tell_the_others(matmul in 0.75f64..1.15, within in 0.8f64..1.8, memory in 0.85f64..1.1) {
        let factors = BTreeMap::from([
            ("matmul", matmul), ("exchanges.within_blocks", within), ("memory", memory),
        ]);
        let setups = setups();
        let times: Vec<f64> = setups.iter().map(|setup| on_another(setup, &factors)).collect();
        let steps: Vec<Measured> =
            [0, 2, 5].map(|index| measured(&setups[index], times[index])).into();
        let found = calibrate(&steps).unwrap().calibration;
        prop_assert_eq!(found.steps, 3);
        let others = [1, 3, 4];
        let mean = |of: &dyn Fn(usize) -> f64| others.into_iter().map(of).sum::<f64>() / 3.0;
        let before = mean(&|index| error(&setups[index], times[index]));
        let after = mean(&|index| error(&calibrated(&setups[index], &found), times[index]));
        prop_assert!(after < (0.6 * before).max(0.05), "{before} before, {after} after");
    }

    /// A prediction moves towards a step that was measured, and not beyond it by more than noise.
    #[test]
    fn one_step_moves_its_own_prediction_towards_it(ratio in 0.6f64..1.6, index in 0..LAYOUTS.len()) {
        let setup = &setups()[index];
        let seconds = predict(setup).step_time_seconds * ratio;
        let found = calibrate(&[measured(setup, seconds)]).unwrap();
        let after = error(&calibrated(setup, &found.calibration), seconds);
        prop_assert!(after <= ratio.ln().abs() + 0.01, "{after} for {ratio}");
        prop_assert!(found.disagreement().is_none());
    }
}

#[test]
fn a_step_as_predicted_moves_nothing() {
    let setup = &setups()[2];
    let found = calibrate(&[measured(setup, predict(setup).step_time_seconds)]).unwrap();
    assert!(found.calibration.constants.is_empty(), "{found:?}");
}

#[test]
fn steps_that_cannot_be_calibrated_on_are_refused() {
    assert_eq!(calibrate(&[]).unwrap_err(), CalibrationError::NoSteps);
    let one = setups()[0].clone();
    let text = json!([row(0, "A100-SXM4-80GB")]).to_string();
    let other = Setup::of(&read_rows("runs.json", &text).unwrap()[0]).unwrap();
    let several = calibrate(&[measured(&one, 1.0), measured(&other, 1.0)]).unwrap_err();
    assert!(matches!(&several, CalibrationError::SeveralStacks(stacks) if stacks.len() == 2));
    assert!(several.to_string().contains("megatron-core on a100"), "{several}");
}

/// The file that is written is a framework: a search reads it, says what it rests on, and only where it counts.
#[test]
fn a_calibrated_framework_is_searched_with() {
    let place = Workplace::new();
    let mut rows = [row(0, "H100-SXM5-80GB"), row(2, "H100-SXM5-80GB")];
    for row in &mut rows {
        let setup = Setup::of(&read_rows("a", &json!([row]).to_string()).unwrap()[0]).unwrap();
        row["step_time_s"] = json!(predict(&setup).step_time_seconds * 1.3);
    }
    let from = place.write("steps.json", json!(rows).to_string());
    let mine = place.path("mine.json");
    let output = planner(&["calibrate", "--from", &from, "-o", &mine]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("--framework"), "{output:?}");
    let search = |further: &[&str]| {
        let args = ["search", "models/llama-3.1-8b", "--gpus", "8", "--quiet", "--framework"];
        planner(&[&args[..], further].concat())
    };
    let time = |framework: &str| {
        search(&[framework, "--format", "json"]).json()["plans"][0]["step_time_seconds"].as_f64()
    };
    let ratio = time(&mine).unwrap() / time("megatron-core").unwrap();
    assert!((1.1..1.4).contains(&ratio), "{ratio}");
    assert!(search(&[&mine]).stdout.contains("calibrated"), "{:?}", search(&[&mine]));
    for elsewhere in [["--cluster", "a100"], ["--precision", "fp8"]] {
        let output = search(&[&[mine.as_str()], &elsewhere[..]].concat());
        assert!(!output.stdout.contains("(calibrated"), "{output:?}");
    }
    let explained = |further: &[&str]| {
        let plan = place.path("plan.json");
        let output = search(&[&[mine.as_str(), "-o", &plan], further].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
        planner(&["explain", &plan]).stdout
    };
    let text = explained(&[]);
    assert!(
        text.contains("calibrated on 2 times of steps and 0 peaks of memory on h100, in bf16"),
        "{text}"
    );
    assert!(text.lines().any(|line| line.trim_start().starts_with("matmul ")), "{text}");
    let text = explained(&["--cluster", "a100"]);
    assert!(
        text.contains("is calibrated on h100, but these GPUs are a100, so the constants of"),
        "{text}"
    );
    let mut twice = rows[0].clone();
    twice["id"] = json!("twice");
    twice["step_time_s"] = json!(rows[0]["step_time_s"].as_f64().unwrap() * 2.0);
    let disagree = json!([rows[0], twice]);
    let from = place.write("disagree.json", disagree.to_string());
    let output = planner(&["calibrate", "--from", &from]);
    assert!(output.stdout.contains("the steps disagree"), "{output:?}");
    assert!(output.stdout.contains("2.00 times"), "{output:?}");
    let from = place.write("none.json", "[]");
    let output = planner(&["calibrate", "--from", &from]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("no step states a time"), "{output:?}");
}

/// Steps that a framework took, read as those of one that nobody knows: it is not found to be unlikely (several that
/// differ by less than machines do are as likely), and its other steps are predicted.
#[test]
fn of_a_framework_that_is_not_known_steps_tell_which_it_is_like() {
    let mut rows: Vec<Value> =
        (0..LAYOUTS.len()).map(|index| row(index, "H100-SXM5-80GB")).collect();
    for row in &mut rows {
        row["extra"] = json!({});
    }
    let rows = read_rows("runs.json", &Value::from(rows).to_string()).unwrap();
    let unknown = frameworks::preset("unknown").unwrap();
    let members = unknown.stands_for.clone();
    for name in &members {
        let own = frameworks::preset(name).unwrap();
        let truth = |row| predict(&Setup::with(row, Some(&own)).unwrap()).step_time_seconds;
        let asked = |row| Setup::with(row, Some(&unknown)).unwrap();
        let steps: Vec<Measured> =
            [0, 2, 5].map(|index| measured(&asked(&rows[index]), truth(&rows[index]))).into();
        let found = calibrate(&steps).unwrap();
        assert_eq!(found.like.len(), members.len());
        let shares: f64 = found.like.iter().map(|(_, share)| share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{shares}");
        let share = found.like.iter().find(|(other, _)| other == name).map_or(0.0, |it| it.1);
        assert!(share > 0.5 / members.len() as f64, "{name}: {:?}", found.like);
        for index in [1, 3, 4] {
            let seconds = truth(&rows[index]);
            let error = error(&found.on(&asked(&rows[index])), seconds);
            assert!(error < 0.12, "{name}, {index}: off by {error}, as {:?}", found.like[0]);
        }
    }
}
