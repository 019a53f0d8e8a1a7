//! HTML page of a search's result: the ranking, time against memory, breakdowns of both, any two plans side by side
//! with their timelines, and why the runners-up lose.
//!
//! The page is one self-contained file and needs no network. Without scripts, its plain HTML still contains the
//! ranking, the breakdowns and the losses of each plan.

mod data;
mod plan;

use std::fmt::Write as _;

use ir::units::Seconds;
use traces::html::{BASE_SCRIPT, Escaped, Table, base_style, color_style, filled, viewer};
use traces::palette::Theme;
use traces::timeline::Timeline;

use plan::name;
pub use plan::{Names, PagePlan};
use planner_core::answers::Difference;
use planner_core::problem::Problem;
use planner_core::search::EvaluatedPlan;

/// Template of the page; its placeholders are named in comments.
const PAGE: &str = include_str!("page.html");

const STYLE: &str = include_str!("style.css");

const SCRIPT: &str = include_str!("page.js");

/// Texts about a search for the head of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heading {
    /// The model and the GPUs.
    pub title: String,
    /// Further inputs of the plans and statistics of the search, as pairs of name and value.
    pub facts: Vec<(String, String)>,
    /// The command that reproduces the page.
    pub command: String,
}

/// Renders the page of `plans`, best first; `others` appear only as points of time against memory.
pub fn page(
    heading: &Heading,
    problem: &Problem,
    plans: &[PagePlan],
    others: &[EvaluatedPlan],
) -> String {
    let timelines: Vec<&Timeline> =
        plans.iter().map(|plan| &plan.simulated.simulation.timeline).collect();
    filled(PAGE, |place, page| match place {
        "title" => page.push_str(&Escaped(&heading.title).to_string()),
        "style" => {
            let part = |theme: Theme| move |index| (format!("part-{index}"), theme.series(index));
            let colors = color_style(|theme| (0..Theme::NUM_SERIES).map(part(theme)).collect());
            page.push_str(&(base_style() + &colors + STYLE));
        }
        "facts" => page.push_str(&facts(heading)),
        "command" => page.push_str(&Escaped(&heading.command).to_string()),
        "ranking" => page.push_str(&ranking(problem, plans, others.is_empty())),
        "time" => page.push_str(&time(plans)),
        "memory" => page.push_str(&memory(problem, plans)),
        "losses" => page.push_str(&losses(problem, plans)),
        "data" => page.push_str(&data::json(problem, plans, others)),
        "viewer" => page.push_str(&viewer(&timelines)),
        "script" => page.push_str(&[BASE_SCRIPT, SCRIPT].concat()),
        other => unreachable!("the page has no place `{other}`"),
    })
}

fn facts(heading: &Heading) -> String {
    let mut facts = String::new();
    for (name, value) in &heading.facts {
        let _ = writeln!(facts, "<div><dt>{}</dt><dd>{}</dd></div>", Escaped(name), Escaped(value));
    }
    facts
}

/// A row of a table whose first cell is its name.
fn row(name: &str, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(cells).collect()
}

fn table(caption: &str, headings: Vec<String>, rows: Vec<Vec<String>>) -> String {
    Table { caption: caption.to_owned(), headings, rows }.to_string()
}

/// Table of the plans in their order. With `is_all`, likelihoods compare only the plans of this table, and the heading
/// says so: the more plans are compared, the less likely each is to be the fastest.
fn ranking(problem: &Problem, plans: &[PagePlan], is_all: bool) -> String {
    let unit = if problem.limits.has_sequence { "tokens/s/GPU" } else { "samples/s/GPU" };
    let mut headings = vec![
        "plan",
        "schedule",
        "ZeRO",
        "micro-batches",
        "recompute",
        "step s",
        unit,
        "MFU",
        "GiB",
    ];
    let is_judged = plans.len() > 1;
    if is_judged {
        headings.push(if is_all { "fastest of these" } else { "fastest" });
    }
    let rows = plans.iter().enumerate().map(|(index, plan)| {
        let layout = &plan.found.layout;
        let prediction = plan.found.prediction(problem);
        let mut cells = vec![
            layout.schedule.to_string(),
            layout.zero_stage.number().to_string(),
            layout.micro_batches().replace('x', " \u{d7} "),
            layout.recompute.to_string(),
            format!("{:.3}", prediction.step_time_seconds),
            format!("{:.0}", prediction.tokens_per_second_per_gpu),
            percent(prediction.mfu),
            format!("{:.1}", prediction.peak_memory_bytes.as_gib()),
        ];
        if is_judged {
            let likelihood = plan.likelihood.map(|it| format!("{:.0} %", it * 100.0));
            cells.push(likelihood.unwrap_or_default());
        }
        row(&name(index, plan), cells)
    });
    let caption = match (is_all, plans) {
        (_, [] | [_]) => "the plan",
        (true, _) => {
            "the plan to take first; \u{201c}fastest of these\u{201d} is how likely it is that none of another kind in \
             this table is faster"
        }
        (false, _) => {
            "the plan to take first; \u{201c}fastest\u{201d} is how likely it is that none of another kind is faster"
        }
    };
    let headings = headings.into_iter().map(str::to_owned).collect();
    table(caption, headings, rows.collect())
}

