//! Our orders against those that PyTorch generates: some within the repository, many in
//! `shared/oracles/schedules`, without which the tests say so and pass.

use std::fs;
use std::path::{Path, PathBuf};

use ir::schedule::{ScheduleKind, generate, read_csv};

use super::families::{generated, shared};

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

fn csv_files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "csv")).collect();
    files.sort();
    files
}
