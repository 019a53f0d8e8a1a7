//! Laws and textbook values of collectives.

use cost_models::clusters::preset;
use cost_models::{Basis, Collective, Hardware, Network, Precision, StridedGroup};
use ir::units::{Bytes, BytesPerSecond, Seconds};
use proptest::prelude::*;

use super::frameworks::training;

fn kinds() -> impl Strategy<Value = Collective> {
    prop::sample::select(Collective::ALL.to_vec())
}

fn networks() -> impl Strategy<Value = Network> {
    prop::sample::select(vec![
        "h100",
        "a100",
        "gb200-nvl72",
        "h800",
        "gh200",
        "tpu-v5p",
        "l4",
        "mi300x",
        "v100",
    ])
    .prop_map(|name| Network::new(&preset(name).expect("a preset")))
}

/// Bytes that each rank sends in a collective on a whole buffer of `bytes`.
fn volume_per_rank(kind: Collective, num_ranks: u32, bytes: Bytes) -> Bytes {
    Bytes::from_f64(kind.volume_factor(num_ranks) * bytes.as_f64())
}

#[test]
fn volumes_are_those_of_the_textbook() {
    let size = Bytes::new(800);
    let volume = |kind| volume_per_rank(kind, 8, size).get();
    assert_eq!(volume(Collective::AllReduce), 1400);
    assert_eq!(volume(Collective::AllGather), 700);
    assert_eq!(volume(Collective::ReduceScatter), 700);
    assert_eq!(volume(Collective::AllToAll), 700);
    assert_eq!(volume(Collective::Broadcast), 800);
    assert_eq!(volume(Collective::SendReceive), 800);
    for kind in Collective::ALL {
        assert_eq!(volume_per_rank(kind, 1, size), Bytes::ZERO);
    }
}

proptest! {
    #[test]
    fn one_rank_costs_nothing(
        kind in kinds(), network in networks(), stride in 1u32..100, bytes in 0u64..1 << 40,
    ) {
        let time = network.time(kind, StridedGroup { size: 1, stride }, Bytes::new(bytes));
        prop_assert_eq!(time, Seconds::ZERO);
    }

    /// Switches between the nodes of one network are no links of their own: what goes on to the next leaf takes the same
    /// NIC. A slower level beyond them makes nothing faster.
    #[test]
    fn leaves_as_fast_as_their_network_change_nothing(
        kind in kinds(), size in 2u32..300, stride in 1u32..80, log_bytes in 0.0..34f64,
        slower in 1.0..8f64, top_k in 1u64..9,
    ) {
        let flat = preset("h100").unwrap();
        let with_leaves = |beyond: f64| {
            let mut cluster = flat.clone();
            let mut leaf = cluster.levels[1].clone();
            leaf.ranks = Some(32);
            cluster.levels.insert(1, leaf);
            let bandwidth = cluster.levels[2].bandwidth.get() / beyond;
            cluster.levels[2].bandwidth = BytesPerSecond::new(bandwidth);
            Network::new(&cluster)
        };
        let (group, bytes) = (StridedGroup { size, stride }, Bytes::from_f64(log_bytes.exp2()));
        let times = |network: &Network| {
            [
                network.time(kind, group, bytes).get(),
                network.dispatch(group, bytes, top_k, None).get(),
                network.to_one(group, bytes).get(),
            ]
        };
        let (plain, equal) = (times(&Network::new(&flat)), times(&with_leaves(1.0)));
        let slow = times(&with_leaves(slower));
        for ((plain, equal), slow) in plain.into_iter().zip(equal).zip(slow) {
            prop_assert!((equal / plain - 1.0).abs() < 0.02, "{plain} then {equal}");
            prop_assert!(slow >= equal * (1.0 - 1e-9), "{equal} then {slow}");
        }
    }

    #[test]
    fn more_bytes_never_take_less_time(
        kind in kinds(), network in networks(), size in 2u32..600, stride in 1u32..100,
        log_bytes in 0.0..34f64, factor in 1.0..4f64,
    ) {
        let group = StridedGroup { size, stride };
        let bytes = log_bytes.exp2();
        let less = network.time(kind, group, Bytes::from_f64(bytes));
        let more = network.time(kind, group, Bytes::from_f64(bytes * factor));
        prop_assert!(more.get() >= less.get() * (1.0 - 1e-12), "{less} then {more}");
    }

    /// The model without fitted curves: an all-reduce is a reduce-scatter and an all-gather.
    #[test]
    fn a_large_all_reduce_is_a_reduce_scatter_and_an_all_gather(size in 2u32..64, stride in 1u32..9) {
        let network = Network::new(&preset("h800").unwrap());
        let group = StridedGroup { size, stride };
        let time = |kind| network.time(kind, group, Bytes::new(8 << 30)).get();
        let both = time(Collective::ReduceScatter) + time(Collective::AllGather);
        let ratio = time(Collective::AllReduce) / both;
        prop_assert!((0.99..1.01).contains(&ratio), "{ratio}");
    }

    /// Leaving the node is never faster.
    #[test]
    fn a_wider_stride_never_takes_less_time(kind in kinds(), size in 2u32..9, log_bytes in 20u32..32) {
        let network = Network::new(&preset("h800").unwrap());
        let bytes = Bytes::new(1 << log_bytes);
        let near = network.time(kind, StridedGroup { size, stride: 1 }, bytes);
        let far = network.time(kind, StridedGroup { size, stride: 8 }, bytes);
        prop_assert!(far.get() >= near.get(), "{near} near, {far} far");
    }
}

