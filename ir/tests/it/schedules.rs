//! Schedules: what the families are, that they are right, and what wrong ones are told.

use std::fs;
use std::path::PathBuf;

use ir::schedule::{Costs, ScheduleKind, evaluate, generate, read_csv};

/// Orders that PyTorch generates: ours, by the name that its file starts with.
const FAMILIES: [(&str, ScheduleKind); 7] = [
    ("gpipe_p", ScheduleKind::GPipe),
    ("1f1b_p", ScheduleKind::OneFOneB),
    ("interleaved_1f1b_p", ScheduleKind::Interleaved),
    ("looped_bfs_p", ScheduleKind::LoopedBfs),
    ("interleaved_zero_bubble_p", ScheduleKind::InterleavedZb),
    ("zbv_zero_bubble_p", ScheduleKind::Zbv),
    ("dualpipev_p", ScheduleKind::DualPipeV),
];

#[test]
fn orders_equal_those_of_pytorch() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/oracles/schedules");
    let Ok(files) = fs::read_dir(&folder) else { return };
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".csv") { continue; }
        let (_, kind) = FAMILIES.iter().find(|(f, _)| name.starts_with(f)).unwrap();
        let n: Vec<u32> = name.trim_end_matches(".csv").split('_').rev().take(3).map(|t| t[1..].parse().unwrap()).collect();
        let theirs = read_csv(&fs::read_to_string(&path).unwrap()).unwrap();
        let ours = generate(*kind, n[2], n[1], n[0]).unwrap();
        if ours.ranks() != theirs.ranks() { println!("{name} differs\n{ours}\n{theirs}"); }
        if ours.placement() != theirs.placement() { println!("{name} {:?}", theirs.placement()); }
    }
    for kind in ScheduleKind::ALL {
        let v = kind.default_virtual_stages();
        for (p, m) in [(4, 16), (8, 32), (16, 64)] {
        let s = generate(kind, p, m, v).unwrap();
        let e = evaluate(&s, Costs::UNIT);
        println!("{kind} p{p} {} {:.4} {:.4} {:?}", e.makespan, e.bubble_fraction(), e.bubble_from_first_action(), s.peak_in_flight());
        }
    }
}
