use super::*;

/// From nebius/soperator, pull request 428, with a shortened list of ranks; the rows have the same form.
const TWO_NODES: &str = "\
# nThread 1 nGpus 1 minBytes 536870912 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid   1887 on   worker-1 device  0 [0x8d] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1888 on   worker-1 device  1 [0x91] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid   1885 on   worker-0 device  0 [0x8d] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid   1886 on   worker-0 device  1 [0x91] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
   536870912     134217728     float     sum      -1   1806.7  297.16  445.74      0   1835.9  292.43  438.65      0
  1073741824     268435456     float     sum      -1   3108.8  345.38  518.07      0   2924.7  367.13  550.70      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 488.29
";

fn read_one(name: &str, text: &str) -> NcclRun {
    let runs = read(name, text).unwrap();
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs.into_iter().next().unwrap()
}

#[test]
fn a_table_is_read_and_its_collective_follows_from_its_columns() {
    let run = read_one("log.txt", TWO_NODES);
    assert_eq!(run.collective, Collective::AllReduce);
    assert_eq!(run.ranks_by_host, [2, 2]);
    assert_eq!(run.gpu, "NVIDIA H100 80GB HBM3");
    assert_eq!(run.rows.len(), 2);
    assert_eq!(run.rows[0].bytes, Bytes::new(536_870_912));
    assert!((run.rows[0].seconds.get() - 1821.3e-6).abs() < 1e-12, "{:?}", run.rows[0]);
}

fn with_prefix(prefix: &str) -> String {
    TWO_NODES.lines().flat_map(|line| [prefix, line, "\n"]).collect()
}

/// From aws/aws-k8s-tester, pull request 503: launchers' prefixes, and smaller sizes.
#[test]
fn prefixes_of_launchers_are_taken_off() {
    let text = with_prefix("[1,0]<stdout>:");
    assert_eq!(read_one("a", &text), read_one("a", TWO_NODES));
    let text = with_prefix("worker-0: ");
    assert_eq!(read_one("a", &text), read_one("a", TWO_NODES));
}

/// From ROCm/rccl, pull request 2075: all-to-all, whose in-place values are not checked, named at the end.
const ALL_TO_ALL: &str = "\
# Using devices
#  Rank  0 Group  0 Pid   1 on host device  0 [0x03] Radeon
#  Rank  1 Group  0 Pid   1 on host device  1 [0x04] Radeon
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
      262144         32768     float    none      -1    42.91    6.11    3.05      0    46.84    5.60    2.80    N/A
   134217728      16777216     float    none      -1    10580   12.69    6.34      0    10589   12.67    6.34    N/A
# Avg bus bandwidth    : 2.38156
#
# Collective test concluded: alltoall_perf
";

#[test]
fn what_is_not_checked_in_place_is_all_to_all() {
    let run = read_one("a", ALL_TO_ALL);
    assert_eq!(run.collective, Collective::AllToAll);
    let unnamed: String = ALL_TO_ALL.lines().take(6).map(|line| line.to_owned() + "\n").collect();
    let run = read_one("a", &unnamed);
    assert_eq!(run.collective, Collective::AllToAll);
    assert!((run.rows[0].seconds.get() - 42.91e-6).abs() < 1e-12, "{:?}", run.rows[0]);
}

/// The form of 2020, as in NVIDIA/nccl#583 and NVIDIA/nccl-tests#29: no root, and errors instead of counts.
#[test]
fn older_forms_are_read() {
    let text = "\
# nThread 1 nGpus 8 minBytes 32 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#   Rank  0 Pid 1821213 on AI-A100 device  0 [0x00] NVIDIA A100-SXM4-40GB
#   Rank  1 Pid 1821213 on AI-A100 device  1 [0x00] NVIDIA A100-SXM4-40GB
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    33554432       8388608   float     sum   1464.2   22.92   22.92  5e-07   1458.1   23.01   23.01  5e-07
";
    let run = read_one("all_reduce_perf.log", text);
    assert_eq!((run.collective, run.rows.len()), (Collective::AllReduce, 1));
    // All-gather and broadcast have no operation.
    let text = text
        .replace("redop", "     ")
        .replace("  sum ", "      ")
        .replace("22.92   22.92", "22.92   11.46");
    let run = read_one("x", &text);
    assert_eq!(run.collective, Collective::AllGather);
}

#[test]
fn several_tables_in_one_file() {
    let named = |test: &str| format!("# Collective test starting: {test}\n{TWO_NODES}");
    let text = named("all_gather_perf") + &named("reduce_scatter_perf");
    let runs = read("x", &text).unwrap();
    let kinds: Vec<Collective> = runs.iter().map(|run| run.collective).collect();
    assert_eq!(kinds, [Collective::AllGather, Collective::ReduceScatter]);
    let runs = read("x", &(TWO_NODES.to_owned() + ALL_TO_ALL)).unwrap();
    let kinds: Vec<Collective> = runs.iter().map(|run| run.collective).collect();
    assert_eq!(kinds, [Collective::AllReduce, Collective::AllToAll]);
    assert_eq!(runs[1].ranks_by_host, [2]);
}

#[test]
fn rows_that_are_cut_off_or_wrong_are_left_out() {
    let cut = TWO_NODES.split_once(" 3108.8").unwrap().0.to_owned() + " 3108.8  345";
    let run = read_one("a", &cut);
    assert_eq!(run.rows.len(), 1);
    assert_eq!(run.left_out, ["line 13: it is cut off after 7 columns"]);
    let wrong = TWO_NODES.replace("518.07      0", "518.07      7");
    assert_eq!(read_one("a", &wrong).left_out, ["line 13: its results are wrong"]);
    let zero = TWO_NODES.replace("1806.7", "   0.0");
    assert_eq!(read_one("a", &zero).left_out, ["line 12: its times are no numbers above 0"]);
}

#[test]
fn what_is_no_table_is_refused() {
    let fails = |text: &str, words: &str| {
        let error = read("log", text).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    fails("hello", "no table of nccl-tests");
    fails("", "no table of nccl-tests");
    let headless = TWO_NODES.split_once("#  Rank  3").unwrap().1.split_once("#\n").unwrap().1;
    fails(headless, "line 2: a table without the `#  Rank");
    fails(&TWO_NODES.replace("Rank  2", "Rank  0"), "line 6: rank 0 comes twice");
    let head = TWO_NODES.split_once("   536870912     1342").unwrap().0;
    fails(head, "line 10: the table has no row");
    fails(
        &format!("# Collective test starting: hypercube_perf\n{TWO_NODES}"),
        "is of hypercube_perf",
    );
    // Bandwidths below the limit of precision.
    let slow = "#  Rank  0 on h device  0 [0] X\n#  Rank  1 on h device  1 [0] X\n\
        # size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n\
        8 2 float none -1 10.0 0.00 0.00 0 10.0 0.00 0.00 0\n";
    fails(slow, "fit all-gather and broadcast");
}
