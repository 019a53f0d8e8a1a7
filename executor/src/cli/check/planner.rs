//! The planner as a source of data sheets and predictions. It is another program, in this program's folder or on the
//! path. Without it, a check continues and reports what is missing.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use executor::check::CheckedModel;
use ir::cluster::Cluster;
use serde_json::Value;

use super::part::training_precision;
use super::process;
use crate::cli::choices::Backend;

/// Time limit of a call; the planner answers within a second.
const LIMIT: Duration = Duration::from_secs(30);

/// Path of the planner's program.
pub(super) struct Planner(PathBuf);

impl Planner {
    /// The planner in this program's folder, or else on the path; none where there is none.
    pub(super) fn find() -> Option<Self> {
        let file = format!("planner{EXE_SUFFIX}");
        let own_folder = std::env::current_exe().ok();
        let own_folder =
            own_folder.iter().filter_map(|program| program.parent()).map(Path::to_owned);
        let path: OsString = std::env::var_os("PATH").unwrap_or_default();
        let mut candidates =
            own_folder.chain(std::env::split_paths(&path)).map(|folder| folder.join(&file));
        candidates.find(|candidate| candidate.is_file()).map(Self)
    }

    /// The clusters that the planner lists; empty where it fails.
    pub(super) fn clusters(&self) -> Vec<Cluster> {
        let mut command = Command::new(&self.0);
        command.args(["list", "clusters", "--format", "json"]);
        let Ok(ended) = process::run(vec![command], LIMIT, |_| ()) else { return Vec::new() };
        serde_json::from_str(&ended.lines.concat()).unwrap_or_default()
    }

    /// The planner's prediction, in seconds, of a model's step on one GPU of a cluster file, as the executor trains it
    /// on a backend; files are written to `folder`.
    ///
    /// # Errors
    ///
    /// The reason why there is no prediction, in a line.
    pub(super) fn predict(
        &self,
        model: &CheckedModel,
        cluster: &Path,
        backend: Backend,
        folder: &Path,
    ) -> Result<f64, String> {
        let path = folder.join("config.json");
        fs::write(&path, model.description()).map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.0);
        command.arg("evaluate").arg(&path).arg("--cluster").arg(cluster);
        command.args(["--gpus", "1", "--layout", "tp1", "--framework", framework(backend)]);
        command.args([
            "--global-batch-size",
            "1",
            "--micro-batch-size",
            "1",
            "--recompute",
            "none",
        ]);
        command.args(["--seq-len", &model.sequence_length.to_string()]);
        command.args(["--precision", training_precision(backend).name(), "--format", "json"]);
        let ended =
            process::run(vec![command], LIMIT, |_| ()).map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&ended.lines.join("\n")).unwrap_or_default();
        let time = answer["plans"][0]["step_time_seconds"].as_f64();
        time.ok_or_else(|| match ended.failure {
            Some(failure) => failure.message().lines().next().unwrap_or_default().to_owned(),
            None => "the planner says nothing of a step".to_owned(),
        })
    }
}

/// Name of the executor's framework in the planner, by backend.
pub(super) const fn framework(backend: Backend) -> &'static str {
    match backend {
        Backend::Cuda => "executor-cuda",
        Backend::Cpu | Backend::Wgpu => "executor",
    }
}
