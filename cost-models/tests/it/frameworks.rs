//! The constants of frameworks and GPUs in training.

use cost_models::residuals::{LEAST_ROWS, Spread, SpreadOf, comparable};
use cost_models::{AttentionLibrary, Device, FrameworkRates, Hardware, Precision, clusters};
use ir::framework::Framework;
use ir::plan::{Optimizer, Training};
use ir::replication::DataParallelMethod;
use proptest::prelude::*;

/// A training of which only precision and framework matter.
pub(crate) fn training(precision: Precision, framework: Framework) -> Training {
    Training {
        sequence_length: 1,
        global_batch_size: 1,
        precision,
        optimizer: Optimizer::AdamW,
        fp32_gradients: false,
        bf16_moments: false,
        framework,
        data_parallel_method: DataParallelMethod::AllReduce,
        gradient_compression: None,
    }
}

/// All that ships is read, for every framework on every cluster, and lies where it can.
#[test]
fn constants_are_there_for_all() {
    for framework in Framework::ALL {
        let rates = FrameworkRates::of(framework);
        assert!((0.5..5.0).contains(&rates.elementwise), "{framework}: {rates:?}");
        assert!((0.0..500.0).contains(&rates.operator_microseconds), "{framework}: {rates:?}");
        for name in clusters::names() {
            let cluster = clusters::preset(name).expect("a preset");
            let precision = *cluster.gpu.peak.keys().next().expect("a precision");
            let hardware = Hardware::new(&cluster, &training(precision, framework));
            let hardware = hardware.expect("a precision it has");
            let rates = hardware.device.training;
            for rate in [rates.matmul, rates.matmul_8_bit, rates.matmul_4_bit, rates.memory] {
                assert!((0.4..=1.1).contains(&rate), "{name}: {rates:?}");
            }
            for (of, has_experts) in [
                (SpreadOf::StepTimeSeconds, false),
                (SpreadOf::StepTimeSeconds, true),
                (SpreadOf::PeakMemoryBytes, false),
            ] {
                let comparable = comparable(&hardware, framework, has_experts);
                let (_, Spread { rows, low, high }) = Spread::shipped(of, comparable);
                let contains_one = low < 1.1 && high > 0.9 && low < high;
                assert!(rows >= LEAST_ROWS && contains_one, "{framework}");
            }
        }
    }
}

/// Newer libraries are no slower on GPUs that were measured with both.
#[test]
fn attention_becomes_faster_with_its_libraries() {
    for name in ["a100", "h100", "h200"] {
        let gpu = clusters::preset(name).expect("a preset").gpu;
        let libraries = [
            AttentionLibrary::FlashAttention1,
            AttentionLibrary::FlashAttention2,
            AttentionLibrary::Cudnn,
        ];
        let rates = libraries.map(|it| Device::for_training(&gpu, it).training);
        for pair in rates.windows(2) {
            assert!(pair[0].attention_forward <= pair[1].attention_forward, "{name}: {pair:?}");
            assert!(pair[0].attention_backward <= pair[1].attention_backward, "{name}: {pair:?}");
        }
    }
}

proptest! {
    /// Of many ratios a tenth lies below the interval and a tenth above.
    #[test]
    fn a_spread_leaves_out_a_tenth_on_either_side(ratios in prop::collection::vec(0.5f64..2.0, 1..300)) {
        let count = ratios.len() as f64;
        match Spread::of(ratios.clone()) {
            None => prop_assert!(ratios.len() < LEAST_ROWS),
            Some(Spread { rows, low, high }) => {
                prop_assert_eq!(rows, ratios.len());
                prop_assert!(low <= high);
                for beyond in [
                    ratios.iter().filter(|ratio| **ratio < low).count(),
                    ratios.iter().filter(|ratio| **ratio > high).count(),
                ] {
                    prop_assert!((beyond as f64 - 0.1 * count).abs() <= 1.0, "{beyond} of {count}");
                }
            }
        }
    }
}
