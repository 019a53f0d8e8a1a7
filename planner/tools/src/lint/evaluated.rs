//! Settings, posed as a problem and evaluated.

use ir::cluster::Cluster;
use ir::graph::{Graph, Recompute};
use ir::layout::LayoutError;
use ir::units::Bytes;

use super::change::Change;
use super::finding::Cost;
use crate::interchange::{ImportError, Imported, Posed, Run, StatedStages, named};
use cost_models::residuals::SHARE;
use planner_core::problem::Problem;
use planner_core::search::{EvaluatedPlan, RESOLUTION, saving, with_step};
use planner_core::step::Step;

/// What settings are evaluated with.
#[derive(Clone, Debug)]
pub(super) struct EvalContext<'a> {
    /// The model as the settings train it, with nothing named that is computed again.
    pub(super) graph: Graph,
    /// The GPUs.
    pub(super) cluster: &'a Cluster,
    /// How many, where the settings do not say.
    pub(super) num_gpus: Option<u32>,
    /// Whether all pipeline ranks share the vocabulary.
    pub(super) vocabulary_parallel: bool,
}

/// Settings that can be posed, with what they take.
#[derive(Clone, Debug)]
pub(super) struct EvaluatedConfig {
    /// The settings.
    pub(super) imported: Imported,
    /// The problem that they pose.
    pub(super) problem: Problem,
    /// Their layout, time and memory.
    pub(super) found: EvaluatedPlan,
}

/// Other settings, beside those at hand.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    /// What is changed.
    pub(super) changes: Vec<Change>,
    /// The settings so changed.
    pub(super) case: EvaluatedConfig,
    /// The share of the time of a sequence that they save.
    pub(super) saves: f64,
}

/// Below this share of time no interval is asked for: it cannot be told apart from none.
const ASKED_FROM: f64 = RESOLUTION;

/// A share of a step's time that people do not leave lying for the sake of margin or habit.
const SURE: f64 = 0.1;

impl EvalContext<'_> {
    /// Layers of the model: all blocks but the embedding, the head and modules for multi-token prediction.
    pub(super) fn num_layers(&self) -> u32 {
        let names = self.graph.blocks().map(|class| self.graph.class(class).name());
        let modules = names.filter(|name| name.starts_with("mtp")).count();
        self.graph.num_blocks().saturating_sub(2 + modules) as u32
    }

    /// What options are written of.
    pub(super) fn run<'a>(&self, imported: &'a Imported) -> Run<'a> {
        Run::new(imported, &self.graph)
    }

    /// Settings with changes.
    pub(super) fn changed(&self, imported: &Imported, changes: &[Change]) -> Imported {
        let mut new = imported.clone();
        for change in changes {
            change.apply(&mut new, self.num_layers());
        }
        new
    }

    /// The problem that settings pose.
    pub(super) fn posed(&self, imported: &Imported) -> Result<Posed, ImportError> {
        let unbuilt = |error: ir::graph::GraphError| ImportError::Unknown {
            what: error.to_string(),
            works: "recompute of something that the model has".to_owned(),
        };
        let graph = match imported.layout.recompute.modules() {
            Some(modules) if self.graph.recomputed_modules() != Some(modules) => {
                &self.graph.clone().recomputing(modules).map_err(unbuilt)?
            }
            _ => &self.graph,
        };
        imported.posed(graph, self.cluster, self.num_gpus)
    }

    /// What settings take.
    pub(super) fn evaluated(&self, imported: &Imported) -> Result<EvaluatedConfig, ImportError> {
        let Posed { problem, layout, stage_ends } = self.posed(imported)?;
        let problem = problem.with_vocabulary_parallel(self.vocabulary_parallel);
        let evaluation =
            with_step(&problem, layout, &stage_ends, |step: &Step<'_>| step.evaluate());
        let evaluation = evaluation.map_err(|error| {
            ImportError::Layout(LayoutError::Schedule {
                schedule: layout.schedule,
                needs: error.to_string(),
            })
        })?;
        let found = EvaluatedPlan { layout, stage_ends, evaluation };
        Ok(EvaluatedConfig { imported: imported.clone(), problem, found })
    }

    /// What other settings take: those that the tool can run and that are cut as it says.
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
        // Nobody is told to leave the fast network for what a prediction promises.
        if case.crosses_nodes() && !base.crosses_nodes() {
            return None;
        }
        let more = |case: &EvaluatedConfig| case.lacks().len();
        if more(&case) > more(base) {
            return None;
        }
        // What is cut by costs is told as it was cut.
        if case.imported.stages == StatedStages::Balanced {
            case.imported.stages = StatedStages::Blocks(case.blocks());
        }
        let saves = 1.0 - case.seconds_per_sequence() / base.seconds_per_sequence();
        Some(Variant { changes: changes.to_vec(), case, saves })
    }
}

impl EvaluatedConfig {
    /// Seconds for each sequence of a step.
    pub(super) fn seconds_per_sequence(&self) -> f64 {
        self.found.evaluation.step_time.get() / self.problem.training.global_batch_size as f64
    }

    /// Memory of the fullest rank.
    pub(super) fn peak(&self) -> Bytes {
        self.found.evaluation.memory.total()
    }

    /// Whether it fits, as nine of ten do that are predicted to: with the usual headroom left.
    pub(super) fn has_room(&self) -> bool {
        let room = self.problem.hardware.memory.saturating_sub(self.problem.usual_headroom());
        self.peak() <= room && self.problem.fits(&self.found.evaluation.memory)
    }

    /// Whether it fits at all.
    pub(super) fn fits(&self) -> bool {
        self.problem.fits(&self.found.evaluation.memory)
    }

    /// Whether tensor-parallel ranks are joined by more than the fast network.
    pub(super) fn crosses_nodes(&self) -> bool {
        let domain = self.problem.hardware.domain;
        self.problem.limits.num_gpus > domain
            && !domain.is_multiple_of(self.found.layout.tensor_parallel)
    }

    /// Blocks of each stage.
    pub(super) fn blocks(&self) -> Vec<u32> {
        let starts = std::iter::once(0).chain(self.found.stage_ends.iter().copied());
        starts.zip(&self.found.stage_ends).map(|(start, end)| (end - start) as u32).collect()
    }

    /// What the framework cannot run of it.
    pub(super) fn lacks(&self) -> Vec<String> {
        self.problem.unsupported(&named(&self.found.layout, self.problem.facts))
    }

    /// Whether activations are computed again.
    pub(super) fn recomputes(&self) -> bool {
        self.found.layout.recompute != Recompute::None
    }
}

impl Variant {
    /// Whether it may be offered in the place of what is there: it has room, or needs no more where that is known to
    /// run.
    pub(super) fn may_run(&self, base: &EvaluatedConfig) -> bool {
        self.case.has_room() || base.fits() && self.case.fits() && self.case.peak() <= base.peak()
    }

    /// What the settings at hand cost beside these.
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
    /// Whether time is saved for certain: even the lower end of the interval is beyond what can be told apart.
    pub(super) fn is_certain(self) -> bool {
        self.interval.is_some_and(|[low, _]| low > RESOLUTION)
    }

    /// Whether so much is saved that no other reason, which a model does not see, is likely to outweigh it.
    pub(super) fn is_sure(self) -> bool {
        self.interval.is_some_and(|[low, _]| low > SURE)
    }

    /// In words: `saves 21 % of a step (14 to 28 %)`.
    pub(super) fn in_words(&self) -> String {
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
