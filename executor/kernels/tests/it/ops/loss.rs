//! Losses.

use executor_kernels::array::Array;
use executor_kernels::ops::loss;
use proptest::prelude::*;

use super::{Plain, Traced, assert_close, check, check_bf16, random, random_indices};

/// The losses of all rows, and the gradient of `scale` times their sum, from logits in shards; what the
/// shards reduce is reduced here.
fn cross_entropy(shards: &[Plain], targets: &[u32], scale: f64) -> (Plain, Plain) {
    let sum = |parts: Vec<Plain>| parts.into_iter().reduce(|a, b| a + b).expect("there is a shard");
    let maxima: Vec<Plain> = shards.iter().map(|shard| loss::Measures::of(shard).max).collect();
    let max = maxima.into_iter().reduce(Array::maximum).expect("there is a shard");
    let mut first_class = 0;
    let first_classes: Vec<usize> = shards
        .iter()
        .map(|shard| {
            first_class += shard.size(1);
            first_class - shard.size(1)
        })
        .collect();
    let (exponentials, sums): (Vec<_>, Vec<_>) =
        shards.iter().map(|shard| loss::exponentials(shard.clone(), max.clone())).unzip();
    let target =
        |(shard, first): (&Plain, &usize)| loss::target_logits(shard, targets, *first, max.clone());
    let target = sum(shards.iter().zip(&first_classes).map(target).collect());
    let total = sum(sums);
    let grads = exponentials.into_iter().zip(&first_classes).map(|(exponentials, first)| {
        loss::input_grad(exponentials, total.clone(), targets, *first, scale)
    });
    let grads = grads.collect();
    (loss::losses(total.clone(), target), Array::concat(grads, 1))
}

proptest! {
    #[test]
    fn cross_entropy_is_as_defined(rows in 1usize..5, classes in 1usize..7, seed: u16) {
        let logits = random(&[rows, classes], seed.into());
        let targets = random_indices(rows, classes as u32, seed.into());
        let (losses, gradient) = cross_entropy(std::slice::from_ref(&logits), &targets, 0.3);
        let of_target = targets.iter().flat_map(|target| {
            (0..classes).map(move |class| if class == *target as usize { 1.0 } else { 0.0 })
        });
        let onehot: Vec<f64> = of_target.collect();
        let likelihood = |[x]: [Traced; 1]| {
            let chosen = Traced::from_f64(onehot.clone(), &x.shape(), x.element(), &x.device());
            let total = x.clone().exp().sum_dim(1).log();
            ((total - (x * chosen).sum_dim(1)).sum()).scale(0.3)
        };
        let total = losses.sum().scale(0.3);
        check([&logits], likelihood, &total, |grad| [gradient * grad.reshape(&[1, 1])]);
    }

    #[test]
    fn shards_of_the_classes_give_the_whole(
        (rows, first, second, third) in (1usize..5, 1usize..4, 1usize..4, 1usize..4), seed: u16,
    ) {
        let classes = first + second + third;
        let logits = random(&[rows, classes], seed.into());
        let targets = random_indices(rows, classes as u32, seed.into());
        let whole = cross_entropy(std::slice::from_ref(&logits), &targets, 0.5);
        let parts = cross_entropy(&logits.split(1, &[first, second, third]), &targets, 0.5);
        assert_close(&parts.0, &whole.0, 1e-12);
        assert_close(&parts.1, &whole.1, 1e-12);
    }
}

#[test]
fn logits_far_from_zero_do_not_overflow() {
    let logits = random(&[3, 5], 1).scale(1e4);
    let (losses, gradient) = cross_entropy(&[logits], &[0, 1, 2], 1.0);
    assert!(losses.is_finite() && gradient.is_finite());
}

#[test]
fn statistics_of_bf16_logits_are_taken_in_fp32() {
    check_bf16([&random(&[4, 500], 1)], 1e-5, |[logits]| {
        let (losses, gradient) = cross_entropy(&[logits], &[0, 499, 7, 8], 1.0);
        vec![losses, gradient]
    });
}
