//! The space of layouts: every combination of degrees that model, batch and GPUs allow.

use std::collections::BTreeMap;
use std::fmt;

use ir::graph::{ContextParallelKind, Sharding};
use ir::layout::{LayoutError, LayoutSpec, Offload, PartialLayout, largest_divisor};
use serde::Serialize;

use super::family::{Family, LayoutCounts, ShapeFamily, divisors};
use super::feasible::{abilities, check_framework, check_named, context_kinds, switches};
use crate::problem::Problem;

/// Reason why candidates were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// Memory of a GPU is exceeded.
    Memory,
    /// Heads or inner widths do not divide by the tensor-parallel degree.
    Tensor,
    /// The sequence does not divide by the degrees that shard it.
    Sequence,
    /// Experts do not divide, or do not fit within the ranks of a stage.
    Expert,
    /// The global batch does not divide by the data-parallel degree.
    Batch,
    /// There are more stages than blocks.
    Stages,
    /// The stages given by hand do not divide over the pipeline ranks.
    GivenStages,
    /// A pipeline rank or a replica has GPUs of several kinds.
    Groups,
    /// The framework cannot run the combination.
    Framework,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Memory => "beyond the memory of a GPU",
            Self::Tensor => "with heads or inner widths undivided",
            Self::Sequence => "with the sequence undivided",
            Self::Expert => "with experts undivided",
            Self::Batch => "with the global batch undivided",
            Self::Stages => "with more stages than the model has blocks",
            Self::GivenStages => "with the given stages undivided",
            Self::Groups => "with pipeline ranks or replicas on GPUs of several kinds",
            Self::Framework => "that the framework does not run",
        })
    }
}

/// All families of a problem that agree with `fixed`, and the numbers of degrees rejected, by reason.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// The families, grouped by the options that they have in common.
    pub shape_families: Vec<ShapeFamily>,
    /// Numbers of combinations of degrees that were left out, by reason.
    pub rejected: BTreeMap<Rejection, u64>,
    /// Error of the combination that was left out last.
    pub last_error: Option<LayoutError>,
}

impl Space {
    /// Enumerates the families.
    pub fn new(problem: &Problem, fixed: &PartialLayout) -> Self {
        let mut space = Self::default();
        if let Err(error) = check_named(problem, fixed) {
            space.last_error = Some(error);
            return space;
        }
        if let Err(error) = check_framework(problem, fixed) {
            space.reject(Rejection::Framework, error);
            return space;
        }
        let gpus = problem.limits.num_gpus;
        for tensor in fixed.tensor_parallel.among(divisors(gpus)) {
            let offload = fixed.offload.unwrap_or(Offload::NONE);
            let spec =
                LayoutSpec { offload, ..LayoutSpec::ONE_RANK.sharded(&Sharding::tensor(tensor)) };
            if let Err(error) = problem.limits.heads_divide(&spec) {
                space.reject(Rejection::Tensor, error);
                continue;
            }
            for sequence_parallel in fixed.sequence_parallel.among(vec![false, true]) {
                space.add_tensor(problem, fixed, LayoutSpec { sequence_parallel, ..spec });
            }
        }
        space
    }

    fn add_tensor(&mut self, problem: &Problem, fixed: &PartialLayout, spec: LayoutSpec) {
        let limits = &problem.limits;
        let (tensor, sequence) = (spec.tensor_parallel, spec.sequence_parallel);
        if sequence && tensor == 1 && fixed.sequence_parallel.is_any() {
            return;
        }
        if !abilities(problem).supports_tensor(tensor, sequence, !limits.experts.is_empty()) {
            return self.reject_unable();
        }
        let Some(rest) = quotient(limits.num_gpus, tensor) else { return };
        for context in fixed.context_parallel.among(divisors(rest)) {
            // A named degree may not divide the ranks that are left.
            if quotient(rest, context).is_none() {
                continue;
            }
            for kind in context_kinds(problem, fixed, context) {
                let spec =
                    LayoutSpec { context_parallel: context, context_parallel_kind: kind, ..spec };
                // Errors of a kind that was not named are not reported if there is another kind.
                let is_other = fixed.context_parallel_kind.is_any()
                    && kind != ContextParallelKind::Ring
                    && abilities(problem).context_parallel.contains(&ContextParallelKind::Ring);
                if !is_other || problem.limits.sequence_divides(&spec).is_ok() {
                    self.add_kind(problem, fixed, spec);
                }
            }
        }
    }

