//! Text of the answers to questions.

use std::fmt::Write as _;

use ir::layout::LayoutSpec;
use ir::text::count_of;
use ir::units::Seconds;
use planner_core::answers::{BatchPoint, Difference, FrontPoint, LostTime, TrainingRun, WhyNot};
use planner_core::search::{EvaluatedPlan, Quantiles, RESOLUTION};

use super::super::tables::{count, gib, percent, text_table, unit_of_rate};
use super::{Answers, LongestReport, WhyNotReport};

impl Answers {
    /// Text of all answers, each after an empty line. For a model without a sequence, samples are counted instead of
    /// tokens.
    pub(crate) fn describe(&self, has_sequence: bool) -> String {
        let counted = if has_sequence { "tokens" } else { "samples" };
        let mut text = String::new();
        if !self.why_not.is_empty() {
            text.push('\n');
        }
        for WhyNotReport { asked, answer, nodes } in &self.why_not {
            let nodes = nodes.as_deref();
            let _ = writeln!(text, "why not {asked}: {}", describe_why_not(answer, nodes));
        }
        if let Some(points) = &self.front {
            text.push_str(
                "\nno plan is better than one of these in GPUs, time and memory at once:\n",
            );
            text.push_str(&describe_points(points, "GPU s a step", |it| {
                format!("{:.0}", it.gpu_seconds)
            }));
        }
        if let Some(longest) = &self.longest_sequence {
            let _ = writeln!(text, "\n{}", longest.describe());
        }
        if let Some(points) = &self.batches {
            text.push('\n');
            text.push_str(&describe_batches(points, unit_of_rate(has_sequence)));
        }
        if let Some(run) = &self.training_run {
            text.push('\n');
            text.push_str(&describe_run(run, counted));
        }
        if let Some(cost) = self.cost_per_billion_tokens {
            let _ = writeln!(text, "\ncost: {cost:.2} for a billion {counted}, failures aside");
        }
        if self.is_cut_short {
            text.push_str(
                "\nthe search stopped before all of that was looked at: longer sequences, larger batches and other \
                 plans may do\n",
            );
        }
        text
    }
}

/// A layout with its schedule and ZeRO stage.
pub(crate) fn with_schedule(layout: &LayoutSpec) -> String {
    format!("{layout}, {}, ZeRO {}", layout.schedule, layout.zero_stage.number())
}

/// A layout with all settings, including those that other tables have in separate columns.
pub(crate) fn whole(layout: &LayoutSpec) -> String {
    let mut text = format!(
        "{layout} {} ZeRO {} micro-batch {} recompute {}",
        layout.schedule,
        layout.zero_stage.number(),
        layout.micro_batch_size,
        layout.recompute
    );
    if layout.offload.is_some() {
        let _ = write!(text, " offload {}", layout.offload);
    }
    text
}

/// A layout with all settings; and the nodes on which it is, if nodes are of several kinds.
fn on_nodes(layout: &LayoutSpec, nodes: Option<&str>) -> String {
    whole(layout) + &nodes.map_or_else(String::new, |nodes| format!(" on {nodes}"))
}

/// Text of the answer to the question why the first plan does not meet a constraint.
fn describe_why_not(answer: &WhyNot, nodes: Option<&str>) -> String {
    let no_layout = "no layout has it";
    match answer {
        WhyNot::Chosen => "plan 1 has it".to_owned(),
        WhyNot::Unknown => "the search stopped before that was known".to_owned(),
        WhyNot::Lacking { reasons } => format!("the framework has no {}", reasons.join(", no ")),
        WhyNot::Impossible { reasons: [reason] } if reason.is_empty() => no_layout.to_owned(),
        WhyNot::Impossible { reasons: [reason] } => format!("{no_layout}: {reason}"),
        WhyNot::TooLarge { closest, missing_bytes } => format!(
            "too large: {} needs {}, {missing_bytes} too much",
            on_nodes(&closest.layout, nodes),
            closest.evaluation.memory.total(),
        ),
        WhyNot::AsFast { found, difference } | WhyNot::Slower { found, difference } => {
            describe_slower((found, nodes), difference, "")
        }
        WhyNot::LessHeadroom { found, difference, headroom_bytes, roomy } => {
            let roomy = roomy.as_ref().map_or(no_layout.to_owned(), |it| {
                format!("the best that has it takes {}", it.evaluation.step_time)
            });
            let headroom = gib(*headroom_bytes);
            let less = format!(
                ", but that takes `--headroom {headroom}`; with as much free as now {roomy}"
            );
            describe_slower((found, nodes), difference, &less)
        }
    }
}

