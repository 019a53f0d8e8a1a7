//! Routing of rows to experts.

use executor::ops::experts::{self, Routing, Rule, logits_grad, places};
use proptest::prelude::*;

use super::{Plain, Traced, check, random};

fn softmax(logits: &[f64], num_experts: usize) -> Vec<f64> {
    let of_row = |row: &[f64]| {
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        row.iter().map(|logit| logit.exp() / sum).collect::<Vec<_>>()
    };
    logits.chunks_exact(num_experts).flat_map(of_row).collect()
}

/// Rows to their experts, each of which takes the first `capacity` of those that chose it.
fn route(
    probabilities: &[f64],
    num_experts: usize,
    top_k: usize,
    normalise: bool,
    capacity: Option<usize>,
) -> Routing {
    let routing = experts::route(probabilities, num_experts, top_k, Rule::likeliest(normalise));
    let Some(capacity) = capacity else { return routing };
    let places = places(routing.choices(), num_experts);
    routing.limited(capacity, &places)
}

fn weight_of(routing: &Routing, row: usize) -> f64 {
    let of_row = routing.experts.iter().flatten().filter(|assignment| assignment.row == row);
    of_row.map(|assignment| assignment.weight).sum()
}

#[test]
fn rows_go_to_their_likeliest_experts() {
    let probabilities = [
        [0.1, 0.6, 0.3], // 1, then 2
        [0.4, 0.2, 0.4], // 0, then 2: of equals, the first
        [0.0, 0.5, 0.5], // 1, then 2
    ];
    let routing = route(probabilities.as_flattened(), 3, 2, false, None);
    let sent: Vec<Vec<_>> = routing
        .experts
        .iter()
        .map(|rows| rows.iter().map(|sent| (sent.row, sent.slot, sent.weight)).collect())
        .collect();
    assert_eq!(
        sent,
        [
            vec![(1, 0, 0.4)],
            vec![(0, 0, 0.6), (2, 0, 0.5)],
            vec![(0, 1, 0.3), (1, 1, 0.4), (2, 1, 0.5)],
        ]
    );
    let limited = route(probabilities.as_flattened(), 3, 2, false, Some(1));
    assert_eq!(limited.counts(), [1, 1, 1]);
    assert_eq!(limited.rows(), [1, 0, 0]);
}

/// The sum that `load_balancing_loss_func` of Hugging Face transformers takes, two experts of three a row.
#[test]
fn load_balancing_is_that_of_mixtral() {
    let logits = [[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, -1.0], [0.5, 2.5, 1.5]];
    let probabilities = softmax(logits.as_flattened(), 3);
    let routing = route(&probabilities, 3, 2, true, None);
    // Choices 0 1, 1 2, 0 1, 1 2: each row chose expert 1, and half of them 0, half of them 2.
    let mean = |expert: usize| (0..4).map(|row| probabilities[row * 3 + expert]).sum::<f64>() / 4.0;
    let expected = 3.0 * (0.5 * mean(0) + 1.0 * mean(1) + 0.5 * mean(2));
    assert!((routing.load_balancing_loss(&probabilities) - expected).abs() < 1e-12);
}

