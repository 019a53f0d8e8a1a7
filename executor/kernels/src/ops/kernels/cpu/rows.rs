//! Operators on rows: normalisations, rotations and softmaxes.

use std::ops::Range;

use burn_flex::Flex;
use ir::graph::NormKind;
use rayon::prelude::*;

use super::math::{CHUNK, exponentials as exponentials_of_row, max, sum, sum2, vectorised};
use super::memory::{Read, array, owned};
use crate::array::Array;
use crate::ops::composed::norm::Statistics;

pub(super) fn norm(
    kind: NormKind,
    x: &Array<Flex>,
    weight: Option<&Array<Flex>>,
    bias: Option<&Array<Flex>>,
    epsilon: f32,
) -> (Array<Flex>, Statistics<Flex>) {
    let has_mean = kind == NormKind::LayerNorm;
    let (rows, width) = (x.size(0), x.size(1));
    let input = Read::new(x);
    let (weight, bias) = (filled(weight, width, 1.0), filled(bias, width, 0.0));
    let mut out = vec![0.0; rows * width];
    let mut statistics = vec![[0.0; 2]; rows];
    let step = rows_at_a_time(width);
    let parts = out.par_chunks_mut(step * width).zip(input.slice().par_chunks(step * width));
    parts.zip(statistics.par_chunks_mut(step)).for_each(|((out, x), statistics)| {
        vectorised(
            #[inline(always)]
            || {
                let rows = out.chunks_exact_mut(width).zip(x.chunks_exact(width));
                for ((out, x), statistics) in rows.zip(statistics) {
                    let mean = if has_mean { sum(x, |x| x) / width as f32 } else { 0.0 };
                    let variance = sum(x, |x| (x - mean) * (x - mean)) / width as f32;
                    let inverse = 1.0 / (variance + epsilon).sqrt();
                    *statistics = [mean, inverse];
                    let parameters = weight.iter().zip(&bias);
                    for ((out, x), (weight, bias)) in out.iter_mut().zip(x).zip(parameters) {
                        *out = (x - mean) * inverse * weight + bias;
                    }
                }
            },
        );
    });
    let column = |of: usize| array(statistics.iter().map(|pair| pair[of]).collect(), &[rows, 1]);
    let mean = has_mean.then(|| column(0));
    (array(out, &[rows, width]), Statistics { mean, inverse_deviation: column(1) })
}

pub(super) fn norm_input_grad(
    x: &Array<Flex>,
    statistics: &Statistics<Flex>,
    weight: Option<&Array<Flex>>,
    grad: Array<Flex>,
) -> Array<Flex> {
    let (rows, width) = (x.size(0), x.size(1));
    let input = Read::new(x);
    let (has_mean, statistics) = (statistics.mean.is_some(), pairs(statistics));
    let weight = filled(weight, width, 1.0);
    let mut out = owned(grad);
    let step = rows_at_a_time(width);
    let parts = out.par_chunks_mut(step * width).zip(input.slice().par_chunks(step * width));
    parts.zip(statistics.par_chunks(step)).for_each(|((grad, x), statistics)| {
        vectorised(
            #[inline(always)]
            || {
                let rows = grad.chunks_exact_mut(width).zip(x.chunks_exact(width));
                for ((grad, x), [mean, inverse]) in rows.zip(statistics) {
                    for (grad, weight) in grad.iter_mut().zip(&weight) {
                        *grad *= weight;
                    }
                    let along = sum2(grad, x, |grad, x| grad * (x - mean)) * inverse / width as f32;
                    let across = if has_mean { sum(grad, |grad| grad) / width as f32 } else { 0.0 };
                    for (grad, x) in grad.iter_mut().zip(x) {
                        *grad = (*grad - across - (x - mean) * inverse * along) * inverse;
                    }
                }
            },
        );
    });
    array(out, &[rows, width])
}

