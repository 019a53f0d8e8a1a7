//! What a run shows: where it runs, how it goes, what it came to.

use std::io::Write;
use std::time::Duration;

use executor::program::Program;
use executor::training::{Report, StepReport};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ir::layout::{LayoutSpec, ZeroStage};
use ir::plan::Plan;
use serde_json::json;

use super::args::{Format, RunArgs};
use super::device;
use super::run::is_watched;

/// Steps that warm caches up and do not count in the median, if more follow.
const WARM_UP_STEPS: usize = 1;

/// What rank 0 shows; other ranks show nothing.
pub(crate) struct Show<'a> {
    args: &'a RunArgs,
    plan: &'a Plan,
    program: &'a Program,
    bar: Option<ProgressBar>,
    is_first: bool,
    times: Vec<Duration>,
    losses: Vec<f64>,
}

impl<'a> Show<'a> {
    pub(crate) fn new(
        args: &'a RunArgs,
        plan: &'a Plan,
        program: &'a Program,
        is_first: bool,
    ) -> Self {
        let (times, losses) = (Vec::new(), Vec::new());
        Self { args, plan, program, bar: None, is_first, times, losses }
    }

    /// One line: the model, its layout, the ranks, and what is expected.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        if !self.is_first || self.args.format == Format::Json {
            return Ok(());
        }
        let ranks = match self.program.num_ranks() {
            1 => "1 rank".to_owned(),
            count => format!("{count} ranks"),
        };
        writeln!(
            std::io::stderr(),
            "{} ({} parameters) on {ranks} ({}): {}; expected {} a rank on {}",
            self.program.model_name,
            self.plan.model.num_parameters,
            device::in_words(self.args),
            in_words(self.plan, &self.program.layout),
            self.plan.prediction.peak_memory_bytes,
            self.plan.cluster.name,
        )?;
        let target =
            if is_watched() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(self.args.steps), target);
        let style = ProgressStyle::with_template("{bar:24} step {pos}/{len}, {msg}, {eta} left");
        bar.set_style(style.expect("the template is valid"));
        self.bar = Some(bar);
        Ok(())
    }

    /// Shows a step.
    pub(crate) fn step(&mut self, report: &StepReport) -> anyhow::Result<()> {
        if !self.is_first {
            return Ok(());
        }
        self.times.push(report.time);
        self.losses.push(report.result.loss);
        let seconds = report.time.as_secs_f64();
        let tokens_per_second = self.program.tokens_per_step() as f64 / seconds;
        if self.args.format == Format::Json {
            let line = json!({
                "step": report.step,
                "loss": report.result.loss,
                "step_time_seconds": seconds,
                "tokens_per_second": tokens_per_second,
                "gradient_norm": report.result.gradient_norm,
                "learning_rate": report.learning_rate,
                "skipped": report.result.is_skipped,
            });
            let mut stdout = std::io::stdout().lock();
            writeln!(stdout, "{line}")?;
            stdout.flush()?;
            return Ok(());
        }
        let loss = report.result.loss;
        let message = format!("loss {loss:.4}, {}/s", self.counted(tokens_per_second));
        if let Some(bar) = &self.bar {
            bar.set_message(message.clone());
            bar.inc(1);
        }
        if !is_watched() {
            writeln!(std::io::stderr(), "step {}: {message}, {seconds:.3} s", report.step)?;
        }
        Ok(())
    }

    /// Shows what the run came to, beside what was predicted.
    pub(crate) fn finish(&mut self, report: &Report) -> anyhow::Result<()> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.args.format == Format::Json {
            return Ok(());
        }
        let skipped = WARM_UP_STEPS.min(self.times.len().saturating_sub(1));
        let mut times = self.times[skipped..].to_vec();
        times.sort_unstable();
        let Some(median) = times.get(times.len() / 2).map(Duration::as_secs_f64) else {
            return Ok(());
        };
        let mut text = format!(
            "{} steps, loss {:.4} to {:.4}\n",
            self.losses.len(),
            self.losses[0],
            self.losses[self.losses.len() - 1]
        );
        let rate = self.program.tokens_per_step() as f64 / median;
        text += &format!(
            "step: {median:.4} s in the median here ({}/s); {:.4} s predicted on {}\n",
            self.counted(rate),
            self.plan.prediction.step_time_seconds,
            self.plan.cluster.name
        );
        let peak = report.peak_memory.iter().max().copied().unwrap_or_default();
        text += &format!(
            "memory: {peak} held by tensors at most, rank by rank {}; {} predicted on {}\n",
            ranges(report.peak_memory.iter().map(ToString::to_string)),
            self.plan.prediction.peak_memory_bytes,
            self.plan.cluster.name
        );
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()?;
        Ok(())
    }

    /// So many tokens, or samples where the model takes none.
    fn counted(&self, count: f64) -> String {
        let unit = if self.program.vocab_size().is_some() { "tokens" } else { "samples" };
        format!("{count:.0} {unit}")
    }
}

/// Equal neighbours as one, with how many there are.
fn ranges(texts: impl Iterator<Item = String>) -> String {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for text in texts {
        match runs.last_mut() {
            Some((last, count)) if *last == text => *count += 1,
            _ => runs.push((text, 1)),
        }
    }
    let shown: Vec<String> = runs
        .into_iter()
        .map(|(text, count)| if count == 1 { text } else { format!("{count} x {text}") })
        .collect();
    shown.join(", ")
}

/// A layout in words.
fn in_words(plan: &Plan, layout: &LayoutSpec) -> String {
    let mut words = Vec::new();
    for (degree, name) in [
        (layout.tensor_parallel, "tensor"),
        (layout.context_parallel, "context"),
        (layout.expert_parallel, "expert"),
        (layout.pipeline_parallel, "pipeline"),
        (layout.data_parallel, "data"),
    ] {
        if degree > 1 {
            words.push(format!("{name} {degree}"));
        }
    }
    let mut text = if words.is_empty() { "one rank".to_owned() } else { words.join(" x ") };
    if layout.sequence_parallel {
        text += ", sequence parallel";
    }
    if layout.zero_stage != ZeroStage::None {
        text += &format!(", ZeRO-{} over {}", layout.zero_stage.number(), layout.zero_shard);
    }
    if layout.pipeline_parallel > 1 {
        text += &format!(", schedule {}", layout.schedule);
    }
    let what = if plan.training.sequence_length > 1 {
        format!("{} x {} tokens", layout.micro_batch_size, plan.training.sequence_length)
    } else {
        format!("{} samples", layout.micro_batch_size)
    };
    format!("{text}, {} micro-batches of {what}", layout.num_micro_batches)
}
