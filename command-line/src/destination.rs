//! Where results go that are asked for by `-o`: files, which are whole or as they were, and streams.

use std::borrow::Cow;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use tempfile::NamedTempFile;

use super::said::print_bytes;
use super::whole::writing;

/// As a file that is written: standard output.
const STDOUT: &str = "-";

/// What is written must not take the place of what is read: a file, or a folder with a `config.json`.
///
/// # Errors
///
/// Where it would.
pub fn refuse_to_overwrite(input: &Path, output: &Path) -> anyhow::Result<()> {
    let input = if input.is_dir() { input.join("config.json") } else { input.to_owned() };
    ensure!(!is_same(&input, output), "`--output` is `{}`, which is read", input.display());
    Ok(())
}

/// Whether two paths lead to what is one.
pub fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Makes the folder that files are written to, if it is not there, and finds out whether it takes any.
///
/// # Errors
///
/// Why it does not.
pub fn check_folder(folder: &Path) -> anyhow::Result<()> {
    let making = || format!("writing to the folder `{}`", folder.display());
    fs::create_dir_all(folder).with_context(making)?;
    beside(&folder.join("any")).map(drop).with_context(making)
}

/// Makes the folder that files are written to, if it is not there.
///
/// # Errors
///
/// Why it cannot be made.
pub fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let making = || format!("making the folder `{}`", folder.display());
    ensure!(!folder.is_file(), "`{}` is a file\nhint: name a folder", folder.display());
    fs::create_dir_all(folder).with_context(making)
}

/// Whether a result goes to standard output: by `-`, or by the name of what that is, such as `/dev/stdout`.
fn is_stdout(output: &Path) -> bool {
    is_dash(output) || is_file_of_stdout(output)
}

/// Whether there is room for words on stdout: not where `-` sends a file there.
pub fn has_room<'a>(outputs: impl IntoIterator<Item = &'a PathBuf>) -> bool {
    !outputs.into_iter().any(|output| is_dash(output))
}

/// Whether an output is `-`, which has no ending that says what to write.
pub fn is_dash(output: &Path) -> bool {
    output.as_os_str() == STDOUT
}

/// What something is called that is written: as its file; on a stream, as what was done with it.
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
    // All that is thrown away goes to one device.
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

/// Writes a result: a file whole or not at all, with the mode and the owner of the one that it replaces, where links lead
/// to; a stream, a device or a pipe as the bytes come.
///
/// # Errors
///
/// Why it cannot be written; what was there is there still.
pub fn write_output(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let writing = || format!("writing `{}`", path.display());
    match place_of(path)? {
        Place::Stream if is_stdout(path) => print_bytes(bytes),
        Place::Stream => fs::write(path, bytes).with_context(writing),
        Place::File { target, there } => replace(&target, &there, bytes).with_context(writing),
        Place::Nothing { target } => create(&target, bytes).with_context(writing),
    }
}

/// Writes a value as JSON that people can read, as [`write_output`] writes.
///
/// # Errors
///
/// As [`write_output`]'s.
pub fn write_json(path: &Path, value: &impl serde::Serialize) -> anyhow::Result<()> {
    write_output(path, (serde_json::to_string_pretty(value)? + "\n").as_bytes())
}

/// Finds out before long work whether its result could be written to `path`: that there is a folder which takes files,
/// that the file which is there may be replaced, and that it is none of `inputs`.
///
/// # Errors
///
/// What would keep it from being written.
pub fn check_output(path: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    let writing = || format!("writing `{}`", path.display());
    if let Some(input) = inputs.iter().find(|input| is_same(input, path)) {
        bail!("writing `{}`: it is `{}`, which is read", path.display(), input.display());
    }
    match place_of(path)? {
        Place::Stream => Ok(()),
        Place::File { target, .. } | Place::Nothing { target } => {
            // Where a folder takes no file beside it, what is there is written in its place.
            if target.is_file() {
                return Ok(());
            }
            beside(&target).map(drop).with_context(writing)
        }
    }
}

