//! Collectives, timed by `executor collectives`: over NCCL with a process for each GPU, or among threads.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use executor::check::{CheckFinding, first_line};
use executor::collectives::{FittedLevel, TimedCollective, fit_level};
use ir::collective::Collective;
use serde::Deserialize;
use serde_json::Value;
use traces::collectives::Operation;

use super::args::CheckPart;
use super::process::{self, Ended};
use crate::cli::choices::{Backend, word};

/// Number of ranks that share a device, where there is only one.
const RANKS_OF_ONE_DEVICE: usize = 2;

/// Collectives whose bandwidths are reported.
const SHOWN: [Collective; 4] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::SendReceive,
];

/// A command that runs this program.
pub(super) fn own_program() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe()?))
}

/// One command for each of `num_ranks` ranks, which meet at a port of this machine; `arguments` adds arguments to each
/// command.
pub(super) fn processes(
    num_ranks: usize,
    arguments: &dyn Fn(&mut Command),
) -> anyhow::Result<Vec<Command>> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let count = num_ranks.to_string();
    let command = |rank: usize| {
        let (mut command, rank) = (own_program()?, rank.to_string());
        arguments(&mut command);
        command.envs([("RANK", &rank), ("LOCAL_RANK", &rank), ("WORLD_SIZE", &count)]);
        command.envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port.as_str())]);
        Ok(command)
    };
    (0..num_ranks).map(command).collect()
}

/// Result of the collectives: findings, and the network level that is fitted to their times.
pub(super) struct Network {
    pub(super) findings: Vec<CheckFinding>,
    pub(super) level: Option<FittedLevel>,
    pub(super) num_ranks: usize,
}

/// Times collectives on `num_devices` devices.
pub(super) fn collectives(
    backend: Backend,
    num_devices: usize,
    limit: Duration,
) -> anyhow::Result<Network> {
    let over_nccl = backend == Backend::Cuda && num_devices > 1;
    let num_ranks = if over_nccl { num_devices } else { RANKS_OF_ONE_DEVICE };
    let sizes: &[&str] = match backend {
        Backend::Cuda if over_nccl => &["--max-bytes", "256M", "--factor", "16"],
        Backend::Cuda => &["--max-bytes", "64M", "--factor", "16"],
        Backend::Cpu => &["--max-bytes", "16M", "--factor", "16"],
        Backend::Wgpu => &["--max-bytes", "1M", "--factor", "32"],
    };
    let seconds = limit.as_secs_f64().max(1.0).to_string();
    let arguments = |command: &mut Command| {
        command.arg("collectives").args(Collective::ALL.map(|kind| kind.to_string()));
        command.args(["--backend", &word(&backend), "--format", "json", "--min-bytes", "1K"]);
        command.args(["--iterations", "5", "--warm-up", "2"]).args(sizes);
        if over_nccl {
            command.args(["--communicator", "nccl", "--communication-timeout", &seconds]);
        } else {
            command.args(["--ranks", &num_ranks.to_string()]);
        }
    };
    let commands = if over_nccl {
        processes(num_ranks, &arguments)?
    } else {
        let mut command = own_program()?;
        arguments(&mut command);
        vec![command]
    };
    let ended = process::run(commands, limit, |_| ())?;
    let how = match (over_nccl, backend) {
        (true, _) => format!("{num_ranks} GPUs, NCCL"),
        (false, Backend::Cpu) => format!("{num_ranks} threads"),
        (false, _) => format!("{num_ranks} ranks on one device"),
    };
    Ok(as_network(&ended, &how, num_ranks))
}

fn as_network(ended: &Ended, how: &str, num_ranks: usize) -> Network {
    let answers = ended.lines.iter().rev().filter_map(|line| serde_json::from_str(line).ok());
    let answer: Value = answers.into_iter().next().unwrap_or_default();
    let rows: Vec<TimedCollective> = Vec::deserialize(&answer["rows"]).unwrap_or_default();
    let mut findings: Vec<CheckFinding> =
        SHOWN.iter().filter_map(|kind| bandwidths(*kind, &rows, how)).collect();
    if let Some(failure) = &ended.failure {
        let said = format!("{how}: {}", first_line(&failure.message()));
        let hint = format!("`executor collectives` with `--ranks {num_ranks}` says more");
        findings.push(CheckFinding::fail(word(&CheckPart::Collectives), said, hint));
    }
    let level = fit_level("as measured", None, &rows).filter(|_| ended.failure.is_none());
    Network { findings, level, num_ranks }
}

/// The time of a collective's smallest buffer and the bandwidth of its largest.
fn bandwidths(kind: Collective, rows: &[TimedCollective], how: &str) -> Option<CheckFinding> {
    let of_kind = rows.iter().filter(|row| row.operation == Operation::Collective(kind));
    let of_kind: Vec<&TimedCollective> = of_kind.collect();
    let (first, last) = (of_kind.first()?, of_kind.last()?);
    let bandwidth = last.bus_bandwidth();
    let said = format!(
        "{how}, {} in {}, {} at {:.2} GB/s of bus",
        first.bytes,
        first.median,
        last.bytes,
        bandwidth / 1e9
    );
    let num_wrong = of_kind.iter().map(|row| row.num_wrong).sum::<u64>();
    let wrong = match num_wrong {
        0 => String::new(),
        _ => format!(", {num_wrong} elements wrong"),
    };
    let hint = "report it with the whole of what `executor collectives` prints";
    let finding =
        CheckFinding::judged(kind.to_string(), format!("{said}{wrong}"), num_wrong == 0, hint)
            .with("busbw_bytes_per_second", bandwidth)
            .with("size_bytes", last.bytes.as_f64())
            .with("smallest_time_seconds", first.median.get());
    Some(finding)
}
