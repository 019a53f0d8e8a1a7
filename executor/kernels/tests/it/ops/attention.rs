//! Attention, whole and in parts.

use burn_flex::Flex;
use executor_kernels::array::{Array, Indices};
use executor_kernels::ops::attention::{self, Bias, Buckets, KeyVisibility, Scoring};
use ir::graph::AttentionMask;
use proptest::prelude::*;

use super::{Plain, Traced, assert_close, check, check_bf16, random};

const SCALE: f64 = 0.4;

/// Sizes of a problem: sequences, queries, keys, key-value heads, queries' heads to each, features of keys
/// and of values.
type Sizes = (usize, usize, usize, usize, usize, usize, usize);

fn sizes() -> impl Strategy<Value = Sizes> {
    (1usize..3, 1usize..6, 1usize..6, 1usize..3, 1usize..3, 1usize..4, 1usize..4)
}

fn masks() -> impl Strategy<Value = AttentionMask> {
    prop_oneof![
        Just(AttentionMask::Full),
        Just(AttentionMask::Causal),
        (1u64..5).prop_map(|window| AttentionMask::SlidingWindow { window }),
    ]
}

fn inputs((b, s, t, kv_heads, group, d, dv): Sizes, seed: u64) -> [Plain; 3] {
    let q = random(&[b, s, kv_heads * group, d], seed);
    [q, random(&[b, t, kv_heads, d], seed + 1), random(&[b, t, kv_heads, dv], seed + 2)]
}

fn sees(visibility: KeyVisibility, query: usize, key: usize) -> bool {
    let (query, key) = (visibility.query_start + query, visibility.key_start + key);
    match visibility.mask {
        AttentionMask::Full => true,
        AttentionMask::Causal => key <= query,
        AttentionMask::Chosen { .. }
        | AttentionMask::Chunked { .. }
        | AttentionMask::Compressed { .. } => unreachable!("no kernel has it"),
        AttentionMask::SlidingWindow { window } => key <= query && query - key < window as usize,
    }
}

/// Softmax of all scores, those of hidden keys zero, with keys and values repeated for each query head.
fn definition([q, k, v]: [Traced; 3], visibility: KeyVisibility) -> Traced {
    let (q_shape, k_shape) = (q.shape(), k.shape());
    let (s, t) = (q_shape[1], k_shape[1]);
    let group = q_shape[2] / k_shape[2];
    let repeated = |x: Traced| {
        let head = |head: usize| x.narrow(2, head / group..head / group + 1);
        Array::concat((0..q_shape[2]).map(head).collect(), 2).swap_dims(1, 2)
    };
    let seen =
        (0..s).flat_map(|i| (0..t).map(move |j| f64::from(u8::from(sees(visibility, i, j)))));
    let seen = Array::from_f64(seen.collect(), &[1, 1, s, t], q.element(), &q.device());
    let (element, device) = (q.element(), q.device());
    let scores = q.swap_dims(1, 2).matmul(repeated(k).transpose()).scale(SCALE);
    let exponentials = scores.exp() * seen;
    // A row without keys has a sum of zero, which must divide nothing.
    let blind = (0..s).map(|i| f64::from(u8::from(!(0..t).any(|j| sees(visibility, i, j)))));
    let blind = Array::from_f64(blind.collect(), &[1, 1, s, 1], element, &device);
    let sum = exponentials.clone().sum_dim(3) + blind;
    (exponentials / sum).matmul(repeated(v)).swap_dims(1, 2)
}

fn forward([q, k, v]: &[Plain; 3], visibility: KeyVisibility) -> (Plain, Plain) {
    attention::forward(q.clone(), k.clone(), v.clone(), &Scoring::plain(SCALE), visibility)
}

fn gradients(
    [q, k, v]: &[Plain; 3],
    (out, log_sum_exp): &(Plain, Plain),
    grad: &Plain,
    visibility: KeyVisibility,
) -> [Plain; 3] {
    let (q, k, v) = (q.clone(), k.clone(), v.clone());
    let (out, log_sum_exp) = (out.clone(), log_sum_exp.clone());
    let (grad, scoring) = (grad.clone(), Scoring::plain(SCALE));
    let grads = attention::input_grad(q, k, v, out, log_sum_exp, grad, &scoring, visibility);
    [grads.query, grads.key, grads.value]
}

#[track_caller]
fn check_attention(inputs: &[Plain; 3], visibility: KeyVisibility) {
    let result = forward(inputs, visibility);
    let [q, k, v] = inputs;
    check(
        [q, k, v],
        |inputs| definition(inputs, visibility),
        &result.0,
        |grad| gradients(inputs, &result, &grad, visibility),
    );
}

