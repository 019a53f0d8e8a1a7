//! Settings evaluated as a problem.

use ir::cluster::Cluster;
use ir::graph::{Graph, Recompute};
use ir::layout::LayoutError;
use ir::units::Bytes;

use super::change::Change;
use super::finding::Cost;
use crate::interchange::{ImportError, Imported, Posed, Run, StatedStages, named, num_layers};
use cost_models::residuals::SHARE;
use planner_core::problem::Problem;
use planner_core::search::{EvaluatedPlan, RESOLUTION, evaluated, saving};

/// Model and cluster with which settings are evaluated.
#[derive(Clone, Debug)]
pub(super) struct EvalContext<'a> {
    /// Graph of the model as the settings train it, without modules to recompute.
    pub(super) graph: Graph,
    /// The cluster.
    pub(super) cluster: &'a Cluster,
    /// Number of GPUs, if the settings do not state it.
    pub(super) num_gpus: Option<u32>,
    /// True if the vocabulary is sharded over all pipeline ranks.
    pub(super) vocabulary_parallel: bool,
}

/// Settings with their problem, layout and prediction.
#[derive(Clone, Debug)]
pub(super) struct EvaluatedConfig {
    /// The settings.
    pub(super) imported: Imported,
    /// The problem that the settings pose.
    pub(super) problem: Problem,
    /// Layout, predicted time and memory.
    pub(super) found: EvaluatedPlan,
}

/// Settings that result from changes to others.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    /// The changes.
    pub(super) changes: Vec<Change>,
    /// The changed settings, evaluated.
    pub(super) case: EvaluatedConfig,
    /// Share of the time per sequence that the changes save.
    pub(super) saves: f64,
}

/// Least saving for which an interval is computed; smaller savings cannot be resolved.
const ASKED_FROM: f64 = RESOLUTION;

/// Share of a step's time that nobody gives up for a safety margin or out of habit.
const SURE: f64 = 0.1;

impl EvalContext<'_> {
    /// Layers of the model.
    pub(super) fn num_layers(&self) -> u32 {
        num_layers(&self.graph) as u32
    }

    /// Input of the option tables.
    pub(super) fn run<'a>(&self, imported: &'a Imported) -> Run<'a> {
        Run::new(imported, &self.graph)
    }

    /// Settings with changes applied.
    pub(super) fn changed(&self, imported: &Imported, changes: &[Change]) -> Imported {
        let mut new = imported.clone();
        for change in changes {
            change.apply(&mut new, self.num_layers());
        }
        new
    }

    /// The problem that settings pose.
    pub(super) fn posed(&self, imported: &Imported) -> Result<Posed, ImportError> {
        let unbuilt = |error: ir::graph::GraphError| {
            ImportError::unknown(error.to_string(), "recompute of something that the model has")
        };
        let graph = match imported.layout.recompute.modules() {
            Some(modules) if self.graph.recomputed_modules() != Some(modules) => {
                &self.graph.clone().recomputing(modules).map_err(unbuilt)?
            }
            _ => &self.graph,
        };
        imported.posed(graph, self.cluster, self.num_gpus)
    }

    /// Evaluates settings.
    pub(super) fn evaluated(&self, imported: &Imported) -> Result<EvaluatedConfig, ImportError> {
        let Posed { problem, layout, stage_ends } = self.posed(imported)?;
        let problem = problem.with_vocabulary_parallel(self.vocabulary_parallel);
        let evaluation = evaluated(&problem, layout, &stage_ends).map_err(|error| {
            ImportError::Layout(LayoutError::Schedule {
                schedule: layout.schedule,
                needs: error.to_string(),
            })
        })?;
        let found = EvaluatedPlan { layout, stage_ends, evaluation };
        Ok(EvaluatedConfig { imported: imported.clone(), problem, found })
    }

    /// Evaluates changes; `None` if nothing changes, they cannot be evaluated, or the tool cannot run them.
    pub(super) fn tried(&self, base: &EvaluatedConfig, changes: &[Change]) -> Option<Variant> {
        let imported = self.changed(&base.imported, changes);
        let mut case = self.evaluated(&imported).ok()?;
        if case.problem.training == base.problem.training && case.found.layout == base.found.layout
        {
            let same_stages = case.found.stage_ends == base.found.stage_ends;
            let same_habits = case.imported.framework == base.imported.framework;
            if same_stages && same_habits {
                return None;
            }
        }
        // Tensor parallelism across nodes is never suggested on the basis of a prediction alone.
        if case.crosses_nodes() && !base.crosses_nodes() {
            return None;
        }
        let more = |case: &EvaluatedConfig| case.lacks().len();
        if more(&case) > more(base) {
            return None;
        }
        // The balanced stages are stated explicitly, as numbers of blocks.
        if case.imported.stages == StatedStages::Balanced {
            case.imported.stages = StatedStages::Blocks(case.found.stage_blocks());
        }
        let saves = 1.0 - case.seconds_per_sequence() / base.seconds_per_sequence();
        Some(Variant { changes: changes.to_vec(), case, saves })
    }
}