/// Scaling book, "GPUs", quiz 2, question 3: bf16[4096, 65536] gathered on 8 H100 at 450 GB/s takes
/// 1.04 ms. That is the volume over the link's peak; NCCL as measured takes a third longer.
#[test]
fn an_all_gather_agrees_with_the_scaling_book() {
    let size = Bytes::new(4096 * 65_536 * 2);
    let cluster = preset("h100").unwrap();
    let ideal = volume_per_rank(Collective::AllGather, 8, size) / cluster.levels[0].bandwidth;
    assert_eq!(ideal.to_string(), "1.04 ms");
    let measured =
        Network::new(&cluster).time(Collective::AllGather, StridedGroup::contiguous(8), size);
    assert_eq!(measured.to_string(), "1.40 ms");
}

/// stas00/ml-engineering, network: all-reduce over 4 nodes of 8 at 400 GB/s a node. Bus bandwidth
/// 365 GB/s at 4 GiB on H200 and 382 GB/s at 16 GiB on B200.
/// Of a mesh of 8, two ranks have one link of seven; all have what they would have with switches. A pair of MI300X
/// exchanges at 64 GB/s at most.
#[test]
fn few_ranks_of_a_mesh_have_few_of_its_links() {
    let mesh = preset("mi300x").unwrap();
    let mut switched = mesh.clone();
    switched.levels[0].wiring = None;
    let bytes = Bytes::new(1 << 32);
    let seconds = |cluster, size, stride| {
        let group = StridedGroup { size, stride };
        Network::new(cluster).time(Collective::AllReduce, group, bytes).get()
    };
    for (size, stride, links) in [(2, 1, 1.0), (2, 4, 1.0), (4, 2, 3.0), (8, 1, 7.0)] {
        let ratio = seconds(&mesh, size, stride) / seconds(&switched, size, stride);
        assert!((ratio * links / 7.0 - 1.0).abs() < 0.01, "{size}: {ratio}");
    }
    let reached = bytes.as_f64() / seconds(&mesh, 2, 1);
    assert!((40e9..64e9).contains(&reached), "{reached}");
}

#[test]
fn an_all_reduce_over_nodes_reaches_the_bandwidth_of_their_nics() {
    for (name, gib, measured) in [("h200", 4, 365e9), ("b200", 16, 382e9)] {
        let size = Bytes::new(gib << 30);
        let network = Network::new(&preset(name).unwrap());
        let time = network.time(Collective::AllReduce, StridedGroup::contiguous(32), size);
        let bus = volume_per_rank(Collective::AllReduce, 32, size) / time;
        let ratio = bus.get() / measured;
        assert!((0.9..1.1).contains(&ratio), "{name}: {bus}, measured {measured}");
    }
}

/// Of groups of 64 ranks in racks of 72 some end beyond a rack; of 256 ranks each rack has 64, of 576 all 72.
#[test]
fn groups_that_end_beyond_a_rack_use_the_network_between() {
    let cluster = preset("gb200-nvl72").unwrap();
    let ideal = cost_models::frameworks::preset("ideal").unwrap();
    let hardware = Hardware::new(&cluster, ideal, &training(Precision::Bf16)).unwrap();
    let is_within = |num_gpus: u32, size: u32| {
        let network = hardware.clone().among(num_gpus).network;
        network.outermost_level(StridedGroup::contiguous(size)) == 0
    };
    for (num_gpus, size, expected) in [
        (576, 64, false),
        (576, 72, true),
        (576, 8, true),
        (144, 16, false),
        (256, 64, true),
        (64, 64, true),
    ] {
        assert_eq!(is_within(num_gpus, size), expected, "{size} of {num_gpus}");
    }
    // Neighbours within a rack send within it, however many they are.
    let network = hardware.among(72).network;
    let message =
        |size| network.to_neighbour(StridedGroup { size, stride: 8 }, Bytes::new(1 << 20));
    assert_eq!(message(9), message(3));
    let ring = |size| {
        let group = StridedGroup { size, stride: 8 };
        network.time(Collective::SendReceive, group, Bytes::new(1 << 20))
    };
    assert_eq!(ring(9), message(9));
}

