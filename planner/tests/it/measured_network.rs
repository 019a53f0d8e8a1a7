//! The network of a cluster from what nccl-tests print: tables made from a machine that is known, with noise.

use std::fmt::Write as _;

use cost_models::collectives::{Collective, StridedGroup};
use cost_models::{Network, clusters};
use ir::cluster::Cluster;
use ir::units::{Bytes, BytesPerSecond, Seconds};

use crate::bad_input::Workplace;
use crate::cli::planner;

/// H100 nodes whose links are others than data sheets say.
fn truth() -> Cluster {
    let mut cluster = clusters::preset("h100").unwrap();
    cluster.levels[0].collective_rates = None;
    cluster.levels[0].bandwidth = BytesPerSecond::new(350e9);
    cluster.levels[0].latency = Seconds::new(2.5e-6);
    cluster.levels[0].start = Some(Seconds::new(9e-6));
    cluster.levels[1].bandwidth = BytesPerSecond::new(31e9);
    cluster.levels[1].latency = Seconds::new(8e-6);
    cluster.levels[1].start = Some(Seconds::new(14e-6));
    cluster
}

/// What a test would print on so many nodes, each time off by up to so much.
fn table(
    cluster: &Cluster,
    test: &str,
    kind: Collective,
    [nodes, per_node]: [u32; 2],
    noise: f64,
) -> String {
    let group = StridedGroup { size: nodes * per_node, stride: cluster.gpus_per_node / per_node };
    let group = if nodes == 1 { StridedGroup::contiguous(per_node) } else { group };
    let network = Network::new(cluster);
    let mut text = format!(
        "# Collective test starting: {test}\n# nThread 1 nGpus 1 minBytes 8 maxBytes 1 step: 2(factor)\n"
    );
    for rank in 0..group.size {
        let (host, device) = (rank / per_node, rank % per_node);
        writeln!(
            text,
            "#  Rank {rank:2} Group  0 Pid   1 on node-{host} device  {device} [0x8d] NVIDIA H100 80GB HBM3"
        )
        .unwrap();
    }
    text += "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n";
    for bit in 10..32_u32 {
        let bytes = 1_u64 << bit;
        let seconds = network.time(kind, group, Bytes::new(bytes)).get();
        let columns = |sign: f64| {
            let off = f64::from(bit * 7919 % 13) / 6.0 - 1.0;
            let micros = seconds * 1e6 * (1.0 + sign * noise * off);
            let rate = bytes as f64 / micros / 1e3;
            format!("{micros:.2} {rate:.2} {:.2} 0", rate * kind.volume_factor(group.size))
        };
        let count = bytes / 4;
        writeln!(text, "{bytes} {count} float none -1 {} {}", columns(1.0), columns(0.5)).unwrap();
    }
    text + "# Avg bus bandwidth : 1\n"
}

const TESTS: [(&str, Collective); 4] = [
    ("all_reduce_perf", Collective::AllReduce),
    ("all_gather_perf", Collective::AllGather),
    ("reduce_scatter_perf", Collective::ReduceScatter),
    ("alltoall_perf", Collective::AllToAll),
];

/// The mean of the absolute relative errors of a cluster's times of a group about the true ones.
fn mean_error(found: &Cluster, group: StridedGroup) -> f64 {
    let [truth, found] = [&truth(), found].map(Network::new);
    let times = TESTS.iter().flat_map(|(_, kind)| {
        let of =
            |network: &Network, bit: u32| network.time(*kind, group, Bytes::new(1 << bit)).get();
        let (truth, found) = (&truth, &found);
        (12..32).map(move |bit| (of(found, bit) / of(truth, bit) - 1.0).abs())
    });
    times.sum::<f64>() / (20 * TESTS.len()) as f64
}

