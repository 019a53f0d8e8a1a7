//! The fitted models against the tables of measurements, where those lie beside the checkout.
//!
//! A ratchet: the limits only shrink.

use std::fs;
use std::path::Path;

use cost_models::clusters::preset;
use cost_models::{AttentionShape, Collective, Device, Group, MatmulFormat, MatmulShape, Network};
use ir::cluster::Precision;
use ir::units::{Bytes, Seconds};

/// A table's rows as text fields; `None`, with a message, where the tables are absent.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn table(name: &str) -> Option<Vec<Vec<String>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/measured/kernels");
    let path = folder.join(name);
    let Ok(text) = fs::read_to_string(&path) else {
        eprintln!("skipped: no {}", path.display());
        return None;
    };
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
            let shape = AttentionShape {
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
                let group = Group::contiguous(count(&row[1]) as u32);
                ((bytes >= 1 << 16) == large).then(|| network.time(kind, group, Bytes::new(bytes)))
            })
        };
        let (large, small) = (error(true), error(false));
        assert!(large < 0.03, "{gpu}, from 64 KiB: {large:.4}");
        assert!(small < 0.10, "{gpu}, below 64 KiB: {small:.4}");
    }
}
