//! Makespans and peaks against those of another simulator, for schedules that PyTorch generates:
//! `shared/oracles/schedules`, without which the tests say so and pass.

use std::fs;

use ir::units::Nanos;
use serde_json::Value;
use simulator::{Durations, PassTimes, earliest};

use super::families::{generated, shared};

#[test]
fn makespans_equal_those_of_another_simulator() {
    let Some(shared) = shared() else { return };
    let text = fs::read_to_string(shared.join("makespans.json")).unwrap();
    let oracle: Value = serde_json::from_str(&text).unwrap();
    let [one, two, three] = [1, 2, 3].map(Nanos::new);
    let uneven = PassTimes { forward: two, input_grad: three, weight_grad: one };
    for row in oracle["schedules"].as_array().unwrap() {
        let name = row["file"].as_str().unwrap().trim_end_matches(".csv");
        let schedule = generated(name);
        let run = |passes, send| {
            earliest(&schedule, &Durations::equal(passes, schedule.num_stages(), send))
        };
        for (passes, send, key) in [
            (PassTimes::UNIT, Nanos::ZERO, "makespan"),
            (uneven, Nanos::ZERO, "makespan_f2_i3_w1_b4"),
            (PassTimes::UNIT, one, "makespan_unit_hop1"),
        ] {
            let makespan = run(passes, send).makespan.get();
            assert_eq!(Some(makespan), row[key].as_u64(), "{name}, {key}");
        }
        let bubble = run(PassTimes::UNIT, Nanos::ZERO).bubble_fraction();
        assert!((bubble - row["bubble_fraction"].as_f64().unwrap()).abs() < 1e-8, "{name}");
        let peaks = row["peak_activations_released_at_weight_grad"].as_array().unwrap();
        let peaks: Vec<u64> = peaks.iter().map(|peak| peak.as_u64().unwrap()).collect();
        let ours: Vec<u64> = schedule.peak_in_flight().into_iter().map(u64::from).collect();
        assert_eq!(ours, peaks, "{name}");
    }
}
