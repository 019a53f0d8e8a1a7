//! Routing of rows to experts.

use executor_kernels::array::{Array, Indices};
use executor_kernels::ops::experts::{self, ExpertChoices, RoutingRule, Sorted, places};
use ir::graph::ExpertGroups;
use proptest::prelude::*;

use super::{Plain, Traced, assert_close, check, random};

/// The softmax of random logits, `[rows, experts]`.
fn probabilities(shape: [usize; 2], seed: u64) -> Plain {
    let exponentials = random(&shape, seed).exp();
    exponentials.clone() / exponentials.sum_dim(1)
}

fn of_rows<const N: usize>(rows: &[[f64; N]]) -> Plain {
    let like = random(&[1], 1);
    Array::from_f64(rows.as_flattened().to_vec(), &[rows.len(), N], like.element(), &like.device())
}

/// Each row's choices, where each expert takes the first `capacity` of those that chose it.
fn sorted(
    choices: &ExpertChoices<burn_flex::Flex>,
    num_experts: usize,
    capacity: Option<usize>,
) -> Sorted<burn_flex::Flex> {
    let Some(capacity) = capacity else { return experts::sort(&choices.experts, num_experts) };
    let chosen: Vec<usize> =
        choices.experts.to_vec().iter().map(|expert| *expert as usize).collect();
    let places = places(&chosen, num_experts);
    let sent: Vec<Option<u32>> = (chosen.iter().zip(places))
        .map(|(expert, place)| (place < capacity).then_some(*expert as u32))
        .collect();
    let shape = [num_experts, choices.experts.shape()[1]];
    Sorted::of_known(&sent, shape, &choices.experts.device())
}

#[test]
fn rows_go_to_their_likeliest_experts() {
    let probabilities = of_rows(&[
        [0.1, 0.6, 0.3], // 1, then 2
        [0.4, 0.2, 0.4], // 0, then 2: of equals, the first
        [0.0, 0.5, 0.5], // 1, then 2
    ]);
    let choices = experts::choose(&probabilities, None, &RoutingRule::likeliest(2, false));
    assert_eq!(choices.experts.to_vec(), [1, 2, 0, 2, 1, 2]);
    assert_eq!(choices.weights.to_f64(), [0.6, 0.3, 0.4, 0.4, 0.5, 0.5]);
    let all = sorted(&choices, 3, None);
    assert_eq!(all.counts.on_host(), [1, 2, 3]);
    assert_eq!(all.rows.to_vec(), [1, 0, 2, 0, 1, 2]);
    assert_eq!(all.choices.to_vec(), [2, 0, 4, 1, 3, 5]);
    assert_eq!(all.places.to_vec(), [1, 3, 0, 4, 2, 5]);
    assert_eq!(experts::load(&choices.experts, 3).to_f64(), [1.0, 2.0, 3.0]);
    let limited = sorted(&choices, 3, Some(1));
    assert_eq!(limited.counts.on_host(), [1, 1, 1]);
    assert_eq!(limited.rows.to_vec(), [1, 0, 0]);
    assert_eq!(limited.places.to_vec(), [1, 2, 0, 3, 3, 3]);
}

/// DeepSeek-V3's rule on numbers worked out by hand: the two groups of two whose best sum to most, then their two best;
/// corrections choose, and weigh nothing.
#[test]
fn groups_are_chosen_before_experts() {
    let probabilities = of_rows(&[[0.9, 0.0, 0.5, 0.5, 0.6, 0.2]]);
    let groups = Some(ExpertGroups { count: 3, chosen: 2, scored_by: 2 });
    let rule = RoutingRule { groups, scaling: 3.0, ..RoutingRule::likeliest(3, true) };
    let choices = experts::choose(&probabilities, None, &rule);
    // Groups sum to 0.9, 1.0 and 0.8: the last is out, and with it the second best expert.
    assert_eq!(choices.experts.to_vec(), [0, 2, 3]);
    let expected = of_rows(&[[0.9, 0.5, 0.5].map(|p| 3.0 * p / 1.9)]);
    assert_close(&choices.weights, &expected, 1e-14);
    let correction = of_rows(&[[0.0, 0.0, 0.0, 0.0, 0.0, 0.5]]).flatten();
    let corrected = experts::choose(&probabilities, Some(&correction), &rule);
    // With the correction they sum to 0.9, 1.0 and 1.3.
    assert_eq!(corrected.experts.to_vec(), [5, 4, 2]);
    let expected = of_rows(&[[0.2, 0.6, 0.5].map(|p| 3.0 * p / 1.3)]);
    assert_close(&corrected.weights, &expected, 1e-14);
}

