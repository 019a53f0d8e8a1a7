//! Jobs of Kubernetes as `import` and `lint` read them.

use std::fs;

use tempfile::TempDir;

use crate::cli::{Run, planner, root};

fn read_well(args: &[&str]) -> Run {
    let run = planner(args);
    assert_eq!(run.code, Some(0), "{args:?}: {}", run.stderr);
    run
}

/// A manifest's script is read, and lint names the manifest's lines; of words that are no script it says so.
#[test]
fn a_manifest_is_read() {
    let folder = TempDir::new().unwrap();
    let manifest = root().join("fuzz/corpus/settings/manifest.yaml");
    let text = fs::read_to_string(&manifest).unwrap();
    let model = ["--model", "models/llama-3.1-8b"];
    let run = read_well(&[&["import", manifest.to_str().unwrap()][..], &model].concat());
    assert!(run.stdout.starts_with("llama-3.1-8b on 16 x"), "{}", run.stdout);

    let misspelt = folder.path().join("job.yaml");
    fs::write(&misspelt, text.replace("--seq-length", "--seq-lenght")).unwrap();
    let path = misspelt.to_str().unwrap();
    let run = planner(&[&["lint", path][..], &model].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    let line = 1 + text.lines().position(|line| line.contains("--seq-length")).unwrap();
    let expected =
        format!("{path}:{line}: error[unknown-option]: Megatron-LM has no `--seq-lenght`");
    assert!(run.stdout.contains(&expected), "{}", run.stdout);

    let words = root().join("fuzz/corpus/settings/job.yaml");
    let run = read_well(&[&["import", words.to_str().unwrap()][..], &model].concat());
    assert!(run.stdout.contains("tp2-pp1-dp"), "{}", run.stdout);
    let run = planner(&[&["lint", words.to_str().unwrap()][..], &model].concat());
    assert!(run.code == Some(2) && run.stderr.contains("as a block (`|`)"), "{run:?}");
}
