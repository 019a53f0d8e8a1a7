//! Errors of a checkpoint are reported, and no accident loses the last whole one.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;

use executor_kernels::array::Element;
use executor_runtime::checkpoint::{
    CheckpointError, ModelIdentity, PieceKind, Shard, State, Writer, latest,
};

use super::state::{
    ALL, Cuts, check_small, deal, names, parameters, save, save_small, small, training, values,
};
use super::{id, message};

#[test]
fn a_crash_between_files_leaves_the_checkpoint_before() {
    let directory = tempfile::tempdir().unwrap();
    assert!(latest(&directory.path().join("none yet")).unwrap().path.is_none());
    assert!(latest(directory.path()).unwrap().path.is_none());
    let old = save_small(directory.path(), 10);

    // Two ranks, of which the second never writes.
    let parameters = small();
    let ranks = deal(&parameters, &Cuts::NONE, 2);
    let writer = Writer::begin(directory.path(), 20).unwrap();
    writer.write_rank(0, Element::F64, &ranks[0], |piece| values(&parameters, piece)).unwrap();
    let found = latest(directory.path()).unwrap();
    assert_eq!(found.path.as_ref(), Some(&old));
    let skipped: Vec<_> =
        found.skipped.iter().map(|error| message(error, directory.path())).collect();
    assert_eq!(
        skipped,
        ["checkpoint `step-00000020.partial` is incomplete: writing or removing it was \
          interrupted\nhint: use an earlier one; this one can be removed"]
    );
    let stale = writer.clone();
    let error = writer.commit(training(20), 2, &parameters, ALL).unwrap_err();
    assert_eq!(
        message(&error, directory.path()),
        "rank 1 of 2 has not written to checkpoint `step-00000020.partial`"
    );
    assert_eq!(names(directory.path()), ["step-00000010"]);

    // A crash now: what it leaves goes when the next checkpoint begins.
    fs::create_dir(directory.path().join("step-00000020.partial")).unwrap();
    stale.write_rank(0, Element::F64, &ranks[0], |piece| values(&parameters, piece)).unwrap();
    let new = save_small(directory.path(), 30);
    assert_eq!(names(directory.path()), ["step-00000010", "step-00000030"]);
    assert_eq!(names(&new), ["manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"]);
    check_small(&old);
    check_small(&new);
}

#[test]
fn a_checkpoint_takes_the_place_of_one_of_the_same_step() {
    let directory = tempfile::tempdir().unwrap();
    let path = save_small(directory.path(), 10);
    fs::write(path.join("mark"), "").unwrap();
    save_small(directory.path(), 10);
    assert!(!path.join("mark").exists());
    assert_eq!(names(directory.path()), ["step-00000010"]);

    // A crash after the old one lost its name and before the new one has it.
    let replaced = directory.path().join("step-00000010.replaced");
    fs::rename(&path, &replaced).unwrap();
    assert_eq!(latest(directory.path()).unwrap().path, Some(replaced.clone()));
    Writer::begin(directory.path(), 20).unwrap().abort().unwrap();
    assert_eq!(names(directory.path()), ["step-00000010"]);
    check_small(&path);

    // And one before the old one is removed.
    fs::create_dir(&replaced).unwrap();
    Writer::begin(directory.path(), 20).unwrap().abort().unwrap();
    assert_eq!(names(directory.path()), ["step-00000010"]);
}

#[test]
fn the_newest_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (parameters, num_kept) = (small(), NonZeroUsize::new(2).unwrap());
    let ranks = deal(&parameters, &Cuts::NONE, 1);
    fs::write(directory.path().join("notes.txt"), "").unwrap();
    fs::create_dir(directory.path().join("step-7")).unwrap();
    let mut listed = Vec::new();
    for step in [5, 123_456_789, 10, 15, 20] {
        save(directory.path(), step, &parameters, &ranks, num_kept).unwrap();
        listed = names(directory.path());
    }
    // Those of later steps are of another run.
    assert_eq!(listed, ["notes.txt", "step-00000015", "step-00000020", "step-123456789", "step-7"]);
    check_small(&directory.path().join("step-00000020"));
}

/// What a checkpoint of [`small`] says to a model.
fn check_model(name: &str, sha256: &str, shapes: &[Vec<usize>], expected: Result<(), &str>) {
    let directory = tempfile::tempdir().unwrap();
    let path = save_small(directory.path(), 10);
    let model = ModelIdentity { name: name.to_owned(), sha256: sha256.to_owned() };
    let checked = State::open(&path).unwrap().check_model(&model, &parameters(shapes));
    assert_eq!(
        checked.map_err(|error| message(&error, directory.path())),
        expected.map_err(|difference| format!(
            "checkpoint `step-00000010` is of model `tiny` (SHA-256 ab12), not of model `{name}` \
             (SHA-256 {sha256}): {difference}\nhint: run the model that it is of, or name another \
             directory"
        ))
    );
}

#[test]
fn another_model_is_refused() {
    let shapes = [vec![4, 6], vec![4]];
    check_model("renamed", "ab12", &shapes, Ok(()));
    check_model(
        "tiny",
        "cd34",
        &shapes,
        Err("all parameters have the same shapes, but not all of the description is equal"),
    );
    check_model(
        "wide",
        "cd34",
        &[vec![4, 6], vec![8]],
        Err("the checkpoint's parameter `1.mlp.up.weight` has shape [4], the model's [8]"),
    );
    check_model(
        "deep",
        "cd34",
        &[vec![4, 6], vec![4], vec![4]],
        Err("the checkpoint has no parameter `2.mlp.up.weight`"),
    );
    check_model(
        "flat",
        "cd34",
        &[vec![4, 6]],
        Err("the model has no parameter `1.mlp.up.weight`, which the checkpoint has"),
    );
}

