//! Questions about failures: their arguments, and a plan in the form that the model of failures takes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use ir::units::BytesPerSecond;
use planner_core::answers::{
    CheckpointBytes, CheckpointLinks, CheckpointTimes, CheckpointTo, Component, Failures,
    OnFailure, TrainingJob, slowdown, smaller_plans,
};
use planner_core::search::{EvaluatedPlan, Request, tokens_per_step};

use super::super::files::read_text;
use super::super::input::Input;
use super::super::interrupt::Limit;
use super::super::values::{
    parse_bandwidth, parse_hours, parse_seed, parse_slow_nodes, parse_time_limit, whole,
};

/// What fails during `--tokens`, and what is done about it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Failures, with --tokens")]
pub(crate) struct FailureArgs {
    /// Mean hours until a GPU, with its share of all other hardware, fails and interrupts the training [default:
    /// 50,677, Llama 3 405B's 419 interruptions, by component].
    #[arg(long, value_name = "HOURS", requires = "tokens", value_parser = parse_hours, allow_negative_numbers = true)]
    gpu_mtbf: Option<f64>,
    /// Rates by component, as JSON: a list of `{"component": "NIC", "per": "gpu"|"node"|"job", "mtbf_hours": 4e5,
    /// "replaces_node": true}`.
    #[arg(long, value_name = "FILE", requires = "tokens", conflicts_with = "gpu_mtbf")]
    pub(crate) failure_rates: Option<PathBuf>,
    /// What happens at a failure: all wait for another node and restart; replicas without a failed node go on (as with
    /// torchft); or all restart with the best plan for the nodes that are left.
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        value_name = "HOW",
        requires = "tokens",
        default_value = "wait"
    )]
    on_failure: OnFailureArg,
    /// Spare nodes on standby, which cost as much as others [default: a spare node is always available; 0 with
    /// `--on-failure replan`].
    #[arg(long, value_name = "N", requires = "tokens", value_parser = whole::<u32, 0, 1_048_576>, allow_negative_numbers = true)]
    spares: Option<u32>,
    /// Time until a node is repaired, with `--spares` [default: 3 days, as Arfeen et al. 2025 have it].
    #[arg(long, value_name = "TIME", requires = "tokens", value_parser = parse_time_limit, allow_negative_numbers = true)]
    repair_time: Option<Duration>,
    /// Time until a failure is noticed [default: 60s, as in Meta's FT-HSDP].
    #[arg(long, value_name = "TIME", requires = "tokens", value_parser = parse_time_limit, allow_negative_numbers = true)]
    detection_time: Option<Duration>,
    /// Time from when a failure is noticed until the checkpoint is read [default: 9min, which with the default of
    /// `--detection-time` makes the ten of Meta's FT-HSDP].
    #[arg(long, value_name = "TIME", requires = "tokens", value_parser = parse_time_limit, allow_negative_numbers = true)]
    restart_time: Option<Duration>,
    /// Time for which all replicas stop when one fails, with `--on-failure shrink` [default: 3min, as in Meta's
    /// FT-HSDP].
    #[arg(long, value_name = "TIME", requires = "tokens", value_parser = parse_time_limit, allow_negative_numbers = true)]
    stall_time: Option<Duration>,
    /// Where checkpoints go: storage that all nodes share, or the memory of the node itself and of another (as in
    /// Gemini).
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        value_name = "WHERE",
        requires = "tokens",
        default_value = "storage"
    )]
    checkpoint_to: CheckpointToArg,
    /// Write checkpoints while training goes on, once they are copied to the host.
    #[arg(long, requires = "tokens", alias = "async-checkpoints")]
    asynchronous_checkpoints: bool,
    /// Bandwidth of the storage for all nodes together, in GB/s [default: 1 for each node, as Llama 3's storage has].
    #[arg(long, value_name = "GB/S", requires = "tokens", value_parser = parse_bandwidth, allow_negative_numbers = true)]
    storage_bandwidth: Option<f64>,
    /// Training time between checkpoints [default: the one that loses least; 3h with `--on-failure shrink`].
    #[arg(long, value_name = "TIME", requires = "tokens", value_parser = parse_time_limit, allow_negative_numbers = true)]
    checkpoint_interval: Option<Duration>,
    /// Time for which training stops for a checkpoint [default: by the plan's bytes and the bandwidth].
    #[arg(long, value_name = "TIME", requires = "tokens", value_parser = parse_time_limit, allow_negative_numbers = true)]
    checkpoint_time: Option<Duration>,
    /// Share of the time for which each node is slow, and the factor by which its computation then takes longer:
    /// `0.1%,1.5`.
    #[arg(long, value_name = "SHARE,FACTOR", requires = "tokens", value_parser = parse_slow_nodes, allow_negative_numbers = true)]
    slow_nodes: Option<(f64, f64)>,
    /// Where the random numbers of the simulated runs start; the same seed gives the same days.
    #[arg(long, value_name = "SEED", requires = "tokens", value_parser = parse_seed, default_value_t = 0)]
    pub(super) seed: u64,
}

