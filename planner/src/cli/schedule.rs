//! `planner schedule`: the order of a pipeline schedule, generated or read from a CSV.

use std::path::Path;

use anyhow::{Context, ensure};
use ir::schedule::{MOST_STAGES, Schedule, ScheduleKind, add_communication, generate, write_csv};
use ir::units::Nanos;
use planner::names::{self, folded, or_nearest};
use planner::report::{Costs, ScheduleReport, schedule_timeline};
use planner_core::scheduling::{self, SchedulingRequest, StageMemory};
use traces::gantt::{GanttOptions, TimeAxis};

use super::answer::Answer;
use super::args::{ScheduleArgs, ScheduleFormat};
use super::chart::write_timelines;
use super::files::read_schedule;
use super::given::refuse_look;
use super::picture::PictureFormat;
use command_line::destination::{refuse_to_overwrite, stdout_is_free, write_output};
use command_line::terminal::{columns, print, print_bytes, print_json};

pub(crate) fn schedule(args: &ScheduleArgs) -> anyhow::Result<Answer> {
    let costs = Costs {
        forward: args.forward,
        input_grad: args.input_grad,
        weight_grad: args.weight_grad,
        send: args.send,
    };
    let is_csv =
        |output: &Path| output.extension().is_some_and(|it| it.eq_ignore_ascii_case("csv"));
    if let Some(output) = args.output.as_ref().filter(|output| !is_csv(output)) {
        ensure!(
            PictureFormat::of(output).is_ok(),
            "`{}` does not say what to write; an order goes to .csv, and is drawn as .svg, .png, .pdf, .html or .json",
            output.display()
        );
    }
    let is_drawn = args.output.as_ref().is_some_and(|output| !is_csv(output));
    refuse_look(&["--theme", "--width", "--lanes", "--first-micro-batches"], is_drawn)?;
    let (name, plain) = match &args.from {
        Some(path) => (path.display().to_string(), read_schedule(path)?),
        None => named(args, costs)?,
    };
    check_total(&plain, costs)?;
    let schedule = if args.communication { add_communication(&plain) } else { plain };
    if let Some(output) = &args.output {
        if let Some(input) = &args.from {
            refuse_to_overwrite(input, output)?;
        }
        if is_csv(output) {
            write_output(output, write_csv(&schedule).as_bytes())?;
        } else {
            let time_axis = TimeAxis::Units(Nanos::new(1));
            let look = GanttOptions { time_axis, ..args.look.options() };
            write_timelines(&[schedule_timeline(&name, &schedule, costs)?], output, look)?;
        }
    }
    if !stdout_is_free(&args.output) {
        return Ok(Answer::Found);
    }
    match args.format {
        ScheduleFormat::Csv => print_bytes(write_csv(&schedule).as_bytes())?,
        ScheduleFormat::Text => {
            print(
                &ScheduleReport::new(name, &schedule, costs)
                    .text(&schedule, args.columns.or_else(columns)),
            )?;
        }
        ScheduleFormat::Json => print_json(&ScheduleReport::new(name, &schedule, costs))?,
    }
    Ok(Answer::Found)
}

/// Checks that the sum of all passes and messages, which is an upper bound of every time, fits into 64 bits.
fn check_total(schedule: &Schedule, costs: Costs) -> anyhow::Result<()> {
    let Costs { forward, input_grad, weight_grad, send } = costs;
    let each: u128 = [forward, input_grad, weight_grad, send, send].map(u128::from).iter().sum();
    let (stages, micro_batches) = (schedule.num_stages(), schedule.num_micro_batches());
    let total = each * u128::from(stages) * u128::from(micro_batches);
    anyhow::ensure!(
        total <= u64::MAX.into(),
        "the costs of {stages} stages x {micro_batches} micro-batches add up to {total}, more than 64 \
         bits hold\nhint: count in a larger unit"
    );
    Ok(())
}

