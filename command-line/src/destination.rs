//! Outputs named by `-o`: files, which are replaced completely or not at all, and streams.

use std::borrow::Cow;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use tempfile::NamedTempFile;

use super::terminal::print_bytes;
use super::whole::writing;

/// File name that stands for standard output.
const STDOUT: &str = "-";

/// Checks that an output does not overwrite the input, which is a file or a folder with a `config.json`.
///
/// # Errors
///
/// If it would.
pub fn refuse_to_overwrite(input: &Path, output: &Path) -> anyhow::Result<()> {
    let input = if input.is_dir() { input.join("config.json") } else { input.to_owned() };
    ensure!(!is_same(&input, output), "`--output` is `{}`, which is read", input.display());
    Ok(())
}

/// Returns whether two paths lead to the same file.
pub fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Creates the folder for output files, if it does not exist, and checks that files can be created in it.
///
/// # Errors
///
/// Why the folder cannot be created, or files in it cannot.
pub fn check_folder(folder: &Path) -> anyhow::Result<()> {
    let making = || format!("writing to the folder `{}`", folder.display());
    fs::create_dir_all(folder).with_context(making)?;
    temporary_file(&folder.join("any")).map(drop).with_context(making)
}

/// Creates the folder for output files, if it does not exist.
///
/// # Errors
///
/// Why the folder cannot be created.
pub fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let making = || format!("making the folder `{}`", folder.display());
    ensure!(!folder.is_file(), "`{}` is a file\nhint: name a folder", folder.display());
    fs::create_dir_all(folder).with_context(making)
}

/// Returns whether an output is standard output: `-`, or a file name for it, such as `/dev/stdout`.
fn is_stdout(output: &Path) -> bool {
    is_dash(output) || is_file_of_stdout(output)
}

/// Returns whether stdout is free for text, because no output named `-` goes there.
pub fn stdout_is_free<'a>(outputs: impl IntoIterator<Item = &'a PathBuf>) -> bool {
    !outputs.into_iter().any(|output| is_dash(output))
}

/// Returns whether an output is `-`, which has no extension to tell the format by.
pub fn is_dash(output: &Path) -> bool {
    output.as_os_str() == STDOUT
}

/// Name of a result: the stem of its file, or on standard output the name of the operation.
pub fn name_for(output: &Path) -> Cow<'_, str> {
    if is_stdout(output) {
        return "calibrated".into();
    }
    output.file_stem().unwrap_or_default().to_string_lossy()
}

#[cfg(unix)]
fn is_file_of_stdout(output: &Path) -> bool {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::MetadataExt as _;

    let identity = |there: &Metadata| (there.dev(), there.ino());
    let stdout = io::stdout().as_fd().try_clone_to_owned().map(fs::File::from);
    let stdout = stdout.and_then(|file| file.metadata());
    // `/dev/null` is one device for all discarded output.
    let is_null = output == Path::new("/dev/null");
    !is_null
        && matches!(
            (fs::metadata(output), stdout),
            (Ok(output), Ok(stdout)) if identity(&output) == identity(&stdout)
        )
}

#[cfg(not(unix))]
fn is_file_of_stdout(_: &Path) -> bool {
    false
}

/// Writes a result. A file, found through links, is written completely or not at all, and keeps the mode and the owner
/// of the file that it replaces. A stream, a device or a pipe receives the bytes directly.
///
/// # Errors
///
/// Why the result cannot be written; an existing file is then unchanged.
pub fn write_output(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let writing = || format!("writing `{}`", path.display());
    match output_kind(path).with_context(writing)? {
        OutputKind::Stream if is_stdout(path) => print_bytes(bytes),
        OutputKind::Stream => fs::write(path, bytes).with_context(writing),
        OutputKind::File { target, there } => replace(&target, &there, bytes).with_context(writing),
        OutputKind::Nothing { target } => create(&target, bytes).with_context(writing),
    }
}

/// Writes a value as indented JSON, like [`write_output`].
///
/// # Errors
///
/// As for [`write_output`].
pub fn write_json(path: &Path, value: &impl serde::Serialize) -> anyhow::Result<()> {
    write_output(path, (serde_json::to_string_pretty(value)? + "\n").as_bytes())
}