/// Table of a breakdown: a column for each plan, a row for each part, and the total.
fn spent(
    (caption, all, decimals): (&str, &str, usize),
    plans: &[PagePlan],
    parts: impl Fn(&PagePlan) -> (Vec<(&'static str, f64)>, f64),
) -> String {
    let (columns, totals): (Vec<_>, Vec<f64>) = plans.iter().map(parts).unzip();
    let cell = |value: f64| format!("{value:.decimals$}");
    let names = columns.first().into_iter().flatten().map(|(name, _)| *name).enumerate();
    let there = names.filter(|(part, _)| columns.iter().any(|parts| parts[*part].1 != 0.0));
    let rows = there.map(|(part, name)| row(name, columns.iter().map(|parts| cell(parts[part].1))));
    let rows = rows.chain([row(all, totals.iter().copied().map(cell))]).collect();
    let names = plans.iter().enumerate().map(|(index, plan)| name(index, plan));
    table(caption, row("", names), rows)
}

fn time(plans: &[PagePlan]) -> String {
    spent(("milliseconds, in the mean over all GPUs", "step", 1), plans, |plan| {
        let evaluation = &plan.found.evaluation;
        let parts = evaluation.breakdown.parts().into_iter();
        let parts = parts.map(|(name, seconds)| (name, seconds * 1e3)).collect();
        (parts, evaluation.step_time.get() * 1e3)
    })
}

fn memory(problem: &Problem, plans: &[PagePlan]) -> String {
    let caption = format!("GiB of the GPU that needs most; it has {}", problem.hardware.memory);
    spent((&caption, "all", 2), plans, |plan| {
        let memory = &plan.found.evaluation.memory;
        let lines = memory.lines().into_iter().map(|(name, bytes)| (name, bytes.as_gib()));
        (lines.collect(), memory.total().as_gib())
    })
}

/// List items of what each plan loses relative to the first.
fn losses(problem: &Problem, plans: &[PagePlan]) -> String {
    const NUM_TERMS: usize = 3;
    let Some((first, rest)) = plans.split_first() else { return String::new() };
    if rest.is_empty() {
        return "<li>there is no other plan here</li>\n".to_owned();
    }
    let mut items = String::new();
    for (index, plan) in rest.iter().enumerate() {
        let difference = Difference::of((problem, &first.found), (problem, &plan.found));
        let more = difference.step_time_seconds;
        let direction = if more < 0.0 { "faster" } else { "slower" };
        let apart = if difference.is_tie() { ", which cannot be told apart" } else { "" };
        let _ = write!(
            items,
            "<li><b>{}</b>: {} {direction} than the first ({}{apart}); the first is faster in {:.0} % of what the \
             machine may be like.<ul>",
            Escaped(&name(index + 1, plan)),
            Seconds::new(more.abs()),
            percent(difference.share.abs()),
            difference.likelihood_first_is_faster * 100.0,
        );
        for term in difference.terms.iter().take(NUM_TERMS).filter(|term| term.more() != 0.0) {
            let sign = if term.more() < 0.0 { '\u{2212}' } else { '+' };
            let [there, here] = &term.because;
            let because = if here == there {
                format!("{here} in both")
            } else {
                format!("{here} here, {there} there")
            };
            let _ = write!(
                items,
                "<li>{}: {sign}{} ({})</li>",
                Escaped(term.term),
                Seconds::new(term.more().abs()),
                Escaped(&because),
            );
        }
        items.push_str("</ul></li>\n");
    }
    items
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
