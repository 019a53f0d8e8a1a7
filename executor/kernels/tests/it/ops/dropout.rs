//! Which elements dropout zeroes.

use burn_flex::FlexDevice;
use executor_kernels::array::Element;
use executor_kernels::ops::dropout::{Dropout, Extract};

use super::Plain;

const SHAPE: [usize; 3] = [8, 50, 40];
const LEN: usize = SHAPE[0] * SHAPE[1] * SHAPE[2];

fn values(rate: f64, key: [u64; 3], first_sample: u64) -> Vec<f64> {
    let dropout = Dropout { rate, key, first_sample };
    let dims = SHAPE.map(Extract::whole);
    let mask: Plain = dropout.mask(SHAPE[0], &dims[1..], Element::F64, &FlexDevice);
    assert_eq!(mask.shape(), SHAPE);
    mask.to_f64()
}

fn zeroes(values: &[f64]) -> f64 {
    values.iter().filter(|value| **value == 0.0).count() as f64 / values.len() as f64
}

#[test]
fn a_share_is_zeroed_and_the_mean_is_kept() {
    for rate in [0.1, 0.5, 0.75] {
        let values = values(rate, [1, 2, 3], 0);
        // Six standard deviations of a count of so many draws.
        let bound = 6.0 * (rate * (1.0 - rate) / LEN as f64).sqrt();
        assert!((zeroes(&values) - rate).abs() < bound, "{rate}: {}", zeroes(&values));
        let kept = values.iter().find(|value| **value > 0.0).unwrap();
        assert!((kept * (1.0 - rate) - 1.0).abs() < 1e-15);
        assert!(values.iter().all(|value| *value == 0.0 || value.to_bits() == kept.to_bits()));
    }
}

/// A sample's mask is its own, whichever samples are next to it.
#[test]
fn masks_go_with_samples() {
    let size = LEN / SHAPE[0];
    let (all, later) = (values(0.5, [1, 2, 3], 100), values(0.5, [1, 2, 3], 103));
    assert_eq!(all[3 * size..], later[..LEN - 3 * size]);
}

/// A part's mask is the part of the mask, whichever indices it has.
#[test]
fn masks_go_with_places() {
    let all = values(0.5, [1, 2, 3], 0);
    let rows = [40, 41, 3, 4, 5];
    let columns = 10..30;
    let dims = [
        Extract { indices: rows.to_vec(), of: SHAPE[1] },
        Extract { indices: columns.clone().collect(), of: SHAPE[2] },
    ];
    let dropout = Dropout { rate: 0.5, key: [1, 2, 3], first_sample: 2 };
    let mask: Plain = dropout.mask(3, &dims, Element::F64, &FlexDevice);
    let of_sample = |sample: usize| {
        let at = move |row: usize| (sample * SHAPE[1] + row) * SHAPE[2];
        let all = &all;
        rows.iter().flat_map(move |row| &all[at(*row) + 10..at(*row) + 30])
    };
    let expected: Vec<f64> = (2..5).flat_map(of_sample).copied().collect();
    assert_eq!(mask.to_f64(), expected);
}

#[test]
fn masks_of_other_samples_operators_blocks_and_seeds_have_nothing_in_common() {
    let base = values(0.5, [1, 2, 3], 0);
    let size = LEN / SHAPE[0];
    let others = [
        values(0.5, [4, 2, 3], 0),
        values(0.5, [1, 4, 3], 0),
        values(0.5, [1, 2, 4], 0),
        values(0.5, [1, 2, 3], 8),
        [&base[size..], &base[..size]].concat(),
    ];
    for other in others {
        let both = base.iter().zip(&other).filter(|(a, b)| **a == 0.0 && **b == 0.0).count();
        let share = both as f64 / LEN as f64;
        assert!((share - 0.25).abs() < 6.0 * (0.25 * 0.75 / LEN as f64).sqrt(), "{share}");
    }
}
