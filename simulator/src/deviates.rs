//! Random numbers, reproducible by seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Standard normal deviates, reproducible by seed.
pub fn normal_deviates(seed: u64) -> impl Iterator<Item = f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    std::iter::repeat_with(move || normal_quantile(uniform(&mut rng)))
}

/// Uniform deviates between 0 and 1, both excluded, reproducible by seed.
pub fn uniform_deviates(seed: u64) -> impl Iterator<Item = f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    std::iter::repeat_with(move || uniform(&mut rng))
}

/// A uniform random number between 0 and 1, both excluded.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    // The 53 bits of a float's mantissa, in the middle of their interval.
    ((rng.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// The number that a standard normal deviate does not exceed with `probability`, to nine digits.
///
/// # Source
///
/// Acklam 2003, *An algorithm for computing the inverse normal cumulative distribution function*;
/// relative error below 1.15e-9.
fn normal_quantile(probability: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    /// Probability below which the tail has its own rational approximation.
    const TAIL: f64 = 0.024_25;
    let polynomial = |coefficients: &[f64], x: f64| {
        coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
    };
    let tail = |probability: f64| {
        let q = (-2.0 * probability.ln()).sqrt();
        polynomial(&C, q) / polynomial(&D, q)
    };
    if probability < TAIL {
        tail(probability)
    } else if probability > 1.0 - TAIL {
        -tail(1.0 - probability)
    } else {
        let q = probability - 0.5;
        q * polynomial(&A, q * q) / polynomial(&B, q * q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quantiles from tables of the normal distribution.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (probability, quantile) in
            [(0.5, 0.0), (0.841_344_746, 1.0), (0.975, 1.959_964), (0.001, -3.090_232)]
        {
            assert!((normal_quantile(probability) - quantile).abs() < 1e-6, "{probability}");
        }
    }
}