fn describe_slower(
    (found, nodes): (&EvaluatedPlan, Option<&str>),
    difference: &Difference,
    less: &str,
) -> String {
    let terms = difference.largest_terms(3);
    let terms = if terms.is_empty() { terms } else { format!("\n  {terms}") };
    format!(
        "{}{less}\n  {} takes {}{terms}",
        difference.describe(),
        on_nodes(&found.layout, nodes),
        found.evaluation.step_time,
    )
}

impl LongestReport {
    fn describe(&self) -> String {
        let Self { sequence_length, global_batch_size, max_position_embeddings } = self;
        if *sequence_length == 0 {
            return "longest sequence: none is found to fit".to_owned();
        }
        let made_for = max_position_embeddings.filter(|most| most < sequence_length);
        let beyond = made_for
            .map_or_else(String::new, |most| format!("; the model was made for {most} positions"));
        let sequences = count_of(*global_batch_size, "sequence", "sequences");
        format!(
            "longest sequence that fits, to within an eighth: {sequence_length} tokens, {sequences} in a step{beyond}"
        )
    }
}

/// Table of plans for several numbers of GPUs, with a column named `last`.
fn describe_points(
    points: &[FrontPoint],
    last: &str,
    cell: impl Fn(&FrontPoint) -> String,
) -> String {
    let rows = points.iter().map(|point| {
        [
            point.num_gpus.to_string(),
            format!("{:.3}", point.step_time_seconds),
            format!("{:.1}", point.peak_memory_bytes.as_gib()),
            cell(point),
            whole(&point.found.layout),
        ]
    });
    text_table(["GPUs", "step s", "GiB", last, "layout"], &["layout"], rows)
}

fn describe_batches(points: &[BatchPoint], unit: &str) -> String {
    let rate = |it: &BatchPoint| it.tokens_per_second_per_gpu;
    let most = points.iter().map(rate).fold(0.0, f64::max);
    let rows = points.iter().map(|point| {
        [
            point.global_batch_size.to_string(),
            format!("{:.3}", point.step_time_seconds),
            format!("{:.0}", point.tokens_per_second_per_gpu),
            percent(point.tokens_per_second_per_gpu / most),
            on_nodes(&point.found.layout, point.nodes.as_deref()),
        ]
    });
    let enough = points.iter().find(|it| rate(it) * (1.0 + RESOLUTION) >= most);
    let enough = enough.map_or_else(String::new, |it| {
        format!(
            "enough: a batch of {}; a larger one gains less than can be told\n",
            it.global_batch_size
        )
    });
    let headings = ["batch", "step s", unit, "of most", "layout"];
    text_table(headings, &["layout"], rows) + &enough
}