/// Changes a manifest as text; returns what opening the checkpoint says then.
fn with_manifest(from: &str, to: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = save_small(directory.path(), 10).join("manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
    let error = State::open(path.parent().unwrap()).unwrap_err();
    message(&error, path.parent().unwrap())
}

#[test]
fn manifests_are_not_believed() {
    assert_eq!(
        with_manifest("\"version\": 1", "\"version\": 2"),
        "`manifest.json` has format version 2, but this program reads 1 at most\nhint: use the program \
         that wrote it, or a later one"
    );
    assert_eq!(
        with_manifest("executor checkpoint", "executor timeline"),
        "`manifest.json` cannot be understood: its `format` is `executor timeline`, not `executor \
         checkpoint`"
    );
    assert_eq!(
        with_manifest("\"0.mlp.up.weight\": [\n      4,", "\"0.mlp.up.weight\": [\n      1,"),
        "`manifest.json` cannot be understood: a piece of `0.mlp.up.weight` is not within its shape \
         [1, 6]"
    );
    assert_eq!(
        with_manifest("rank-00001.safetensors", "rank-00002.safetensors"),
        "cannot read `rank-00002.safetensors`"
    );
    assert!(with_manifest("\"seed\"", "\"sown\"").contains("unknown field `sown`"));
}

#[test]
fn a_later_version_is_not_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    save_small(directory.path(), 10);
    let manifest = save_small(directory.path(), 20).join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replacen("\"version\": 1", "\"version\": 7, \"x\": 1", 1)).unwrap();
    let error = latest(directory.path()).unwrap_err();
    assert!(matches!(error, CheckpointError::NewerVersion { found: 7, .. }), "{error}");
}

#[test]
fn what_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let parameters = small();
    let mut ranks = deal(&parameters, &Cuts::NONE, 1);
    ranks[0].retain(|piece| piece.kind == PieceKind::Weight || piece.parameter.block == 0);
    let path = save(directory.path(), 10, &parameters, &ranks, ALL).unwrap();
    let state = State::open(&path).unwrap();
    let shard = Shard { flat: 1..3, ..Shard::whole(&[4]) };
    let moment = state.read(&id("1.mlp.up.weight"), PieceKind::FirstMoment, &shard);
    assert_eq!(
        message(&moment.unwrap_err(), directory.path()),
        "checkpoint `step-00000010` lacks first_moment of parameter `1.mlp.up.weight`: elements 0 to 1 \
         of the 2 asked for"
    );
    let other = state.read(&id("2.mlp.up.weight"), PieceKind::Weight, &shard);
    assert_eq!(
        message(&other.unwrap_err(), directory.path()),
        "checkpoint `step-00000010` has no parameter `2.mlp.up.weight`"
    );
}

#[test]
fn what_cannot_be_written_leaves_the_checkpoint_before() {
    let directory = tempfile::tempdir().unwrap();
    let old = save_small(directory.path(), 10);
    let parameters = small();
    let ranks = deal(&parameters, &Cuts::NONE, 1);
    let writer = Writer::begin(directory.path(), 20).unwrap();
    // A folder where the file should be.
    let partial = directory.path().join("step-00000020.partial");
    fs::create_dir(partial.join("rank-00000.safetensors")).unwrap();
    let error = writer
        .write_rank(0, Element::F64, &ranks[0], |piece| values(&parameters, piece))
        .unwrap_err();
    assert_eq!(message(&error, &partial), "cannot create `rank-00000.safetensors`");
    writer.abort().unwrap();
    assert_eq!(latest(directory.path()).unwrap().path, Some(old.clone()));
    assert_eq!(names(directory.path()), ["step-00000010"]);
    check_small(&old);
}

/// Where [`on_a_full_disk`] finds its disk.
const SMALL_DISK: &str = "EXECUTOR_TEST_SMALL_DISK";

/// Runs the test below this one on a disk of 64 KiB that it alone sees, where the system lets it.
#[test]
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn a_full_disk_leaves_the_checkpoint_before() {
    let directory = tempfile::tempdir().unwrap();
    let script = format!("mount -t tmpfs -o size=64k none \"${SMALL_DISK}\" && exec \"$0\" \"$@\"");
    let run = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "checkpoint::accidents::on_a_full_disk", "--nocapture"])
        .env(SMALL_DISK, directory.path())
        .output();
    match run {
        Ok(run) if run.status.success() => {
            let output = String::from_utf8_lossy(&run.stdout).into_owned();
            assert!(output.contains("1 passed"), "{output}");
        }
        Ok(run) if String::from_utf8_lossy(&run.stdout).contains("running 1 test") => {
            panic!("{}", String::from_utf8_lossy(&run.stderr));
        }
        _ => eprintln!("skipped: no disk can be mounted here"),
    }
}

#[test]
fn on_a_full_disk() {
    let Ok(directory) = std::env::var(SMALL_DISK) else { return };
    let directory = Path::new(&directory);
    let old = save_small(directory, 10);
    let large = parameters(&[vec![8192]]);
    let error = save(directory, 20, &large, &deal(&large, &Cuts::NONE, 1), ALL).unwrap_err();
    assert_eq!(
        message(&error, &directory.join("step-00000020.partial")),
        "cannot write `rank-00000.safetensors`\nhint: make room on the disk, or keep fewer checkpoints; \
         what was there before is whole"
    );
    assert!(names(&directory.join("step-00000020.partial")).is_empty());
    assert_eq!(latest(directory).unwrap().path, Some(old.clone()));
    check_small(&old);
    // With room again it goes on.
    let new = save_small(directory, 30);
    assert_eq!(names(directory), ["step-00000010", "step-00000030"]);
    check_small(&new);
}
