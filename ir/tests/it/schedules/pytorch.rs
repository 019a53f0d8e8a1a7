//! Our orders against those that PyTorch generates: some within the repository, many in
//! `shared/oracles/schedules`, without which the tests say so and pass.

use std::fs;
use std::path::{Path, PathBuf};

use ir::schedule::{Schedule, ScheduleKind, generate, read_csv};

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
fn orders_equal_pytorchs_action_for_action() {
    let ours = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/cases/schedules");
    let mut files = csv_files(&ours);
    assert_eq!(files.len(), 8);
    if let Some(shared) = shared() {
        files.extend(csv_files(&shared));
        assert!(files.len() > 70, "the oracle has {} files", files.len() - 8);
    }
    for path in files {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let theirs = read_csv(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(generated(name), theirs, "{name}");
    }
}

/// ZB-H1 is not among PyTorch's, but its interleaved zero bubble with one chunk is.
#[test]
fn zb_h1_is_interleaved_zero_bubble_with_one_chunk() {
    for (p, m) in [(1, 3), (2, 2), (4, 3), (4, 9), (8, 32)] {
        let h1 = generate(ScheduleKind::ZbH1, p, m, 1).unwrap();
        assert_eq!(h1, generate(ScheduleKind::InterleavedZb, p, m, 1).unwrap());
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

fn csv_files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "csv")).collect();
    files.sort();
    files
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