/// The schedule of a family; for `auto`, a schedule made for the given costs.
fn named(args: &ScheduleArgs, costs: Costs) -> anyhow::Result<(String, Schedule)> {
    let name = args.name.as_deref().unwrap_or(AUTO);
    let path = Path::new(name);
    if path.is_file() {
        // Reading a file of another kind fails with an error that states what reads it.
        read_schedule(path)?;
        anyhow::bail!(
            "`{name}` is a file, not a family\nhint: `planner schedule --from {name}` reads it"
        );
    }
    let kind = if folded(name) == AUTO { None } else { Some(family(name)?) };
    let (p, m) = numbers(name, args)?;
    let Some(kind) = kind else {
        return Ok((AUTO.to_owned(), made_for(args, costs, p, m)?));
    };
    for (flag, is_given) in [
        ("--max-in-flight", args.max_in_flight.is_some()),
        ("--kept-for-weight-grad", args.kept_for_weight_grad.is_some()),
    ] {
        anyhow::ensure!(!is_given, "`{flag}` is for `{AUTO}`; the families keep what they keep");
    }
    let v = args.virtual_stages.unwrap_or(kind.default_virtual_stages());
    Ok((kind.name().to_owned(), generate(kind, p, m, v)?))
}

/// Finds a schedule family by name.
fn family(name: &str) -> anyhow::Result<ScheduleKind> {
    names::schedule(name).with_context(|| {
        let known = ScheduleKind::ALL.map(ScheduleKind::name);
        let all = "`planner list schedules` says what each does";
        let hint = names::value_tip("--schedule", name)
            .map_or_else(|| or_nearest(name, known, all), str::to_owned);
        format!("`{name}` is neither `{AUTO}` nor a family: {}\nhint: {hint}", known.join(", "))
    })
}

/// Numbers of pipeline ranks and micro-batches, which every generated schedule needs.
fn numbers(name: &str, args: &ScheduleArgs) -> anyhow::Result<(u32, u32)> {
    let (stages, micro_batches) = (args.stages, args.micro_batches);
    if let (Some(stages), Some(micro_batches)) = (stages, micro_batches) {
        return Ok((stages, micro_batches));
    }
    let all = [("`--stages`", stages), ("`--micro-batches`", micro_batches)];
    let lacks: Vec<&str> =
        all.into_iter().filter_map(|(option, given)| given.is_none().then_some(option)).collect();
    anyhow::bail!(
        "a schedule is made for so many ranks and micro-batches: {} {} missing\nhint: `planner schedule {name} --stages {} \
         --micro-batches {}`",
        lacks.join(" and "),
        if lacks.len() == 1 { "is" } else { "are" },
        stages.unwrap_or(4),
        micro_batches.unwrap_or(8),
    )
}

/// Name of the scheduler that makes a schedule for given costs.
const AUTO: &str = "auto";

/// Default share of activations that is kept for the weight gradient. It is more than the `32 h / (34 h + 5 a s)` of
/// the authors of zero bubble (0.37 for h 2304, a 24, s 1024), which includes the activations of unfused attention.
const USUALLY_KEPT: f64 = 0.5;

/// Shares of activations are counted in thousandths.
const UNITS_KEPT: f64 = 1000.0;

fn made_for(args: &ScheduleArgs, costs: Costs, p: u32, m: u32) -> anyhow::Result<Schedule> {
    let v = args.virtual_stages.unwrap_or(1);
    let num_stages = p.saturating_mul(v);
    anyhow::ensure!(
        u64::from(num_stages) <= MOST_STAGES,
        "{p} ranks x {v} stages are more than the {MOST_STAGES} that a schedule has at most"
    );
    anyhow::ensure!(
        u64::from(num_stages) * u64::from(m) <= MOST_PASSES,
        "{num_stages} stages x {m} micro-batches are more than the {MOST_PASSES} that `{AUTO}` orders"
    );
    let in_flight = args.max_in_flight.map_or(2 * u64::from(num_stages), u64::from);
    let request = SchedulingRequest {
        durations: &costs.durations(num_stages),
        num_ranks: p,
        num_micro_batches: m,
        kept: StageMemory {
            activations: UNITS_KEPT as u64,
            for_weight_grad: (args.kept_for_weight_grad.unwrap_or(USUALLY_KEPT) * UNITS_KEPT)
                .round() as u64,
        },
        limit: in_flight * UNITS_KEPT as u64,
    };
    Ok(scheduling::schedule(&request)?.schedule)
}

/// Largest number of passes that `auto` orders, checked before durations are allocated.
const MOST_PASSES: u64 = 1 << 19;
