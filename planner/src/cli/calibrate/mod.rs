//! `planner calibrate`.

mod network;
mod profile;
mod rows;

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use flate2::read::MultiGzDecoder;
use planner::file_kind::FileKind;
use planner_evidence::measured::kineto;

use super::answer::Answer;
use super::args::CalibrateArgs;
use super::files::{decoded, read_bytes_of};
use super::picture::refuse_other_endings;
use command_line::destination::{check_output, refuse_to_overwrite};

/// Largest size in bytes, before and after decompression, of a file that is read: profiles of a few steps.
const LARGEST_FILE: u64 = 1 << 30;

/// Kinds of files that `calibrate` reads.
const MEASURED: [FileKind; 3] = [FileKind::Steps, FileKind::NcclTests, FileKind::Timeline];

pub(crate) fn calibrate(args: &CalibrateArgs) -> anyhow::Result<Answer> {
    if let Some(output) = &args.output {
        refuse_other_endings(output, "a framework or a cluster", &["json"], None)?;
        check_output(output, &[])?;
        for input in [&args.cluster, &args.framework].into_iter().flatten() {
            refuse_to_overwrite(Path::new(input), output)?;
        }
    }
    let mut files: Vec<(&Path, Vec<u8>)> = Vec::new();
    for path in &args.from {
        if let Some(output) = &args.output {
            refuse_to_overwrite(path, output)?;
        }
        files.push((path, unpacked(path, read_bytes_of(path, LARGEST_FILE, &MEASURED)?)?));
    }
    let kind = kind_of_all(&files)?;
    let not_with = |flag: &str, is_given: bool, what: &str| {
        ensure!(!is_given, "`{flag}` is not for {}: {what}", kind.contents());
        Ok(())
    };
    if kind != FileKind::Timeline {
        not_with("--plan", args.plan.is_some(), "it is for what a profiler recorded")?;
    }
    match kind {
        FileKind::Timeline => {
            let of_plan = "the plan says what ran, and where";
            not_with("--cluster", args.cluster.is_some(), of_plan)?;
            not_with("--framework", args.framework.is_some(), of_plan)?;
            let (_, checked) = profile::plan(args)?;
            let mut profiles = Vec::new();
            for (path, bytes) in &files {
                let trace = kineto::read(decoded(path, bytes)?);
                profiles.push(trace.with_context(|| format!("`{}`", path.display()))?);
            }
            profile::calibrate(args, &checked, &profiles)
        }
        FileKind::Steps => {
            not_with("--cluster", args.cluster.is_some(), "each row says where it ran")?;
            let [(path, bytes)] = files.as_slice() else {
                bail!("`--from` takes one list of measured steps, not {}", files.len());
            };
            rows::calibrate(args, path, decoded(path, bytes)?)
        }
        FileKind::NcclTests => {
            not_with("--framework", args.framework.is_some(), "no framework ran them")?;
            let texts = files.iter().map(|(path, bytes)| (*path, String::from_utf8_lossy(bytes)));
            network::calibrate(args, &texts.collect::<Vec<_>>())
        }
        _ => bail!("`{}` cannot be read", args.from[0].display()),
    }
}

/// The kind of the files, which must all be of one kind.
fn kind_of_all(files: &[(&Path, Vec<u8>)]) -> anyhow::Result<FileKind> {
    let mut first: Option<(FileKind, &Path)> = None;
    for (path, bytes) in files {
        let shown = path.display();
        let kind = FileKind::of_measurements(bytes);
        ensure!(kind != FileKind::Empty, "`{shown}` is empty");
        if !MEASURED.contains(&kind) {
            let kind = FileKind::of(bytes);
            match kind.use_of(&shown.to_string()) {
                Some(usage) => {
                    bail!("`{shown}` is {}, not what was measured\nhint: {usage}", kind.describe())
                }
                None => bail!(
                    "`{shown}` is neither a JSON list of measured steps, nor what nccl-tests print, nor a trace\nhint: \
                     `planner calibrate --help` says what is read"
                ),
            }
        }
        let (of_first, before) = *first.get_or_insert((kind, path));
        ensure!(
            of_first == kind,
            "`{}` has {}, `{shown}` {}\nhint: one kind at a time: first the cluster, then with it the framework",
            before.display(),
            of_first.contents(),
            kind.contents(),
        );
    }
    first.map(|(kind, _)| kind).context("`--from` names no file")
}

/// Decompresses a gzip file; other bytes are returned unchanged.
fn unpacked(path: &Path, bytes: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut whole = Vec::new();
    let mut reader = MultiGzDecoder::new(bytes.as_slice()).take(LARGEST_FILE + 1);
    if let Err(error) = reader.read_to_end(&mut whole) {
        let packed = bytes.len();
        bail!(
            "`{}`: its gzip is cut off or broken ({error}): of {packed} bytes come {}",
            path.display(),
            whole.len()
        );
    }
    ensure!(
        whole.len() as u64 <= LARGEST_FILE,
        "`{}` holds more than the {LARGEST_FILE} bytes that are read",
        path.display()
    );
    Ok(whole)
}