    fn add_kind(&mut self, problem: &Problem, fixed: &PartialLayout, spec: LayoutSpec) {
        let kind = spec.context_parallel_kind;
        if !abilities(problem).supports_context(spec.context_parallel, kind) {
            return self.reject_unable();
        }
        match problem.limits.sequence_divides(&spec) {
            Ok(()) => self.add_context(problem, fixed, spec),
            Err(error) => {
                let is_ring = kind == ContextParallelKind::Ring;
                self.reject(if is_ring { Rejection::Sequence } else { Rejection::Tensor }, error);
            }
        }
    }

    fn add_context(&mut self, problem: &Problem, fixed: &PartialLayout, spec: LayoutSpec) {
        let limits = &problem.limits;
        let Some(rest) = quotient(limits.num_gpus, spec.tensor_parallel * spec.context_parallel)
        else {
            return;
        };
        for pipeline_parallel in fixed.pipeline_parallel.among(divisors(rest)) {
            let Some(data_parallel) = quotient(rest, pipeline_parallel) else { continue };
            if !fixed.data_parallel.allows(data_parallel) {
                continue;
            }
            if !self.given_stages_divide(problem, fixed, pipeline_parallel) {
                continue;
            }
            if pipeline_parallel > 1 && abilities(problem).schedules.is_empty() {
                self.reject_unable();
                continue;
            }
            let spec = LayoutSpec { pipeline_parallel, data_parallel, ..spec };
            if let Err(error) = limits.stages_have_blocks(&spec) {
                self.reject(Rejection::Stages, error);
                continue;
            }
            self.add_arrangements(problem, fixed, spec);
        }
    }

    /// Adds layouts whose pipeline ranks lie in groups of unlike GPUs, where there are such groups, and layouts whose
    /// replicas do.
    fn add_arrangements(&mut self, problem: &Problem, fixed: &PartialLayout, spec: LayoutSpec) {
        let ranks = problem.check_groups(&spec);
        let replicas =
            problem.supports_replica_groups() && problem.limits.replicas_fill_groups(&spec).is_ok();
        if replicas {
            self.add_replicas_by_group(problem, fixed, spec);
        }
        match ranks {
            Ok(()) if problem.groups.is_some() && !abilities(problem).unlike_gpus => {
                self.reject_unable();
            }
            Ok(()) => self.add_data(problem, fixed, spec),
            Err(error) if !replicas => self.reject(Rejection::Groups, error),
            Err(_) => {}
        }
    }

    /// Adds layouts whose replicas lie in groups of unlike GPUs. The replicas of each group have the number of
    /// micro-batches that makes the step fastest; all have the same number where the framework supports nothing else.
    fn add_replicas_by_group(
        &mut self,
        problem: &Problem,
        fixed: &PartialLayout,
        spec: LayoutSpec,
    ) {
        let (batch, data) = (problem.limits.global_batch_size, u64::from(spec.data_parallel));
        let sizes = divisors(u32::try_from(batch).unwrap_or_default());
        let shardings = self.with_experts(problem, fixed, spec);
        let shardings = shardings.into_iter().filter(|sharding| {
            problem.limits.replicas_fill_groups(&spec.sharded(sharding)).is_ok()
        });
        let shardings: Vec<Sharding> = shardings.collect();
        let sizes = fixed.micro_batch_size.among(sizes).into_iter().filter_map(|size| {
            let all = quotient(u32::try_from(batch).ok()?, size)?;
            let is_even = u64::from(all).is_multiple_of(data);
            let is_supported = is_even || abilities(problem).uneven_replicas;
            (u64::from(all) >= data && is_supported).then_some([size, all / spec.data_parallel])
        });
        let sizes: Vec<[u32; 2]> = sizes.collect();
        for sharding in shardings {
            self.add(
                problem,
                ShapeFamily {
                    spec: spec.sharded(&sharding),
                    by_group: true,
                    switches: switches(problem, fixed, &sharding),
                    micro_batches: sizes.clone(),
                },
            );
        }
    }

    /// Adds the families that the framework can run.
    fn add(&mut self, problem: &Problem, shape_family: ShapeFamily) {
        let able = shape_family.families(problem).count() as u64;
        let unable = shape_family.num_combinations() - able;
        if unable > 0 {
            *self.rejected.entry(Rejection::Framework).or_default() += unable;
        }
        if able > 0 {
            self.shape_families.push(shape_family);
        }
    }

    /// True if the stages given by hand, if any, divide over this number of pipeline ranks.
    fn given_stages_divide(
        &mut self,
        problem: &Problem,
        fixed: &PartialLayout,
        pipeline: u32,
    ) -> bool {
        let Some(stages) = &problem.stages else { return true };
        let given = stages.num_stages();
        // A single rank has one stage.
        let fits = given.is_multiple_of(pipeline) && (pipeline > 1 || given == 1);
        if fixed.pipeline_parallel.one().is_none() {
            return fits;
        }
        if !given.is_multiple_of(pipeline) {
            let error = LayoutError::GivenStagesUndivided {
                given,
                pipeline_parallel: pipeline,
                works: stages.evenly(pipeline),
                divisor: largest_divisor(given.into(), pipeline.into()),
            };
            self.reject(Rejection::GivenStages, error);
            return false;
        }
        true
    }

