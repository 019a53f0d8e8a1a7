//! Laws of kernel times.

use cost_models::clusters::preset;
use cost_models::{Bound, Device, MatmulShape, SelfAttentionShape};
use ir::cluster::Precision;
use ir::framework::AttentionLibrary;
use ir::graph::Pass;
use ir::units::{Bytes, Seconds};
use proptest::prelude::*;

const GPUS: [&str; 6] = ["v100", "a100", "h100", "b200", "mi300x", "tpu-v5p"];

fn devices() -> impl Strategy<Value = (Device, f64)> {
    prop::sample::select(GPUS.to_vec()).prop_map(|name| {
        let gpu = preset(name).expect("a preset").gpu;
        let peak = gpu.peak.get(&Precision::Bf16).or_else(|| gpu.peak.get(&Precision::Fp16));
        (Device::new(&gpu), peak.expect("a 16-bit rate").get())
    })
}

fn attention(sequence: u64, heads: u64, causal: bool) -> SelfAttentionShape {
    SelfAttentionShape { batch: 2, sequence, heads, kv_heads: heads, head_dim: 128, causal }
}

#[test]
fn the_bound_is_what_one_expects() {
    let device = Device::new(&preset("h100").unwrap().gpu);
    let bound = |m, n, k| {
        let shape = MatmulShape::new(m, n, k);
        device.training_matmul(Precision::Bf16, shape, Pass::Forward, None, 1.0).bound
    };
    assert_eq!(bound(8192, 8192, 8192), Bound::Compute);
    assert_eq!(bound(1, 16384, 16384), Bound::Memory);
    assert_eq!(bound(64, 64, 64), Bound::Launch);
}

/// Attention on an H100 as it was measured there through PyTorch, at sequences of 4,096 tokens and more.
#[test]
fn long_attention_takes_the_time_that_was_measured() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/first_light_h100/operators.jsonl");
    let text = std::fs::read_to_string(path).expect("measured operators");
    let rows = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let gpu = &preset("h100").unwrap().gpu;
    let mut errors = Vec::new();
    for row in rows {
        let size = |name: &str| row[name].as_u64().unwrap();
        let library = match row["kind"].as_str() {
            Some("attention_flash_attention") => AttentionLibrary::FlashAttention2,
            Some("attention_cudnn_attention") => AttentionLibrary::Cudnn,
            _ => continue,
        };
        if size("sequence") < 4096 {
            continue;
        }
        let shape = SelfAttentionShape {
            batch: size("batch"),
            sequence: size("sequence"),
            heads: size("heads"),
            kv_heads: size("kv_heads"),
            head_dim: size("head_size"),
            causal: true,
        };
        let device = Device::for_training(gpu, library);
        let is_forward = row["direction"].as_str() == Some("forward");
        let pass = if is_forward { Pass::Forward } else { Pass::InputGrad };
        let predicted = device.training_attention(Precision::Bf16, shape, pass);
        errors.push((predicted.get() * 1e6 / row["time_us"].as_f64().unwrap() - 1.0).abs());
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let worst = errors.iter().copied().fold(0.0, f64::max);
    assert!(errors.len() > 40 && mean < 0.1 && worst < 0.4, "{}: {mean}, {worst}", errors.len());
}

/// Of large products; small ones take what their launch and casts take.
#[test]
fn products_of_narrower_inputs_are_faster() {
    for gpu in ["b200", "b300", "gb200-nvl72", "gb300-nvl72", "mi355x"] {
        let device = Device::new(&preset(gpu).unwrap().gpu);
        let time = |precision| device.matmul(precision, MatmulShape::new(8192, 28672, 8192)).get();
        let [bf16, fp8, fp4] = [Precision::Bf16, Precision::Fp8, Precision::Fp4].map(time);
        assert!(fp4 < 0.75 * fp8 && fp8 < 0.75 * bf16, "{gpu}: {bf16:e}, {fp8:e}, {fp4:e}");
    }
    let h100 = Device::new(&preset("h100").unwrap().gpu);
    let shape = MatmulShape::new(8192, 28672, 8192);
    let [bf16, fp4] =
        [Precision::Bf16, Precision::Fp4].map(|precision| h100.matmul(precision, shape));
    assert_eq!(fp4, bf16, "a GPU without 4 bits runs 16");
}

/// 0.9 of an H100's 3.35 TB/s, after the launch.
#[test]
fn a_pass_over_memory_takes_its_bandwidth() {
    let mut device = Device::new(&preset("h100").unwrap().gpu);
    device.training.memory = 1.0;
    let time = |bytes| device.training_memory_bound(Precision::Bf16, Bytes::new(bytes));
    assert_eq!(time(0), Seconds::ZERO);
    assert_eq!(time(1).to_string(), device.launch_floor().to_string());
    assert_eq!(time(3_015_000_000).to_string(), "1.00 ms");
}

