//! A plan with a choice for each operator, and its predicted time and memory.

use std::collections::BTreeMap;

use cost_models::states::ModelStates;
use ir::graph::{ByMeshAxis, Sharding, SplitDim};
use ir::layout::{LayoutSpec, ZeroStage};
use ir::plan::{Breakdown, MemoryUse, Prediction};
use ir::units::{Bytes, Seconds};
use serde::Serialize;

use super::graph::Operators;
use super::step::OperatorStep;
use crate::problem::Problem;
use crate::search::{EvaluatedPlan, model_flops_utilization, tokens_per_second_per_gpu};
use crate::step::{libraries, slack};

/// The split of one operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SplitOperator {
    /// Name of the operator.
    pub name: String,
    /// Number of ranks that share each dimension; the others compute the same.
    pub splits: BTreeMap<SplitDim, u32>,
}

/// A choice for each operator, with the resulting step.
#[derive(Clone, Debug)]
pub struct OperatorPlan {
    /// Ranks of a stage along each axis of the mesh, neighbours first.
    pub mesh: ByMeshAxis<u32>,
    /// Layout that all operators have in common. Without stages, all ranks share one replica.
    pub layout: LayoutSpec,
    /// End of each stage, in blocks of the chain.
    pub stage_ends: Vec<usize>,
    /// The operators, each after those that it reads.
    pub operators: Vec<SplitOperator>,
    /// Predicted time and memory.
    pub prediction: Prediction,
    /// Time of the exchanges of a rank in a step, overlapped or not; for a plan of stages, only of those for which the
    /// rank waits.
    pub communication: Seconds,
}

impl OperatorPlan {
    /// A plan in which all ranks share every operator.
    pub(super) fn without_stages(
        problem: &Problem,
        operators: Vec<SplitOperator>,
        (mesh, num_micro_batches, zero): (ByMeshAxis<u32>, u64, ZeroStage),
        played: &OperatorStep,
    ) -> Self {
        let num_gpus = mesh.iter().product();
        let size = problem.training.global_batch_size / num_micro_batches;
        let layout = LayoutSpec {
            zero_stage: zero,
            micro_batch_size: u32::try_from(size).unwrap_or(u32::MAX),
            num_micro_batches: u32::try_from(num_micro_batches).unwrap_or(u32::MAX),
            ..LayoutSpec::ONE_RANK.sharded(&Sharding::tensor(num_gpus))
        };
        let step_time = Seconds::new(played.time());
        let memory = memory(problem, zero, played);
        let prediction = Prediction {
            step_time_seconds: step_time.get(),
            tokens_per_second_per_gpu: tokens_per_second_per_gpu(problem, step_time),
            mfu: model_flops_utilization(problem, step_time),
            peak_memory_bytes: memory.total(),
            breakdown: Breakdown {
                compute_seconds: played.kernels,
                host_seconds: played.host,
                tensor_parallel_seconds: played.waits,
                data_parallel_seconds: played.exposed,
                optimizer_seconds: played.update,
                ..Breakdown::default()
            },
            memory,
        };
        let communication = Seconds::new(played.communication);
        let stage_ends = vec![problem.graph.num_blocks()];
        Self { mesh, layout, stage_ends, operators, prediction, communication }
    }

    /// A plan of pipeline stages whose ranks share every operator over the batch.
    pub(super) fn of_stages(
        problem: &Problem,
        operators: &Operators<'_>,
        found: &EvaluatedPlan,
    ) -> Self {
        let ranks = found.layout.data_parallel;
        let splits =
            if ranks > 1 { BTreeMap::from([(SplitDim::Batch, ranks)]) } else { BTreeMap::new() };
        let prediction = found.prediction(problem);
        let Breakdown { data_parallel_seconds, pipeline_messages_seconds, .. } =
            prediction.breakdown;
        let split = |name: &String| SplitOperator { name: name.clone(), splits: splits.clone() };
        Self {
            mesh: [ranks, 1],
            layout: *found.layout,
            stage_ends: found.stage_ends.clone(),
            operators: operators.all.iter().map(|operator| split(&operator.name)).collect(),
            prediction,
            communication: Seconds::new(data_parallel_seconds + pipeline_messages_seconds),
        }
    }

    /// Time of a step, in seconds.
    pub const fn time(&self) -> f64 {
        self.prediction.step_time_seconds
    }
}

/// Memory of a rank at the peak of a step.
pub(super) fn memory(problem: &Problem, zero: ZeroStage, played: &OperatorStep) -> MemoryUse {
    let bytes = problem.state_bytes();
    let states = ModelStates::of_rank([played.held, played.owned], zero, bytes);
    let libraries = libraries(&problem.hardware, problem.facts.has_experts);
    let memory = MemoryUse {
        parameters_bytes: states.parameters,
        gradients_bytes: states.gradients,
        optimizer_bytes: states.optimizer,
        // Gathered parameters of the block that computes and of the next one, as in all other plans.
        gathered_bytes: Bytes::new(played.gathered * (2 * bytes.parameter + bytes.gradient)),
        activations_bytes: Bytes::from_f64(played.saved),
        workspace_bytes: libraries.workspace_bytes + Bytes::from_f64(played.working),
        ..libraries
    };
    MemoryUse { allocator_bytes: slack(memory.total(), memory.context_bytes), ..memory }
}
