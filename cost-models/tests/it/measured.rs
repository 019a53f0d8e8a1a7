//! The fitted models against the tables of measurements, where those lie next to the checkout.
//!
//! A ratchet: the limits only shrink.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use cost_models::clusters::preset;
use cost_models::{
    Collective, Device, MatmulFormat, MatmulShape, Network, SelfAttentionShape, StridedGroup,
};
use ir::cluster::Precision;
use ir::graph::Pass;
use ir::units::{Bytes, Seconds};

/// A file of measurements; `None`, with a message, where they are absent.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn text(name: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/measured/kernels");
    let path = folder.join(name);
    let text = fs::read_to_string(&path).ok();
    if text.is_none() {
        eprintln!("skipped: no {}", path.display());
    }
    text
}

/// A table's rows as text fields.
fn table(name: &str) -> Option<Vec<Vec<String>>> {
    let text = text(name)?;
    let rows = text.lines().skip(1);
    Some(rows.map(|row| row.split(',').map(str::to_owned).collect()).collect())
}

fn number(text: &str) -> f64 {
    text.parse().expect("a number")
}

fn count(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// Mean absolute relative error of `predict` on rows that took from `least` seconds up.
fn mean_error(
    rows: &[Vec<String>],
    least: f64,
    mut predict: impl FnMut(&[String]) -> Option<Seconds>,
) -> f64 {
    let mut errors = Vec::new();
    for row in rows {
        let measured = number(row.last().expect("a row has fields")) * 1e-3;
        if measured > least
            && let Some(predicted) = predict(row)
        {
            errors.push((predicted.get() / measured - 1.0).abs());
        }
    }
    assert!(!errors.is_empty(), "no row was judged");
    errors.iter().sum::<f64>() / errors.len() as f64
}

fn device(name: &str) -> Device {
    Device::new(&preset(name).expect("a preset or a kind of collective").gpu)
}

#[test]
fn matrix_products_take_the_time_measured() {
    let limits = [
        ("a100", "bfloat16", 0.0597),
        ("h100", "bfloat16", 0.0456),
        ("h100", "fp8", 0.0280),
        ("h100", "fp8_block", 0.0795),
        ("h200", "bfloat16", 0.0472),
        ("h200", "fp8", 0.0303),
        ("h200", "fp8_block", 0.0775),
        ("b200", "bfloat16", 0.0603),
        ("b200", "fp8", 0.0392),
        ("b200", "fp8_block", 0.0332),
    ];
    for (gpu, dtype, limit) in limits {
        let Some(rows) = table(&format!("gemm_{gpu}.csv")) else { return };
        let device = device(gpu);
        let format = match dtype {
            "bfloat16" => MatmulFormat::Plain(Precision::Bf16),
            "fp8" => MatmulFormat::Plain(Precision::Fp8),
            _ => MatmulFormat::Fp8Block,
        };
        let error = mean_error(&rows, 10e-6, |row| {
            let shape = MatmulShape::new(count(&row[1]), count(&row[2]), count(&row[3]));
            (row[0] == dtype).then(|| device.matmul(format, shape))
        });
        assert!(error < limit, "{gpu} {dtype}: {error:.4}, limit {limit}");
    }
}

#[test]
fn attention_takes_the_time_measured() {
    let limits = [
        ("a100", "bfloat16", 0.0290),
        ("h100", "bfloat16", 0.0300),
        ("h100", "fp8", 0.0300),
        ("h200", "bfloat16", 0.0295),
        ("h200", "fp8", 0.0280),
    ];
    for (gpu, dtype, limit) in limits {
        let Some(rows) = table(&format!("attention_forward_{gpu}.csv")) else { return };
        let device = device(gpu);
        let precision = if dtype == "fp8" { Precision::Fp8 } else { Precision::Bf16 };
        let error = mean_error(&rows, 20e-6, |row| {
            let shape = SelfAttentionShape {
                batch: count(&row[0]),
                sequence: count(&row[1]),
                heads: count(&row[2]),
                kv_heads: count(&row[3]),
                head_dim: count(&row[4]),
                causal: true,
            };
            (row[5] == dtype).then(|| device.attention_forward(precision, shape))
        });
        assert!(error < limit, "{gpu} {dtype}: {error:.4}, limit {limit}");
    }
}

#[test]
fn collectives_take_the_time_measured() {
    for gpu in ["a100", "h100", "h200", "b200", "gb200-nvl72"] {
        let Some(rows) = table(&format!("nccl_{}.csv", gpu.trim_end_matches("-nvl72"))) else {
            return;
        };
        let network = Network::new(&preset(gpu).expect("a preset or a kind of collective"));
        let error = |large: bool| {
            mean_error(&rows, 0.0, |row| {
                let kind = Collective::ALL
                    .into_iter()
                    .find(|kind| kind.name() == row[0])
                    .expect("a preset or a kind of collective");
                let bytes = count(&row[2]);
                let group = StridedGroup::contiguous(count(&row[1]) as u32);
                ((bytes >= 1 << 16) == large).then(|| network.time(kind, group, Bytes::new(bytes)))
            })
        };
        let (large, small) = (error(true), error(false));
        assert!(large < 0.03, "{gpu}, from 64 KiB: {large:.4}");
        assert!(small < 0.10, "{gpu}, below 64 KiB: {small:.4}");
    }
}

/// Sizes of a product as SimuMax's tables write them: `b=1, m=4096, k=8192, n=10240, layout=NT, ..`.
fn sizes(shape: &str) -> [u64; 4] {
    ["b", "m", "n", "k"].map(|wanted| {
        let mut fields = shape.split(", ").filter_map(|field| field.split_once('='));
        count(fields.find(|(name, _)| *name == wanted).expect("the size").1)
    })
}

/// What adding a product to a sum in fp32 takes, in bytes of the sum's elements at the data sheet's bandwidth:
/// how much longer it takes than the products of the same sizes that are not added to anything, in the median.
#[test]
fn products_that_are_added_take_as_much_longer_as_measured() {
    let Some(text) = text("gemm_calibration.json") else { return };
    let tables: serde_json::Value = serde_json::from_str(&text).expect("a table");
    for (system, cluster) in [("b200_bf16_ceperm", "b200"), ("a100_pcie", "a100-pcie")] {
        let gpu = preset(cluster).expect("a preset").gpu;
        let mut alone: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        let mut added = Vec::new();
        for row in tables["rows"].as_array().expect("rows") {
            if row["system"] != system || row["op"] != "matmul" {
                continue;
            }
            let shape = row["shape"].as_str().expect("a shape");
            let [b, m, n, k] = sizes(shape);
            let mut key = [m, n, k];
            key.sort_unstable();
            let rate = row["achieved_tflops"].as_f64().expect("a rate") * 1e12;
            let seconds = 2.0 * (m * n * k) as f64 / rate;
            if shape.contains("accumulate=False") {
                alone.entry((b, key)).or_default().push(seconds);
            } else {
                added.push(((b, key), (m * n) as f64, seconds));
            }
        }
        let mut bytes: Vec<f64> = added
            .iter()
            .filter_map(|(key, elements, seconds)| {
                let of = alone.get(key)?;
                let mean = of.iter().sum::<f64>() / of.len() as f64;
                Some((seconds - mean) / elements * gpu.memory_bandwidth.get())
            })
            .collect();
        bytes.sort_unstable_by(f64::total_cmp);
        assert!(bytes.len() > 50, "{system}: {} products", bytes.len());
        let median = bytes[bytes.len() / 2];
        let device = Device::new(&gpu);
        // Too short for the rates that power sustains to hold it down.
        let shape = MatmulShape::new(4096, 4096, 256);
        let time =
            |sum| device.training_matmul(Precision::Bf16, shape, Pass::WeightGrad, sum, 1.0).time;
        let more = (time(Some(4)) - time(None)).get() * device.training.matmul;
        let predicted = more / (4096.0 * 4096.0) * gpu.memory_bandwidth.get();
        assert!((predicted - median).abs() < 0.5, "{system}: {predicted} bytes, not {median}");
    }
}
