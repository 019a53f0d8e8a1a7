//! Tables of nccl-tests: time of a collective by the size of its buffer.
//!
//! ```text
//! # nThread 1 nGpus 8 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 ..
//! # Using devices
//! #  Rank  0 Group  0 Pid   1887 on   worker-1 device  0 [0x8d] NVIDIA H100 80GB HBM3
//! #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
//!    536870912     134217728     float     sum      -1   1806.7  297.16  586.06      0   1835.9  292.43  576.74      0
//! # Avg bus bandwidth    : 745.53
//! ```
//!
//! The columns between the type and the first time differ between versions, so times are counted from the right. `size`
//! is the size of the whole buffer, as in [`Collective`]. A file may contain several tables, lines of other programs,
//! and prefixes that launchers put before lines.
//!
//! # Source
//!
//! NVIDIA/nccl-tests, `src/common.cu` and `src/util.cu`; for the older forms, issues of that repository.

use std::collections::BTreeMap;

use ir::cluster::MeasuredTime;
use ir::collective::Collective;
use ir::units::{Bytes, Seconds};
use traces::statistics::{MEDIAN, quantile};

use super::UnusableFile;

/// A table: one test on one set of ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct NcclRun {
    /// The collective.
    pub collective: Collective,
    /// Number of ranks on each host, hosts in order of appearance.
    pub ranks_by_host: Vec<u32>,
    /// GPU of the first rank, by the name that its driver gives.
    pub gpu: String,
    /// The rows in the order of the file: the size of the whole buffer, and the mean of the out-of-place and in-place
    /// times.
    pub rows: Vec<MeasuredTime>,
    /// Rows that were left out, each with its line number and the reason.
    pub left_out: Vec<String>,
}

impl NcclRun {
    /// Number of ranks.
    pub fn num_ranks(&self) -> u32 {
        self.ranks_by_host.iter().sum()
    }
}

/// The error of a table, or of a list of ranks, that begins on a line.
fn unusable(line: usize, why: &str) -> UnusableFile {
    UnusableFile(format!("line {line}: {why}"))
}

/// Test programs, and their collectives.
const TESTS: [(&str, Collective); 6] = [
    ("all_reduce_perf", Collective::AllReduce),
    ("all_gather_perf", Collective::AllGather),
    ("reduce_scatter_perf", Collective::ReduceScatter),
    ("alltoall_perf", Collective::AllToAll),
    ("broadcast_perf", Collective::Broadcast),
    ("sendrecv_perf", Collective::SendReceive),
];

/// Test programs of operations that plans do not have.
const OTHER_TESTS: [&str; 5] =
    ["reduce_perf", "gather_perf", "scatter_perf", "hypercube_perf", "alltoallv_perf"];

/// Number of columns with measurements: time, algorithm bandwidth, bus bandwidth and wrong elements, each out of place
/// and in place.
const MEASURED: usize = 8;

/// Largest relative difference between the ratio of the two bandwidths and a collective's factor; both bandwidths are
/// rounded.
const ROUNDING: f64 = 0.02;

/// Bandwidth in GB/s below which the table rounds too much to derive a factor.
const TELLING: f64 = 5.0;

/// Returns whether a text looks like output of nccl-tests.
pub fn is_like(text: &str) -> bool {
    text.lines().any(|line| is_heading(without_prefix(line)))
}

/// The tables of an output. `name` is the name of its file, which may contain the name of the test.
///
/// # Errors
///
/// What is wrong on which line. Single rows that cannot be used are in [`NcclRun::left_out`] instead.
pub fn read(name: &str, text: &str) -> Result<Vec<NcclRun>, UnusableFile> {
    let mut runs = Vec::new();
    let mut head = Head::default();
    let mut table: Option<Table> = None;
    for (line, number) in text.lines().map(without_prefix).zip(1..) {
        if is_heading(line) {
            runs.extend(table.take().map(|table| table.finish(name)).transpose()?);
            table = Some(Table::new(number, head.clone())?);
        } else if let Some(test) = named_test(line) {
            match &mut table {
                // The name is repeated at the end of a table.
                Some(table) if table.head.test.is_none() || line.contains("concluded") => {
                    table.head.test = Some(test);
                }
                _ => head = Head { test: Some(test), ..Head::default() },
            }
        } else if line.contains("nThread") && line.contains("minBytes") {
            runs.extend(table.take().map(|table| table.finish(name)).transpose()?);
            head = Head { test: head.test.take(), ..Head::default() };
        } else if let Some(rank) = RankLine::of(line) {
            // A test prints nothing before its list of ranks.
            if let Some(table) = table.take() {
                runs.push(table.finish(name)?);
                head = Head::default();
            }
            head.add(number, &rank)?;
        } else if let Some(table) = &mut table {
            table.row(number, line);
        }
    }
    runs.extend(table.map(|table| table.finish(name)).transpose()?);
    if runs.is_empty() {
        return Err(UnusableFile(NO_TABLE.to_owned()));
    }
    Ok(runs)
}