/// Checks before long work that its result can be written to `path`: that the folder accepts files, that an existing
/// file may be replaced, and that the path is none of `inputs`.
///
/// # Errors
///
/// Why the result could not be written.
pub fn check_output(path: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    let writing = || format!("writing `{}`", path.display());
    if let Some(input) = inputs.iter().find(|input| is_same(input, path)) {
        bail!("{}: it is `{}`, which is read", writing(), input.display());
    }
    match output_kind(path).with_context(writing)? {
        // If the folder accepts no temporary file, the existing file is overwritten in place.
        OutputKind::Stream | OutputKind::File { .. } => Ok(()),
        OutputKind::Nothing { target } => temporary_file(&target).map(drop).with_context(writing),
    }
}

/// The file that `path` leads to through links, for output that is written elsewhere first and then renamed.
///
/// # Errors
///
/// As for [`check_output`], and if the path is a stream.
pub fn file_target(path: &Path) -> anyhow::Result<PathBuf> {
    let writing = || format!("writing `{}`", path.display());
    match output_kind(path).with_context(writing)? {
        OutputKind::Stream => bail!("{}: it is no file", writing()),
        OutputKind::File { target, .. } | OutputKind::Nothing { target } => Ok(target),
    }
}

/// Kind of an output path.
enum OutputKind {
    /// A stream, a device or a pipe, which a file must not replace.
    Stream,
    /// An existing file, found through links.
    File { target: PathBuf, there: Metadata },
    /// A new file, found through links, in an existing folder.
    Nothing { target: PathBuf },
}

/// Kind of the output at `path`, if a result may be written there.
fn output_kind(path: &Path) -> anyhow::Result<OutputKind> {
    if is_stdout(path) {
        return Ok(OutputKind::Stream);
    }
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => bail!(
            "it is a folder\nhint: name a file in it, such as `{}`",
            path.join("plan.json").display()
        ),
        Ok(there) if !there.is_file() => Ok(OutputKind::Stream),
        Ok(there) => {
            ensure!(
                !there.permissions().readonly(),
                "it is read-only\nhint: name another file, or let it be written (`chmod u+w`)"
            );
            // A file without write permission is not replaced, even if the folder would allow it.
            OpenOptions::new().write(true).open(path)?;
            Ok(OutputKind::File { target: path.canonicalize()?, there })
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            let target = behind_links(path)?;
            let folder = folder_of(&target);
            // A file on the path cannot become a folder.
            if let Some(file) = folder.ancestors().find(|above| above.is_file()) {
                bail!(
                    "`{}` is a file, not a folder\nhint: name a file in another folder, such as `{}`",
                    file.display(),
                    file.with_file_name(path.file_name().unwrap_or_default()).display()
                );
            }
            ensure!(
                folder.is_dir(),
                "there is no folder `{0}`\nhint: `mkdir -p {0}` makes it",
                folder.display()
            );
            Ok(OutputKind::Nothing { target })
        }
        Err(error) => Err(error.into()),
    }
}

/// Number of links above which a path is refused, as in Linux.
const MOST_LINKS: usize = 40;

/// Target of links that lead to a file that does not exist yet.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = folder_of(&path).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many links, one to the other"))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Creates a file with default permissions.
fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let _whole = writing();
    persist(temporary_file(path)?, path, bytes)
}

/// Replaces a file by another with the same permissions and owner. The file is overwritten in place if these cannot be
/// set, if the folder accepts no temporary file, or if the file has other hard links.
fn replace(path: &Path, there: &Metadata, bytes: &[u8]) -> io::Result<()> {
    let _whole = writing();
    let matched = if has_other_names(there) {
        None
    } else {
        temporary_file(path).ok().filter(|file| copy_owner_and_mode(file.as_file(), there).is_ok())
    };
    let Some(file) = matched else {
        let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
        file.write_all(bytes)?;
        return file.sync_all();
    };
    persist(file, path, bytes)
}

/// A temporary file in the same folder, which is deleted unless it is renamed to `path`.
fn temporary_file(path: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".partial-");
    // With the default mode, no other user could read it.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder_of(path))
}

/// Fills a temporary file and renames it to `path`.
fn persist(mut file: NamedTempFile, path: &Path, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(unix)]
fn has_other_names(there: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(there) > 1
}

#[cfg(not(unix))]
fn has_other_names(_: &Metadata) -> bool {
    false
}

/// Sets a file's owner and permissions to those of another.
#[cfg(unix)]
fn copy_owner_and_mode(file: &fs::File, other: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};

    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (other.uid(), other.gid()) {
        fchown(file, Some(other.uid()), Some(other.gid()))?;
    }
    file.set_permissions(other.permissions())
}

#[cfg(not(unix))]
fn copy_owner_and_mode(file: &fs::File, other: &Metadata) -> io::Result<()> {
    file.set_permissions(other.permissions())
}
