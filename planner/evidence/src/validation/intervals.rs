//! Whether intervals hold what they promise.

use std::collections::BTreeMap;

use cost_models::residuals::{SHARE, Spread};
use serde::Serialize;

use super::left_out::source;
use super::{Quantity, Validated};

/// How many measured steps, or their peaks of memory, lie within the intervals that the other sources give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// What the intervals are meant to contain.
    pub share: f64,
    /// How many sources were compared.
    pub sources: usize,
    /// How many steps or peaks they have.
    pub rows: usize,
    /// Share of them that their intervals contain, in the mean of the sources.
    pub contained: f64,
    /// Half of an interval's width, as a share of the prediction, in the mean of the sources.
    pub half_width: f64,
}

/// What was measured over what was predicted without its source, by source and stack.
type Ratios<'a> = BTreeMap<&'a str, BTreeMap<String, Vec<f64>>>;

/// The coverage of a quantity's intervals, each of a source made of the others: where one of them has its stack, of
/// the steps of stacks that several have; else of all.
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
    // Ratios of each other source, of all its stacks or those that some other has too.
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