/// What happens at a failure.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnFailureArg {
    Wait,
    #[value(alias = "elastic", alias = "torchft")]
    Shrink,
    #[value(alias = "re-plan")]
    Replan,
}

/// Where checkpoints go.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum CheckpointToArg {
    #[value(alias = "disk")]
    Storage,
    #[value(alias = "host", alias = "in-memory")]
    Memory,
}

impl FailureArgs {
    /// True if plans for fewer nodes are to be searched.
    pub(super) fn searches(&self) -> bool {
        matches!(self.on_failure, OnFailureArg::Replan)
    }

    /// Rates of failures, and the reaction to them.
    pub(super) fn failures(&self) -> anyhow::Result<Failures> {
        let seconds = |given: Option<Duration>, usual| given.map_or(usual, |it| it.as_secs_f64());
        let components = match (&self.failure_rates, self.gpu_mtbf) {
            (Some(path), _) => read_rates(path)?,
            (None, Some(hours)) => Component::of_gpu(hours),
            (None, None) => Component::of_llama_3(),
        };
        let on_failure = match self.on_failure {
            OnFailureArg::Wait => OnFailure::Wait,
            OnFailureArg::Shrink => OnFailure::Shrink,
            OnFailureArg::Replan => OnFailure::Replan,
        };
        anyhow::ensure!(
            self.stall_time.is_none() || on_failure == OnFailure::Shrink,
            "`--stall-time` would change nothing without `--on-failure shrink`\nhint: leave it out"
        );
        let usual_spares = (on_failure == OnFailure::Replan).then_some(0);
        Ok(Failures {
            components,
            on_failure,
            spares: self.spares.or(usual_spares),
            detection_seconds: seconds(self.detection_time, Failures::USUAL_DETECTION_SECONDS),
            restart_seconds: seconds(self.restart_time, Failures::USUAL_RESTART_SECONDS),
            stall_seconds: seconds(self.stall_time, Failures::USUAL_STALL_SECONDS),
            repair_seconds: seconds(self.repair_time, Failures::USUAL_REPAIR_SECONDS),
            checkpoint_interval_seconds: self.checkpoint_interval.map(|it| it.as_secs_f64()),
        })
    }

