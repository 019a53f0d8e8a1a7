//! Output of a run: ranks and devices, progress, results.

use std::fmt;
use std::io::IsTerminal;
use std::time::Duration;

use command_line::terminal::{print_bytes, print_json_text, tell};
use executor_runtime::program::Program;
use executor_runtime::training::{RunReport, Staleness, StepReport};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use ir::cluster::Architecture;
use ir::plan::Plan;
use ir::units::Seconds;
use serde_json::{Value, json};
use traces::statistics::{MEDIAN, quantile};

use super::args::{Backend, Format, PrecisionArg, RunArgs};
use super::choices::ranks_and_devices;
use super::words;

/// Number of first steps that warm up caches, and do not count in the median if more follow.
const WARM_UP_STEPS: usize = 1;

/// Output of rank 0; other ranks print nothing.
pub(crate) struct Show<'a> {
    args: &'a RunArgs,
    plan: &'a Plan,
    program: &'a Program,
    bar: Option<ProgressBar>,
    is_first: bool,
    times: Vec<Duration>,
    losses: Vec<f64>,
    /// The JSON line of the last step, to which the memory of all ranks is added.
    last: Option<Value>,
}

impl<'a> Show<'a> {
    pub(crate) fn new(
        args: &'a RunArgs,
        plan: &'a Plan,
        program: &'a Program,
        is_first: bool,
    ) -> Self {
        let (times, losses) = (Vec::new(), Vec::new());
        Self { args, plan, program, bar: None, is_first, times, losses, last: None }
    }