const NO_TABLE: &str = "no table of nccl-tests: a line with `size`, `count`, `type`, `time` and `busbw` is missing\n\
    hint: what `all_reduce_perf -b 8 -e 8G -f 2 -g 8` prints, whole";

/// Lines before a table.
#[derive(Clone, Debug, Default)]
struct Head {
    test: Option<&'static str>,
    hosts: Vec<String>,
    by_rank: BTreeMap<u32, usize>,
    gpu: String,
}

impl Head {
    fn add(&mut self, line: usize, found: &RankLine<'_>) -> Result<(), UnusableFile> {
        let known = self.hosts.iter().position(|host| host == found.host);
        let host = known.unwrap_or(self.hosts.len());
        if known.is_none() {
            self.hosts.push(found.host.to_owned());
        }
        if self.by_rank.is_empty() {
            found.gpu.clone_into(&mut self.gpu);
        }
        match self.by_rank.insert(found.rank, host) {
            None => Ok(()),
            Some(_) => Err(unusable(
                line,
                &format!(
                    "rank {} comes twice: each process ran alone, as nccl-tests do that were built without MPI\n\
                     hint: build them with `make MPI=1`",
                    found.rank
                ),
            )),
        }
    }

    fn ranks_by_host(&self) -> Vec<u32> {
        let mut counts = vec![0; self.hosts.len()];
        self.by_rank.values().for_each(|host| counts[*host] += 1);
        counts
    }
}

/// A line in the list of ranks.
struct RankLine<'a> {
    rank: u32,
    host: &'a str,
    gpu: &'a str,
}

impl<'a> RankLine<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let rest = line.trim_start_matches(['#', ' ']).strip_prefix("Rank")?;
        let rank = rest.split_whitespace().next()?.parse().ok()?;
        let (_, place) = rest.split_once(" on ")?;
        let (host, device) = place.split_once(" device ")?;
        let gpu = device.split_once(']').map_or("", |(_, gpu)| gpu.trim());
        Some(Self { rank, host: host.trim(), gpu })
    }
}

/// A table, as far as it has been read.
#[derive(Default)]
struct Table {
    line: usize,
    head: Head,
    rows: Vec<MeasuredTime>,
    left_out: Vec<String>,
    /// Ratios of bus to algorithm bandwidth that are precise enough; the operation; and whether in-place values were
    /// checked.
    factors: Vec<f64>,
    operation: String,
    is_checked_in_place: bool,
}

impl Table {
    fn new(line: usize, head: Head) -> Result<Self, UnusableFile> {
        if head.by_rank.is_empty() {
            return Err(unusable(
                line,
                "a table without the `#  Rank  0 .. on HOST device ..` lines before it, so it is not known over which \
                 ranks and hosts it was measured\nhint: keep all that the test prints",
            ));
        }
        Ok(Self { line, head, ..Self::default() })
    }

    fn row(&mut self, line: usize, text: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        // A row begins with its size and its count; other lines belong to other programs.
        let (Some(bytes), Some(_)) = (number(0), number(1)) else { return };
        if words.len() < MEASURED + 3 {
            let words = words.len();
            self.left_out.push(format!("line {line}: it is cut off after {words} columns"));
            return;
        }
        if bytes == 0 {
            return;
        }
        let measured = &words[words.len() - MEASURED..];
        let half = |from: usize| {
            let time: f64 = measured[from].parse().ok()?;
            let wrong: Option<f64> = measured[from + 3].parse().ok();
            Some((time, wrong)).filter(|(time, _)| time.is_finite() && *time > 0.0)
        };
        let (Some(apart), Some(in_place)) = (half(0), half(MEASURED / 2)) else {
            self.left_out.push(format!("line {line}: its times are no numbers above 0"));
            return;
        };
        if [apart.1, in_place.1].into_iter().flatten().any(|wrong| wrong > LARGEST_ERROR) {
            self.left_out.push(format!("line {line}: its results are wrong"));
            return;
        }
        let of_bandwidth = |at: usize| measured[at].parse::<f64>().ok();
        if let (Some(algorithm), Some(bus)) = (of_bandwidth(1), of_bandwidth(2))
            && algorithm >= TELLING
        {
            self.factors.push(bus / algorithm);
        }
        if words.len() > MEASURED + 3 {
            words[3].clone_into(&mut self.operation);
        }
        self.is_checked_in_place |= in_place.1.is_some();
        // All-to-all does not check in-place values, and does different work in place.
        let times = match (apart.1, in_place.1) {
            (Some(_), None) => apart.0,
            _ => f64::midpoint(apart.0, in_place.0),
        };
        let seconds = Seconds::new(times * 1e-6);
        self.rows.push(MeasuredTime { bytes: Bytes::new(bytes), seconds });
    }