proptest! {
    #[test]
    fn no_product_is_faster_than_peak(
        (device, peak) in devices(), log_m in 0.0..16f64, log_n in 3.0..16f64, log_k in 3.0..16f64,
        batch in 1u64..20,
    ) {
        let [m, n, k] = [log_m, log_n, log_k].map(|log| log.exp2() as u64);
        let time = device.matmul(Precision::Bf16, MatmulShape { batch, m, n, k });
        let flops = 2.0 * (batch * m * n * k) as f64;
        prop_assert!(flops / time.get() <= peak * (1.0 + 1e-9));
    }

    /// The corrections follow the libraries' heuristics, which do take less for more at times; not
    /// much, and not where a product is large.
    #[test]
    fn twice_the_product_never_takes_less(
        (device, _) in devices(), log_m in 5.0..13f64, log_n in 6.0..13f64, log_k in 6.0..13f64,
        axis in 0usize..3,
    ) {
        let mut size = [log_m, log_n, log_k].map(|log| log.exp2() as u64);
        let time = |[m, n, k]: [u64; 3]| device.matmul(Precision::Bf16, MatmulShape::new(m, n, k));
        let once = time(size);
        size[axis] *= 2;
        let twice = time(size);
        let least = if once.get() > 1e-4 { 1.0 } else { 0.8 };
        prop_assert!(twice.get() > least * once.get(), "{once}, then {twice}");
    }

    #[test]
    fn attention_is_never_faster_than_peak_and_longer_backward(
        (device, peak) in devices(), log_s in 0.0..17f64, heads in 1u64..130, causal: bool,
    ) {
        let s = log_s.exp2() as u64;
        let shape = attention(s, heads, causal);
        let forward = device.attention_forward(Precision::Bf16, shape);
        let flops = 4.0 * (2 * heads * 128) as f64 * (s * s) as f64 * if causal { 0.5 } else { 1.0 };
        prop_assert!(flops / forward.get() <= peak * (1.0 + 1e-9));
        prop_assert!(device.training_attention(Precision::Bf16, shape, Pass::InputGrad) > forward);
    }

    #[test]
    fn a_causal_mask_never_costs(
        (device, _) in devices(), log_s in 7.0..16f64, heads in 1u64..130,
    ) {
        let s = log_s.exp2() as u64;
        let time = |causal| device.attention_forward(Precision::Bf16, attention(s, heads, causal));
        prop_assert!(time(true) <= time(false));
    }
}

/// Kernels that were measured take what was measured, in the precision that it was measured in, and none is
/// faster than the peak.
#[test]
fn measured_kernels_go_before_rates() {
    let times = r#"{
        "ranks": 2, "threads_per_rank": 1, "by_precision": {"fp32": {
            "products": {
                "forward": {"start_seconds": 1e-6, "seconds_per_operation": 1e-11,
                            "seconds_per_left_element": 1e-10, "seconds_per_right_element": 2e-10,
                            "seconds_per_output_element": 3e-10},
                "weight_grad": {"start_seconds": 0, "seconds_per_operation": 1e-15,
                                "seconds_per_left_element": 0, "seconds_per_right_element": 0,
                                "seconds_per_output_element": 0}
            },
            "attention": {"forward": {"start_seconds": 0, "seconds_per_block": 1e-5,
                          "seconds_per_operation": 0, "seconds_per_score": 1e-9,
                          "seconds_per_element": 0}},
            "operators": {"norm": {"forward": {"start_seconds": 2e-6, "seconds_per_byte": 1e-10}}},
            "memory": {"start_seconds": 1e-6, "seconds_per_byte": 5e-11},
            "seconds_per_gradient": 1e-10, "update_start_seconds": 1e-5, "seconds_per_update": 1e-9,
            "mean_error": 0.05
        }}
    }"#;
    let mut gpu = preset("l4").unwrap().gpu;
    gpu.measured = Some(serde_json::from_str(times).unwrap());
    gpu.peak.insert(Precision::Fp32, ir::units::FlopsPerSecond::new(2e11));
    let device = Device::new(&gpu);
    let is = |what: &str, time: Seconds, seconds: f64| {
        assert!((time.get() / seconds - 1.0).abs() < 1e-9, "{what}: {time}, not {seconds}");
    };
    let product = |pass| {
        let shape = MatmulShape { batch: 2, m: 100, n: 200, k: 300 };
        device.training_matmul(Precision::Fp32, shape, pass, Some(4), 1.0).time
    };
    let forward = 2.0 * (1e-6 + 1.2e7 * 1e-11 + 3e4 * 1e-10 + 6e4 * 2e-10 + 2e4 * 3e-10);
    is("forward", product(Pass::Forward), forward);
    is("as forward", product(Pass::InputGrad), forward);
    is("at the peak", product(Pass::WeightGrad), 2.4e7 / 2e11);
    // 256 queries are 4 blocks, which see 10 of 16 blocks of keys.
    let shape = SelfAttentionShape {
        batch: 2,
        sequence: 256,
        heads: 8,
        kv_heads: 4,
        head_dim: 32,
        causal: true,
    };
    let scores = 2.0 * 8.0 * 256.0 * 256.0 * 10.0 / 16.0;
    let attention = device.training_attention(Precision::Fp32, shape, Pass::Forward);
    is("attention", attention, 2.0 * 4.0 * 4.0 * 1e-5 + scores * 1e-9);
    let operator = |family, pass| {
        device.measured_operator(Precision::Fp32, family, pass, Bytes::new(1000)).unwrap()
    };
    is("norm", operator("norm", Pass::Forward), 2e-6 + 1e-7);
    is("other", operator("norm", Pass::InputGrad), 1e-6 + 5e-8);
    let update = device.measured_update(Precision::Fp32, 1000, 500).unwrap();
    is("update", update, 1e-5 + 1e-7 + 5e-7);
    assert_eq!(device.measured_update(Precision::Bf16, 1000, 500), None);
    let shape = MatmulShape::new(1000, 1000, 1000);
    let without = Device::new(&preset("l4").unwrap().gpu);
    let time =
        |device: &Device| device.training_matmul(Precision::Bf16, shape, Pass::Forward, None, 1.0);
    assert_eq!(time(&device), time(&without), "bf16 was not measured");
}
