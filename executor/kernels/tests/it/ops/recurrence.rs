//! Recurrences, which are computed in chunks, against plain recurrences that go from position to position.

use executor_kernels::array::Array;
use executor_kernels::ops::recurrence::{delta_rule, state_space};
use proptest::prelude::*;

use super::{Plain, Traced, assert_close, check, check_bf16, random};

fn softplus(x: Traced) -> Traced {
    x.exp().shift(1.0).log()
}

fn seeded(shapes: [&[usize]; 7], seed: u64) -> [Plain; 7] {
    std::array::from_fn(|index| random(shapes[index], seed + index as u64))
}

/// Sizes of a scan: sequences, positions, groups, heads of a group, features, numbers of state.
type ScanSizes = (usize, usize, usize, usize, usize, usize);

fn scan_inputs((b, s, g, h, p, n): ScanSizes, seed: u64) -> [Plain; 7] {
    let shapes: [&[usize]; 7] =
        [&[b, s, g, h, p], &[b, s, g, n], &[b, s, g, n], &[b, s, g, h], &[g, h], &[g, h], &[g, h]];
    seeded(shapes, seed)
}

/// Mamba-2's scan from position to position.
fn scan(
    [x, b, c, time_step, a_log, skip, time_bias]: [Traced; 7],
    [least, most]: [f64; 2],
) -> Traced {
    let shape = x.shape();
    let [batch, length, groups, heads, features] = shape[..] else { unreachable!() };
    let numbers = b.size(3);
    let of_heads = |x: Traced| x.reshape(&[1, groups, heads, 1, 1]);
    let (rate, skip, bias) = (of_heads(a_log).exp(), of_heads(skip), of_heads(time_bias));
    let mut state =
        Array::zeros(&[batch, groups, heads, numbers, features], x.element(), &x.device());
    let mut outputs = Vec::new();
    for t in 0..length {
        let at = |x: &Traced, shape: &[usize]| x.narrow(1, t..t + 1).reshape(shape);
        let step = softplus(at(&time_step, &[batch, groups, heads, 1, 1]) + bias.clone());
        let step = -(-step.at_least(least)).at_least(-most);
        let x = at(&x, &[batch, groups, heads, 1, features]);
        let written = at(&b, &[batch, groups, 1, numbers, 1]) * (step.clone() * x.clone());
        state = state * (-(rate.clone() * step)).exp() + written;
        let read = (state.clone() * at(&c, &[batch, groups, 1, numbers, 1])).sum_dim(3);
        let y = read + skip.clone() * x;
        outputs.push(y.reshape(&[batch, 1, groups, heads, features]));
    }
    Array::concat(outputs, 1)
}

fn of_scan(
    [x, b, c, time_step, a_log, skip, time_bias]: [Plain; 7],
) -> (state_space::ScanInputs<burn_flex::Flex>, state_space::ScanParameters<burn_flex::Flex>) {
    let inputs = state_space::ScanInputs { x, b, c, time_step };
    (inputs, state_space::ScanParameters { a_log, skip, time_bias })
}

fn scan_grads(inputs: [Plain; 7], rule: state_space::ScanConstants, grad: Plain) -> [Plain; 7] {
    let (inputs, parameters) = of_scan(inputs);
    let (inputs, parameters) = state_space::grads(&inputs, &parameters, rule, grad);
    let state_space::ScanInputs { x, b, c, time_step } = inputs;
    let state_space::ScanParameters { a_log, skip, time_bias } = parameters;
    [x, b, c, time_step, a_log, skip, time_bias]
}

fn scanned(inputs: [Plain; 7], rule: state_space::ScanConstants) -> Plain {
    let (inputs, parameters) = of_scan(inputs);
    state_space::forward(&inputs, &parameters, rule)
}

/// Sizes of the rule: sequences, positions, heads of keys, heads of values to each, features of keys and of values.
type RuleSizes = (usize, usize, usize, usize, usize, usize);

fn rule_inputs((b, s, k, shared, n, p): RuleSizes, seed: u64) -> [Plain; 7] {
    let heads = k * shared;
    let shapes: [&[usize]; 7] = [
        &[b, s, k, n],
        &[b, s, k, n],
        &[b, s, heads, p],
        &[b, s, heads],
        &[b, s, heads],
        &[heads],
        &[heads],
    ];
    seeded(shapes, seed)
}