    fn finish(self, name: &str) -> Result<NcclRun, UnusableFile> {
        if self.rows.is_empty() {
            let why = self.left_out.first().map(|why| format!(": {why}")).unwrap_or_default();
            return Err(unusable(
                self.line,
                &format!("the table has no row that can be used{why}"),
            ));
        }
        Ok(NcclRun {
            collective: self.collective(name)?,
            ranks_by_host: self.head.ranks_by_host(),
            gpu: self.head.gpu,
            rows: self.rows,
            left_out: self.left_out,
        })
    }

    /// The collective, from the output, else from the file's name, else from the columns.
    fn collective(&self, name: &str) -> Result<Collective, UnusableFile> {
        let line = self.line;
        if let Some(test) = self.head.test.or_else(|| named_test(name)) {
            let known = TESTS.iter().find(|(known, _)| *known == test);
            return known.map(|(_, collective)| *collective).ok_or_else(|| {
                let why = format!(
                    "the table is of {test}, which no plan has\nhint: all_reduce_perf, all_gather_perf, \
                     reduce_scatter_perf, alltoall_perf, broadcast_perf and sendrecv_perf are read"
                );
                unusable(line, &why)
            });
        }
        let has_factors = !self.factors.is_empty();
        let factor = has_factors.then(|| quantile(&self.factors, MEDIAN));
        let num_ranks = self.head.by_rank.len() as u32;
        let fits = |kind: Collective| {
            let is_reduced = matches!(kind, Collective::AllReduce | Collective::ReduceScatter);
            let by_factor =
                factor.is_none_or(|it| (it / kind.volume_factor(num_ranks) - 1.0).abs() < ROUNDING);
            let has_operation = !["", "none", "-1"].contains(&self.operation.as_str());
            let by_check = self.is_checked_in_place == (kind != Collective::AllToAll);
            by_factor && has_operation == is_reduced && by_check
        };
        let fit: Vec<Collective> = Collective::ALL.into_iter().filter(|it| fits(*it)).collect();
        match fit.as_slice() {
            [only] => Ok(*only),
            some => {
                let names: Vec<String> = some.iter().map(ToString::to_string).collect();
                let fit = if names.is_empty() { "none".to_owned() } else { names.join(" and ") };
                let why = format!(
                    "which collective the table is of is not said, and its columns fit {fit}\nhint: name the file after \
                     the test, such as `all_gather_perf.txt`"
                );
                Err(unusable(line, &why))
            }
        }
    }
}

/// Largest value in the error column of a correct result. Older tests print the largest error there, newer ones the
/// number of wrong elements.
const LARGEST_ERROR: f64 = 0.1;

/// The test whose name is in a line.
fn named_test(line: &str) -> Option<&'static str> {
    let all = TESTS.iter().map(|(name, _)| *name).chain(OTHER_TESTS);
    let is_whole = |name: &str| {
        line.match_indices(name)
            .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
    };
    all.into_iter().find(|name| is_whole(name))
}

/// Returns whether a line is the heading of a table.
fn is_heading(line: &str) -> bool {
    let words = ["size", "count", "type", "time", "algbw", "busbw"];
    let all: Vec<&str> = line.split_whitespace().collect();
    words.iter().all(|word| all.contains(word))
}

/// A line without a launcher's prefix: `[1,0]<stdout>:`, or `worker-0: `.
fn without_prefix(line: &str) -> &str {
    let line = line.trim_start();
    if let Some((_, rest)) = line.split_once("<stdout>:") {
        return rest;
    }
    match line.split_once(": ") {
        Some((name, rest))
            if !name.contains([' ', '#'])
                && rest.trim_start().starts_with(|c: char| c == '#' || c.is_ascii_digit()) =>
        {
            rest
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests;