proptest! {
    #[test]
    fn each_row_has_its_experts_unless_they_are_full(
        (rows, num_experts) in (1usize..20, 1usize..6), top_k in 1usize..4,
        capacity in proptest::option::of(0usize..8), normalise: bool, seed: u16,
    ) {
        let top_k = top_k.min(num_experts);
        let probabilities =
            softmax(&random(&[rows, num_experts], seed.into()).to_f64(), num_experts);
        let all = route(&probabilities, num_experts, top_k, normalise, None);
        let limited = route(&probabilities, num_experts, top_k, normalise, capacity);
        prop_assert_eq!(all.counts().iter().sum::<usize>(), rows * top_k);
        for row in 0..rows {
            let slots: Vec<usize> = (all.experts.iter().flatten())
                .filter(|sent| sent.row == row)
                .map(|sent| sent.slot)
                .collect();
            prop_assert!((0..top_k).all(|slot| slots.contains(&slot)) && slots.len() == top_k);
            if normalise {
                prop_assert!((weight_of(&all, row) - 1.0).abs() < 1e-12);
            }
        }
        for (all, limited) in all.experts.iter().zip(&limited.experts) {
            let places = capacity.unwrap_or(all.len()).min(all.len());
            prop_assert_eq!(&all[..places], &limited[..]);
            prop_assert!(all.windows(2).all(|pair| pair[0].row < pair[1].row));
        }
    }

    /// The loss is the weights times given numbers, plus the balance of the load.
    #[test]
    fn gradients_reach_the_logits(
        (rows, num_experts) in (1usize..6, 1usize..5), top_k in 1usize..4,
        capacity in proptest::option::of(1usize..4), normalise: bool, seed: u16,
    ) {
        let top_k = top_k.min(num_experts);
        let logits = random(&[rows, num_experts], seed.into()).to_f64();
        let given = random(&[rows * top_k], u64::from(seed) + 1).to_f64();
        let evaluate = |logits: &[f64]| {
            let probabilities = softmax(logits, num_experts);
            let routing = route(&probabilities, num_experts, top_k, normalise, capacity);
            let weights: f64 = routing.weights().iter().zip(&given).map(|(w, g)| w * g).sum();
            (weights + routing.load_balancing_loss(&probabilities), routing.rows())
        };
        let probabilities = softmax(&logits, num_experts);
        let routing = route(&probabilities, num_experts, top_k, normalise, capacity);
        let sent = routing.rows().len();
        let balance = routing.load_balancing_grad();
        let gradient: Vec<f64> = routing
            .probability_grad(&probabilities, &given[..sent])
            .iter()
            .zip(balance)
            .map(|(a, b)| a + b)
            .collect();
        let gradient = logits_grad(&probabilities, &gradient, num_experts);
        for (place, slope) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut logits = logits.clone();
                logits[place] += by;
                evaluate(&logits)
            };
            let ((above, sent_above), (below, sent_below)) = (moved(1e-6), moved(-1e-6));
            // The choice itself has no gradient.
            if sent_above == sent_below {
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
        let probabilities =
            softmax(&random(&[rows, num_experts], seed.into()).to_f64(), num_experts);
        let routing = route(&probabilities, num_experts, top_k, true, capacity);
        let (sent, weights) = (routing.rows(), routing.weights());
        prop_assume!(!sent.is_empty());
        let x = random(&[rows, width], u64::from(seed) + 1);
        let one_by_one = |[x]: [Traced; 1]| {
            let row = |row: &u32| x.narrow(0, *row as usize..*row as usize + 1);
            Traced::concat(sent.iter().map(row).collect(), 0)
        };
        let dispatched = experts::dispatch(x.clone(), &sent);
        check([&x], one_by_one, &dispatched, |grad| {
            [experts::dispatch_grad(grad, &sent, rows)]
        });

        let y = random(&[sent.len(), width], u64::from(seed) + 2);
        let weighing = Plain::from_f64(weights.clone(), &[sent.len(), 1], y.element(), &y.device());
        let sums = |[y, weighing]: [Traced; 2]| {
            let weighed = y * weighing;
            let nothing = Traced::zeros(&[1, width], weighed.element(), &weighed.device());
            let row = |row: usize| {
                let own = (0..sent.len()).filter(|pair| sent[*pair] as usize == row);
                own.fold(nothing.clone(), |sum, pair| sum + weighed.narrow(0, pair..pair + 1))
            };
            Traced::concat((0..rows).map(row).collect(), 0)
        };
        let combined = experts::combine(y.clone(), &sent, &weights, rows);
        check([&y, &weighing], sums, &combined, |grad| {
            let weight_grad = experts::combine_weight_grad(y.clone(), grad.clone(), &sent);
            let shape = [sent.len(), 1];
            [
                experts::combine_input_grad(grad, &sent, &weights),
                Plain::from_f64(weight_grad, &shape, y.element(), &y.device()),
            ]
        });
    }
}

#[test]
fn without_rows_nothing_is_sent() {
    let x = random(&[3, 2], 1);
    let none = experts::dispatch(x.clone(), &[]);
    assert_eq!(none.shape(), [0, 2]);
    assert_eq!(experts::combine(none, &[], &[], 3).to_f64(), [0.0; 6]);
    assert_eq!(experts::combine_input_grad(x.clone(), &[], &[]).shape(), [0, 2]);
    assert!(experts::combine_weight_grad(x.narrow(0, 0..0), x, &[]).is_empty());
}