proptest! {
    #[test]
    fn attention_and_gradients_are_as_defined(
        sizes in sizes(), mask in masks(), query_start in 0usize..6, key_start in 0usize..6, seed: u16,
    ) {
        let visibility = KeyVisibility { mask, query_start, key_start };
        check_attention(&inputs(sizes, seed.into()), visibility);
    }

    /// Ring attention: ranks see the keys block by block and add up.
    #[test]
    fn attention_to_parts_of_the_keys_adds_up(
        sizes in sizes(), mask in masks(), cuts in (0usize..7, 0usize..7), seed: u16,
    ) {
        let t = sizes.2;
        let (low, high) = (cuts.0.min(cuts.1).min(t), cuts.0.max(cuts.1).min(t));
        let visibility = KeyVisibility { mask, query_start: 2, key_start: 0 };
        let inputs = inputs(sizes, seed.into());
        let whole = forward(&inputs, visibility);
        let grad = random(&whole.0.shape(), 7);
        let parts: Vec<_> = [(0, low), (low, high), (high, t)]
            .into_iter()
            .filter(|(start, end)| start < end)
            .map(|(start, end)| {
                let [q, k, v] = &inputs;
                let part = [q.clone(), k.narrow(1, start..end), v.narrow(1, start..end)];
                (part, KeyVisibility { key_start: start, ..visibility })
            })
            .collect();
        let merged = parts
            .iter()
            .map(|(part, visibility)| forward(part, *visibility))
            .reduce(attention::merge)
            .unwrap();
        assert_close(&merged.0, &whole.0, 1e-11);
        assert_close(&merged.1, &whole.1, 1e-11);
        let expected = gradients(&inputs, &whole, &grad, visibility);
        let parts = parts.iter().map(|(part, visibility)| gradients(part, &whole, &grad, *visibility));
        let [q_grads, k_grads, v_grads] = parts.fold([vec![], vec![], vec![]], |mut all, part| {
            all.iter_mut().zip(part).for_each(|(all, part)| all.push(part));
            all
        });
        assert_close(&q_grads.into_iter().reduce(|a, b| a + b).unwrap(), &expected[0], 1e-11);
        assert_close(&Array::concat(k_grads, 1), &expected[1], 1e-11);
        assert_close(&Array::concat(v_grads, 1), &expected[2], 1e-11);
    }

    #[test]
    fn visibility_knows_what_is_nothing(
        mask in masks(), (query_start, key_start) in (0usize..9, 0usize..9),
        (queries, keys) in (1usize..6, 1usize..6),
    ) {
        let visibility = KeyVisibility { mask, query_start, key_start };
        let mut pairs = (0..queries).flat_map(|query| (0..keys).map(move |key| (query, key)));
        let some = pairs.any(|(query, key)| sees(visibility, query, key));
        prop_assert_eq!(visibility.sees_nothing(queries, keys), !some);
    }

    /// Scores with a scale of their own, a cap, and a trained bias for each head and bucket of distances.
    #[test]
    fn scores_are_capped_and_biased(
        (b, s, t, kv_heads, group, d, dv) in sizes(), seed: u16, both_ways: bool,
    ) {
        let heads = kv_heads * group;
        let inputs = inputs((b, s, t, kv_heads, group, d, dv), seed.into());
        let visibility = KeyVisibility { mask: AttentionMask::Causal, query_start: 2, key_start: 0 };
        let buckets = Buckets { count: 6, max_distance: 7, both_ways };
        let table = random(&[6, heads], u64::from(seed) + 6);
        let (scale, cap) = (0.7, 1.3);
        let scoring = |table: Plain| {
            Scoring { scale, soft_cap: Some(cap), bias: Bias::Table(table, buckets), dropout: None }
        };
        let [q, k, v] = &inputs;
        let given = || (q.clone(), k.clone(), v.clone());
        let (query, key, value) = given();
        let result = attention::forward(query, key, value, &scoring(table.clone()), visibility);
        let definition = |[q, k, v, table]: [Traced; 4]| {
            let repeated = |x: Traced| {
                let (rows, features) = (x.size(1), x.size(3));
                let x = x.reshape(&[b, rows, kv_heads, 1, features]);
                let x = x.expand(&[b, rows, kv_heads, group, features]);
                x.reshape(&[b, rows, heads, features]).swap_dims(1, 2)
            };
            let pairs = || (0..s).flat_map(|i| (0..t).map(move |j| (i, j)));
            let distances = (0i64..).take(s).flat_map(|i| (0i64..).take(t).map(move |j| j - i - 2));
            let rows: Vec<u32> = distances.map(|it| buckets.of(it) as u32).collect();
            let rows = Indices::new(&rows, &[s * t], &table.device());
            let bias = table.select(0, &rows).transpose().reshape(&[1, heads, s, t]);
            let products = q.swap_dims(1, 2).matmul(repeated(k).transpose()).scale(scale / cap);
            let seen = pairs().map(|(i, j)| f64::from(u8::from(sees(visibility, i, j))));
            let seen = Array::from_f64(seen.collect(), &[1, 1, s, t], bias.element(), &bias.device());
            let weights = (products.tanh().scale(cap) + bias).exp() * seen;
            let sum = weights.clone().sum_dim(3);
            (weights / sum).matmul(repeated(v)).swap_dims(1, 2)
        };
        check([q, k, v, &table], definition, &result.0, |grad| {
            let (query, key, value) = given();
            let (out, lse) = result.clone();
            let scoring = scoring(table.clone());
            let grads =
                attention::input_grad(query, key, value, out, lse, grad, &scoring, visibility);
            [grads.query, grads.key, grads.value, grads.table.unwrap()]
        });
    }

    /// A sink is a key of its own for each head, with a value of zero.
    #[test]
    fn sinks_take_part_in_the_softmax(
        (b, s, t, heads, _, d, dv) in sizes(), seed: u16,
    ) {
        let inputs = inputs((b, s, t, heads, 1, d, dv), seed.into());
        let visibility = KeyVisibility { mask: AttentionMask::Causal, query_start: 1, key_start: 0 };
        let sinks = random(&[heads], u64::from(seed) + 5);
        let (out, log_sum_exp) = forward(&inputs, visibility);
        let result = attention::with_sinks(out, log_sum_exp, sinks.clone());
        let [q, k, v] = &inputs;
        let with_sinks = |[q, k, v, sinks]: [Traced; 4]| {
            // The definition's denominator, with the sinks, over that without them.
            let out = definition([q.clone(), k.clone(), v], visibility);
            let ones = Array::ones(&[b, t, heads, 1], q.element(), &q.device());
            let seen = |i: usize, j: usize| f64::from(u8::from(sees(visibility, i, j)));
            let seen: Vec<f64> = (0..s).flat_map(|i| (0..t).map(move |j| seen(i, j))).collect();
            let seen = Array::from_f64(seen, &[1, 1, s, t], q.element(), &q.device());
            let scores = q.swap_dims(1, 2).matmul(k.swap_dims(1, 2).transpose()).scale(SCALE);
            let sum = (scores.exp() * seen).matmul(ones.swap_dims(1, 2)).swap_dims(1, 2);
            out * (sum.clone() / (sum + sinks.exp().reshape(&[1, 1, heads, 1])))
        };
        check([q, k, v, &sinks], with_sinks, &result.0, |grad| {
            let [q_grad, k_grad, v_grad] = gradients(&inputs, &result, &grad, visibility);
            let (out, log_sum_exp) = result.clone();
            let sinks_grad = attention::sinks_grad(sinks.clone(), out, log_sum_exp, grad);
            [q_grad, k_grad, v_grad, sinks_grad]
        });
    }
}