/// The gated delta rule from position to position.
fn rule([query, key, value, beta, decay, a_log, time_bias]: [Traced; 7]) -> Traced {
    let [batch, length, heads, features] = [0, 1, 2, 3].map(|dim| value.size(dim));
    let (key_heads, numbers) = (key.size(2), key.size(3));
    let shared = heads / key_heads;
    let direction = |x: Traced| {
        let length = (x.clone() * x.clone()).sum_dim(3).shift(1e-6).sqrt();
        x / length
    };
    let (query, key) = (direction(query).scale((numbers as f64).sqrt().recip()), direction(key));
    let of_heads = |x: Traced| x.reshape(&[1, heads, 1, 1]);
    let (rate, bias) = (of_heads(a_log).exp(), of_heads(time_bias));
    let mut state =
        Array::zeros(&[batch, heads, numbers, features], value.element(), &value.device());
    let mut outputs = Vec::new();
    for t in 0..length {
        let at = |x: &Traced, shape: &[usize]| x.narrow(1, t..t + 1).reshape(shape);
        let column = |x: &Traced| {
            let x = at(x, &[batch, key_heads, 1, numbers, 1]);
            let x = x.expand(&[batch, key_heads, shared, numbers, 1]);
            x.reshape(&[batch, heads, numbers, 1])
        };
        let step = softplus(at(&decay, &[batch, heads, 1, 1]) + bias.clone());
        state = state * (-(rate.clone() * step)).exp();
        let key = column(&key);
        let difference =
            at(&value, &[batch, heads, 1, features]) - (state.clone() * key.clone()).sum_dim(2);
        let strength = at(&beta, &[batch, heads, 1, 1]).sigmoid();
        state = state + key * (strength * difference);
        let y = (state.clone() * column(&query)).sum_dim(2);
        outputs.push(y.reshape(&[batch, 1, heads, features]));
    }
    Array::concat(outputs, 1)
}

fn of_rule(
    [query, key, value, beta, decay, a_log, time_bias]: [Plain; 7],
) -> (delta_rule::DeltaInputs<burn_flex::Flex>, delta_rule::DeltaParameters<burn_flex::Flex>) {
    let inputs = delta_rule::DeltaInputs { query, key, value, beta, decay };
    (inputs, delta_rule::DeltaParameters { a_log, time_bias })
}

fn ruled(inputs: [Plain; 7], chunk: usize) -> Plain {
    let (inputs, parameters) = of_rule(inputs);
    delta_rule::forward(&inputs, &parameters, chunk).0
}

fn rule_grads(inputs: [Plain; 7], chunk: usize, grad: Plain) -> [Plain; 7] {
    let (inputs, parameters) = of_rule(inputs);
    let (_, saved) = delta_rule::forward(&inputs, &parameters, chunk);
    let (inputs, parameters) = delta_rule::grads(&inputs, &parameters, &saved, chunk, grad);
    let delta_rule::DeltaInputs { query, key, value, beta, decay } = inputs;
    let delta_rule::DeltaParameters { a_log, time_bias } = parameters;
    [query, key, value, beta, decay, a_log, time_bias]
}

proptest! {
    #[test]
    fn scans_and_gradients_are_those_of_the_plain_recurrence(
        sizes in (1usize..3, 1usize..14, 1usize..3, 1usize..4, 1usize..4, 1usize..4),
        chunk in 1usize..8,
        limits in prop_oneof![Just([0.0, f64::INFINITY]), Just([0.3, 1.5])],
        seed: u16,
    ) {
        let inputs = scan_inputs(sizes, seed.into());
        let rule = state_space::ScanConstants { chunk, time_steps: limits };
        let y = scanned(inputs.clone(), rule);
        check(inputs.each_ref(), |inputs| scan(inputs, limits), &y, |grad| {
            scan_grads(inputs.clone(), rule, grad)
        });
    }

    #[test]
    fn delta_rules_and_gradients_are_those_of_the_plain_recurrence(
        sizes in (1usize..3, 1usize..26, 1usize..3, 1usize..4, 1usize..4, 1usize..4),
        chunk in 1usize..20,
        seed: u16,
    ) {
        let inputs = rule_inputs(sizes, seed.into());
        let y = ruled(inputs.clone(), chunk);
        check(inputs.each_ref(), rule, &y, |grad| rule_grads(inputs.clone(), chunk, grad));
    }
}