proptest! {
    #[test]
    fn each_row_has_its_experts_unless_they_are_full(
        (rows, num_experts) in (1usize..20, 1usize..6), top_k in 1usize..4,
        capacity in proptest::option::of(0usize..8), normalise: bool, seed: u16,
    ) {
        let top_k = top_k.min(num_experts);
        let probabilities = probabilities([rows, num_experts], seed.into());
        let choices = experts::choose(&probabilities, None, &RoutingRule::likeliest(top_k, normalise));
        if normalise {
            let sums = choices.weights.clone().sum_dim(1).to_f64();
            prop_assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-12));
        }
        let chosen = choices.experts.to_vec();
        for of_row in chosen.chunks_exact(top_k) {
            let mut others = of_row.to_vec();
            others.sort_unstable();
            others.dedup();
            prop_assert_eq!(others.len(), top_k);
        }
        let sorted = sorted(&choices, num_experts, capacity);
        let (sent, places) = (sorted.choices.to_vec(), sorted.places.to_vec());
        let loads = experts::load(&choices.experts, num_experts).to_f64();
        let mut start = 0;
        for (expert, count) in sorted.counts.on_host().iter().enumerate() {
            let load = loads[expert] as usize;
            prop_assert_eq!(*count, capacity.unwrap_or(load).min(load));
            let own = &sent[start..start + count];
            // Its choices, the first of them, in order.
            let all: Vec<u32> = (0..chosen.len() as u32)
                .filter(|choice| chosen[*choice as usize] as usize == expert)
                .collect();
            prop_assert_eq!(own, &all[..*count]);
            start += count;
        }
        prop_assert_eq!(start, sorted.num_sent());
        for (place, choice) in sent.iter().enumerate() {
            prop_assert_eq!(places[*choice as usize] as usize, place);
            prop_assert_eq!(sorted.rows.to_vec()[place], choice / top_k as u32);
        }
        let unsent = places.iter().filter(|place| **place as usize == sent.len()).count();
        prop_assert_eq!(unsent, chosen.len() - sent.len());
    }

    /// The loss is the weights times given numbers.
    #[test]
    fn gradients_reach_the_probabilities(
        (rows, num_experts) in (1usize..6, 1usize..5), top_k in 1usize..4,
        normalise: bool, scaling in 0.5..3.0, seed: u16,
    ) {
        let rule = RoutingRule { scaling, ..RoutingRule::likeliest(top_k.min(num_experts), normalise) };
        let start = probabilities([rows, num_experts], seed.into());
        let given = random(&[rows, rule.top_k], u64::from(seed) + 1);
        let choices = experts::choose(&start, None, &rule);
        let gradient = experts::probability_grad(&start, &choices, given.clone(), &rule).to_f64();
        for (place, slope) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut values = start.to_f64();
                values[place] += by;
                let moved = Array::from_f64(values, &start.shape(), start.element(), &start.device());
                let choices = experts::choose(&moved, None, &rule);
                let loss = (choices.weights * given.clone()).sum().item();
                (loss, choices.experts.to_vec())
            };
            let ((above, chosen_above), (below, chosen_below)) = (moved(1e-6), moved(-1e-6));
            // The choice itself has no gradient.
            if chosen_above == chosen_below {
                prop_assert!((slope - (above - below) / 2e-6).abs() < 1e-7);
            }
        }
    }

    #[test]
    fn rows_are_dispatched_and_combined(
        (rows, num_experts, width) in (1usize..6, 1usize..5, 1usize..4), top_k in 1usize..4,
        capacity in proptest::option::of(0usize..4), seed: u16,
    ) {
        let top_k = top_k.min(num_experts);
        let probabilities = probabilities([rows, num_experts], seed.into());
        let choices = experts::choose(&probabilities, None, &RoutingRule::likeliest(top_k, true));
        let sorted = sorted(&choices, num_experts, capacity);
        let sent = sorted.rows.to_vec();
        prop_assume!(!sent.is_empty());
        let x = random(&[rows, width], u64::from(seed) + 1);
        let one_by_one = |[x]: [Traced; 1]| {
            let row = |row: &u32| x.narrow(0, *row as usize..*row as usize + 1);
            Traced::concat(sent.iter().map(row).collect(), 0)
        };
        let dispatched = experts::dispatch(&x, &sorted);
        check([&x], one_by_one, &dispatched, |grad| [experts::dispatch_grad(grad, &sorted)]);

        let y = random(&[sent.len(), width], u64::from(seed) + 2);
        let numbers = sorted.choices.to_vec();
        let sums = |[y, weights]: [Traced; 2]| {
            let weights = weights.flatten();
            let nothing = Traced::zeros(&[1, width], y.element(), &y.device());
            let row = |row: usize| {
                let own = (0..sent.len()).filter(|place| sent[*place] as usize == row);
                own.fold(nothing.clone(), |sum, place| {
                    let choice = numbers[place] as usize;
                    let weight = weights.narrow(0, choice..choice + 1).reshape(&[1, 1]);
                    sum + y.narrow(0, place..place + 1) * weight
                })
            };
            Traced::concat((0..rows).map(row).collect(), 0)
        };
        let combined = experts::combine(y.clone(), &sorted, &choices);
        check([&y, &choices.weights], sums, &combined, |grad| {
            [
                experts::combine_input_grad(&grad, &sorted, &choices),
                experts::combine_weight_grad(y.clone(), grad, &sorted),
            ]
        });
    }
}

#[test]
fn where_nothing_is_sent_nothing_comes_back() {
    let x = random(&[3, 2], 1);
    let choices = ExpertChoices {
        experts: Indices::new(&[0, 1, 0], &[3, 1], &x.device()),
        weights: random(&[3, 1], 2),
    };
    let none = Sorted::of_known(&[None; 3], [2, 1], &x.device());
    let sent = experts::dispatch(&x, &none);
    assert_eq!(sent.shape(), [0, 2]);
    assert_eq!(experts::combine(sent.clone(), &none, &choices).to_f64(), [0.0; 6]);
    assert_eq!(experts::combine_input_grad(&x, &none, &choices).shape(), [0, 2]);
    assert_eq!(experts::combine_weight_grad(sent, x, &none).to_f64(), [0.0; 3]);
}
