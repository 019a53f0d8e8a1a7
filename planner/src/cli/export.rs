//! `planner export`.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, ensure};
use planner::interchange::{self, Export, File, Wanted};

use super::args::ExportArgs;
use super::files::{read_plan, read_text, refuse_to_overwrite, write_atomically};
use super::output::{Answer, print};

pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<Answer> {
    let checked = read_plan(&args.plan)?;
    let ExportArgs { target, launcher, approximate, .. } = *args;
    let export = interchange::export(&checked, Wanted { target, launcher, approximate })?;
    match &args.output {
        Some(folder) => {
            write(&args.plan, folder, &export.files)?;
            print(&summary(&export, folder))?;
        }
        None => print(&printed(&export.files))?,
    }
    Ok(Answer::Found)
}

/// Writes files to a folder, which is made if it is not there.
fn write(plan: &Path, folder: &Path, files: &[File]) -> anyhow::Result<()> {
    let making = || format!("making the folder `{}`", folder.display());
    ensure!(
        !folder.is_file(),
        "`--output` is the file `{}`\nhint: name a folder",
        folder.display()
    );
    std::fs::create_dir_all(folder).with_context(making)?;
    for file in files {
        let path = folder.join(&file.name);
        if is_same(plan, &path) && read_text(plan)? == file.text {
            continue;
        }
        refuse_to_overwrite(plan, &path)?;
        write_atomically(&path, file.text.as_bytes())?;
        if file.is_executable {
            make_executable(&path)?;
        }
    }
    Ok(())
}

/// Whether two paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

#[cfg(unix)]
fn make_executable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    let changing = || format!("making `{}` executable", path.display());
    let mut permissions = std::fs::metadata(path).with_context(changing)?.permissions();
    permissions.set_mode(permissions.mode() | 0o111);
    std::fs::set_permissions(path, permissions).with_context(changing)
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> anyhow::Result<()> {
    Ok(())
}

/// What was written, and what there is to know of it.
fn summary(export: &Export, folder: &Path) -> String {
    let mut text = format!("{} for {}\n", export.plan.layout, export.target.tool());
    for file in &export.files {
        let _ = writeln!(text, "  {}", folder.join(&file.name).display());
    }
    for note in &export.notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// A file as it is; several with their names above. The plan, which comes last, is left out.
fn printed(files: &[File]) -> String {
    match files {
        [file, _] => file.text.clone(),
        [files @ .., _] => {
            let parts = |file: &File| ["==> ", &file.name, " <==\n", &file.text, "\n"].concat();
            files.iter().map(parts).collect()
        }
        [] => String::new(),
    }
}
