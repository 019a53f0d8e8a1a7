//! `executor check`: a check of a new machine in ten minutes.

mod args;
mod devices;
mod machine;
mod network;
mod part;
mod planner;
mod process;
mod report;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use burn_flex::{Flex, FlexDevice};
use clap::ValueEnum;
use command_line::destination::{check_output, write_output};
use command_line::terminal::{print_bytes, print_json_text, tell};
use executor::calibration::{self, Effort};
use executor::check::{CheckFinding, MODELS, first_line, recognised};
use executor_communicators::{Communicator, local};
use executor_kernels::clock::now;
use ir::cluster::{Cluster, KernelTimes, Precision};
use ir::units::{Bytes, Seconds};

use self::args::CheckPart;
use self::machine::Measurements;
use self::network::Network;
use self::part::training_precision;
use self::planner::{Planner, framework};
use self::process::Failure;
use self::report::{Section, counts, json, summary};
use super::choices::{Backend, word};
use super::cluster;
use super::measuring::ReportFormat;

pub(crate) use args::{CheckArgs, PartArgs};
pub(crate) use part::part;

/// Time that a part has beyond its limit to finish its last measurement, before it is ended.
const GRACE: Duration = Duration::from_secs(45);

/// Minimum of the time left with which, for a cluster file, the CPU's kernels are measured on many models; with less
/// time, on two.
const LONG: Duration = Duration::from_mins(5);

/// Checks this machine: exit code 0 where nothing failed, else 1.
pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let base = args.base.as_deref().map(cluster::read).transpose()?;
    let inputs: Vec<&Path> = args.base.iter().map(PathBuf::as_path).collect();
    for path in args.output.iter().chain(&args.report) {
        check_output(path, &inputs)?;
    }
    let mut check = Check {
        args,
        start: now(),
        folder: tempfile::tempdir()?,
        planner: Planner::find(),
        sheet: base,
        num_devices: 1,
        network: None,
        sections: Vec::new(),
        kernels: OnceCell::new(),
    };
    for part in CheckPart::value_variants().iter().filter(|part| args.includes(**part)) {
        check.part(*part)?;
    }
    check.finish()
}

struct Check<'a> {
    args: &'a CheckArgs,
    start: Instant,
    /// Folder of files for other programs.
    folder: tempfile::TempDir,
    planner: Option<Planner>,
    /// The cluster of the data sheet of this machine's GPU.
    sheet: Option<Cluster>,
    num_devices: usize,
    network: Option<Network>,
    sections: Vec<Section>,
    /// Times of kernels on a CPU, once measured.
    kernels: OnceCell<Result<KernelTimes, String>>,
}

