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
                let color = theme.action(kind).shaded(nth, count);
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

/// What may lie side by side in a chart, for readers of each kind: passes, their palest stages, waiting,
/// idle time, lanes. From 5 on a difference is plain, and lines one pixel high want more.
#[test]
fn no_two_things_of_a_chart_look_alike() {
    const LEAST: f64 = 8.5;
    for theme in Theme::ALL {
        let mut named: Vec<(String, Rgb)> = Vec::new();
        for kind in PASSES {
            named.push((format!("{kind:?}"), theme.action(kind)));
            if kind != ActionKind::OptimizerStep {
                named.push((format!("pale {kind:?}"), theme.action(kind).shaded(1, 2)));
            }
        }
        named.push(("waiting".to_owned(), theme.waiting()));
        named.push(("idle".to_owned(), theme.idle()));
        let lanes = Stream::ALL.into_iter().filter(|stream| *stream != Stream::Compute);
        named.extend(lanes.map(|stream| (stream.to_string(), theme.stream(stream))));
        assert_different(theme, &named, LEAST);
        assert!(theme.waiting().contrast(theme.idle()) >= 2.0, "{theme:?}");
        // Lines of memory are not taken for passes.
        let first = theme.ordered(0, 4);
        let step = theme.action(ActionKind::OptimizerStep);
        assert!(difference(first, step, everyone) > 20.0, "{theme:?}");
    }
}

#[test]
fn no_two_parts_of_a_bar_look_alike() {
    for theme in Theme::ALL {
        let parts = (0..Theme::NUM_SERIES).map(|index| (index.to_string(), theme.series(index)));
        assert_different(theme, &parts.collect::<Vec<_>>(), 10.0);
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
            let mut shades: Vec<Rgb> =
                (0..8).map(|nth| theme.action(kind).shaded(nth, 8)).collect();
            assert_apart(&shades, everyone, 10.0);
            shades.push(theme.idle());
            assert_apart(&[shades[7], shades[8]], everyone, 45.0);
        }
        let of_one = theme.action(ActionKind::Forward).shaded(0, 1);
        assert_eq!(of_one, theme.action(ActionKind::Forward));
    }
}

#[test]
fn colours_print_as_css_writes_them() {
    assert_eq!(Theme::Light.action(ActionKind::InputGrad).to_string(), "#e69f00");
}

#[track_caller]
fn assert_different(theme: Theme, named: &[(String, Rgb)], least: f64) {
    for (index, (a, color_a)) in named.iter().enumerate() {
        for (b, color_b) in &named[index + 1..] {
            for see in [everyone, protanope, deuteranope] {
                let found = difference(*color_a, *color_b, see);
                assert!(found >= least, "{theme:?}: {a} and {b} are {found:.1} apart");
            }
        }
    }
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

/// How different two colours look: 1 is just seen.
///
/// Sharma, Wu and Dalal 2005, *The CIEDE2000 Color-Difference Formula*.
fn difference(a: Rgb, b: Rgb, see: fn([f64; 3]) -> [f64; 3]) -> f64 {
    let [(l1, a1, b1), (l2, a2, b2)] = [lab(a, see), lab(b, see)];
    let seventh = |c: f64| (c.powi(7) / (c.powi(7) + 25_f64.powi(7))).sqrt();
    let mean = f64::midpoint(a1.hypot(b1), a2.hypot(b2));
    let stretch = 1.0 + 0.5 * (1.0 - seventh(mean));
    let (a1, a2) = (a1 * stretch, a2 * stretch);
    let (c1, c2) = (a1.hypot(b1), a2.hypot(b2));
    let hue = |a: f64, b: f64| b.atan2(a).to_degrees().rem_euclid(360.0);
    let (h1, h2) = (hue(a1, b1), hue(a2, b2));
    let is_grey = c1 * c2 == 0.0;
    let turn = if is_grey { 0.0 } else { (h2 - h1 + 180.0).rem_euclid(360.0) - 180.0 };
    let hue_part = 2.0 * (c1 * c2).sqrt() * (turn / 2.0).to_radians().sin();
    let middle = if is_grey { h1 + h2 } else { (h1 + turn / 2.0).rem_euclid(360.0) };
    let (l, c) = (f64::midpoint(l1, l2), f64::midpoint(c1, c2));
    let wave = |times: f64, shift: f64| (times * middle + shift).to_radians().cos();
    let t = 1.0 - 0.17 * wave(1.0, -30.0) + 0.24 * wave(2.0, 0.0) + 0.32 * wave(3.0, 6.0)
        - 0.20 * wave(4.0, -63.0);
    let from_50 = (l - 50.0).powi(2);
    let light = (l2 - l1) / (1.0 + 0.015 * from_50 / (20.0 + from_50).sqrt());
    let chroma = (c2 - c1) / (1.0 + 0.045 * c);
    let hue_part = hue_part / (1.0 + 0.015 * c * t);
    let rotation = 30.0 * (-((middle - 275.0) / 25.0).powi(2)).exp();
    let rotated = -(2.0 * rotation).to_radians().sin() * 2.0 * seventh(c);
    (light.powi(2) + chroma.powi(2) + hue_part.powi(2) + rotated * chroma * hue_part).sqrt()
}

/// The colour in CIELAB, of white by daylight (D65).
fn lab(color: Rgb, see: fn([f64; 3]) -> [f64; 3]) -> (f64, f64, f64) {
    let linear = [color.red, color.green, color.blue].map(|part| {
        let part = f64::from(part) / 255.0;
        if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    });
    let [r, g, b] = see(linear).map(|part| part.clamp(0.0, 1.0));
    let x = (0.412_456_4 * r + 0.357_576_1 * g + 0.180_437_5 * b) / 0.950_47;
    let y = 0.212_672_9 * r + 0.715_152_2 * g + 0.072_175_0 * b;
    let z = (0.019_333_9 * r + 0.119_192_0 * g + 0.950_304_1 * b) / 1.088_83;
    let root = |t: f64| {
        if t > 216.0 / 24_389.0 { t.cbrt() } else { (24_389.0 / 27.0 * t + 16.0) / 116.0 }
    };
    (116.0 * root(y) - 16.0, 500.0 * (root(x) - root(y)), 200.0 * (root(y) - root(z)))
}
