//! Colours: text can be read, and passes can be told apart by readers with any colour vision.

use ir::schedule::ActionKind;
use traces::palette::{Rgb, Theme};
use traces::timeline::Stream;

const PASSES: [ActionKind; 5] = [
    ActionKind::Forward,
    ActionKind::Backward,
    ActionKind::InputGrad,
    ActionKind::WeightGrad,
    ActionKind::OptimizerStep,
];

/// The guidelines of [`Rgb::contrast`] ask for 4.5 in text.
#[test]
fn text_can_be_read() {
    for theme in Theme::ALL {
        for text in [theme.text(), theme.muted_text(), theme.limit()] {
            assert!(text.contrast(theme.background()) >= 4.5, "{theme:?} {text}");
        }
        for kind in PASSES {
            for (nth, count) in [(0, 1), (0, 2), (1, 2), (0, 8), (3, 8), (7, 8)] {
                let color = theme.shaded(kind, nth, count);
                assert!(color.ink().contrast(color) >= 4.5, "{theme:?} {kind:?} {color}");
            }
        }
    }
}

#[test]
fn passes_differ_for_readers_with_any_colour_vision() {
    for theme in Theme::ALL {
        let mut colors = PASSES.map(|kind| theme.action(kind)).to_vec();
        colors.push(theme.idle());
        for see in [everyone, protanope, deuteranope] {
            assert_apart(&colors, see, 40.0);
        }
    }
}

#[test]
fn every_stream_and_series_has_its_own_colour() {
    for theme in Theme::ALL {
        let streams = Stream::ALL.map(|stream| theme.stream(stream));
        assert_apart(&streams, everyone, 20.0);
        let series: Vec<Rgb> = (0..Theme::NUM_SERIES).map(|index| theme.series(index)).collect();
        assert_apart(&series, everyone, 40.0);
        let ordered: Vec<Rgb> = (0..4).map(|index| theme.ordered(index, 4)).collect();
        assert_apart(&ordered, everyone, 40.0);
    }
}

/// Of a rank with eight stages each has its own shade, and the palest is not taken for idle.
#[test]
fn shades_of_stages_are_apart_from_each_other_and_from_idle() {
    for theme in Theme::ALL {
        for kind in PASSES {
            let mut shades: Vec<Rgb> = (0..8).map(|nth| theme.shaded(kind, nth, 8)).collect();
            assert_apart(&shades, everyone, 10.0);
            shades.push(theme.idle());
            assert_apart(&[shades[7], shades[8]], everyone, 45.0);
        }
        let of_one = theme.shaded(ActionKind::Forward, 0, 1);
        assert_eq!(of_one, theme.action(ActionKind::Forward));
    }
}

#[test]
fn colours_print_as_css_writes_them() {
    assert_eq!(Theme::Light.action(ActionKind::InputGrad).to_string(), "#e69f00");
}

#[track_caller]
fn assert_apart(colors: &[Rgb], see: fn([f64; 3]) -> [f64; 3], least: f64) {
    for (index, a) in colors.iter().enumerate() {
        for b in &colors[index + 1..] {
            let (seen_a, seen_b) = (seen(*a, see), seen(*b, see));
            let squares = seen_a.iter().zip(seen_b).map(|(a, b)| (a - b).powi(2));
            let distance = squares.sum::<f64>().sqrt();
            assert!(distance >= least, "{a} and {b} are {distance:.0} apart");
        }
    }
}

/// A colour as someone sees it, each part from 0 to 255.
fn seen(color: Rgb, see: fn([f64; 3]) -> [f64; 3]) -> [f64; 3] {
    let linear =
        [color.red, color.green, color.blue].map(|part| (f64::from(part) / 255.0).powf(2.2));
    see(linear).map(|part| part.clamp(0.0, 1.0).powf(1.0 / 2.2) * 255.0)
}

fn everyone(color: [f64; 3]) -> [f64; 3] {
    color
}

/// Vienot, Brettel and Mollon 1999, *Digital video colourmaps for checking the legibility of displays
/// by dichromats*.
fn protanope([r, g, b]: [f64; 3]) -> [f64; 3] {
    let yellow = 0.112_38 * r + 0.887_62 * g;
    [yellow, yellow, 0.004_01 * r - 0.004_01 * g + b]
}

fn deuteranope([r, g, b]: [f64; 3]) -> [f64; 3] {
    let yellow = 0.292_75 * r + 0.707_25 * g;
    [yellow, yellow, -0.022_34 * r + 0.022_34 * g + b]
}