    /// Prints one line: the model, its layout, the ranks, and the expected memory; training continues after `num_done`
    /// steps.
    pub(crate) fn start(&mut self, num_done: u64) {
        if !self.is_first || self.args.output.format == Format::Json {
            return;
        }
        let ranks = words::ranks(self.program.num_ranks());
        let memory = &self.plan.prediction.memory;
        let memory = if self.is_as_planned() {
            format!("; about {} of tensors a rank expected", words::expected_tensors(memory))
        } else {
            String::new()
        };
        tell(&format!(
            "{} ({} parameters) on {ranks} ({}): {}; {}{memory}",
            self.program.model_name,
            words::count(self.plan.model.num_parameters),
            ranks_and_devices(self.args.backend, self.args.communicator),
            words::layout(&self.program.layout),
            words::step(self.plan, self.has_tokens()),
        ));
        if std::io::stderr().is_terminal() {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(self.args.steps), target);
            let style = ProgressStyle::with_template("{bar:24} step {pos} of {len}{msg}{left}");
            let left = move |state: &ProgressState, text: &mut dyn fmt::Write| {
                if state.pos() > num_done {
                    // A bar that cannot be drawn does not stop the run.
                    let _ = write!(text, ", {:#} left", HumanDuration(state.eta()));
                }
            };
            bar.set_style(style.expect("the template is valid").with_key("left", left));
            bar.set_position(num_done);
            bar.reset_eta();
            self.bar = Some(bar);
        }
    }

    /// Prints a step.
    pub(crate) fn step(&mut self, report: &StepReport) -> anyhow::Result<()> {
        if !self.is_first {
            return Ok(());
        }
        self.times.push(report.time);
        self.losses.push(report.result.loss);
        let seconds = report.time.as_secs_f64();
        let rate = self.program.tokens_per_step() as f64 / seconds;
        if self.args.output.format == Format::Json {
            let mut line = json!({
                "step": report.step,
                "loss": report.result.loss,
                "step_time_seconds": seconds,
                "tokens_per_second": rate,
                "gradient_norm": report.result.gradient_norm,
                "learning_rate": report.learning_rate,
                "skipped": report.result.is_skipped,
            });
            if let Some(num_updates) = report.num_updates {
                line["num_updates"] = num_updates.into();
            }
            if report.step == self.args.steps {
                self.last = Some(line);
                return Ok(());
            }
            return print(&line);
        }
        let skipped = if report.result.is_skipped { ", update skipped" } else { "" };
        let unit = self.unit();
        let message = format!("loss {:.4}, {rate:.0} {unit}/s{skipped}", report.result.loss);
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(format!(", {message}"));
        } else {
            let (step, steps) = (report.step, self.args.steps);
            let time = Seconds::new(seconds);
            tell(&format!("step {step} of {steps}: {message}, {time}"));
        }
        Ok(())
    }

    /// Removes the progress bar before the error that ends a run is printed.
    pub(crate) fn stop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.abandon();
        }
        if let Some(line) = self.last.take() {
            // An error of this output matters less than the error that ends the run.
            let _ = print(&line);
        }
    }

    /// Prints the results of the run, next to the predictions.
    pub(crate) fn finish(&mut self, report: &RunReport) -> anyhow::Result<()> {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if let Some(mut line) = self.last.take() {
            let peak = report.peak_memory.iter().map(|bytes| bytes.get());
            line["peak_memory_bytes_by_rank"] = peak.collect();
            if self.plan.layout.offload.is_some() {
                let peak = report.peak_host_memory.iter().map(|bytes| bytes.get());
                line["peak_host_memory_bytes_by_rank"] = peak.collect();
            }
            if let Some(staleness) = report.staleness {
                line["num_updates"] = staleness.num_updates.into();
                line["mean_staleness"] = staleness.mean.into();
                line["most_staleness"] = staleness.most.into();
            }
            if let Some(distance) = report.consensus_distance {
                line["consensus_distance"] = distance.into();
            }
            print(&line)?;
        }
        let (Some(first), Some(last)) = (self.losses.first(), self.losses.last()) else {
            return Ok(());
        };
        if self.args.output.format == Format::Json {
            return Ok(());
        }
        let steps = match self.losses.len() {
            1 => format!("1 step, loss {last:.4}"),
            count => format!("{count} steps, loss {first:.4} to {last:.4}"),
        };
        let median = self.median();
        let prediction = &self.plan.prediction;
        let predicted = Seconds::new(prediction.step_time_seconds);
        let per_step = self.program.tokens_per_step() as f64;
        let most = report.peak_memory.iter().max().copied().unwrap_or_default();
        let expected = words::expected_tensors(&prediction.memory);
        let compares = self.compares();
        let row = |name: &str, [measured, predicted]: [String; 2]| {
            let predicted = if compares { format!("{predicted:>12}") } else { String::new() };
            format!("{name:<28}{measured:>12}{predicted}")
        };
        let rates = [median, predicted].map(|time| format!("{:.0}", per_step / time.get()));
        let lines = [
            steps,
            row("", ["measured".to_owned(), "predicted".to_owned()]),
            row("step, in the median", [median.to_string(), predicted.to_string()]),
            row(&format!("{} a second", self.unit()), rates),
            row("tensors of a rank, at most", [most.to_string(), expected.to_string()]),
            format!("tensors by rank: {}", words::by_rank(&report.peak_memory)),
            self.comparison(),
        ];
        let distance = report.consensus_distance;
        let distance = distance.map(|it| format!("distance of replicas' weights: {it:.3e}"));
        let staleness = report.staleness.map(|Staleness { num_updates, mean, most }| {
            format!("{num_updates} updates, by gradients {mean:.2} updates old, {most} at most")
        });
        let on_host = self.plan.layout.offload.is_some().then(|| {
            let most = report.peak_host_memory.iter().max().copied().unwrap_or_default();
            let expected = self.plan.prediction.memory.host_bytes;
            row("on the host, at most", [most.to_string(), expected.to_string()])
        });
        let further = on_host.into_iter().chain(distance).chain(staleness);
        let lines: Vec<String> = lines.into_iter().chain(further).collect();
        let text = lines.join("\n") + "\n";
        print_bytes(text.as_bytes())
    }

    /// Returns whether the prediction is for devices of this kind, in this precision.
    fn compares(&self) -> bool {
        let is_for_cpus = self.plan.cluster.gpu.architecture == Architecture::Cpu;
        self.is_as_planned() && is_for_cpus == (self.args.backend == Backend::Cpu)
    }

    /// Explains how measured and predicted values compare.
    fn comparison(&self) -> String {
        let Plan { num_gpus, cluster, training, .. } = self.plan;
        let planned = format!("{num_gpus} x {}", cluster.name);
        match self.args.backend {
            _ if !self.is_as_planned() => format!(
                "the plan is for {planned} in {}: what it predicts does not compare with another precision",
                training.precision
            ),
            Backend::Cuda | Backend::Wgpu if self.compares() => format!("predicted for {planned}"),
            Backend::Cpu if self.compares() => {
                format!("predicted for {planned}, as `executor calibrate` measured its ranks")
            }
            Backend::Cpu => format!(
                "the plan is for {planned}: what it predicts does not compare with this CPU, for which \
                 `executor calibrate` makes a cluster file"
            ),
            Backend::Cuda | Backend::Wgpu => {
                format!(
                    "the plan is for {planned}: what it predicts does not compare with this GPU"
                )
            }
        }
    }

    /// The median time of a step, without the first steps.
    fn median(&self) -> Seconds {
        let skipped = WARM_UP_STEPS.min(self.times.len().saturating_sub(1));
        let times: Vec<f64> = self.times[skipped..].iter().map(Duration::as_secs_f64).collect();
        Seconds::new(quantile(&times, MEDIAN))
    }

    /// Returns whether the run computes in the plan's precision.
    fn is_as_planned(&self) -> bool {
        self.args
            .training
            .precision
            .is_none_or(|chosen| chosen == PrecisionArg::of(self.plan.training.precision))
    }

    fn has_tokens(&self) -> bool {
        self.program.vocab_size().is_some()
    }

    fn unit(&self) -> &'static str {
        if self.has_tokens() { "tokens" } else { "samples" }
    }
}

/// Prints a line on stdout, at once.
fn print(line: &Value) -> anyhow::Result<()> {
    print_json_text(&format!("{line}\n"))
}