/// Both levels are found to within the noise, that of nodes for numbers of them that were not measured too.
#[test]
fn a_machines_network_is_found_again() {
    let place = Workplace::new();
    let mut args = vec![
        "calibrate".to_owned(),
        "--cluster".to_owned(),
        "h100".to_owned(),
        "--from".to_owned(),
    ];
    for (nodes, per_node) in [(1, 8), (1, 4), (2, 8), (4, 8)] {
        let tables = TESTS.map(|(test, kind)| table(&truth(), test, kind, [nodes, per_node], 0.05));
        args.push(place.write(&format!("{nodes}x{per_node}.txt"), tables.concat()));
    }
    let mine = place.path("mine.json");
    args.extend(["-o".to_owned(), mine.clone()]);
    let run = planner(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("352 rows of 16 tables of nccl-tests"), "{run:?}");
    assert!(run.stdout.contains("note: beyond the 4 nodes"), "{run:?}");
    assert!(run.stdout.contains("`--cluster"), "{run:?}");
    let found = Cluster::from_json(&std::fs::read_to_string(&mine).unwrap()).unwrap();
    assert_eq!(found.name, "mine");
    assert!(
        found.sources["levels.measured"].contains("352 rows of 1x8.txt, 1x4.txt, 2x8.txt, 4x8.txt")
    );
    let before = clusters::preset("h100").unwrap();
    for (ranks, most) in [(8, 0.03), (16, 0.03), (32, 0.03), (64, 0.03)] {
        let group = StridedGroup::contiguous(ranks);
        let (was, is) = (mean_error(&before, group), mean_error(&found, group));
        assert!(is < most && was > 0.1, "{ranks} ranks: {was} before, {is} after");
    }
    // Of groups within a node that were not measured, the line through those that were.
    let (was, is) = (
        mean_error(&before, StridedGroup::contiguous(2)),
        mean_error(&found, StridedGroup::contiguous(2)),
    );
    assert!(is < 0.25 * was, "{was} before, {is} after");
    let run =
        planner(&["search", "models/llama-3.1-8b", "--gpus", "16", "--quiet", "--cluster", &mine]);
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[test]
fn a_report_for_programs_says_how_far_it_moved_and_on_how_many_rows() {
    let place = Workplace::new();
    let text = table(&truth(), "all_reduce_perf", Collective::AllReduce, [1, 8], 0.0);
    let path = place.write("a.txt", text);
    let report =
        planner(&["calibrate", "--from", &path, "--cluster", "h100", "--format", "json"]).json();
    let table = &report["tables"][0];
    assert_eq!(table["samples"], 22);
    assert_eq!(table["level"], "NVLink 4");
    let number = |name: &str| table[name].as_f64().unwrap();
    assert!(number("mean_error_before") > 0.1, "{table}");
    assert!(number("mean_error") < 0.001, "{table}");
    assert!(number("mean_error_of_rows_left_out") < 0.05, "{table}");
    assert!((number("bus_bandwidth_bytes_per_second") / 350e9 - 1.0).abs() < 0.02, "{table}");
    let level = &report["cluster"]["levels"][0]["measured"]["all_reduce"];
    assert_eq!(level["times"]["8"].as_array().map(Vec::len), Some(22), "{level}");
}

#[test]
fn tables_that_do_not_fit_are_refused() {
    let place = Workplace::new();
    let text = table(&truth(), "all_reduce_perf", Collective::AllReduce, [1, 8], 0.0);
    let good = place.write("good.txt", &text);
    let check =
        |args: &str, words: &[&str]| place.fails(&format!("calibrate --from {args}"), words);
    check(&good, &["which cluster was measured", "--cluster"]);
    check(&format!("{good} --cluster b42"), &["b42", "preset"]);
    check(
        &format!("{good} --cluster h100 --framework megatron-core"),
        &["--framework", "nccl-tests"],
    );
    let empty = place.write("empty.txt", " \n");
    check(&format!("{empty} --cluster h100"), &["is empty"]);
    let other = place.write("other.txt", "iperf3: 94 Gbits/sec\n");
    check(&format!("{other} --cluster h100"), &["neither", "nccl-tests"]);
    let steps = place.write("steps.json", "[]");
    check(&format!("{good} {steps} --cluster h100"), &["tables of nccl-tests", "measured steps"]);
    let cut = place.write("cut.txt", text.split_once("1024 256").unwrap().0);
    check(&format!("{cut} --cluster h100"), &["cut.txt", "has no row"]);
    check(&format!("{good} --cluster gb200-nvl72"), &["8 ranks", "4 GPUs"]);
    let uneven = place.write("uneven.txt", text.replacen("node-0", "a", 3));
    check(&format!("{uneven} --cluster h100"), &["unequal", "[3, 5]"]);
}
