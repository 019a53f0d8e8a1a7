//! Distance of measured steps from predicted ones, by hand, and the spread that a prediction goes by.

use std::collections::BTreeMap;

use cost_models::residuals::{Evidence, Spread, SpreadOf};
use cost_models::{Hardware, Precision, clusters, frameworks};
use ir::framework::{Calibration, Framework};

use super::frameworks::training;

/// Of 19 sources with a ratio each, the second and the last but one bound four fifths of the twenty that there are with
/// another: one in ten lies beyond on either side. Nine tenths of those there are lie below the 17.6th.
#[test]
fn bounds_are_ratios_of_sources_in_order() {
    let sources: Vec<[f64; 1]> = (1..=19).map(|ratio| [f64::from(ratio)]).collect();
    let spread = Spread::of(sources.iter().map(|ratios| &ratios[..])).expect("enough sources");
    let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
    assert!(near(spread.low, 2.0) && near(spread.high, 18.0), "{spread:?}");
    assert!(near(spread.ninth_decile, 17.6), "{spread:?}");
    // Of nine, the outermost; with fewer, nothing lies beyond.
    for (count, low, high) in [(9, 1.0, 9.0), (5, 1.0, 5.0), (14, 1.5, 13.5)] {
        let fewer = sources[..count].iter().map(|ratios| &ratios[..]);
        let spread = Spread::of(fewer).expect("enough sources");
        assert!(near(spread.low, low) && near(spread.high, high), "{count}: {spread:?}");
    }
}

/// A source counts as much with a thousand steps as with one.
#[test]
fn a_source_counts_as_one() {
    let one: Vec<Vec<f64>> = [0.8, 0.9, 1.0, 1.1, 1.3].map(|ratio| vec![ratio]).into();
    let mut many = one.clone();
    many[4] = vec![1.3; 1000];
    many.push(Vec::new());
    let [one, many] = [one, many]
        .map(|sources| Spread::of(sources.iter().map(Vec::as_slice)).expect("enough sources"));
    assert_eq!((one.sources, one.rows), (5, 5));
    assert_eq!((many.sources, many.rows), (5, 1004), "a source without a ratio is none");
    assert!((one.low - many.low).abs() < 1e-9 && many.high <= one.high && many.high > 1.1);
}

fn hardware(cluster: &str, framework: Framework, precision: Precision) -> Hardware {
    let cluster = clusters::preset(cluster).expect("it ships");
    Hardware::new(&cluster, framework, &training(precision)).expect("a precision it has")
}

/// What others measured counts on the GPUs that it was measured on; memory, on any.
#[test]
fn a_prediction_goes_by_what_was_measured_of_its_stack() {
    let evidence = |cluster, name: &str, of| {
        let framework = frameworks::preset(name).expect("it ships");
        Spread::shipped(of, &hardware(cluster, framework, Precision::Bf16)).0
    };
    for of in [SpreadOf::StepTimeSeconds, SpreadOf::PeakMemoryBytes] {
        assert_eq!(evidence("h100", "megatron-core", of), Evidence::Measured);
        assert_eq!(evidence("h100", "unknown", of), Evidence::Unknown);
    }
    assert_eq!(evidence("l4", "megatron-core", SpreadOf::StepTimeSeconds), Evidence::New);
    assert_eq!(evidence("l4", "megatron-core", SpreadOf::PeakMemoryBytes), Evidence::Measured);
}

/// Steps of one's own count for the quantity that they have, on their GPUs and in their precision.
#[test]
fn own_steps_count_where_they_were_measured() {
    let calibrated = |steps, peaks| {
        let framework = frameworks::preset("unknown").expect("it ships");
        let gpu = hardware("h100", framework.clone(), Precision::Bf16).device.training_set;
        let calibration = Calibration {
            gpu,
            steps,
            peaks,
            kernels: 0,
            precisions: vec![Precision::Bf16],
            constants: BTreeMap::new(),
            spreads: BTreeMap::new(),
        };
        Framework { calibration: Some(calibration), ..framework }
    };
    let is_calibrated = |cluster, [steps, peaks]: [u32; 2], precision| {
        [SpreadOf::StepTimeSeconds, SpreadOf::PeakMemoryBytes].map(|of| {
            let hardware = hardware(cluster, calibrated(steps, peaks), precision);
            Spread::shipped(of, &hardware).0 == Evidence::Calibrated
        })
    };
    assert_eq!(is_calibrated("h100", [1, 0], Precision::Bf16), [true, false]);
    assert_eq!(is_calibrated("h100", [0, 1], Precision::Bf16), [false, true]);
    assert_eq!(is_calibrated("h100", [3, 2], Precision::Fp8), [false, false]);
    assert_eq!(is_calibrated("a100", [3, 2], Precision::Bf16), [false, false]);
}