/// Long enough for several blocks of queries, of unequal length.
#[test]
fn blocks_of_queries_agree_with_the_definition() {
    let inputs = inputs((1, 150, 170, 2, 2, 4, 3), 5);
    let start = |mask| KeyVisibility { mask, query_start: 20, key_start: 0 };
    check_attention(&inputs, start(AttentionMask::Full));
    check_attention(&inputs, start(AttentionMask::Causal));
    check_attention(&inputs, start(AttentionMask::SlidingWindow { window: 17 }));
    check_attention(&inputs, start(AttentionMask::SlidingWindow { window: 200 }));
}

#[test]
fn a_query_that_sees_nothing_gets_zeros() {
    let inputs = inputs((1, 3, 2, 1, 1, 4, 4), 5);
    let visibility = KeyVisibility { mask: AttentionMask::Causal, query_start: 0, key_start: 2 };
    let nothing = KeyVisibility { query_start: 0, key_start: 9, ..visibility };
    let (out, log_sum_exp) = forward(&inputs, visibility);
    assert_eq!(out.narrow(1, 0..2).to_f64(), [0.0; 8]);
    assert_eq!(log_sum_exp.narrow(2, 0..2).to_f64(), [f64::NEG_INFINITY; 2]);
    let blind = forward(&inputs, nothing);
    let merged = attention::merge(blind.clone(), blind.clone());
    assert_eq!(merged.0.to_f64(), [0.0; 12]);
    assert_eq!(merged.1.to_f64(), [f64::NEG_INFINITY; 3]);
    let merged = attention::merge(blind, (out.clone(), log_sum_exp.clone()));
    assert_close(&merged.0, &out, 0.0);
    assert_close(&merged.1, &log_sum_exp, 0.0);
}

#[test]
fn scores_far_from_zero_do_not_overflow() {
    let [q, k, v] = inputs((1, 4, 4, 1, 1, 4, 4), 5);
    let inputs = [q.scale(1e4), k, v];
    let visibility = KeyVisibility { mask: AttentionMask::Causal, query_start: 0, key_start: 0 };
    let result = forward(&inputs, visibility);
    assert!(result.0.is_finite() && result.1.is_finite());
    let grad = random(&result.0.shape(), 7);
    assert!(gradients(&inputs, &result, &grad, visibility).iter().all(Array::<Flex>::is_finite));
}

#[test]
fn in_bf16_attention_is_close() {
    let [q, k, v] = inputs((2, 70, 70, 2, 2, 8, 8), 5);
    let visibility = KeyVisibility { mask: AttentionMask::Causal, query_start: 0, key_start: 0 };
    check_bf16([&q, &k, &v], 0.05, |inputs| {
        let result = forward(&inputs, visibility);
        let grad = result.0.clone();
        let [q_grad, k_grad, v_grad] = gradients(&inputs, &result, &grad, visibility);
        vec![result.0, result.1, q_grad, k_grad, v_grad]
    });
}
