//! Schedules by their numbers and by their names, for these tests and for those of the simulator.

use std::path::PathBuf;

use ir::schedule::{Schedule, ScheduleKind, generate};

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

/// Numbers that the family can run.
pub(crate) fn fitting(kind: ScheduleKind, p: u32, m: u32, v: u32) -> (u32, u32, u32) {
    let v = if kind.is_interleaved() { v } else { kind.default_virtual_stages() };
    match kind {
        ScheduleKind::DualPipe => (2 * p.div_ceil(2), 4 * p.div_ceil(2) + 2 * m, v),
        ScheduleKind::DualPipeV => (p, 2 * p + m, v),
        _ => (p, m, v),
    }
}

/// The schedule that a file's name describes: `<family>_p<ranks>_m<micro-batches>_v<chunks>`.
pub(crate) fn generated(name: &str) -> Schedule {
    let mut parts: Vec<&str> = name.rsplitn(4, '_').collect();
    let family = parts.pop().unwrap();
    let (_, kind) = FAMILIES.iter().find(|(known, _)| *known == family).unwrap();
    let numbers: Vec<u32> = parts.iter().map(|part| part[1..].parse().unwrap()).collect();
    generate(*kind, numbers[2], numbers[1], numbers[0]).unwrap()
}

/// The folder of PyTorch's orders, where it is there.
#[expect(clippy::print_stderr, reason = "a test that skips says why")]
pub(crate) fn shared() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/oracles/schedules");
    if !folder.is_dir() {
        eprintln!("skipped: there is no `{}`", folder.display());
        return None;
    }
    Some(folder)
}