impl Check<'_> {
    /// Checks one part, and prints its section.
    fn part(&mut self, part: CheckPart) -> anyhow::Result<()> {
        if part != CheckPart::Device && self.args.format == ReportFormat::Table {
            tell(&format!("checking {} ..", word(&part)));
        }
        let start = now();
        let limit = self.limit(part);
        let findings = match part {
            CheckPart::Device => self.devices(limit)?,
            CheckPart::Collectives => self.collectives(limit)?,
            CheckPart::Nccl => self.nccl(limit)?,
            CheckPart::Training => self.training(limit)?,
            CheckPart::Speeds | CheckPart::Products | CheckPart::Kernels | CheckPart::Layouts => {
                self.alone(part, limit, None)?
            }
        };
        let section = Section { part, findings, elapsed: start.elapsed() };
        if self.args.format == ReportFormat::Table {
            print_bytes(section.text().as_bytes())?;
        }
        self.sections.push(section);
        Ok(())
    }

    /// Time limit of a part: its share of the time that is left.
    fn limit(&self, part: CheckPart) -> Duration {
        let left = self.args.minutes.saturating_sub(self.start.elapsed());
        let all = CheckPart::value_variants().iter();
        let to_come = all.filter(|it| **it >= part && self.args.includes(**it));
        left.mul_f64(part.weight() / to_come.map(|it| it.weight()).sum::<f64>())
    }

    /// The command that runs a part of this check in a new process.
    fn command(&self, part: CheckPart, limit: Duration) -> anyhow::Result<Command> {
        let mut command = network::own_program()?;
        self.arguments(&mut command, part, limit)?;
        Ok(command)
    }

    fn arguments(
        &self,
        command: &mut Command,
        part: CheckPart,
        limit: Duration,
    ) -> anyhow::Result<()> {
        // The part skips checks for which its time does not suffice.
        let seconds = limit.as_secs_f64().max(0.1).to_string();
        command.args(["check-part", &word(&part), "--seconds", &seconds]);
        command.args(["--backend", &word(&self.args.backend)]);
        if let Some(sheet) = &self.sheet {
            let path = self.folder.path().join("sheet.json");
            cluster::write(&path, sheet)?;
            command.arg("--sheet").arg(path);
        }
        Ok(())
    }

    /// Checks a part in a new process; `peak` is the device's peak rate where no data sheet has it.
    fn alone(
        &self,
        part: CheckPart,
        limit: Duration,
        peak: Option<f64>,
    ) -> anyhow::Result<Vec<CheckFinding>> {
        let mut command = self.command(part, limit)?;
        if let Some(peak) = peak {
            command.args(["--peak", &peak.to_string()]);
        }
        let mut findings = Vec::new();
        let listen = |line: &str| findings.extend(finding(line));
        let ended = process::run(vec![command], limit + GRACE, listen)?;
        Ok(concluded(part, findings, ended.failure))
    }

    /// Checks the device part, and looks up the GPU's data sheet.
    ///
    /// # Errors
    ///
    /// There is no device that could be checked.
    fn devices(&mut self, limit: Duration) -> anyhow::Result<Vec<CheckFinding>> {
        let mut findings = Vec::new();
        let commands = vec![self.command(CheckPart::Device, limit)?];
        let ended =
            process::run(commands, limit.max(GRACE), |line| findings.extend(finding(line)))?;
        if let Some(failure) = ended.failure {
            bail!("{}", failure.message());
        }
        let gpus: Vec<&CheckFinding> =
            findings.iter().filter(|it| it.name.starts_with("GPU ")).collect();
        self.num_devices = gpus.len().max(1);
        if let (Some(gpu), None) = (gpus.first(), &self.sheet) {
            let known = self.planner.as_ref().map(Planner::clusters).unwrap_or_default();
            let number = |key: &str| gpu.numbers.get(key).copied().unwrap_or_default();
            let memory = Bytes::from_f64(number("memory_bytes"));
            let count = number("num_multiprocessors") as u32;
            let name = gpu.said.split(',').next().unwrap_or_default();
            self.sheet = recognised(&known, name, count, memory).cloned();
            findings.push(match (&self.sheet, &self.planner) {
                (Some(sheet), _) => {
                    CheckFinding::pass("data sheet", format!("that of `{}`", sheet.name))
                }
                (None, Some(_)) => {
                    CheckFinding::skip("data sheet", "the planner has none of this GPU")
                        .with_hint("`--base FILE` with a cluster file of its kind")
                }
                (None, None) => CheckFinding::skip("data sheet", "`planner` is not found")
                    .with_hint("build it beside this program: `cargo build --release`"),
            });
        }
        Ok(findings)
    }

    fn collectives(&mut self, limit: Duration) -> anyhow::Result<Vec<CheckFinding>> {
        let limit = limit + GRACE;
        let network = network::collectives(self.args.backend, self.num_devices, limit)?;
        let findings = network.findings.clone();
        self.network = Some(network);
        Ok(findings)
    }

    /// Layouts with a process for each GPU, on two, four and eight GPUs, as far as the machine has them.
    fn nccl(&self, limit: Duration) -> anyhow::Result<Vec<CheckFinding>> {
        if self.args.backend != Backend::Cuda || self.num_devices < 2 {
            let why = match self.args.backend {
                Backend::Cuda => "there is one GPU",
                _ => "it moves arrays between NVIDIA GPUs alone",
            };
            return Ok(vec![CheckFinding::skip("layouts over NCCL", why)]);
        }
        let counts: Vec<usize> =
            [2, 4, 8].into_iter().filter(|count| *count <= self.num_devices).collect();
        let mut findings = Vec::new();
        for count in &counts {
            let limit = limit.div_f64(counts.len() as f64);
            let mut commands = network::processes(*count, &|_| ())?;
            for command in &mut commands {
                self.arguments(command, CheckPart::Nccl, limit + GRACE)?;
                command.args(["--communicator", "nccl"]);
            }
            let mut of_ranks = Vec::new();
            let listen = |line: &str| of_ranks.extend(finding(line));
            let ended = process::run_by_turns(commands, limit + GRACE, limit, listen)?;
            findings.extend(concluded(CheckPart::Nccl, of_ranks, ended.failure));
        }
        Ok(findings)
    }

    /// Trains a model, and compares the step's time with the planner's prediction.
    fn training(&mut self, limit: Duration) -> anyhow::Result<Vec<CheckFinding>> {
        let precision = training_precision(self.args.backend);
        let peak = self.measurements(None).rates().get(&precision).map(|rate| rate.get());
        let mut findings = self.alone(CheckPart::Training, limit, peak)?;
        let trained = findings.iter().find(|it| it.numbers.contains_key("step_time_seconds"));
        if let Some(trained) = trained {
            findings.push(self.prediction(trained));
        }
        Ok(findings)
    }

    fn prediction(&self, trained: &CheckFinding) -> CheckFinding {
        const NAME: &str = "as the planner predicts it";
        let Some(planner) = &self.planner else {
            return CheckFinding::skip(NAME, "`planner` is not found")
                .with_hint("build it beside this program: `cargo build --release`");
        };
        let model = MODELS
            .iter()
            .find(|model| trained.name.split(',').next().is_some_and(|name| name == model.name));
        let predicted = match (self.cluster(), model) {
            (Ok(cluster), Some(model)) => {
                let (path, backend) = (self.folder.path().join("cluster.json"), self.args.backend);
                cluster::write(&path, &cluster)
                    .map_err(|error| first_line(&format!("{error:#}")))
                    .and_then(|()| planner.predict(model, &path, backend, self.folder.path()))
            }
            (Err(why), _) => Err(why),
            (_, None) => Err("the model is not known".to_owned()),
        };
        let measured = trained.numbers.get("step_time_seconds").copied().unwrap_or(f64::NAN);
        match predicted {
            Ok(predicted) => {
                let said = format!(
                    "{} a step; it took {:.2} times that",
                    Seconds::new(predicted),
                    measured / predicted
                );
                let finding = CheckFinding::pass(NAME, said);
                finding
                    .with("predicted_step_time_seconds", predicted)
                    .with("measured_over_predicted", measured / predicted)
            }
            Err(why) => CheckFinding::skip(NAME, why),
        }
    }

    fn measurements(&self, kernels: Option<KernelTimes>) -> Measurements<'_> {
        Measurements {
            backend: self.args.backend,
            sections: &self.sections,
            sheet: self.sheet.as_ref(),
            network: self.network.as_ref(),
            kernels,
            num_devices: self.num_devices,
        }
    }

    /// The cluster file, or the reason why there is none.
    fn cluster(&self) -> Result<Cluster, String> {
        let kernels = match (self.args.backend, &self.sheet) {
            (Backend::Cpu, None) => Some(self.kernels.get_or_init(|| self.kernel_times()).clone()?),
            _ => None,
        };
        let mut made = self.measurements(kernels).cluster()?;
        if let Some(name) = &self.args.cluster_name {
            made.name.clone_from(name);
        }
        Ok(made)
    }

    /// Times of kernels on all cores, as `executor calibrate` measures them.
    fn kernel_times(&self) -> Result<KernelTimes, String> {
        let left = self.args.minutes.saturating_sub(self.start.elapsed());
        let is_kept = self.args.output.is_some();
        let effort = if is_kept && left > LONG { Effort::Full } else { Effort::Quick };
        let alone: Arc<dyn Communicator<Flex>> =
            local::communicators(1, &[FlexDevice]).swap_remove(0);
        let times =
            calibration::kernel_times(&alone, &FlexDevice, Precision::Fp32, effort, |_, _| ());
        let times = times.map_err(|error| first_line(&error.to_string()))?;
        times.ok_or_else(|| "this rank is not the first".to_owned())
    }

    /// Writes the files that were asked for, and prints the summary.
    fn finish(&self) -> anyhow::Result<ExitCode> {
        let elapsed = self.start.elapsed();
        let counts = counts(&self.sections);
        let [_, num_failed, _] = counts;
        let report = json(&word(&self.args.backend), &self.sections, elapsed);
        match self.args.format {
            ReportFormat::Table => {
                print_bytes(summary(counts, elapsed).as_bytes())?;
            }
            ReportFormat::Json => print_json_text(&format!("{report}\n"))?,
        }
        if let Some(path) = &self.args.report {
            write_output(path, format!("{report:#}\n").as_bytes())?;
        }
        if let Some(path) = &self.args.output {
            match self.cluster() {
                Ok(cluster) => {
                    cluster::write(path, &cluster)?;
                    let path = path.display();
                    tell(&format!(
                        "wrote `{path}`; `planner search MODEL --gpus {} --cluster {path} --framework {}` plans \
                         for it",
                        cluster.gpus_per_node,
                        framework(self.args.backend)
                    ));
                }
                Err(why) if num_failed > 0 => {
                    tell(&format!("warning: `{}` is not written: {why}", path.display()));
                }
                Err(why) => bail!("`{}` is not written: {why}", path.display()),
            }
        }
        Ok(if num_failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

/// Adds to the findings that the processes failed, or that time ran out before any finding.
fn concluded(
    part: CheckPart,
    mut findings: Vec<CheckFinding>,
    failure: Option<Failure>,
) -> Vec<CheckFinding> {
    if let Some(failure) = failure {
        let said = first_line(&failure.message());
        let hint = match failure {
            Failure::TooLong => "it hangs, or more `--minutes` are needed",
            Failure::Ended { .. } => "what it was at came after the line above: report it",
        };
        findings.push(CheckFinding::fail(word(&part), said, hint));
    } else if findings.is_empty() {
        findings.push(CheckFinding::out_of_time(word(&part)));
    }
    findings
}

/// Parses a line as a finding; none where it is something else.
fn finding(line: &str) -> Option<CheckFinding> {
    serde_json::from_str(line).ok()
}