/// What is where a result goes.
enum Place {
    /// A stream, a device or a pipe, in whose place a file would end it.
    Stream,
    /// A file, behind links.
    File { target: PathBuf, there: Metadata },
    /// Nothing yet, behind links, in a folder that is there.
    Nothing { target: PathBuf },
}

/// What is at `path`, where a result may be written there.
fn place_of(path: &Path) -> anyhow::Result<Place> {
    let writing = || format!("writing `{}`", path.display());
    if is_stdout(path) {
        return Ok(Place::Stream);
    }
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => {
            bail!(
                "writing `{0}`: it is a folder\nhint: name a file in it, such as `{1}`",
                path.display(),
                path.join("plan.json").display()
            )
        }
        Ok(there) if !there.is_file() => Ok(Place::Stream),
        Ok(there) => {
            ensure!(
                !there.permissions().readonly(),
                "writing `{}`: it is read-only\nhint: name another file, or let it be written \
                 (`chmod u+w`)",
                path.display()
            );
            // Who may not write a file may not replace it either, though the folder would allow that.
            OpenOptions::new().write(true).open(path).with_context(writing)?;
            Ok(Place::File { target: path.canonicalize().with_context(writing)?, there })
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            let target = behind_links(path).with_context(writing)?;
            let folder = folder_of(&target);
            // What cannot be made into a folder.
            if let Some(file) = folder.ancestors().find(|above| above.is_file()) {
                bail!(
                    "writing `{}`: `{}` is a file, not a folder\nhint: name a file in another folder, such as `{}`",
                    path.display(),
                    file.display(),
                    file.with_file_name(path.file_name().unwrap_or_default()).display()
                );
            }
            if !folder.is_dir() {
                bail!(
                    "writing `{}`: there is no folder `{1}`\nhint: `mkdir -p {1}` makes it",
                    path.display(),
                    folder.display()
                );
            }
            Ok(Place::Nothing { target })
        }
        Err(error) => Err(error).with_context(writing),
    }
}

/// Links beyond which a path leads nowhere, as Linux has it.
const MOST_LINKS: usize = 40;

/// Where links lead to that lead to nothing yet.
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

/// Makes a file, with the rights that any other program would give it.
fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let _whole = writing();
    let mut file = beside(path)?;
    fill(&mut file, bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Replaces a file by another with its rights and its owner. Where that cannot be had, because the folder takes no file
/// beside it or it has other names, it is written in its place.
fn replace(path: &Path, there: &Metadata, bytes: &[u8]) -> io::Result<()> {
    let _whole = writing();
    let alike = if has_other_names(there) {
        None
    } else {
        beside(path).ok().filter(|file| made_alike(file.as_file(), there).is_ok())
    };
    let Some(mut file) = alike else {
        let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
        file.write_all(bytes)?;
        return file.sync_all();
    };
    fill(&mut file, bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// A file in the same folder, which goes if it is not put in the place of `path`.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let mut beside = tempfile::Builder::new();
    beside.prefix(".partial-");
    // The default is to let nobody else read it.
    #[cfg(unix)]
    beside.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    beside.tempfile_in(folder_of(path))
}

fn fill(file: &mut NamedTempFile, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.as_file().sync_all()
}

#[cfg(unix)]
fn has_other_names(there: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(there) > 1
}

#[cfg(not(unix))]
fn has_other_names(_: &Metadata) -> bool {
    false
}

/// Gives a file the owner and the rights of another.
#[cfg(unix)]
fn made_alike(file: &fs::File, other: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};

    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (other.uid(), other.gid()) {
        fchown(file, Some(other.uid()), Some(other.gid()))?;
    }
    file.set_permissions(other.permissions())
}

#[cfg(not(unix))]
fn made_alike(file: &fs::File, other: &Metadata) -> io::Result<()> {
    file.set_permissions(other.permissions())
}