/// Keys of one direction, written with full strength and no decay: each reads all that was written before, which makes
/// the system of a chunk as badly conditioned as it gets.
#[test]
fn equal_keys_of_a_whole_chunk_lose_no_digits() {
    let (length, chunk) = (150, 64);
    let mut inputs = rule_inputs((1, length, 1, 1, 4, 3), 5);
    inputs[1] = Array::ones(&[1, length, 1, 4], inputs[1].element(), &inputs[1].device());
    inputs[3] = inputs[3].clone().scale(0.0).shift(30.0);
    inputs[5] = inputs[5].clone().scale(0.0).shift(-30.0);
    let y = ruled(inputs.clone(), chunk);
    check(inputs.each_ref(), rule, &y, |grad| rule_grads(inputs.clone(), chunk, grad));
}

/// The slope of `sum(y grad)` in a direction, by central differences, and by the gradients.
fn check_differences(
    inputs: &[Plain; 7],
    function: impl Fn([Plain; 7]) -> Plain,
    grads: &[Plain; 7],
    grad: &Plain,
) {
    const STEP: f64 = 1e-5;
    let directions: [Plain; 7] =
        std::array::from_fn(|input| random(&inputs[input].shape(), 50 + input as u64));
    let along = |by: f64| {
        let moved = std::array::from_fn(|input| {
            inputs[input].clone() + directions[input].clone().scale(by)
        });
        (function(moved) * grad.clone()).sum().item()
    };
    let difference = (along(STEP) - along(-STEP)) / (2.0 * STEP);
    let products = grads.iter().zip(&directions);
    let slope: f64 = products.map(|(a, b)| (a.clone() * b.clone()).sum().item()).sum();
    assert!((difference / slope - 1.0).abs() < 1e-6, "{difference}, not {slope}");
}

#[test]
fn gradients_are_central_differences() {
    let inputs = scan_inputs((2, 11, 2, 2, 3, 4), 7);
    let constants = state_space::ScanConstants { chunk: 4, time_steps: [0.0, f64::INFINITY] };
    let grad = random(&inputs[0].shape(), 8);
    let grads = scan_grads(inputs.clone(), constants, grad.clone());
    check_differences(&inputs, |inputs| scanned(inputs, constants), &grads, &grad);
    let inputs = rule_inputs((2, 21, 2, 2, 3, 4), 7);
    let grad = random(&inputs[2].shape(), 8);
    let grads = rule_grads(inputs.clone(), 16, grad.clone());
    check_differences(&inputs, |inputs| ruled(inputs, 16), &grads, &grad);
}

/// The chunk decides how it is computed, not what.
#[test]
fn chunks_do_not_matter() {
    let limits = [0.0, f64::INFINITY];
    let scan = scan_inputs((1, 70, 1, 2, 4, 8), 3);
    let of_scan =
        |chunk| scanned(scan.clone(), state_space::ScanConstants { chunk, time_steps: limits });
    let inputs = rule_inputs((1, 70, 2, 1, 8, 4), 3);
    for chunk in [1, 7, 64, 70, 256] {
        assert_close(&of_scan(chunk), &of_scan(16), 1e-12);
        assert_close(&ruled(inputs.clone(), chunk), &ruled(inputs.clone(), 16), 1e-12);
    }
}

#[test]
fn in_bf16_recurrences_are_rounded_once() {
    let inputs = scan_inputs((2, 9, 1, 2, 4, 4), 1);
    let constants = state_space::ScanConstants { chunk: 4, time_steps: [0.0, f64::INFINITY] };
    check_bf16(inputs.each_ref(), 1.0 / 128.0, |inputs| vec![scanned(inputs, constants)]);
    let inputs = rule_inputs((2, 9, 1, 2, 4, 4), 1);
    check_bf16(inputs.each_ref(), 1.0 / 128.0, |inputs| vec![ruled(inputs, 4)]);
}
