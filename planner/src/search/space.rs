//! The space of layouts: every combination of degrees that model, batch and GPUs allow.

use std::collections::BTreeMap;
use std::fmt;

use cost_models::Group;
use ir::graph::Recompute;
use ir::layout::{
    Layout, LayoutError, LayoutSpec, MeshAxis, PartialLayout, ZeroStage, check_expert_shards,
    largest_divisor,
};
use ir::schedule::ScheduleKind;
use serde::Serialize;

use crate::problem::Problem;
use crate::step::ShapeKey;

/// Why candidates were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// They need more memory than a GPU has.
    Memory,
    /// Heads or inner widths do not divide by the tensor-parallel degree.
    Tensor,
    /// The sequence does not divide.
    Sequence,
    /// Experts do not divide, or do not fit within context and data parallelism.
    Expert,
    /// The global batch does not divide by the data-parallel degree.
    Batch,
    /// There are more stages than blocks.
    Stages,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Memory => "exceed the memory of a GPU",
            Self::Tensor => "leave heads or inner widths undivided",
            Self::Sequence => "leave the sequence undivided",
            Self::Expert => "leave experts undivided",
            Self::Batch => "leave the global batch undivided",
            Self::Stages => "have more stages than the model has blocks",
        })
    }
}

/// Candidates that differ only in schedule, recompute and ZeRO stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    /// How operators are sharded, and the micro-batch.
    pub shape: ShapeKey,
    /// Pipeline ranks.
    pub pipeline_parallel: u32,
    /// Replicas.
    pub data_parallel: u32,
    /// Micro-batches of a replica.
    pub num_micro_batches: u32,
}

/// How a family's model states are sharded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sharding {
    /// What is sharded.
    pub zero_stage: ZeroStage,
    /// Over how many ranks.
    pub zero_shard: u32,
}

impl Sharding {
    /// That of a layout.
    pub fn of(layout: &Layout) -> Self {
        Self { zero_stage: layout.zero_stage, zero_shard: layout.zero_shard }
    }
}

/// All families of a problem that agree with `fixed`, and how many degrees fell out for which reason.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// In ascending order.
    pub families: Vec<Family>,
    /// Combinations of degrees that were left out.
    pub rejected: BTreeMap<Rejection, u64>,
    /// The reason why the last of them was.
    pub last_error: Option<LayoutError>,
}

impl Space {
    /// Enumerates the families.
    pub fn new(problem: &Problem, fixed: &PartialLayout) -> Self {
        let mut space = Self::default();
        if let Err(error) = fixed.check() {
            space.last_error = Some(error);
            return space;
        }
        let gpus = problem.limits.num_gpus;
        for tensor in chosen(fixed.tensor_parallel, divisors(gpus)) {
            if let Err(error) = problem.limits.check_tensor(tensor.into()) {
                space.reject(Rejection::Tensor, error);
                continue;
            }
            for sequence in [false, true] {
                if fixed.sequence_parallel.is_some_and(|fixed| fixed != sequence) {
                    continue;
                }
                space.add_tensor(problem, fixed, tensor, sequence);
            }
        }
        space.families.sort_unstable();
        space
    }

    fn add_tensor(
        &mut self,
        problem: &Problem,
        fixed: &PartialLayout,
        tensor: u32,
        sequence: bool,
    ) {
        let limits = &problem.limits;
        if sequence && tensor == 1 && fixed.sequence_parallel.is_none() {
            return;
        }
        let Some(rest) = quotient(limits.num_gpus, tensor) else { return };
        for context in chosen(fixed.context_parallel, divisors(rest)) {
            if let Err(error) = limits.check_sequence(context.into(), tensor.into(), sequence) {
                self.reject(Rejection::Sequence, error);
                continue;
            }
            let Some(rest) = quotient(rest, context) else { continue };
            for pipeline in chosen(fixed.pipeline_parallel, divisors(rest)) {
                let Some(data) = quotient(rest, pipeline) else { continue };
                if fixed.data_parallel.is_some_and(|fixed| fixed != data) {
                    continue;
                }
                if u64::from(pipeline) > limits.num_blocks {
                    let (stages, blocks) = (pipeline.into(), limits.num_blocks);
                    self.reject(Rejection::Stages, LayoutError::TooManyStages { stages, blocks });
                    continue;
                }
                self.add_data(problem, fixed, [tensor, context, pipeline, data], sequence);
            }
        }
    }

