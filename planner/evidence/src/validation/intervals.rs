//! Coverage of prediction intervals.

use std::collections::BTreeMap;

use cost_models::residuals::{SHARE, Spread};
use serde::Serialize;

use super::left_out::source;
use super::{Quantity, Validated};

/// Share of measured steps, or of their peak memory, within the intervals derived from the other sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// Share that the intervals are meant to contain.
    pub share: f64,
    /// Number of sources.
    pub sources: usize,
    /// Number of steps or peaks.
    pub rows: usize,
    /// Share that their intervals contain, in the mean of the sources.
    pub contained: f64,
    /// Half of an interval's width, as a share of the prediction, in the mean of the sources.
    pub half_width: f64,
}

/// Ratios of measured to predicted values, predicted without their source, by source and stack.
type Ratios<'a> = BTreeMap<&'a str, BTreeMap<String, Vec<f64>>>;

/// Coverage of a quantity's intervals, each derived from the other sources: where one of them has the row's stack, from
/// stacks that several sources have; else from all.
pub fn coverage<'a>(
    quantity: Quantity,
    runs: impl Iterator<Item = &'a (String, Validated)>,
) -> Coverage {
    let mut ratios = Ratios::new();
    for (file, run) in runs {
        let point = run.of(quantity);
        let (Ok(Some(measured)), Ok(predicted)) = (point.measured, point.predicted) else {
            continue;
        };
        let ratio = measured / point.left_out.unwrap_or(predicted);
        ratios.entry(source(file)).or_default().entry(point.stack).or_default().push(ratio);
    }
    let is_known = |source: &str, stack: &str| {
        ratios.iter().any(|(other, of)| *other != source && of.contains_key(stack))
    };
    // Ratios of each other source, of all its stacks or of those that some other source has too.
    let alike = |known: bool, without: &str| -> Vec<Vec<f64>> {
        let others = ratios.iter().filter(|(source, _)| **source != without);
        let of_each = others.map(|(source, of)| {
            let of = of.iter().filter(|(stack, _)| !known || is_known(source, stack));
            of.flat_map(|(_, ratios)| ratios.iter().copied()).collect()
        });
        of_each.collect()
    };
    let mut all = Coverage { share: SHARE, ..Coverage::default() };
    for (source, of) in &ratios {
        let (mut rows, mut contained, mut half_width) = (0, 0.0, 0.0);
        for known in [false, true] {
            let spread = Spread::of(alike(known, source).iter().map(Vec::as_slice))
                .or_else(|| Spread::of(alike(false, source).iter().map(Vec::as_slice)));
            let Some(Spread { low, high, .. }) = spread else { continue };
            let of = of.iter().filter(|(stack, _)| is_known(source, stack) == known);
            for ratio in of.flat_map(|(_, ratios)| ratios) {
                rows += 1;
                contained += f64::from(u8::from((low..=high).contains(ratio)));
                half_width += (high - low) / 2.0;
            }
        }
        if rows > 0 {
            all.sources += 1;
            all.rows += rows;
            all.contained += contained / rows as f64;
            all.half_width += half_width / rows as f64;
        }
    }
    let sources = all.sources.max(1) as f64;
    all.contained /= sources;
    all.half_width /= sources;
    all
}
