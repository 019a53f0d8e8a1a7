//! The difference of two plans in time and memory, term by term, and the parts of the layouts that cause it.

use ir::graph::ExpertOverlap;
use ir::layout::LayoutSpec;
use ir::text::count_of;
use ir::units::{Bytes, Seconds};
use serde::Serialize;

use crate::problem::Problem;
use crate::search::{EvaluatedPlan, is_tie, likelihood_first_is_faster};

/// Difference in time and memory of a second plan from a first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Step time of the second minus that of the first, in seconds; negative where the second is faster.
    pub step_time_seconds: f64,
    /// Difference as a share of the first plan's step time.
    pub share: f64,
    /// Probability that the first plan is faster, by the ensemble.
    pub likelihood_first_is_faster: f64,
    /// Terms of the step time, the largest difference first.
    pub terms: Vec<TermDifference>,
    /// Memory of the fullest ranks, line by line, without the lines that are zero in both plans.
    pub memory: Vec<MemoryDifference>,
}

/// One term of the breakdown of two steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TermDifference {
    /// Name of the term.
    pub term: &'static str,
    /// Seconds that each step spends on the term.
    pub seconds: [f64; 2],
    /// Options of each layout that the term depends on, in words.
    pub because: [String; 2],
}

impl TermDifference {
    /// Seconds of the second step beyond those of the first.
    pub fn more(&self) -> f64 {
        self.seconds[1] - self.seconds[0]
    }
}

/// One line of the memory of two plans.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryDifference {
    /// Name of the line.
    pub line: &'static str,
    /// Bytes of the line in each plan.
    pub bytes: [Bytes; 2],
}

impl Difference {
    /// Compares the second of two plans with the first; the two plans may solve different problems.
    pub fn of(first: (&Problem, &EvaluatedPlan), second: (&Problem, &EvaluatedPlan)) -> Self {
        let both = [first, second];
        let times = both.map(|(_, found)| found.evaluation.step_time);
        let [one, other] = both.map(|(_, found)| found.evaluation.breakdown.parts());
        let because = |term| both.map(|(problem, found)| depends_on(term, problem, &found.layout));
        let mut terms: Vec<TermDifference> = one
            .into_iter()
            .zip(other)
            .filter(|((_, one), (_, other))| *one != 0.0 || *other != 0.0)
            .map(|((term, one), (_, other))| TermDifference {
                term,
                seconds: [one, other],
                because: because(term),
            })
            .collect();
        terms.sort_by(|a, b| b.more().abs().total_cmp(&a.more().abs()));
        let [one, other] = both.map(|(_, found)| found.evaluation.memory.lines());
        let lines = one.into_iter().zip(other);
        let memory = lines.filter(|((_, one), (_, other))| one.get() > 0 || other.get() > 0);
        Self {
            step_time_seconds: times[1].get() - times[0].get(),
            share: times[1] / times[0] - 1.0,
            likelihood_first_is_faster: likelihood_first_is_faster(first, second),
            terms,
            memory: memory
                .map(|((line, one), (_, other))| MemoryDifference { line, bytes: [one, other] })
                .collect(),
        }
    }

    /// True if the model cannot tell which of the two plans is faster.
    pub fn is_tie(&self) -> bool {
        is_tie(self.share, self.likelihood_first_is_faster)
    }

    /// Difference of the second plan's time as text: `3.2 % more, which cannot be told apart`.
    pub fn describe(&self) -> String {
        let direction = if self.share >= 0.0 { "more" } else { "less" };
        let tie = if self.is_tie() { ", which cannot be told apart" } else { "" };
        format!("{:.1} % {direction}{tie}", self.share.abs() * 100.0)
    }

    /// The largest terms on one line of text: `tensor-parallel collectives, exposed +1.20 s, ..`.
    pub fn largest_terms(&self, most: usize) -> String {
        let scale = self.step_time_seconds.abs().max(1e-12);
        let terms = self.terms.iter().filter(|it| it.more().abs() / scale >= 0.02);
        let terms = terms.take(most);
        let terms = terms.map(|it| format!("{} {}", it.term, Seconds::new(it.more()).signed()));
        terms.collect::<Vec<_>>().join("; ")
    }
}

/// Options of a layout that a term of its step depends on, in words.
pub fn depends_on(term: &str, problem: &Problem, layout: &LayoutSpec) -> String {
    let LayoutSpec { tensor_parallel, context_parallel, pipeline_parallel, .. } = *layout;
    let LayoutSpec { data_parallel, expert_parallel, .. } = *layout;
    let domain = problem.hardware.domain;
    let where_is = |ranks: u32| if ranks <= domain { "within a node" } else { "across nodes" };
    let stride = tensor_parallel * context_parallel;
    match term {
        "compute" => {
            let tokens = u64::from(layout.micro_batch_size) * problem.training.sequence_length
                / u64::from(context_parallel);
            let ranks = count_of(tensor_parallel, "rank", "ranks");
            let shared = match context_parallel {
                1 => String::new(),
                ranks => format!(" of sequences over {ranks} ranks"),
            };
            let [peak, precision] =
                [problem.hardware.peak.to_string(), problem.hardware.precision.to_string()];
            format!(
                "{tokens} tokens at a time{shared}, products over {ranks}, at {peak} in {precision}"
            )
        }
        "recompute" => format!("recompute {}", layout.recompute),
        "waiting for the host" => format!("CUDA graphs of {}", layout.switches.cuda_graphs),
        "tensor-parallel collectives, exposed" => {
            format!("tp {tensor_parallel} {}", where_is(tensor_parallel))
        }
        "context parallelism, exposed" => {
            let kind = layout.context_parallel_kind.name();
            format!("cp {context_parallel} by {kind} {}", where_is(stride))
        }
        "expert-parallel all-to-all" => {
            let overlap = match layout.switches.expert_overlap {
                ExpertOverlap::None => "",
                ExpertOverlap::MicroBatch => ", beside another micro-batch",
            };
            let spread = layout.mesh().expert_ranks();
            let dispatcher = layout.switches.token_dispatcher;
            format!("ep {expert_parallel} {} by {dispatcher}{overlap}", where_is(spread))
        }
        "pipeline messages" => {
            count_of(pipeline_parallel * layout.virtual_stages, "stage", "stages")
        }
        "pipeline bubble" => format!(
            "{}, pp {pipeline_parallel}, {}, {} a rank",
            layout.schedule,
            count_of(layout.num_micro_batches, "micro-batch", "micro-batches"),
            count_of(layout.virtual_stages, "stage", "stages")
        ),
        "data parallelism, exposed" => {
            let replicas = data_parallel * context_parallel;
            let stage = layout.zero_stage.number();
            format!("ZeRO {stage} over {} of {replicas} replicas", layout.zero_shard)
        }
        "copies to and from the host, exposed" => format!("offload {}", layout.offload),
        _ => {
            let shards = if layout.zero_stage.number() == 0 { 1 } else { layout.zero_shard };
            let ways = tensor_parallel * pipeline_parallel * shards;
            match ways {
                1 => "an update of all parameters".to_owned(),
                _ => format!("an update of 1/{ways} of the parameters or more"),
            }
        }
    }
}
