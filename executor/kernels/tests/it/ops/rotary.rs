//! Rotary position embeddings.

use burn::tensor::FloatDType;
use burn_flex::{Flex, FlexDevice};
use executor_kernels::ops::rotary::{Rotary, frequencies};
use ir::graph::{RotaryPairs, RotaryScaling};
use proptest::prelude::*;

use super::{assert_close, random};

fn rotary(positions: &[u32], features: usize) -> Rotary<Flex> {
    let (frequencies, factor) = frequencies(features, 10_000.0, &RotaryScaling::None, 1);
    let pairs = RotaryPairs::Halves;
    Rotary::new(positions, pairs, &frequencies, factor, FloatDType::F64, &FlexDevice)
}

proptest! {
    /// A pair of features is a complex number, and rotation is multiplication by `e^(i position theta)`.
    #[test]
    fn pairs_turn_by_their_position(
        (b, s, heads) in (1usize..3, 1usize..5, 1usize..3),
        (half, rest) in (1usize..4, 0usize..3), start in 0u32..100, seed: u16,
    ) {
        let d = 2 * half + rest;
        let x = random(&[b, s, heads, d], seed.into());
        let positions: Vec<u32> = (start..).take(s).collect();
        let y = rotary(&positions, 2 * half).apply(x.clone()).to_f64();
        let x = x.to_f64();
        for row in 0..b * s * heads {
            let position = f64::from(positions[row / heads % s]);
            let at = |values: &[f64], feature: usize| values[row * d + feature];
            for i in 0..half {
                let angle = position * 10_000f64.powf(-(2.0 * i as f64) / (2.0 * half as f64));
                let (real, imaginary) = (at(&x, i), at(&x, i + half));
                let turned = real * angle.cos() - imaginary * angle.sin();
                prop_assert!((at(&y, i) - turned).abs() < 1e-12);
                let turned = real * angle.sin() + imaginary * angle.cos();
                prop_assert!((at(&y, i + half) - turned).abs() < 1e-12);
            }
            for feature in 2 * half..d {
                prop_assert_eq!(at(&y, feature).to_bits(), at(&x, feature).to_bits());
            }
        }
    }

    #[test]
    fn the_transpose_is_the_inverse(
        (b, s, half, rest) in (1usize..3, 1usize..5, 1usize..4, 0usize..3), seed: u16,
    ) {
        let x = random(&[b, s, 2 * half + rest], seed.into());
        let y = random(&[b, s, 2 * half + rest], u64::from(seed) + 1);
        let rotary = rotary(&(7..).take(s).collect::<Vec<u32>>(), 2 * half);
        assert_close(&rotary.apply_inverse(rotary.apply(x.clone())), &x, 1e-12);
        let forward = (rotary.apply(x.clone()) * y.clone()).sum();
        assert_close(&forward, &(x * rotary.apply_inverse(y)).sum(), 1e-12);
    }
}

/// What transformers 4.53 gives for Llama 3.1: head_dim 128, rope_theta 500000, factor 8, low and high
/// frequency factors 1 and 4, 8192 original positions. High frequencies stay, low ones are divided by 8.
#[test]
fn llama_3_scales_low_frequencies_only() {
    let scaling = RotaryScaling::Llama3 {
        factor: 8.0.into(),
        low_freq_factor: 1.0.into(),
        high_freq_factor: 4.0.into(),
        original_max_position_embeddings: 8192.0.into(),
    };
    let (plain, _) = frequencies(128, 500_000.0, &RotaryScaling::None, 1);
    let (scaled, _) = frequencies(128, 500_000.0, &scaling, 1);
    for (plain, scaled) in plain.iter().zip(&scaled) {
        let wave_length = 2.0 * std::f64::consts::PI / plain;
        let expected = if wave_length < 8192.0 / 4.0 {
            *plain
        } else if wave_length > 8192.0 {
            plain / 8.0
        } else {
            let smooth = (8192.0 / wave_length - 1.0) / (4.0 - 1.0);
            (1.0 - smooth) * plain / 8.0 + smooth * plain
        };
        assert!((scaled - expected).abs() < 1e-15, "{scaled} is not {expected}");
    }
}

#[test]
fn linear_scaling_divides_all_frequencies() {
    let (plain, _) = frequencies(16, 10_000.0, &RotaryScaling::None, 1);
    let scaling = RotaryScaling::Linear { factor: 4.0.into() };
    let (scaled, _) = frequencies(16, 10_000.0, &scaling, 1);
    assert_eq!(plain.iter().map(|f| f / 4.0).collect::<Vec<_>>(), scaled);
}