    /// A plan in the form that the model of failures takes; with plans for fewer nodes, if failures lead to these.
    pub(super) fn job(
        &self,
        input: &Input,
        request: &Request,
        plan: &EvaluatedPlan,
        failures: &Failures,
        limit: &Limit,
    ) -> anyhow::Result<TrainingJob> {
        let Input { problem, cluster, .. } = input;
        let num_gpus = problem.limits.num_gpus;
        let sizes = cluster.groups.iter().map(|group| group.cluster.gpus_per_node);
        let per_node = sizes.fold(cluster.gpus_per_node.max(1), u32::max);
        let num_nodes = cluster.num_nodes(num_gpus);
        let groups = plan.layout.replica_groups(per_node);
        if failures.on_failure == OnFailure::Shrink && groups == 1 {
            let apart = plan.layout.shards_that_fail_apart(per_node);
            let (tp, cp) = (plan.layout.tensor_parallel, plan.layout.context_parallel);
            let (ep, pp) = (plan.layout.expert_parallel, plan.layout.pipeline_parallel);
            let apart = apart.map_or_else(String::new, |shards| {
                format!("`--tp {tp} --cp {cp} --ep {ep} --pp {pp} --zero-shard {shards}`, or ")
            });
            anyhow::bail!(
                "`--on-failure shrink`: no replica is left when a node fails, as each has a part of the states that the \
                 others need, or shares a node with them\nhint: {apart}`--on-failure replan`"
            );
        }
        let slowdown = match self.slow_nodes {
            Some(slow) => slowdown(problem, plan, num_nodes, slow)?,
            None => 1.0,
        };
        let bytes = CheckpointBytes::new(problem, plan);
        let mut job = TrainingJob {
            num_gpus,
            num_nodes,
            replica_groups: groups,
            step_seconds: plan.evaluation.step_time.get(),
            slowdown,
            tokens_per_step: tokens_per_step(problem),
            checkpoint_bytes: bytes.all,
            checkpoint: self.checkpoint(input, bytes, num_nodes)?,
            smaller: Vec::new(),
        };
        if failures.on_failure == OnFailure::Replan {
            anyhow::ensure!(
                problem.groups.is_none(),
                "`--on-failure replan` with GPUs of several kinds\nhint: `--on-failure wait`, or a cluster of one kind"
            );
            let spares = failures.spares.unwrap_or(0);
            let missing = failures.most_nodes_in_repair(&job, f64::INFINITY);
            let missing = missing.saturating_sub(spares).max(1);
            let needs = (job.step_seconds, missing);
            job.smaller = smaller_plans(problem, request, per_node, needs, &mut || limit.go())?;
        }
        Ok(job)
    }

    fn checkpoint(
        &self,
        input: &Input,
        bytes: CheckpointBytes,
        num_nodes: u32,
    ) -> anyhow::Result<CheckpointTimes> {
        let cluster = &input.cluster;
        let to = match self.checkpoint_to {
            CheckpointToArg::Storage => CheckpointTo::Storage,
            CheckpointToArg::Memory => CheckpointTo::Memory,
        };
        anyhow::ensure!(
            to == CheckpointTo::Storage || num_nodes > 1,
            "`--checkpoint-to memory`: the only node has no other to keep its checkpoint\nhint: `--checkpoint-to storage`"
        );
        anyhow::ensure!(
            to == CheckpointTo::Storage || self.storage_bandwidth.is_none(),
            "`--storage-bandwidth` would change nothing with `--checkpoint-to memory`\nhint: leave it out"
        );
        let usual = CheckpointBytes::USUAL_NODE_BANDWIDTH * f64::from(num_nodes);
        let outermost = cluster.levels.last().context("a cluster has a network")?;
        let own = std::iter::once(cluster.host_link_bandwidth);
        let of_groups = cluster.groups.iter().map(|group| group.cluster.host_link_bandwidth);
        let slowest = own.chain(of_groups).map(BytesPerSecond::get).fold(f64::INFINITY, f64::min);
        let links = CheckpointLinks {
            storage: BytesPerSecond::new(self.storage_bandwidth.map_or(usual, |it| it * 1e9)),
            host: BytesPerSecond::new(slowest),
            network: outermost.bandwidth,
        };
        let times = bytes.times(to, self.asynchronous_checkpoints, links);
        let stall = self.checkpoint_time.map_or(times.stall, |it| it.as_secs_f64());
        Ok(CheckpointTimes { stall, ..times })
    }
}

/// Failure rates in a file.
fn read_rates(path: &std::path::Path) -> anyhow::Result<Vec<Component>> {
    let text = read_text(path)?;
    serde_json::from_str(&text).with_context(|| {
        format!(
            "`--failure-rates {}` is no list of components\nhint: [{{\"component\": \"NIC\", \"per\": \"node\", \
             \"mtbf_hours\": 400000}}]",
            path.display()
        )
    })
}