impl EvaluatedConfig {
    /// Predicted step time per sequence, in seconds.
    pub(super) fn seconds_per_sequence(&self) -> f64 {
        self.found.evaluation.step_time.get() / self.problem.training.global_batch_size as f64
    }

    /// Peak memory of the fullest rank.
    pub(super) fn peak(&self) -> Bytes {
        self.found.evaluation.memory.total()
    }

    /// The problem for the GPUs of the fullest rank.
    pub(super) fn of_fullest(&self) -> Problem {
        self.problem.at_rank(&self.found.layout, self.found.evaluation.fullest_rank)
    }

    /// Returns whether the settings fit with the usual headroom, with which nine of ten such predictions fit.
    pub(super) fn fits_with_headroom(&self) -> bool {
        let problem = self.of_fullest().with_headroom(self.problem.usual_headroom());
        problem.fits_with_headroom(&self.found.evaluation.memory)
    }

    /// Returns whether predicted memory is within the memory of the GPU and of the host.
    pub(super) fn fits(&self) -> bool {
        self.of_fullest().fits(&self.found.evaluation.memory)
    }

    /// Returns whether tensor-parallel groups extend beyond the fastest network domain.
    pub(super) fn crosses_nodes(&self) -> bool {
        let domain = self.problem.hardware.domain;
        self.problem.limits.num_gpus > domain
            && !domain.is_multiple_of(self.found.layout.tensor_parallel)
    }

    /// Parts of the layout that the framework cannot run.
    pub(super) fn lacks(&self) -> Vec<String> {
        self.problem.unsupported(&named(&self.found.layout, self.problem.facts))
    }

    /// Returns whether activations are recomputed.
    pub(super) fn recomputes(&self) -> bool {
        self.found.layout.recompute != Recompute::None
    }
}

impl Variant {
    /// The fastest of several variants.
    pub(super) fn fastest(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.max_by(|one, other| one.saves.total_cmp(&other.saves))
    }

    /// Returns whether the variant may be suggested: it fits with headroom, or the original settings fit and it needs
    /// no more memory than they do.
    pub(super) fn may_run(&self, base: &EvaluatedConfig) -> bool {
        self.case.fits_with_headroom()
            || base.fits() && self.case.fits() && self.case.peak() <= base.peak()
    }

    /// Cost of `base` relative to this variant: its saving, its interval, and the memory that it frees.
    pub(super) fn cost(&self, base: &EvaluatedConfig) -> Cost {
        let is_same_batch =
            self.case.problem.training.global_batch_size == base.problem.training.global_batch_size;
        let interval = (self.saves.abs() >= ASKED_FROM && is_same_batch).then(|| {
            saving((&base.problem, &base.found), (&self.case.problem, &self.case.found), SHARE)
        });
        let freed = i128::from(base.peak().get()) - i128::from(self.case.peak().get());
        let freed_bytes = i64::try_from(freed).unwrap_or_default();
        Cost { share_of_time: self.saves, interval, freed_bytes }
    }
}

impl Cost {
    /// Returns whether the saving is certain: the lower end of its interval is above [`RESOLUTION`].
    pub(super) fn is_certain(self) -> bool {
        self.interval.is_some_and(|[low, _]| low > RESOLUTION)
    }

    /// Returns whether the saving is so large that reasons which the model does not cover are unlikely to outweigh it.
    pub(super) fn is_sure(self) -> bool {
        self.interval.is_some_and(|[low, _]| low > SURE)
    }

    /// The cost as text: `saves 21 % of a step (14 to 28 %)`.
    pub(super) fn describe(&self) -> String {
        let percent = self.share_of_time * 100.0;
        let time = match self.interval {
            Some([low, high]) if percent < 0.0 => format!(
                "adds {:.0} % to a step's time ({:.0} to {:.0} %)",
                -percent,
                -high * 100.0,
                -low * 100.0
            ),
            Some([low, high]) => format!(
                "saves {percent:.0} % of a step's time ({:.0} to {:.0} %)",
                low * 100.0,
                high * 100.0
            ),
            None if self.share_of_time.abs() < RESOLUTION => {
                "changes a step's time by less than can be told apart".to_owned()
            }
            None if percent < 0.0 => format!("adds {:.0} % to a step's time", -percent),
            None => format!("saves {percent:.0} % of a step's time"),
        };
        let gib = self.freed_bytes as f64 / (1u64 << 30) as f64;
        match gib {
            gib if gib >= 1.0 => format!("{time} and frees {gib:.1} GiB of a GPU"),
            gib if gib <= -1.0 => format!("{time} and takes {:.1} GiB more of a GPU", -gib),
            _ => time,
        }
    }
}
