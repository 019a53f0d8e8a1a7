//! Whether intervals hold what they promise.

use std::collections::BTreeMap;

use cost_models::residuals::{SHARE, Spread};
use serde::Serialize;

use super::{Quantity, Validated};

/// In how many parts rows are cut, each of which is left out once.
const FOLDS: usize = 5;

/// How many measured steps, or their peaks of memory, lie within the intervals that those of the other parts
/// give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// What the intervals are meant to contain.
    pub share: f64,
    /// How many were compared.
    pub rows: usize,
    /// Share of them that their intervals contain.
    pub contained: f64,
    /// Half of an interval's width, as a share of the prediction; the mean.
    pub half_width: f64,
}

/// What was measured of a step over its prediction, with the steps that it is comparable to.
struct Residual<'a> {
    comparable: &'a [String],
    ratio: f64,
}

/// The coverage of a quantity's intervals from runs that were left out.
pub fn coverage<'a>(quantity: Quantity, runs: impl Iterator<Item = &'a Validated>) -> Coverage {
    let residuals: Vec<Residual<'_>> = runs.filter_map(|run| Residual::of(quantity, run)).collect();
    let mut of_rows = Coverage { share: SHARE, ..Coverage::default() };
    for fold in 0..FOLDS {
        let (left_out, known): (Vec<_>, Vec<_>) =
            residuals.iter().enumerate().partition(|(index, _)| index % FOLDS == fold);
        let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (_, residual) in known {
            for name in residual.comparable {
                ratios.entry(name).or_default().push(residual.ratio);
            }
        }
        let spreads = ratios.into_iter().filter_map(|(name, all)| Some((name, Spread::of(all)?)));
        let spreads: BTreeMap<&str, Spread> = spreads.collect();
        for (_, Residual { comparable, ratio }) in left_out {
            let nearest = comparable.iter().find_map(|name| spreads.get(name.as_str()));
            let Some(Spread { low, high, .. }) = nearest else { continue };
            of_rows.rows += 1;
            of_rows.contained += f64::from(u8::from((*low..=*high).contains(ratio)));
            of_rows.half_width += (high - low) / 2.0;
        }
    }
    let rows = of_rows.rows.max(1) as f64;
    of_rows.contained /= rows;
    of_rows.half_width /= rows;
    of_rows
}

impl<'a> Residual<'a> {
    fn of(quantity: Quantity, run: &'a Validated) -> Option<Self> {
        let point = run.of(quantity);
        let (measured, predicted) = (point.measured.ok()??, point.predicted.ok()?);
        Some(Self { comparable: &run.comparable, ratio: measured / predicted })
    }
}