    fn add_data(
        &mut self,
        problem: &Problem,
        fixed: &PartialLayout,
        [tensor, context, pipeline, data]: [u32; 4],
        sequence: bool,
    ) {
        let limits = &problem.limits;
        let batch = limits.global_batch_size;
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
        let shape = ShapeKey {
            tensor_parallel: tensor,
            sequence_parallel: sequence,
            context_parallel: context,
            expert_parallel: 1,
            whole_experts: false,
            micro_batch_size: 1,
        };
        for shape in self.shared_experts(problem, fixed, shape, data) {
            for micro_batch_size in chosen(fixed.micro_batch_size, divisors(of_replica)) {
                let Some(num_micro_batches) = quotient(of_replica, micro_batch_size) else {
                    self.reject(Rejection::Batch, indivisible(micro_batch_size));
                    continue;
                };
                self.families.push(Family {
                    shape: ShapeKey { micro_batch_size, ..shape },
                    pipeline_parallel: pipeline,
                    data_parallel: data,
                    num_micro_batches,
                });
            }
        }
    }

    /// `shape` with every way in which its ranks can share experts: cut by tensor parallelism, or whole.
    fn shared_experts(
        &mut self,
        problem: &Problem,
        fixed: &PartialLayout,
        shape: ShapeKey,
        data: u32,
    ) -> Vec<ShapeKey> {
        let (limits, tensor) = (&problem.limits, shape.tensor_parallel);
        let has_experts = !limits.experts.is_empty();
        let ways = match fixed.expert_tensor_parallel {
            Some(degree) if degree != 1 && degree != tensor => {
                let error = LayoutError::ExpertTensor { degree, tensor_parallel: tensor };
                self.reject(Rejection::Expert, error);
                vec![]
            }
            Some(degree) => vec![degree != tensor],
            None if has_experts && shape.sequence_parallel && tensor > 1 => vec![false, true],
            None => vec![false],
        };
        let mut shapes = Vec::new();
        for whole_experts in ways {
            if let Err(error) = limits.check_whole_experts(whole_experts, shape.sequence_parallel) {
                self.reject(Rejection::Expert, error);
                continue;
            }
            let shape = ShapeKey { whole_experts, ..shape };
            let mesh = shape.mesh(data);
            let ranks = mesh.stride(MeshAxis::Pipeline) / mesh.expert_tensor_parallel;
            let degrees = if has_experts { divisors(ranks) } else { vec![1] };
            for expert_parallel in chosen(fixed.expert_parallel, degrees) {
                match limits.check_expert(expert_parallel.into(), &mesh) {
                    Ok(()) => shapes.push(ShapeKey { expert_parallel, ..shape }),
                    Err(error) => self.reject(Rejection::Expert, error),
                }
            }
        }
        shapes
    }

    fn reject(&mut self, reason: Rejection, error: LayoutError) {
        *self.rejected.entry(reason).or_default() += 1;
        self.last_error = Some(error);
    }
}

impl Family {
    /// The ranks that share the layers.
    pub fn pipeline_group(&self) -> Group {
        let mesh = self.shape.mesh(self.data_parallel);
        Group { size: self.pipeline_parallel, stride: mesh.stride(MeshAxis::Pipeline) }
    }

    /// Schedules with their chunks a rank that the family can run: of the one that is named, or of all
    /// that are [searched](ScheduleKind::SEARCHED).
    pub fn schedules(&self, problem: &Problem, fixed: &PartialLayout) -> Vec<(ScheduleKind, u32)> {
        let p = self.pipeline_parallel;
        let most = (problem.limits.num_blocks / u64::from(p)) as u32;
        let named = fixed.schedule.as_slice();
        let tried = if named.is_empty() { &ScheduleKind::SEARCHED[..] } else { named };
        let mut schedules = Vec::new();
        for schedule in tried.iter().copied() {
            let usual = schedule.default_virtual_stages();
            let chunks = if schedule.is_interleaved() { 2..=most } else { usual..=usual };
            // What a few chunks are too many for, more are.
            let takes = |v: &u32| {
                let numbers = [p, *v, self.num_micro_batches].map(u64::from);
                problem.limits.check_schedule(schedule, numbers).is_ok()
            };
            let chosen = |v: &u32| fixed.virtual_stages.is_none_or(|fixed| fixed == *v);
            let chunks = chunks.take_while(takes).filter(chosen);
            schedules.extend(chunks.map(|v| (schedule, v)));
        }
        schedules
    }

    /// Why the family cannot run the schedule, chunks and shards that are fixed, if it cannot.
    pub fn schedule_error(&self, problem: &Problem, fixed: &PartialLayout) -> Option<LayoutError> {
        let schedule = fixed.schedule.unwrap_or(match fixed.virtual_stages {
            Some(2..) => ScheduleKind::Interleaved,
            _ => ScheduleKind::OneFOneB,
        });
        let chunks = fixed.virtual_stages.unwrap_or(schedule.default_virtual_stages());
        let numbers = [self.pipeline_parallel, chunks, self.num_micro_batches].map(u64::from);
        let schedule = problem.limits.check_schedule(schedule, numbers).err();
        let replicas = u64::from(self.shape.context_parallel * self.data_parallel);
        schedule.or_else(|| {
            let degree = u64::from(fixed.zero_shard?);
            if let Err(error) = self.check_expert_shards(fixed.zero_shard?) {
                return Some(error);
            }
            (!replicas.is_multiple_of(degree)).then(|| LayoutError::NotDivisible {
                what: "context x data parallel ranks",
                size: replicas,
                by: "`zero_shard`",
                degree,
                works: largest_divisor(replicas, degree),
            })
        })
    }

