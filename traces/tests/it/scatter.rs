//! Points on logarithmic axes: where they lie, and what has no place.

use traces::palette::{Rgb, Theme};
use traces::scatter::{Panel, Series, draw};
use traces::{DrawError, ImageFormat, Paper};

use crate::drawing::{Bitmap, Drawing, Rect};

const PAPER: Paper = Paper { width: 500, theme: Theme::Light, pixel_ratio: 1 };

fn svg(title: &str, panels: &[Panel], band: f64, paper: Paper) -> Result<String, DrawError> {
    draw(title, panels, band, paper)?.svg()
}

fn panel(name: &str, series: &[(&str, &[[f64; 2]])]) -> Panel {
    let series = series
        .iter()
        .map(|(name, points)| Series { name: (*name).to_owned(), points: points.to_vec() });
    Panel { name: name.to_owned(), series: series.collect() }
}

/// Points of a colour; the legend's are larger.
fn points(drawing: &Drawing, color: Rgb) -> Vec<Rect> {
    let mut rects = drawing.of_color(color);
    rects.retain(|rect| rect.width < 6.0 && rect.height < 6.0);
    rects
}

#[test]
fn the_picture_says_what_is_in_it() {
    let panels = [
        panel("time (s)", &[("first", &[[1.0, 1.1]]), ("second", &[[2.0, 2.0]])]),
        panel("memory (GiB)", &[("second", &[[40.0, 41.0]])]),
    ];
    let drawing = Drawing::parse(&svg("Accuracy", &panels, 0.1, PAPER).unwrap());
    for text in [
        "Accuracy",
        "time (s)",
        "2 points of 2 sources",
        "100 % within 10 %",
        "memory (GiB)",
        "1 point of 1 source",
        "first (1)",
        "second (2)",
        "as measured",
        "within 10 %",
    ] {
        drawing.says(text);
    }
    let named = drawing.texts.iter().filter(|text| *text == "second (2)").count();
    assert_eq!(named, 1, "a series has one place in the legend");
    assert_eq!(points(&drawing, Theme::Light.series(1)).len(), 2, "and one colour in all panels");
}

/// A decade is as long everywhere, what is predicted as measured lies in the middle, and what is as far off as high.
#[test]
fn places_are_logarithms() {
    let measured = [0.01, 0.1, 1.0, 10.0];
    let exact = measured.map(|value| [value, value]);
    let over = measured.map(|value| [value, value * 1.25]);
    let under = measured.map(|value| [value, value * 0.8]);
    let panels = [panel("", &[("exact", &exact), ("over", &over), ("under", &under)])];
    let drawing = Drawing::parse(&svg("", &panels, 0.1, PAPER).unwrap());
    let [exact, over, under] = [0, 1, 2].map(|index| points(&drawing, Theme::Light.series(index)));
    let decade = exact[1].left - exact[0].left;
    assert!(decade > 20.0, "{decade}");
    for (before, after) in exact.iter().zip(&exact[1..]) {
        assert!((after.left - before.left - decade).abs() < 0.6);
    }
    let off = exact[0].top - over[0].top;
    assert!(off > 20.0, "{off}");
    for ((exact, over), under) in exact.iter().zip(&over).zip(&under) {
        assert!((exact.left - over.left).abs() < 0.3);
        assert!((exact.top - over.top - off).abs() < 0.6, "above the middle");
        assert!((under.top - exact.top - off).abs() < 0.6, "below it");
    }
    drawing.says("+20 %");
    drawing.says("\u{2212}10 %");
}

/// Whatever is predicted, the axis has some ticks, and no more than there is room for.
#[test]
fn ratios_have_ticks() {
    for ratio in [1.0, 1.15, 1.5, 3.0, 40.0, 1e5] {
        let panels = [panel("", &[("all", &[[1.0, ratio]])])];
        let drawing = Drawing::parse(&svg("", &panels, 0.1, PAPER).unwrap());
        let is_tick = |text: &&String| text.ends_with(" %") || text.ends_with(" \u{d7}");
        let count = drawing.texts.iter().filter(|text| !text.contains("within")).filter(is_tick);
        assert!((3..=11).contains(&count.count()), "{ratio}: {:?}", drawing.texts);
    }
}

#[test]
fn what_is_not_above_zero_is_left_out() {
    let odd = [[0.0, 1.0], [1.0, -1.0], [f64::NAN, 1.0], [f64::INFINITY, 1.0], [2.0, 3.0]];
    let panels = [panel("", &[("odd", &odd)]), panel("empty", &[("odd", &[])])];
    let drawing = Drawing::parse(&svg("", &panels, 0.1, PAPER).unwrap());
    assert_eq!(points(&drawing, Theme::Light.series(0)).len(), 1);
    Drawing::parse(&svg("nothing", &[], 0.1, PAPER).unwrap()).says("nothing");
}

#[test]
fn series_beyond_the_colours_are_outlined() {
    let names: Vec<String> =
        (0..=Theme::NUM_SERIES).map(|index| format!("series {index}")).collect();
    let series =
        names.iter().map(|name| Series { name: name.clone(), points: vec![[1.0, 1.0]] }).collect();
    let panels = [Panel { name: String::new(), series }];
    let drawing = Drawing::parse(&svg("", &panels, 0.1, PAPER).unwrap());
    // One point is a square of 4 pixels, the other its four sides.
    let sizes = points(&drawing, Theme::Light.series(0));
    let areas: Vec<f64> = sizes.iter().map(|rect| rect.width * rect.height).collect();
    assert_eq!(areas.iter().filter(|area| (**area - 16.0).abs() < 0.1).count(), 1, "{areas:?}");
    assert_eq!(areas.iter().filter(|area| (**area - 4.0).abs() < 0.1).count(), 4, "{areas:?}");
}

#[test]
fn a_bitmap_has_the_size_of_the_drawing() {
    let panels = [panel("time (s)", &[("a", &[[1.0, 1.1]])])];
    for theme in Theme::ALL {
        let paper = Paper { theme, pixel_ratio: 2, ..PAPER };
        let picture = draw("t", &panels, 0.1, paper).unwrap();
        let bitmap = Bitmap::decode(&picture.file(ImageFormat::Png).unwrap());
        let drawing = Drawing::parse(&svg("t", &panels, 0.1, paper).unwrap());
        let size = [2.0 * drawing.width, 2.0 * drawing.height].map(|side| side as u32);
        assert_eq!([bitmap.width, bitmap.height], size);
        assert_eq!(bitmap.at(0, 0), theme.background());
        assert!(bitmap.colors().contains(&theme.series(0)));
    }
}

#[test]
fn too_narrow_a_paper_is_an_error_that_says_what_would_do() {
    let panels = [panel("a", &[]), panel("b", &[])];
    let error = svg("", &panels, 0.1, Paper { width: 200, ..PAPER }).unwrap_err();
    let DrawError::TooSmall { least, .. } = error else { panic!("{error}") };
    assert!(svg("", &panels, 0.1, Paper { width: least, ..PAPER }).is_ok());
}
