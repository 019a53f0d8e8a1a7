//! `planner run`: executes a plan by the `executor` command.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::answer::Answer;
use super::args::RunArgs;
use super::files::{is_stdin, read_plan};

/// Checks the plan and runs the executor with it. The executor's exit code and streams are passed on.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Answer> {
    // If a stream were read here, the executor would find it empty.
    let is_stream = |plan: &Path| {
        std::fs::metadata(plan).is_ok_and(|there| !there.is_file() && !there.is_dir())
    };
    if is_stdin(&args.plan) || is_stream(&args.plan) {
        bail!(
            "`{}` can be read only once, but is read here and by the executor\nhint: write the plan to \
             a file",
            args.plan.display()
        );
    }
    read_plan(&args.plan)?;
    let executor = find_executor()?;
    let mut command = Command::new(&executor);
    command.arg("run").arg(&args.plan).args(&args.executor);
    hand_over(command).with_context(|| format!("starting `{}`", executor.display()))
}

/// Path of the executor: next to this program, else in `PATH`.
fn find_executor() -> anyhow::Result<PathBuf> {
    let file = format!("executor{EXE_SUFFIX}");
    let own_folder = std::env::current_exe().ok();
    let own_folder = own_folder.iter().filter_map(|program| program.parent()).map(Path::to_owned);
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates =
        own_folder.chain(std::env::split_paths(&path)).map(|folder| folder.join(&file));
    let Some(executor) = candidates.find(|candidate| is_executable(candidate)) else {
        bail!(
            "`{file}` is neither beside `planner` nor on the path\nhint: `cargo install --path \
             executor` installs it"
        );
    };
    Ok(executor)
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;

    std::fs::metadata(path)
        .is_ok_and(|there| there.is_file() && there.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// Replaces this process by the command, so that signals reach it; returns only on failure.
#[cfg(unix)]
fn hand_over(mut command: Command) -> anyhow::Result<Answer> {
    use std::os::unix::process::CommandExt as _;

    Err(command.exec().into())
}

/// Runs the command and waits until it ends.
#[cfg(not(unix))]
fn hand_over(mut command: Command) -> anyhow::Result<Answer> {
    let status = command.status()?;
    Ok(Answer::Ended(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