    /// Ways to shard model states: not at all, over all replicas, or over those of a network domain
    /// (hybrid sharding).
    pub fn shardings(&self, problem: &Problem, fixed: &PartialLayout) -> Vec<Sharding> {
        let replicas = self.shape.context_parallel * self.data_parallel;
        let within = problem.hardware.domain / self.shape.tensor_parallel.max(1);
        let local = divisors(replicas).into_iter().rfind(|shards| *shards <= within);
        let hybrid =
            local.filter(|shards| (2..replicas).contains(shards) && self.shards_experts(*shards));
        let mut shardings = Vec::new();
        for zero_stage in ZeroStage::ALL {
            if fixed.zero_stage.is_some_and(|fixed| fixed != zero_stage) {
                continue;
            }
            let sharded = zero_stage != ZeroStage::None;
            // Without replicas every stage is the same: only the plainest is worth a candidate.
            if sharded && replicas == 1 && fixed.zero_stage.is_none() {
                continue;
            }
            let degrees = match fixed.zero_shard {
                Some(shards) if replicas.is_multiple_of(shards) && self.shards_experts(shards) => {
                    vec![shards]
                }
                Some(_) => Vec::new(),
                None if sharded => hybrid.into_iter().chain([replicas]).collect(),
                None => vec![replicas],
            };
            let options = degrees.into_iter().map(|zero_shard| Sharding { zero_stage, zero_shard });
            shardings.extend(options);
        }
        shardings
    }

    /// Whether each group of expert-parallel ranks falls whole into one group of shards.
    fn shards_experts(&self, shards: u32) -> bool {
        self.check_expert_shards(shards).is_ok()
    }

    fn check_expert_shards(&self, shards: u32) -> Result<(), LayoutError> {
        let mesh = self.shape.mesh(self.data_parallel);
        check_expert_shards(shards, &mesh, self.shape.expert_parallel)
    }

    /// How many layouts it has.
    pub fn size(&self, problem: &Problem, fixed: &PartialLayout) -> u64 {
        let schedules = self.schedules(problem, fixed).len();
        let shardings = self.shardings(problem, fixed).len();
        (schedules * shardings * Self::recomputes(fixed).count()) as u64
    }

    /// One of its layouts.
    ///
    /// # Panics
    ///
    /// If the schedule, its stages a rank or the sharding are not among the family's.
    pub fn layout(
        &self,
        problem: &Problem,
        (schedule, virtual_stages): (ScheduleKind, u32),
        recompute: Recompute,
        sharding: Sharding,
    ) -> Layout {
        let Self { shape, pipeline_parallel, data_parallel, num_micro_batches } = *self;
        let spec = LayoutSpec {
            tensor_parallel: shape.tensor_parallel,
            sequence_parallel: shape.sequence_parallel,
            context_parallel: shape.context_parallel,
            expert_parallel: shape.expert_parallel,
            whole_experts: shape.whole_experts,
            pipeline_parallel,
            virtual_stages,
            data_parallel,
            zero_shard: sharding.zero_shard,
            zero_stage: sharding.zero_stage,
            micro_batch_size: shape.micro_batch_size,
            num_micro_batches,
            recompute,
            schedule,
        };
        let layout = Layout::new(spec, &problem.limits);
        layout.unwrap_or_else(|error| panic!("a family has only layouts that are valid: {error}"))
    }

    /// Recompute policies.
    pub fn recomputes(fixed: &PartialLayout) -> impl Iterator<Item = Recompute> {
        let fixed = fixed.recompute;
        Recompute::ALL.into_iter().filter(move |policy| fixed.is_none_or(|fixed| fixed == *policy))
    }
}

/// The value that is fixed, or all of `free`.
fn chosen(fixed: Option<u32>, free: Vec<u32>) -> Vec<u32> {
    fixed.map_or(free, |fixed| vec![fixed])
}

fn quotient(number: u32, divisor: u32) -> Option<u32> {
    (divisor > 0 && number.is_multiple_of(divisor)).then(|| number / divisor)
}

/// All divisors, ascending.
fn divisors(number: u32) -> Vec<u32> {
    let small = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor));
    let mut all: Vec<u32> = small.flat_map(|divisor| [divisor, number / divisor]).collect();
    all.sort_unstable();
    all.dedup();
    all
}
