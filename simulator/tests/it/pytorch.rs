//! Makespans and peaks against those of another simulator, for schedules that PyTorch generates:
//! `shared/oracles/schedules`, without which the tests say so and pass.

use std::fs;
use std::path::PathBuf;

use ir::schedule::{Schedule, ScheduleKind, generate};
use ir::units::Nanos;
use serde_json::Value;
use simulator::{Durations, PassTimes, earliest};

/// Families by the name that a file starts with.
const FAMILIES: [(&str, ScheduleKind); 7] = [
    ("gpipe", ScheduleKind::GPipe),
    ("1f1b", ScheduleKind::OneFOneB),
    ("interleaved_1f1b", ScheduleKind::Interleaved),
    ("looped_bfs", ScheduleKind::LoopedBfs),
    ("interleaved_zero_bubble", ScheduleKind::InterleavedZb),
    ("zbv_zero_bubble", ScheduleKind::Zbv),
    ("dualpipev", ScheduleKind::DualPipeV),
];

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

/// The schedule that a file's name describes: `<family>_p<ranks>_m<micro-batches>_v<chunks>`.
fn generated(name: &str) -> Schedule {
    let mut parts: Vec<&str> = name.rsplitn(4, '_').collect();
    let family = parts.pop().unwrap();
    let (_, kind) = FAMILIES.iter().find(|(known, _)| *known == family).unwrap();
    let numbers: Vec<u32> = parts.iter().map(|part| part[1..].parse().unwrap()).collect();
    generate(*kind, numbers[2], numbers[1], numbers[0]).unwrap()
}

#[expect(clippy::print_stderr, reason = "a test that skips says why")]
fn shared() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/oracles/schedules");
    if !folder.is_dir() {
        eprintln!("skipped: there is no `{}`", folder.display());
        return None;
    }
    Some(folder)
}