/// A rank of a data-parallel group that spans nodes at stride 8 has its one NIC.
#[test]
fn a_group_with_one_rank_a_node_has_one_nic() {
    let cluster = preset("h100").unwrap();
    let size = Bytes::new(8 << 30);
    let time = Network::new(&cluster).time(
        Collective::AllGather,
        StridedGroup { size: 16, stride: 8 },
        size,
    );
    let ideal = volume_per_rank(Collective::AllGather, 16, size) / cluster.levels[1].bandwidth;
    let ratio = time / ideal;
    // What is reached on 4 nodes, and what 16 take longer.
    assert!((1.05..1.25).contains(&ratio), "{ratio}");
}

/// A transfer over more nodes is never faster, and over thousands not twice as slow as its bandwidth.
#[test]
fn transfers_take_longer_over_more_nodes() {
    let network = Network::new(&preset("h100").unwrap());
    let size = Bytes::new(8 << 30);
    let share = |nodes: u32| {
        let group = StridedGroup::contiguous(8 * nodes);
        let moved = volume_per_rank(Collective::AllGather, group.size, size);
        network.time(Collective::AllGather, group, size).get() / moved.as_f64()
    };
    let shares = [4, 16, 64, 256, 1024].map(share);
    assert!(shares.is_sorted(), "{shares:?}");
    assert!(shares[4] < 2.0 * shares[0], "{shares:?}");
}

/// A level whose collectives were measured gives back their formulas, and only theirs.
#[test]
fn measured_collectives_take_what_was_measured() {
    let level = r#"{
        "name": "threads", "bandwidth_bytes_per_second": 1e9, "latency_seconds": 1e-6,
        "start_seconds": 1e-5, "measured": {
            "all_reduce": {"start_seconds": 2e-5, "latency_seconds": 3e-6,
                           "bandwidth_bytes_per_second": 4e9, "mean_error": 0.1},
            "send_receive": {"start_seconds": 5e-5, "latency_seconds": 0, "mean_error": 0.1}
        }
    }"#;
    let mut cluster = preset("l4").unwrap();
    cluster.levels = vec![serde_json::from_str(level).unwrap()];
    let network = Network::new(&cluster);
    let (group, bytes) = (StridedGroup::contiguous(4), Bytes::new(4_000_000));
    let is = |kind, seconds: f64| {
        let time = network.time(kind, group, bytes).get();
        assert!((time / seconds - 1.0).abs() < 1e-9, "{kind}: {time}, not {seconds}");
    };
    is(Collective::AllReduce, 2e-5 + 4.0 * 3e-6 + 1.5 * 4e6 / 4e9);
    is(Collective::SendReceive, 5e-5);
    // What was not measured follows from the level, which is what was reached.
    is(Collective::AllGather, 1e-5 + 3.0 * 1e-6 + 0.75 * 4e6 / 1e9);
    assert_eq!(network.basis(Collective::AllReduce, group, bytes), Basis::Interpolated);
    assert_eq!(network.basis(Collective::AllGather, group, bytes), Basis::DataSheet);
}

/// Of a ring or chain through all GPUs of a node, one sends beyond it. An L40S node has two interfaces for its eight
/// GPUs: that one sends four times as fast as each of eight that send at once. Where each GPU has an interface of its
/// own, it takes as long either way.
#[test]
fn the_one_that_leaves_a_node_has_the_interface_for_itself() {
    let bytes = Bytes::new(1 << 30);
    for (cluster, shared_by) in [("l40s", 4.0), ("p4d", 2.0), ("h100", 1.0)] {
        let network = Network::new(&preset(cluster).unwrap());
        let alone = network.to_neighbour(StridedGroup::contiguous(16), bytes).get();
        let all = network.to_neighbour(StridedGroup { size: 2, stride: 8 }, bytes).get();
        assert!((all / alone / shared_by - 1.0).abs() < 0.01, "{cluster}: {all} and {alone} s");
    }
}
