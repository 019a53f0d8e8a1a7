//! Calibration of a cluster's network from output of nccl-tests.

use std::path::Path;

use anyhow::Context as _;
use ir::cluster::Cluster;
use ir::units::{BytesPerSecond, Seconds};
use planner_evidence::calibration::network::{RefittedNetwork, refit};
use planner_evidence::measured::nccl_tests::{self, NcclRun};

use crate::cli::answer::Answer;
use crate::cli::args::CalibrateArgs;
use crate::cli::constants::{left_out, other_gpu, written};
use crate::cli::files::{file_name, read_cluster};
use crate::cli::tables::{percent, text_table};
use command_line::destination::{name_for, stdout_is_free, write_json};

pub(super) fn calibrate(
    args: &CalibrateArgs,
    files: &[(&Path, impl AsRef<str>)],
) -> anyhow::Result<Answer> {
    let name = args.cluster.as_deref().context(
        "it is not said which cluster was measured\nhint: `--cluster NAME|FILE`, such as `--cluster h100`; only its \
         network is refitted",
    )?;
    let base = read_cluster(name)?;
    let mut runs: Vec<NcclRun> = Vec::new();
    for (path, text) in files {
        let name = file_name(path);
        let read = nccl_tests::read(&name, text.as_ref());
        runs.extend(read.with_context(|| format!("`{}`", path.display()))?);
    }
    let mut found = refit(&base, &runs)?;
    found.left_out.extend(runs.iter().flat_map(|run| &run.left_out).cloned());
    if let Some(path) = &args.output {
        found.cluster.name = name_for(path).into_owned();
        found.cluster.sources.insert("levels.measured".to_owned(), source(&found, files));
        write_json(path, &found.cluster)?;
    }
    if !stdout_is_free(args.output.iter().chain(&args.chart)) {
        return Ok(Answer::Found);
    }
    args.format.print(&found, || describe(&base, &runs, &found, args.output.as_deref()))
}

/// Source of a refitted network: the files and the number of rows.
fn source(found: &RefittedNetwork, files: &[(&Path, impl AsRef<str>)]) -> String {
    let names: Vec<_> = files.iter().map(|(path, _)| file_name(path)).collect();
    let rows: usize = found.tables.iter().map(|table| table.samples).sum();
    format!("nccl-tests, {rows} rows of {}, by `planner calibrate`", names.join(", "))
}

fn describe(
    base: &Cluster,
    runs: &[NcclRun],
    found: &RefittedNetwork,
    output: Option<&Path>,
) -> String {
    let headings = [
        "level",
        "collective",
        "ranks",
        "nodes",
        "rows",
        "smallest us",
        "was",
        "largest GB/s",
        "was",
        "error",
        "was",
        "left out",
    ];
    let moved = found.tables.iter().map(|of| {
        let micros = |time: Seconds| format!("{:.1}", time.get() * 1e6);
        let rate = |bandwidth: BytesPerSecond| format!("{:.1}", bandwidth.get() / 1e9);
        [
            of.level.clone(),
            of.collective.to_string(),
            of.num_ranks.to_string(),
            of.num_nodes.to_string(),
            of.samples.to_string(),
            micros(of.seconds),
            micros(of.seconds_before),
            rate(of.bus_bandwidth),
            rate(of.bus_bandwidth_before),
            percent(of.mean_error),
            percent(of.mean_error_before),
            of.mean_error_of_rows_left_out.map_or_else(|| "-".to_owned(), percent),
        ]
    });
    let rows: usize = found.tables.iter().map(|table| table.samples).sum();
    let left_out = left_out(&found.left_out);
    let written = written(output, "--cluster");
    format!(
        "{}: {rows} rows of {} tables of nccl-tests\n\n{}\ntime of the smallest buffer, bus bandwidth of the largest, and the \
         mean error of all rows, after the refit and (`was`) before; `left out`: error of rows left out of the fit\n{}{}{left_out}\
         \n{written}",
        base.name,
        found.tables.len(),
        text_table(headings, &["level", "collective"], moved),
        other_gpu("the tests", runs.iter().map(|run| run.gpu.as_str()), base),
        more_nodes(found),
    )
}

/// Note that larger numbers of nodes than were measured are assumed to be equally fast.
fn more_nodes(found: &RefittedNetwork) -> String {
    let most = found.tables.iter().map(|table| table.num_nodes).max().unwrap_or(1);
    if most < 2 {
        return String::new();
    }
    format!(
        "\nnote: beyond the {most} nodes that were measured, the network is assumed to be as fast\n"
    )
}