pub(super) fn norm_weight_grad(
    x: &Array<Flex>,
    statistics: &Statistics<Flex>,
    grad: &Array<Flex>,
) -> (Array<Flex>, Array<Flex>) {
    let width = x.size(1);
    let (input, grads) = (Read::new(x), Read::new(grad));
    let statistics = pairs(statistics);
    let step = rows_at_a_time(width);
    let parts = grads.slice().par_chunks(step * width).zip(input.slice().par_chunks(step * width));
    // Parts of fixed size, added in order, so that the sums do not depend on the number of threads.
    let sums: Vec<[Vec<f32>; 2]> = parts
        .zip(statistics.par_chunks(step))
        .map(|((grad, x), statistics)| {
            let (mut scale, mut shift) = (vec![0.0; width], vec![0.0; width]);
            vectorised(
                #[inline(always)]
                || {
                    let rows = grad.chunks_exact(width).zip(x.chunks_exact(width));
                    for ((grad, x), [mean, inverse]) in rows.zip(statistics) {
                        let sums = scale.iter_mut().zip(&mut shift);
                        for ((scale, shift), (grad, x)) in sums.zip(grad.iter().zip(x)) {
                            *scale += grad * (x - mean) * inverse;
                            *shift += grad;
                        }
                    }
                },
            );
            [scale, shift]
        })
        .collect();
    let total = |of: usize| {
        let mut total = vec![0.0; width];
        for part in &sums {
            total.iter_mut().zip(&part[of]).for_each(|(total, part)| *total += part);
        }
        array(total, &[width])
    };
    (total(0), total(1))
}

pub(super) fn rotate(x: Array<Flex>, cos: &Array<Flex>, sin: &Array<Flex>) -> Array<Flex> {
    let shape = x.shape();
    let (positions, half, width) = (cos.size(0), cos.size(1), shape[shape.len() - 1]);
    let heads = shape[2..shape.len() - 1].iter().product::<usize>();
    let (cos, sin) = (Read::new(cos), Read::new(sin));
    let (cos, sin) = (cos.slice(), sin.slice());
    let mut out = owned(x);
    let step = rows_at_a_time(width);
    out.par_chunks_mut(step * width).enumerate().for_each(|(part, out)| {
        vectorised(
            #[inline(always)]
            || {
                for (row, x) in out.chunks_exact_mut(width).enumerate() {
                    let position = (part * step + row) / heads % positions;
                    let angles = position * half..(position + 1) * half;
                    let angles = cos[angles.clone()].iter().zip(&sin[angles]);
                    let (first, second) = x.split_at_mut(half);
                    for ((first, second), (cos, sin)) in first.iter_mut().zip(second).zip(angles) {
                        let turned = *first * cos - *second * sin;
                        *second = *second * cos + *first * sin;
                        *first = turned;
                    }
                }
            },
        );
    });
    array(out, &shape)
}

pub(super) fn softmax(scores: Array<Flex>, seen: &[Range<usize>]) -> (Array<Flex>, Array<Flex>) {
    let mut shape = scores.shape();
    let width = shape[shape.len() - 1];
    let mut out = owned(scores);
    let mut log_sum_exps = vec![0.0; out.len() / width];
    for_rows(
        &mut out,
        width,
        &mut log_sum_exps,
        #[inline(always)]
        |row, scores, log_sum_exp| {
            let seen = hide(scores, &seen[row % seen.len()]);
            let largest = max(seen);
            if seen.is_empty() {
                *log_sum_exp = f32::NEG_INFINITY;
                return;
            }
            let total = exponentials_of_row(seen, largest);
            *log_sum_exp = largest + total.ln();
            let inverse = 1.0 / total;
            for x in seen {
                *x *= inverse;
            }
        },
    );
    let probabilities = array(out, &shape);
    shape.pop();
    shape.push(1);
    (probabilities, array(log_sum_exps, &shape))
}

pub(super) fn probabilities(
    scores: Array<Flex>,
    log_sum_exp: &Array<Flex>,
    seen: &[Range<usize>],
) -> Array<Flex> {
    let shape = scores.shape();
    let mut out = owned(scores);
    let mut log_sum_exps = owned(log_sum_exp.clone());
    let width = shape[shape.len() - 1];
    for_rows(
        &mut out,
        width,
        &mut log_sum_exps,
        #[inline(always)]
        |row, scores, log_sum_exp| {
            exponentials_of_row(hide(scores, &seen[row % seen.len()]), *log_sum_exp);
        },
    );
    array(out, &shape)
}