    fn add_data(&mut self, problem: &Problem, fixed: &PartialLayout, spec: LayoutSpec) {
        let data = spec.data_parallel;
        let batch = problem.limits.global_batch_size;
        let indivisible = |micro_batch: u32| LayoutError::Batch {
            global_batch_size: batch,
            data_parallel: data.into(),
            micro_batch_size: micro_batch.into(),
            num_micro_batches: (batch / (u64::from(data) * u64::from(micro_batch)).max(1)).max(1),
        };
        if !batch.is_multiple_of(data.into()) {
            let error = indivisible(fixed.micro_batch_size.unwrap_or(1));
            return self.reject(Rejection::Batch, error);
        }
        let of_replica = (batch / u64::from(data)) as u32;
        let sizes = fixed.micro_batch_size.among(divisors(of_replica));
        let (divide, others): (Vec<u32>, Vec<u32>) =
            sizes.into_iter().partition(|size| quotient(of_replica, *size).is_some());
        let micro_batches: Vec<[u32; 2]> =
            divide.into_iter().map(|size| [size, of_replica / size]).collect();
        for sharding in self.with_experts(problem, fixed, spec) {
            let switches = switches(problem, fixed, &sharding);
            for size in &others {
                *self.rejected.entry(Rejection::Batch).or_default() += switches.len() as u64;
                self.last_error = Some(indivisible(*size));
            }
            let (spec, micro_batches) = (spec.sharded(&sharding), micro_batches.clone());
            self.add(problem, ShapeFamily { spec, by_group: false, switches, micro_batches });
        }
    }

    /// Every degree of expert tensor parallelism and of expert parallelism within a stage.
    fn with_experts(
        &mut self,
        problem: &Problem,
        fixed: &PartialLayout,
        spec: LayoutSpec,
    ) -> Vec<Sharding> {
        let limits = &problem.limits;
        let LayoutSpec { tensor_parallel, sequence_parallel, .. } = spec;
        let has_experts = !limits.experts.is_empty();
        let is_free = has_experts && sequence_parallel;
        let free = if is_free { divisors(tensor_parallel) } else { vec![tensor_parallel] };
        let mut shardings = Vec::new();
        for expert_tensor_parallel in fixed.expert_tensor_parallel.among(free) {
            let spec = LayoutSpec { expert_tensor_parallel, ..spec };
            if let Err(error) = limits.expert_widths_divide(&spec) {
                self.reject(Rejection::Expert, error);
                continue;
            }
            let ranks = spec.ranks_per_stage() / expert_tensor_parallel;
            let degrees = if has_experts { divisors(ranks) } else { vec![1] };
            for expert_parallel in fixed.expert_parallel.among(degrees) {
                let spec = LayoutSpec { expert_parallel, ..spec };
                let able = abilities(problem);
                if has_experts
                    && !able.supports_experts(
                        expert_parallel,
                        expert_tensor_parallel,
                        tensor_parallel,
                    )
                {
                    self.reject_unable();
                    continue;
                }
                match limits.experts_divide(&spec) {
                    Ok(()) => shardings.push(spec.sharding()),
                    Err(error) => self.reject(Rejection::Expert, error),
                }
            }
        }
        shardings
    }

    /// True if the space has any layout.
    pub fn has_layouts(&self, problem: &Problem, fixed: &PartialLayout) -> bool {
        let known = LayoutCounts::default();
        self.families(problem).any(|family| {
            let shardings = family.shardings(problem, fixed);
            let known = family.known_counts(&shardings, &known);
            family.num_layouts(problem, fixed, &shardings, &known) > 0
        })
    }

    /// All families.
    pub fn families(&self, problem: &Problem) -> impl Iterator<Item = Family> {
        self.shape_families.iter().flat_map(|it| it.families(problem))
    }

    /// Counts a combination that the framework cannot run.
    fn reject_unable(&mut self) {
        *self.rejected.entry(Rejection::Framework).or_default() += 1;
    }

    fn reject(&mut self, reason: Rejection, error: LayoutError) {
        *self.rejected.entry(reason).or_default() += 1;
        self.last_error = Some(error);
    }
}

fn quotient(number: u32, divisor: u32) -> Option<u32> {
    (divisor > 0 && number.is_multiple_of(divisor)).then(|| number / divisor)
}