fn describe_run(run: &TrainingRun, counted: &str) -> String {
    let Quantiles { p10, p90, .. } = run.days_quantiles;
    let (unit, of_day) = unit_of(run.days);
    let [mean, p10, p90] = [run.days, p10, p90].map(|days| days * of_day);
    let mut text = format!(
        "{} {counted}: {mean:.1} {unit} ({p10:.1} to {p90:.1} in eight of ten runs), {} steps, {} GPU hours\n",
        count(run.tokens),
        count(run.steps),
        amount(run.gpu_hours),
    );
    let interruptions = if run.hours_between_failures.is_finite() {
        let between = hours(run.hours_between_failures * 3600.0);
        format!("an interruption every {between}, {} in all", count(run.interruptions.round()))
    } else {
        "no interruptions".to_owned()
    };
    let checkpoints = if run.checkpoint_interval_seconds < run.days * DAY {
        let (every, stop) = (run.checkpoint_interval_seconds, run.checkpoint_seconds);
        format!("every {} stops training for {}", hours(every), Seconds::new(stop))
    } else {
        "is not taken before the end".to_owned()
    };
    let _ = writeln!(
        text,
        "goodput {}: {interruptions}; a checkpoint of {} {checkpoints}",
        percent(run.goodput),
        run.checkpoint_bytes,
    );
    let _ = writeln!(text, "{}", describe_lost(run));
    let spares = run.spares.map_or_else(String::new, |spares| format!("; {spares} are spare"));
    let _ = writeln!(
        text,
        "nodes in repair at once: at most {} in 99 of 100 cases{spares}",
        run.nodes_in_repair_p99
    );
    if let (Some(cost), Some(Quantiles { p10, p90, .. })) = (run.cost, run.cost_quantiles) {
        let _ = writeln!(
            text,
            "cost {} ({} to {}), at the price of an hour of a GPU",
            amount(cost),
            amount(p10),
            amount(p90)
        );
    }
    if let Some(energy) = run.megawatt_hours {
        let _ = writeln!(text, "energy at most {} MWh, of the GPUs", amount(energy));
    }
    text
}

/// Days of a run, by what they are spent on.
fn describe_lost(run: &TrainingRun) -> String {
    let LostTime { lost_work, checkpoints, restarts, waiting_for_nodes, fewer_nodes, slow_nodes } =
        run.lost_days;
    let mut parts = [
        ("restarts", restarts),
        ("work since the last checkpoint", lost_work),
        ("checkpoints", checkpoints),
        ("waiting for nodes", waiting_for_nodes),
        ("running on fewer", fewer_nodes),
        ("slow nodes", slow_nodes),
    ];
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (unit, of_day) = unit_of(run.days);
    let parts = parts.into_iter().map(|(what, days)| (what, days * of_day));
    let parts = parts.filter(|(_, time)| *time >= 0.005);
    let parts: Vec<String> = parts.map(|(what, time)| format!("{what} {time:.2}")).collect();
    if parts.is_empty() {
        return "lost: next to nothing".to_owned();
    }
    let [all, without] = [run.days, run.days_without_failures].map(|days| days * of_day);
    format!("lost, of {all:.1} {unit}: {}; {without:.1} are steps that last", parts.join(", "))
}

/// Number of seconds in a day.
const DAY: f64 = 86_400.0;

/// A suitable unit for a number of days, and how many of the unit make a day.
const fn unit_of(days: f64) -> (&'static str, f64) {
    match days {
        it if it >= 2.0 => ("days", 1.0),
        it if it >= 0.0625 => ("hours", 24.0),
        _ => ("minutes", 1440.0),
    }
}

/// A number in short form; a small number has at least two digits.
fn amount(number: f64) -> String {
    let decimals = (1.0 - number.log10().floor()).clamp(2.0, 8.0) as usize;
    if number > 0.0 && number < 100.0 { format!("{number:.decimals$}") } else { count(number) }
}

/// Text of a time in a suitable unit.
fn hours(seconds: f64) -> String {
    match seconds {
        it if it >= 2.0 * DAY => format!("{:.1} days", it / DAY),
        it if it >= 5400.0 => format!("{:.1} hours", it / 3600.0),
        it if it >= 90.0 => format!("{:.0} minutes", it / 60.0),
        it => format!("{it:.0} s"),
    }
}

/// Table of the plans that were considered for the objective `cost`.
pub(crate) fn describe_considered(points: &[FrontPoint], price: f64) -> String {
    let cost = |it: &FrontPoint| format!("{:.4}", it.gpu_seconds / 3600.0 * price);
    describe_points(points, "cost a step", cost)
}
