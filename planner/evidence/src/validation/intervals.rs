//! Coverage of prediction intervals.

use std::collections::BTreeMap;

use cost_models::residuals::{SHARE, Spread};
use serde::Serialize;

use super::left_out::source;
use super::prediction_spread::PredictionSpread;
use super::{Quantity, Validated};

/// Share of measured step times, or of measured peaks of memory, that lie within intervals derived from the other
/// sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// Share that the intervals are intended to contain.
    pub share: f64,
    /// Number of sources.
    pub sources: usize,
    /// Number of measured steps or peaks.
    pub rows: usize,
    /// Share that lies within the intervals, as the mean over sources.
    pub contained: f64,
    /// Share that lies within the shipped intervals, as the mean over sources. For rows that the shipped intervals were
    /// derived from, this is the share that they were constructed to contain.
    pub contained_as_shipped: f64,
    /// `contained` for thirds of the steps or peaks: those with the narrowest intervals, the next, and the widest. Each
    /// step or peak is weighted by the inverse of the number of its source's.
    pub contained_by_width: [f64; 3],
    /// Half of an interval's width, as a share of the prediction, as the mean over sources.
    pub half_width: f64,
}

/// Scores of measured values against predictions without their source, each with its deviation, by source and stack.
type Scores<'a> = BTreeMap<&'a str, BTreeMap<String, Vec<[f64; 2]>>>;

/// Coverage of a quantity's intervals, each derived from the other sources. If another source has the row's stack, the
/// interval is derived from stacks that several sources have; otherwise from all stacks.
pub fn coverage<'a>(
    quantity: Quantity,
    runs: impl Iterator<Item = &'a (String, Validated)>,
) -> Coverage {
    let mut scores = Scores::new();
    let mut as_shipped: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (file, run) in runs {
        let point = run.of(quantity);
        let (Ok(Some(measured)), Ok(predicted)) = (point.measured, point.predicted) else {
            continue;
        };
        let Some(PredictionSpread { stack, deviation, interval: [low, high] }) = point.known else {
            continue;
        };
        let is_contained = (low..=high).contains(&(measured / predicted));
        as_shipped.entry(source(file)).or_default().push(f64::from(u8::from(is_contained)));
        let score = (measured / point.left_out.unwrap_or(predicted)).ln() / deviation;
        scores.entry(source(file)).or_default().entry(stack).or_default().push([score, deviation]);
    }
    let is_known = |source: &str, stack: &str| {
        scores.iter().any(|(other, of)| *other != source && of.contains_key(stack))
    };
    // Scores of each other source: of all its stacks, or only of those that another source has too.
    let alike = |known: bool, without: &str| -> Vec<Vec<f64>> {
        let others = scores.iter().filter(|(source, _)| **source != without);
        let of_each = others.map(|(source, of)| {
            let of = of.iter().filter(|(stack, _)| !known || is_known(source, stack));
            of.flat_map(|(_, scores)| scores.iter().map(|[score, _]| *score)).collect()
        });
        of_each.collect()
    };
    let mut all = Coverage { share: SHARE, ..Coverage::default() };
    let mut by_width: Vec<Interval> = Vec::new();
    for (source, of) in &scores {
        let first = by_width.len();
        for known in [false, true] {
            let spread = Spread::of(alike(known, source).iter().map(Vec::as_slice))
                .or_else(|| Spread::of(alike(false, source).iter().map(Vec::as_slice)));
            let Some(spread) = spread else { continue };
            let of = of.iter().filter(|(stack, _)| is_known(source, stack) == known);
            for [score, deviation] in of.flat_map(|(_, scores)| scores) {
                let [low, high] = spread.interval(*deviation);
                let is_contained = (spread.low..=spread.high).contains(score);
                let contained = f64::from(u8::from(is_contained));
                by_width.push(Interval { width: high - low, contained, weight: 1.0 });
            }
        }
        let own = &mut by_width[first..];
        let weight = 1.0 / own.len().max(1) as f64;
        for it in &mut *own {
            it.weight = weight;
        }
        if !own.is_empty() {
            all.sources += 1;
            all.rows += own.len();
            all.contained += own.iter().map(|it| it.contained * weight).sum::<f64>();
            all.half_width += own.iter().map(|it| it.width / 2.0 * weight).sum::<f64>();
        }
    }
    let mean = |all: &Vec<f64>| all.iter().sum::<f64>() / all.len() as f64;
    all.contained_as_shipped =
        as_shipped.values().map(mean).sum::<f64>() / as_shipped.len().max(1) as f64;
    let sources = all.sources.max(1) as f64;
    all.contained /= sources;
    all.half_width /= sources;
    by_width.sort_by(|one, other| one.width.total_cmp(&other.width));
    all.contained_by_width = thirds(&by_width);
    all
}

/// An interval's width, whether it contains the measured value (1, else 0), and its weight.
struct Interval {
    width: f64,
    contained: f64,
    weight: f64,
}

/// The share that is contained, for each third of the total weight.
fn thirds(intervals: &[Interval]) -> [f64; 3] {
    let total: f64 = intervals.iter().map(|it| it.weight).sum();
    let [mut contained, mut weights] = [[0.0; 3]; 2];
    let mut before = 0.0;
    for Interval { contained: is_in, weight, .. } in intervals {
        let third = ((before + weight / 2.0) / total * 3.0).min(2.0) as usize;
        contained[third] += is_in * weight;
        weights[third] += weight;
        before += weight;
    }
    [0, 1, 2].map(|third| contained[third] / weights[third].max(f64::MIN_POSITIVE))
}