pub(super) fn score_grad(
    probabilities: &Array<Flex>,
    probability_grad: Array<Flex>,
    delta: &Array<Flex>,
) -> Array<Flex> {
    let shape = probabilities.shape();
    let width = shape[shape.len() - 1];
    let probabilities = Read::new(probabilities);
    let probabilities = probabilities.slice();
    let mut out = owned(probability_grad);
    let mut deltas = owned(delta.clone());
    for_rows(
        &mut out,
        width,
        &mut deltas,
        #[inline(always)]
        |row, grads, delta| {
            let probabilities = &probabilities[row * width..(row + 1) * width];
            for (grad, probability) in grads.iter_mut().zip(probabilities) {
                *grad = probability * (*grad - *delta);
            }
        },
    );
    array(out, &shape)
}

pub(super) fn exponentials(logits: Array<Flex>, max: &Array<Flex>) -> (Array<Flex>, Array<Flex>) {
    let shape = logits.shape();
    let mut out = owned(logits);
    let mut sums = owned(max.clone());
    for_rows(
        &mut out,
        shape[1],
        &mut sums,
        #[inline(always)]
        |_, logits, sum| {
            *sum = exponentials_of_row(logits, *sum);
        },
    );
    (array(out, &shape), array(sums, &[shape[0], 1]))
}

pub(super) fn cross_entropy_grad(
    exponentials: Array<Flex>,
    sum: &Array<Flex>,
    targets: &[u32],
    first_class: usize,
    scale: f32,
) -> Array<Flex> {
    let shape = exponentials.shape();
    let mut out = owned(exponentials);
    let mut sums = owned(sum.clone());
    for_rows(
        &mut out,
        shape[1],
        &mut sums,
        #[inline(always)]
        |row, grads, sum| {
            let factor = scale / *sum;
            for x in grads.iter_mut() {
                *x *= factor;
            }
            let class = (targets[row] as usize).checked_sub(first_class);
            if let Some(grad) = class.and_then(|class| grads.get_mut(class)) {
                *grad -= scale;
            }
        },
    );
    array(out, &shape)
}

/// Calls `work` with the number of each row, the row and its element of `statistics`, on all threads.
fn for_rows(
    values: &mut [f32],
    width: usize,
    statistics: &mut [f32],
    work: impl Fn(usize, &mut [f32], &mut f32) + Sync,
) {
    let step = rows_at_a_time(width);
    let parts = values.par_chunks_mut(step * width).zip(statistics.par_chunks_mut(step));
    parts.enumerate().for_each(|(part, (values, statistics))| {
        vectorised(
            #[inline(always)]
            || {
                let rows = values.chunks_exact_mut(width).zip(statistics);
                for (row, (values, statistic)) in rows.enumerate() {
                    work(part * step + row, values, statistic);
                }
            },
        );
    });
}

/// Zeroes the keys of a row that are hidden, and returns those that are seen.
#[inline(always)]
fn hide<'a>(row: &'a mut [f32], seen: &Range<usize>) -> &'a mut [f32] {
    row[..seen.start].fill(0.0);
    row[seen.end..].fill(0.0);
    &mut row[seen.clone()]
}

/// Number of rows of one task of a thread.
fn rows_at_a_time(width: usize) -> usize {
    (CHUNK / width).max(1)
}

/// A parameter of `width` features; without one, `default` repeated.
fn filled(parameter: Option<&Array<Flex>>, width: usize, default: f32) -> Vec<f32> {
    parameter.map_or_else(|| vec![default; width], |parameter| owned(parameter.clone()))
}

/// Mean, or zero, and inverse deviation of each row.
fn pairs(statistics: &Statistics<Flex>) -> Vec<[f32; 2]> {
    let inverses = owned(statistics.inverse_deviation.clone());
    let means = filled(statistics.mean.as_ref(), inverses.len(), 0.0);
    means.into_iter().zip(inverses).map(|(mean, inverse)| [mean, inverse]).collect()
}
