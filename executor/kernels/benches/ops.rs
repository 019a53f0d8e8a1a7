//! Time of the operators of a Llama-like layer on the CPU, forward and backward, in fp32: 4 sequences of 256 tokens, 8
//! heads of 64 features, 1376 features between, 8192 classes.

use std::hint::black_box;

use burn::tensor::FloatDType;
use burn_flex::{Flex, FlexDevice};
use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use executor_kernels::array::Array;
use executor_kernels::ops::activation::{Function, gated_forward, gated_input_grad};
use executor_kernels::ops::attention::{self, KeyVisibility, Scoring};
use executor_kernels::ops::rotary::{Rotary, frequencies};
use executor_kernels::ops::{embedding, linear, loss, norm};
use ir::graph::{AttentionMask, NormKind, RotaryPairs, RotaryScaling};

const SEQUENCES: usize = 4;
const POSITIONS: usize = 256;
const ROWS: usize = SEQUENCES * POSITIONS;
const HEADS: usize = 8;
const FEATURES: usize = 64;
const HIDDEN: usize = HEADS * FEATURES;
const INTERMEDIATE: usize = 1376;
const CLASSES: usize = 8192;

/// Numbers between -1 and 1 without a visible order.
fn array(shape: &[usize]) -> Array<Flex> {
    let value = |index: usize| ((index * 7919) % 2003) as f64 / 1001.0 - 1.0;
    let values = (0..shape.iter().product()).map(value).collect();
    Array::from_f64(values, shape, FloatDType::F32, &FlexDevice)
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("layer");
    group.sample_size(20);
    let mut time =
        |name: &str, function: &dyn Fn() -> Vec<Array<Flex>>| measure(&mut group, name, function);

    let (x, grad, weight) = (array(&[ROWS, HIDDEN]), array(&[ROWS, HIDDEN]), array(&[HIDDEN]));
    let w = array(&[HIDDEN, INTERMEDIATE]);
    let wide = array(&[ROWS, INTERMEDIATE]);
    time("linear/forward", &|| vec![linear::forward(x.clone(), w.clone(), None)]);
    time("linear/input_grad", &|| vec![linear::input_grad(wide.clone(), w.clone())]);
    time("linear/weight_grad", &|| vec![linear::weight_grad(x.clone(), wide.clone())]);

    let kind = NormKind::RmsNorm;
    let forward = || norm::forward(kind, x.clone(), Some(weight.clone()), None, 1e-5);
    let statistics = forward().1;
    time("rms_norm/forward", &|| vec![forward().0]);
    time("rms_norm/input_grad", &|| {
        vec![norm::input_grad(kind, x.clone(), &statistics, Some(weight.clone()), grad.clone())]
    });
    time("rms_norm/weight_grad", &|| {
        let (scale, shift) = norm::weight_grad(kind, x.clone(), &statistics, grad.clone());
        vec![scale, shift]
    });

    let silu = Function::Silu;
    time("silu/forward", &|| vec![gated_forward(silu, wide.clone(), wide.clone())]);
    time("silu/input_grad", &|| {
        let (gate, value) = gated_input_grad(silu, wide.clone(), wide.clone(), wide.clone());
        vec![gate, value]
    });
    let gelu = Function::Gelu;
    time("gelu/forward", &|| vec![gelu.forward(wide.clone())]);
    time("gelu/input_grad", &|| vec![gelu.input_grad(wide.clone(), wide.clone())]);

    let heads = array(&[SEQUENCES, POSITIONS, HEADS, FEATURES]);
    let positions: Vec<u32> = (0..POSITIONS as u32).collect();
    let (angles, factor) = frequencies(FEATURES, 10_000.0, &RotaryScaling::None, POSITIONS);
    let pairs = RotaryPairs::Halves;
    let rotary = Rotary::new(&positions, pairs, &angles, factor, FloatDType::F32, &FlexDevice);
    time("rotary/forward", &|| vec![rotary.apply(heads.clone())]);

    for (name, mask) in [("causal", AttentionMask::Causal), ("full", AttentionMask::Full)] {
        let visibility = KeyVisibility { mask, query_start: 0, key_start: 0 };
        let scoring = Scoring::plain(0.125);
        let qkv = || (heads.clone(), heads.clone(), heads.clone());
        let forward = || {
            let (q, k, v) = qkv();
            attention::forward(q, k, v, &scoring, visibility)
        };
        let (out, log_sum_exp) = forward();
        time(&format!("attention/{name}/forward"), &|| vec![forward().0]);
        time(&format!("attention/{name}/input_grad"), &|| {
            let (q, k, v) = qkv();
            let (out, lse, grad) = (out.clone(), log_sum_exp.clone(), heads.clone());
            let grads = attention::input_grad(q, k, v, out, lse, grad, &scoring, visibility);
            vec![grads.query, grads.key, grads.value]
        });
    }

    let ids: Vec<u32> = (0..ROWS).map(|row| (row * 7919 % CLASSES) as u32).collect();
    let logits = array(&[ROWS, CLASSES]);
    time("cross_entropy/forward", &|| {
        let max = loss::Measures::of(&logits).max;
        let target = loss::target_logits(&logits, &ids, 0, max.clone());
        let (exponentials, sum) = loss::exponentials(logits.clone(), max);
        vec![exponentials, loss::losses(sum, target)]
    });
    let (exponentials, sum) = loss::exponentials(logits.clone(), loss::Measures::of(&logits).max);
    time("cross_entropy/input_grad", &|| {
        vec![loss::input_grad(exponentials.clone(), sum.clone(), &ids, 0, 1.0)]
    });

    let table = array(&[CLASSES, HIDDEN]);
    time("embedding/forward", &|| vec![embedding::forward(table.clone(), &ids, 0)]);
    time("embedding/weight_grad", &|| vec![embedding::weight_grad(&ids, 0, CLASSES, grad.clone())]);
    group.finish();
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    function: &dyn Fn() -> Vec<Array<Flex>>,
) {
    group.bench_function(name, |bencher| bencher.iter(|| black_box(function())));
}

criterion_group!(ops, benches);
criterion_main!(ops);
