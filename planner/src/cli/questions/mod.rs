//! Questions to `search` beyond the best plans: arguments, answers, and their text.

mod describe;
mod failures;
mod named_constraint;

use anyhow::Context;
use clap::{Args, ValueEnum};
use planner_core::answers::{
    BatchPoint, FrontPoint, Prices, TrainingRun, WhyNot, batches, front, longest_sequence, why_not,
};
use planner_core::search::{Chosen, EvaluatedPlan, Request};
use serde::Serialize;

use super::input::Input;
use super::interrupt::Limit;
use super::tables::count;
use super::values::{parse_count_of, parse_price, parse_watts};
pub(crate) use describe::{describe_considered, whole, with_schedule};
pub(crate) use failures::FailureArgs;
use named_constraint::NamedConstraint;

/// What is asked beside which plans are best.
#[derive(Debug, Args)]
#[command(next_help_heading = "Questions")]
pub(crate) struct QuestionArgs {
    /// What plans are optimised for: time; the fewest GPUs, up to `--gpus`, on which one fits; the least memory; or
    /// the cost of a step, compared on all GPUs, half of them and so on.
    #[arg(long, value_enum, ignore_case = true, default_value = "time")]
    pub(crate) objective: Objective,
    /// Why the first plan does without these, with commas between several: a layout (`tp8`, `pp4-zero2`), an axis
    /// (tp, sp, cp, ep, pp, vpp, zero), recompute (none, selective, full) or a schedule.
    #[arg(long, value_name = "LAYOUT|AXIS", value_delimiter = ',')]
    why_not: Vec<NamedConstraint>,
    /// The plans that no other beats in time, in memory and in GPUs at once.
    #[arg(long)]
    pub(crate) front: bool,
    /// The longest sequence for which some plan fits.
    #[arg(long)]
    max_seq_len: bool,
    /// Throughput of growing batches, and the smallest that is as good as the largest.
    #[arg(long)]
    best_batch: bool,
    /// Days, money and energy to train on this many tokens with the first plan, such as `15T` or `300B`.
    #[arg(long, value_name = "N", value_parser = parse_count_of)]
    tokens: Option<f64>,
    /// Price of an hour of a GPU.
    #[arg(long, value_name = "PRICE", value_parser = parse_price, allow_negative_numbers = true)]
    pub(crate) price: Option<f64>,
    /// Power of a GPU with its share of the node [default: the GPU's alone, by its data sheet].
    #[arg(long, value_name = "WATTS", requires = "tokens", value_parser = parse_watts, allow_negative_numbers = true)]
    watts: Option<f64>,
}

/// What plans are best at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Objective {
    /// The time of a step.
    #[value(alias = "throughput", alias = "speed", alias = "latency", alias = "mfu")]
    Time,
    /// The number of GPUs.
    Gpus,
    /// The memory of the fullest rank.
    Memory,
    /// GPUs times time times price.
    #[value(alias = "price")]
    Cost,
}

/// Answers to the questions, as JSON.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answers {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    why_not: Vec<WhyNotReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    front: Option<Vec<FrontPoint>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_sequence: Option<LongestReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batches: Option<Vec<BatchPoint>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    training_run: Option<TrainingRun>,
    /// Cost of a billion tokens, or of a billion samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_per_billion_tokens: Option<f64>,
    /// True if the time limit ended the search before all questions were answered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_cut_short: bool,
}

/// The longest sequence that fits; its length is 0 if none does.
#[derive(Debug, Serialize)]
struct LongestReport {
    sequence_length: u64,
    global_batch_size: u64,
    /// Number of positions for which the model was made, if known.
    max_position_embeddings: Option<u64>,
}

/// Answer to the question why the first plan does not meet a constraint.
#[derive(Debug, Serialize)]
struct WhyNotReport {
    asked: String,
    #[serde(flatten)]
    answer: WhyNot,
    /// Best nodes for the constraint, if GPUs are of several kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<String>,
}

impl QuestionArgs {
    /// Answers the questions about the first of the shown plans, within the search's time limit.
    pub(crate) fn answer(
        &self,
        input: &Input,
        request: &Request,
        shown: &[Chosen],
        failures: &FailureArgs,
        limit: &Limit,
    ) -> anyhow::Result<Answers> {
        let problem = &input.problem;
        let go = &mut || limit.go();
        let mut answers = Answers::default();
        if self.max_seq_len {
            answers.longest_sequence = Some(longest(input, request, !shown.is_empty(), limit)?);
            answers.is_cut_short = limit.was_reached();
        }
        let Some(first) = shown.first().map(|chosen| &chosen.found) else { return Ok(answers) };
        for asked in &self.why_not {
            let named = asked.named_for(&problem.graph);
            let all = request.fixed.and(&named).with_context(|| {
                format!("`--why-not {asked}` is not what else is named\nhint: leave out one")
            })?;
            let (answer, nodes) = if named.allows(&first.layout) {
                (WhyNot::Chosen, None)
            } else {
                why_not((problem, first), input.on_all_nodes(), request, &all, go)
            };
            answers.why_not.push(WhyNotReport { asked: asked.to_string(), answer, nodes });
        }
        if self.front {
            answers.front = Some(front(problem, request, go)?);
        }
        if self.best_batch {
            answers.batches = Some(batches(input.on_all_nodes(), request, go)?);
        }
        answers.training_run = self.training_run(input, request, first, (failures, limit))?;
        let has_searched = !self.why_not.is_empty()
            || self.front
            || self.best_batch
            || answers.training_run.is_some() && failures.searches();
        answers.is_cut_short |= has_searched && limit.was_reached();
        answers.cost_per_billion_tokens = self.price.map(|price| {
            let rate = first.prediction(problem).tokens_per_second_per_gpu;
            price / 3600.0 / rate * 1e9
        });
        Ok(answers)
    }

    fn training_run(
        &self,
        input: &Input,
        request: &Request,
        plan: &EvaluatedPlan,
        (args, limit): (&FailureArgs, &Limit),
    ) -> anyhow::Result<Option<TrainingRun>> {
        let Some(tokens) = self.tokens else { return Ok(None) };
        let failures = args.failures()?;
        let job = args.job(input, request, plan, &failures, limit)?;
        let of_step = job.tokens_per_step;
        anyhow::ensure!(
            tokens >= of_step,
            "`--tokens` {tokens} is less than the {} of a single step\nhint: `--tokens {}B` or `--tokens {}T`, if billions or \
             trillions are meant",
            count(of_step),
            tokens,
            tokens
        );
        let watts = self.watts.or_else(|| input.cluster.power_watts());
        let prices = Prices { gpu_hour: self.price, watts };
        Ok(Some(TrainingRun::new(tokens, &job, &failures, &prices, args.seed)?))
    }
}

fn longest(
    input: &Input,
    request: &Request,
    is_fit: bool,
    limit: &Limit,
) -> anyhow::Result<LongestReport> {
    anyhow::ensure!(
        input.problem.limits.has_sequence,
        "`--max-seq-len`: the model has no sequence"
    );
    let holds_batch = input.choices.global_batch_size.is_some();
    let found = longest_sequence(&input.problem, request, holds_batch, is_fit, &mut || limit.go());
    let training = found.map(|problem| problem.training);
    Ok(LongestReport {
        sequence_length: training.map_or(0, |it| it.sequence_length),
        global_batch_size: training.map_or(0, |it| it.global_batch_size),
        max_position_embeddings: input.file.model.max_position_embeddings(),
    })
}
