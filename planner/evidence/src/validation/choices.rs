//! Quality of decisions by prediction, rather than errors: whether the layout that a search would choose is the fastest
//! one that was measured.

use std::collections::BTreeMap;

use planner_core::search::{EvaluatedPlan, chosen, simulated};
use serde::Serialize;

use super::{Predicted, Validated};

/// Relative difference of times below which layouts count as equal.
const ALIKE: f64 = 0.03;

/// Quality of the choice between layouts, over the groups of a file's rows. The rows of a group differ only in their
/// layout.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regret {
    /// Name of the file.
    pub file: String,
    /// Number of groups of rows that differ only in their layout.
    pub groups: usize,
    /// Mean regret over groups. The regret of a group is the excess time of the layout that a search among the group's
    /// layouts would show first, relative to the fastest measured layout.
    pub mean: f64,
    /// Largest regret.
    pub worst: f64,
    /// Row that would be chosen in the group with the largest regret.
    pub worst_id: String,
    /// Row that was fastest in that group.
    pub best_id: String,
    /// Number of pairs of rows of a group whose measured times differ by more than 3 %.
    pub pairs: usize,
    /// Number of these pairs that are predicted in the right order.
    pub ordered: usize,
}

/// A row with measured and predicted time.
struct Timed<'a> {
    id: &'a str,
    layout: &'a str,
    measured: f64,
    predicted: &'a Predicted,
}

/// The row whose layout a search among only these layouts would show first. Layouts that fit with the usual headroom
/// are preferred, if there are any. If the frameworks of the rows differ, or single layers were measured, the row with
/// the shortest predicted time.
fn choice<'r, 'a>(rows: &'r [Timed<'a>]) -> Option<&'r Timed<'a>> {
    let time = |row: &Timed<'_>| row.predicted.step_time_seconds;
    let fastest = rows.iter().min_by(|a, b| time(a).total_cmp(&time(b)));
    let plans: Option<Vec<_>> = rows.iter().map(|row| row.predicted.plan.as_ref()).collect();
    let Some([(problem, _), ..]) = plans.as_deref() else { return fastest };
    let plans = plans.iter().flatten();
    if plans.clone().any(|(other, _)| other.hardware.framework != problem.hardware.framework) {
        return fastest;
    }
    let mut plans: Vec<_> = plans.map(|(_, plan)| plan.clone()).collect();
    let with_usual_headroom = problem.clone().with_headroom(problem.usual_headroom());
    let fits = |plan: &EvaluatedPlan| {
        let evaluated = simulated(&with_usual_headroom, plan.layout, &plan.stage_ends).0;
        with_usual_headroom.fits_with_headroom(&evaluated.evaluation.memory)
    };
    if plans.iter().any(fits) {
        plans.retain(fits);
    }
    plans.sort_by(|one, other| {
        one.evaluation.step_time.get().total_cmp(&other.evaluation.step_time.get())
    });
    let first = chosen(problem, &plans, 1).pop()?.found;
    let is_first = |row: &&Timed<'_>| row.predicted.plan.as_ref().is_some_and(|it| it.1 == first);
    rows.iter().find(is_first)
}

impl Regret {
    /// The regret over a file's runs; `None` if no two runs differ only in their layout.
    pub fn of(file: &str, runs: &[Validated]) -> Option<Self> {
        Self::by(file, runs, |run| run.predicted.as_ref().ok())
    }

    /// The regret with constants fitted without the runs' source.
    pub fn left_out(file: &str, runs: &[Validated]) -> Option<Self> {
        Self::by(file, runs, |run| run.left_out.as_ref().or(run.predicted.as_ref().ok()))
    }

    fn by(
        file: &str,
        runs: &[Validated],
        predicted: impl Fn(&Validated) -> Option<&Predicted>,
    ) -> Option<Self> {
        let mut problems: BTreeMap<&str, Vec<Timed<'_>>> = BTreeMap::new();
        for run in runs {
            let Some(predicted) = predicted(run) else { continue };
            let run = &run.run;
            let Ok(Some(measured)) = run.step_time_seconds else { continue };
            let (id, layout) = (run.id.as_str(), run.variant.as_str());
            let timed = Timed { id, layout, measured, predicted };
            problems.entry(&run.problem).or_default().push(timed);
        }
        problems.values().filter_map(|rows| Self::of_group(file, rows)).reduce(Self::and)
    }

    fn of_group(file: &str, rows: &[Timed<'_>]) -> Option<Self> {
        let first = rows.first()?;
        if rows.iter().all(|row| row.layout == first.layout) {
            return None;
        }
        let best = rows.iter().min_by(|a, b| a.measured.total_cmp(&b.measured))?;
        let chosen = choice(rows)?;
        let regret = chosen.measured / best.measured - 1.0;
        let (mut pairs, mut ordered) = (0, 0);
        for (place, one) in rows.iter().enumerate() {
            for other in &rows[..place] {
                let ratio = one.measured / other.measured;
                if one.layout == other.layout || (ratio - 1.0).abs() <= ALIKE {
                    continue;
                }
                pairs += 1;
                let [one, other] = [one, other].map(|row| row.predicted.step_time_seconds);
                ordered += usize::from((ratio < 1.0) == (one < other));
            }
        }
        Some(Self {
            file: file.to_owned(),
            groups: 1,
            mean: regret,
            worst: regret,
            worst_id: chosen.id.to_owned(),
            best_id: best.id.to_owned(),
            pairs,
            ordered,
        })
    }

    /// The regret over the groups of both files.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let groups = self.groups + other.groups;
        let sum = self.mean * self.groups as f64 + other.mean * other.groups as f64;
        let (pairs, ordered) = (self.pairs + other.pairs, self.ordered + other.ordered);
        let worst = if self.worst >= other.worst { self } else { other };
        Self { groups, mean: sum / groups as f64, pairs, ordered, ..worst }
    }

    /// Share of the pairs that are predicted in the right order.
    pub fn share_ordered(&self) -> f64 {
        self.ordered as f64 / self.pairs.max(1) as f64
    }
}

/// Runs that worked, and those among them that are predicted not to fit in memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fits {
    /// Number of runs that worked, with or without a measured peak.
    pub ran: usize,
    /// Runs that worked but are predicted not to fit.
    pub rejected: Vec<Rejected>,
}

/// A run that worked but is predicted not to fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rejected {
    /// Name of the file.
    pub file: String,
    /// Name of the run in its file.
    pub id: String,
    /// True if linear layers run in fewer than 16 bits.
    pub few_bits: bool,
    /// Predicted memory, in bytes.
    pub predicted_bytes: u64,
    /// Memory of a GPU, in bytes.
    pub capacity_bytes: u64,
}

impl Fits {
    /// Adds a file's runs.
    pub fn add(&mut self, file: &str, runs: &[Validated]) {
        for Validated { run, predicted, .. } in runs {
            let Ok(predicted) = predicted else { continue };
            // A single layer has no memory prediction.
            let needed = predicted.memory.total();
            if run.ran_out_of_memory || run.step_time_seconds.is_err() || needed.get() == 0 {
                continue;
            }
            self.ran += 1;
            if needed > predicted.memory_capacity {
                self.rejected.push(Rejected {
                    file: file.to_owned(),
                    id: run.id.clone(),
                    few_bits: run.few_bits,
                    predicted_bytes: needed.get(),
                    capacity_bytes: predicted.memory_capacity.get(),
                });
            }
        }
    }
}
