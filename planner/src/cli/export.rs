//! `planner export`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use planner_tools::interchange::{self, Export, File, Launcher, Target, Wanted};
use serde::Serialize;

use super::answer::Answer;
use super::args::Format;
use super::chakra::{self, Ranks};
use super::files::{ending, read_plan, read_text};
use super::input::warn_of_hardware;
use super::values::one_of;
use command_line::destination::{is_dash, is_same, make_folder, refuse_to_overwrite, write_output};
use command_line::terminal::{print, print_bytes, print_json};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  planner search llama-3.1-8b --gpus 8 -o plan.json\n  \
    planner export plan.json --to megatron --launcher slurm -o job")]
pub(crate) struct ExportArgs {
    /// A plan that `planner search -o` wrote.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// The training tool; or `chakra`, execution traces for simulators of networks (ASTRA-sim).
    #[arg(long = "to", value_name = "TOOL", value_parser = one_of(Destination::all(), Destination::name))]
    pub(crate) destination: Destination,
    /// What starts the ranks.
    #[arg(long, value_name = "NAME", default_value = "torchrun", value_parser = one_of(Launcher::ALL, Launcher::name))]
    pub(crate) launcher: Launcher,
    /// Where the tool cannot run the plan, write the nearest that it can, and say what that costs.
    #[arg(long)]
    pub(crate) approximate: bool,
    /// The ranks whose traces `chakra` writes, such as `0-7,64` [default: all, up to 1 GiB].
    #[arg(long, value_name = "LIST", value_parser = Ranks::parse)]
    pub(crate) ranks: Option<Ranks>,
    /// Write the files to a folder, which is created if needed [default: print them].
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Form of what is printed: the files, or JSON with the files and the changes to the plan.
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    pub(crate) format: Format,
}

/// Consumer of an exported plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// A tool that trains.
    Tool(Target),
    /// Simulators that read execution traces.
    Chakra,
}

impl Destination {
    fn all() -> impl Iterator<Item = Self> {
        Target::all().map(Self::Tool).chain([Self::Chakra])
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Tool(target) => target.name(),
            Self::Chakra => "chakra",
        }
    }
}

pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<Answer> {
    if let Some(output) = args.output.as_ref().filter(|output| !is_dash(output)) {
        check_folder_name(output)?;
    }
    let Destination::Tool(target) = args.destination else {
        let ExportArgs { plan, ranks, output, approximate, .. } = args;
        ensure!(
            !approximate,
            "`--approximate` is for training tools: a trace can represent every plan"
        );
        ensure!(
            args.format == Format::Table,
            "`--format json` is for training tools: traces are binary files\nhint: leave it out"
        );
        return chakra::export(plan, ranks.as_ref(), output.as_deref());
    };
    ensure!(args.ranks.is_none(), "`--ranks` is for `--to chakra`: {} starts all", target.name());
    let checked = read_plan(&args.plan)?;
    let ExportArgs { launcher, approximate, .. } = *args;
    let export = interchange::export(&checked, Wanted { target, launcher, approximate })?;
    if target != Target::EXECUTOR {
        warn_of_hardware(&target.framework(), &checked.plan.cluster);
    }
    let folder = args.output.as_ref().filter(|output| !is_dash(output));
    if let Some(folder) = folder {
        write(&args.plan, folder, &export.files)?;
    }
    match (args.format, folder) {
        (Format::Json, _) => print_json(&Exported::new(&export, folder))?,
        (Format::Table, Some(folder)) => print(&summary(&export, folder))?,
        (Format::Table, None) => print_bytes(printed(&export.files).as_bytes())?,
    }
    Ok(Answer::Found)
}

/// JSON output of `export`.
#[derive(Serialize)]
struct Exported<'a> {
    tool: &'a str,
    /// Layout of the plan in the files; `--approximate` may have changed it.
    layout: String,
    /// Files, the one to start with first. The plan is left out, since it is written next to them.
    files: Vec<ExportedFile<'a>>,
    /// Changes to the plan with their cost, and other remarks.
    notes: &'a [String],
}

#[derive(Serialize)]
struct ExportedFile<'a> {
    name: &'a str,
    /// Path that the file was written to.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    text: &'a str,
}

impl<'a> Exported<'a> {
    fn new(export: &'a Export, folder: Option<&PathBuf>) -> Self {
        let files = export.files.split_last().map_or(&[][..], |(_, files)| files);
        let file = |File { name, text, .. }: &'a File| {
            let path = folder.map(|folder| folder.join(name));
            ExportedFile { name, path, text }
        };
        Self {
            tool: export.target.name(),
            layout: export.plan.layout.to_string(),
            files: files.iter().map(file).collect(),
            notes: &export.notes,
        }
    }
}

/// Refuses a folder that does not exist and whose name ends like a file's.
fn check_folder_name(folder: &Path) -> anyhow::Result<()> {
    const OF_FILES: [&str; 9] =
        ["json", "ps1", "py", "sbatch", "sh", "slurm", "toml", "yaml", "yml"];
    let is_files = ending(folder).is_some_and(|ending| OF_FILES.contains(&ending.as_str()));
    ensure!(
        !is_files || folder.exists(),
        "`--output` is the folder that several files go to, but `{}` is named like a file\nhint: `-o {}`",
        folder.display(),
        folder.with_extension("").display()
    );
    Ok(())
}

/// Writes files to a folder, which is created if it does not exist.
fn write(plan: &Path, folder: &Path, files: &[File]) -> anyhow::Result<()> {
    make_folder(folder)?;
    for file in files {
        let path = folder.join(&file.name);
        if is_same(plan, &path) && read_text(plan)? == file.text {
            continue;
        }
        refuse_to_overwrite(plan, &path)?;
        write_output(&path, file.text.as_bytes())?;
        if file.is_executable {
            make_executable(&path)?;
        }
    }
    Ok(())
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

/// List of the files written, and notes.
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

/// Text of one file, or of several with their names above. The last file, which is the plan, is left out.
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
