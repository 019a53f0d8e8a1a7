//! Scalar functions that compilers vectorise, and loops that call them.

use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LOG2_E};

use rayon::prelude::*;

/// Elements of one task of a thread: 64 KiB in fp32, which fits a core's private cache.
pub(super) const CHUNK: usize = 16 * 1024;

/// Number of partial sums of a row: the number of fp32 numbers in the widest vector register.
const LANES: usize = 16;

/// Runs `work` compiled for the widest vectors that this processor has.
pub(super) fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}

/// Writes `f(a, b)` to `out`, on all threads.
pub(super) fn map2(out: &mut [f32], a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32 + Sync) {
    let parts = out.par_chunks_mut(CHUNK).zip(a.par_chunks(CHUNK)).zip(b.par_chunks(CHUNK));
    parts.for_each(|((out, a), b)| {
        vectorised(
            #[inline(always)]
            || out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = f(*a, *b)),
        );
    });
}

/// Replaces each element of `out` by `f(out, a)`, on all threads.
pub(super) fn update(out: &mut [f32], a: &[f32], f: impl Fn(f32, f32) -> f32 + Sync) {
    out.par_chunks_mut(CHUNK).zip(a.par_chunks(CHUNK)).for_each(|(out, a)| {
        vectorised(
            #[inline(always)]
            || out.iter_mut().zip(a).for_each(|(out, a)| *out = f(*out, *a)),
        );
    });
}

/// The sum of `f(a, b)` over two rows.
#[inline(always)]
pub(super) fn sum2(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            lanes[lane] += f(a[lane], b[lane]);
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| f(*a, *b)).sum::<f32>();
    lanes.iter().sum::<f32>() + rest
}

/// The sum of `f(a)` over a row.
#[inline(always)]
pub(super) fn sum(a: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    sum2(a, a, |a, _| f(a))
}

/// The largest of a row, or minus infinity.
#[inline(always)]
pub(super) fn max(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = larger(lanes[lane], chunk[lane]);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger)
}

/// Replaces each `x` of a row by `e^(x - shift)`, and returns their sum.
#[inline(always)]
pub(super) fn exponentials(row: &mut [f32], shift: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            chunk[lane] = exp(chunk[lane] - shift);
            lanes[lane] += chunk[lane];
        }
    }
    let mut total = 0.0;
    for x in rest {
        *x = exp(*x - shift);
        total += *x;
    }
    total + lanes.iter().sum::<f32>()
}

/// `e^x`, to two units in the last place; zero below -87.3 and infinite above 88.376.
///
/// ```text
/// e^x = 2^n e^r,   n = round(x / ln 2),   r = x - n ln 2
/// ```
///
/// # Source
///
/// Moshier, *Cephes Mathematical Library*, `expf.c`: `ln 2` in two parts and the polynomial for `e^r`.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    /// Adding it moves the rounded number into the low bits: 1.5 * 2^23.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let mut polynomial = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        polynomial = polynomial * r + coefficient;
    }
    let fraction = polynomial * r * r + r + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    let result = fraction * power;
    let result = if x < -87.3 { 0.0 } else { result };
    if x > 88.4 { f32::INFINITY } else { result }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The normal distribution's probability below `x`, and its density at `x`, to 1.5e-7.
///
/// # Source
///
/// Abramowitz and Stegun 1964, *Handbook of Mathematical Functions*, formula 7.1.26.
#[inline(always)]
pub(super) fn normal(x: f32) -> (f32, f32) {
    let magnitude = x.abs() * FRAC_1_SQRT_2;
    let exponential = exp(-magnitude * magnitude);
    let t = 1.0 / (1.0 + 0.327_591_1 * magnitude);
    let mut polynomial = 1.061_405_4;
    for coefficient in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        polynomial = polynomial * t + coefficient;
    }
    let tail = 0.5 * polynomial * t * exponential;
    let share = if x < 0.0 { tail } else { 1.0 - tail };
    (share, exponential * (0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2))
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}
