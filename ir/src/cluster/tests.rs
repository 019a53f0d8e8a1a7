use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn example() -> Value {
    json!({
        "name": "test",
        "description": "two levels",
        "gpu": {
            "name": "G1",
            "architecture": "hopper",
            "memory_bytes": 80_000_000_000u64,
            "memory_bandwidth_bytes_per_second": 3.35e12,
            "peak_flops_per_second": {"bf16": 9.89e14, "fp16": 9.89e14}
        },
        "gpus_per_node": 8,
        "levels": [
            {"name": "NVLink", "ranks": 8, "bandwidth_bytes_per_second": 4.5e11, "latency_seconds": 1e-6},
            {"name": "IB", "bandwidth_bytes_per_second": 5e10, "latency_seconds": 5e-6}
        ],
        "host_link_bandwidth_bytes_per_second": 6.3e10
    })
}

/// The error of the example with `value` at `pointer`.
fn error_with(pointer: &str, value: Value) -> String {
    let mut cluster = example();
    *cluster.pointer_mut(pointer).unwrap_or(&mut Value::Null) = value;
    Cluster::from_json(&cluster.to_string()).err().map_or_else(String::new, |e| e.to_string())
}

#[test]
fn the_example_reads_and_prints_back() {
    let cluster = Cluster::from_json(&example().to_string()).expect("the example is valid");
    let printed = serde_json::to_string(&cluster).expect("a cluster prints");
    assert_eq!(Cluster::from_json(&printed), Ok(cluster));
}

#[test]
fn an_error_names_field_value_and_what_would_work() {
    let cases = [
        ("/gpus_per_node", json!(0), "`gpus_per_node` is 0, but must be at least 1, such as 8"),
        (
            "/levels/1/bandwidth_bytes_per_second",
            json!(-1.0),
            "`levels[1].bandwidth_bytes_per_second` is -1, but must be bytes a second, from 1e5 to 1e30, such as 4.5e11, \
             which are 450 GB/s; 400 Gb/s are 5e10",
        ),
        // Counted in something larger.
        (
            "/gpu/memory_bytes",
            json!(80),
            "`gpu.memory_bytes` is 80, but must be a positive number of bytes, from 1e6 to 1e30, such as 85899345920, \
             which are 80 GiB",
        ),
        (
            "/gpu/peak_flops_per_second/bf16",
            json!(989),
            "`gpu.peak_flops_per_second.bf16` is 989, but must be operations a second, from 1e6 to 1e30, such as \
             9.89e14, which are 989 TFLOP/s",
        ),
        (
            "/levels/0/latency_seconds",
            json!(5),
            "`levels[0].latency_seconds` is 5, but must be seconds, from 0 to 0.5, such as 5e-6, which are 5 us",
        ),
        (
            "/gpu/peak_flops_per_second",
            json!({}),
            "`gpu.peak_flops_per_second` is empty, but must be a rate for at least one precision, such as {\"bf16\": 9.89e14}",
        ),
        (
            "/levels/1",
            json!({"name": "IB", "ranks": 4, "bandwidth_bytes_per_second": 1e9, "latency_seconds": 0}),
            "`levels[1].ranks` is 4, but level 0 inside it already has 8; list levels innermost first, each with more ranks than the last",
        ),
        (
            "/levels/1",
            json!({"name": "IB", "ranks": 16, "bandwidth_bytes_per_second": 1e9, "latency_seconds": 0}),
            "no level reaches all ranks: the last, `IB`, ends at 16; leave out its `ranks`, or add a level without `ranks`",
        ),
        (
            "/levels/1",
            json!({"name": "IB", "wiring": "mesh", "bandwidth_bytes_per_second": 1e9, "latency_seconds": 0}),
            "`levels[1].wiring` is `mesh`, but must be `switched`, or absent, for all but the innermost level with `ranks` from 2",
        ),
        (
            "/levels",
            json!([]),
            "`levels` is empty, but must be a list of at least one level, the last without `ranks`",
        ),
    ];
    for (pointer, value, message) in cases {
        assert_eq!(error_with(pointer, value), message);
    }
    let memory = error_with("/gpu/memory_bytes", json!(-5));
    assert!(memory.contains("`gpu.memory_bytes` is -5, but must be a positive number of bytes"));
}

#[test]
fn broken_json_is_told_with_its_place() {
    let error = Cluster::from_json("{\n  \"name\": ,").expect_err("not JSON").to_string();
    assert_eq!(error, "cluster file, line 2, column 11: expected value");
}

proptest! {
    /// Any cut of the text, and any value at any place, gives a cluster or an error.
    #[test]
    fn no_text_panics(cut in 0usize..900, place in 0usize..12, value in prop_oneof![
        Just(json!(null)), Just(json!(0)), Just(json!(-1)), Just(json!("x")), Just(json!([])),
        Just(json!({})), Just(json!(1e308)), any::<f64>().prop_map(|v| json!(v)), any::<u64>().prop_map(|v| json!(v)),
    ]) {
        let text = example().to_string();
        let cut: String = text.chars().take(cut).collect();
        let _ = Cluster::from_json(&cut);
        let pointers = [
            "/name", "/gpu", "/gpu/memory_bytes", "/gpu/memory_bandwidth_bytes_per_second",
            "/gpu/peak_flops_per_second/bf16", "/gpu/architecture", "/gpus_per_node", "/levels",
            "/levels/0", "/levels/0/ranks", "/levels/0/latency_seconds",
            "/host_link_bandwidth_bytes_per_second",
        ];
        let _ = error_with(pointers[place], value);
    }
}

#[test]
fn measured_collectives_are_read_and_checked() {
    let level = |measured: Value| {
        json!({
            "name": "threads", "bandwidth_bytes_per_second": 1e9, "latency_seconds": 1e-6,
            "start_seconds": 1e-5, "measured": measured
        })
    };
    let good = json!({"start_seconds": 1e-5, "latency_seconds": 0.0, "mean_error": 0.05});
    assert_eq!(error_with("/levels/1", level(json!({"all_reduce": good}))), "");
    for (field, value, error) in [
        ("start_seconds", json!(-1.0), "`levels[1].measured.all_reduce.start_seconds` is -1"),
        (
            "bandwidth_bytes_per_second",
            json!(0),
            "`levels[1].measured.all_reduce.bandwidth_bytes_per_second` is 0",
        ),
        ("mean_error", json!(-0.1), "`levels[1].measured.all_reduce.mean_error` is -0.1"),
        ("speed", json!(1), "`speed` is not a field that is known"),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        let found = error_with("/levels/1", level(json!({"all_reduce": bad})));
        assert!(found.contains(error), "{found}");
    }
    let found = error_with("/levels/1", level(json!({"all_reduced": good})));
    assert!(found.contains("has `all_reduced`, but may have only"), "{found}");
}
