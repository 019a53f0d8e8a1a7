//! Memory bars: heights in proportion, and any number of them.

use ir::units::Bytes;
use proptest::prelude::*;
use traces::bars::{MemoryBar, MemoryPart, draw};
use traces::palette::Theme;
use traces::{DrawError, ImageFormat, Paper};

use crate::drawing::{Bitmap, Drawing};

const NAMES: [&str; 4] = ["parameters", "gradients", "optimizer state", "activations"];

fn bar(name: &str, gib: [u64; 4]) -> MemoryBar {
    let parts = NAMES
        .iter()
        .zip(gib)
        .map(|(name, gib)| MemoryPart { name: (*name).to_owned(), bytes: Bytes::new(gib << 30) });
    MemoryBar { name: name.to_owned(), parts: parts.collect() }
}

const PAPER: Paper = Paper { width: 800, theme: Theme::Light, pixel_ratio: 1 };

fn svg(
    title: &str,
    bars: &[MemoryBar],
    capacity: Option<Bytes>,
    paper: Paper,
) -> Result<String, DrawError> {
    draw(title, bars, capacity, paper)?.svg()
}

#[test]
fn the_picture_says_what_is_in_it() {
    let bars = [bar("rank 0", [8, 8, 24, 20]), bar("rank 1", [8, 8, 24, 10])];
    let capacity = Some(Bytes::new(80 << 30));
    let drawing = Drawing::parse(&svg("Memory of a plan", &bars, capacity, PAPER).unwrap());
    for text in ["Memory of a plan", "memory (GiB)", "rank 0", "rank 1", "60.0", "50.0"] {
        drawing.says(text);
    }
    for text in NAMES {
        drawing.says(text);
    }
    drawing.says("capacity, 80.00 GiB");
}

/// Parts say how large they are where they have room, and no number lies on the line of the capacity.
#[test]
fn numbers_are_in_parts_and_beside_the_line() {
    let full = svg("", &[bar("a", [16, 14, 30, 19])], Some(Bytes::new(80 << 30)), PAPER).unwrap();
    let drawing = Drawing::parse(&full);
    for text in ["16.0", "14.0", "30.0", "19.0", "79.0"] {
        drawing.says(text);
    }
    let dashes = drawing.of_color(Theme::Light.limit());
    let line = dashes.iter().find(|dash| dash.top < 200.0).unwrap().top;
    let bottom = drawing.top_of("79.0") + 8.0;
    assert!(bottom < line - 2.0, "a number that ends at {bottom} is above the line at {line}");
}

#[test]
fn heights_are_proportional_to_bytes() {
    let bars = [bar("a", [10, 20, 40, 0]), bar("b", [30, 0, 5, 60])];
    let drawing = Drawing::parse(&svg("", &bars, None, PAPER).unwrap());
    // The legend has the last rectangle of each colour. A line of 0.75 pixels is between parts.
    let height =
        |part: usize, nth: usize| drawing.of_color(Theme::Light.series(part))[nth].height + 0.75;
    let per_gib = height(3, 0) / 60.0;
    for (part, nth, gib) in [(0, 0, 10.0), (0, 1, 30.0), (1, 0, 20.0), (2, 0, 40.0), (2, 1, 5.0)] {
        assert!((height(part, nth) - gib * per_gib).abs() < 0.6, "part {part} of bar {nth}");
    }
    assert_eq!(drawing.of_color(Theme::Light.series(1)).len(), 1 + 1, "nothing is not drawn");
}

#[test]
fn a_bitmap_has_the_size_and_the_colours_asked_for() {
    let bars = [bar("a", [10, 20, 40, 8])];
    for theme in Theme::ALL {
        let paper = Paper { width: 500, theme, pixel_ratio: 2 };
        let picture = draw("t", &bars, None, paper).unwrap();
        let bitmap = Bitmap::decode(&picture.file(ImageFormat::Png).unwrap());
        assert_eq!((bitmap.width, bitmap.height), (1000, 840));
        assert_eq!(bitmap.at(0, 0), theme.background());
        let drawing = Drawing::parse(&svg("t", &bars, None, paper).unwrap());
        for part in 0..4 {
            let rect = drawing.of_color(theme.series(part))[0];
            // Beside the number in its middle.
            let (x, y) = (rect.left + 3.0, rect.top + rect.height / 2.0);
            assert_eq!(bitmap.at((x * 2.0) as u32, (y * 2.0) as u32), theme.series(part));
        }
    }
}

#[test]
fn too_small_a_picture_is_an_error_that_says_what_would_do() {
    let narrow = Paper { width: 50, ..PAPER };
    let error = svg("", &[bar("a", [1; 4])], None, narrow).unwrap_err();
    assert!(matches!(error, DrawError::TooSmall { least, .. } if least < 300), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// No bars, one, or hundreds, whatever they weigh: all inside the picture, the same each time.
    #[test]
    fn any_bars_are_drawn_inside(
        sizes in prop::collection::vec(prop::collection::vec(0_u64..1 << 45, 0..12), 0..300),
        capacity in prop::option::of(0_u64..1 << 40),
    ) {
        let bars: Vec<MemoryBar> = (0..).zip(&sizes).map(|(index, sizes): (u32, _)| MemoryBar {
            name: format!("rank {index}"),
            parts: (0..).zip(sizes).map(|(part, size): (u32, _)| MemoryPart {
                name: format!("part {part}"),
                bytes: Bytes::new(*size),
            }).collect(),
        }).collect();
        let capacity = capacity.map(Bytes::new);
        let document = svg("bars", &bars, capacity, PAPER).unwrap();
        prop_assert_eq!(&document, &svg("bars", &bars, capacity, PAPER).unwrap());
        let drawing = Drawing::parse(&document);
        for rect in &drawing.rects {
            prop_assert!(rect.left >= 0.0 && rect.left + rect.width <= drawing.width, "{rect:?}");
            prop_assert!(rect.top >= 0.0 && rect.top + rect.height <= drawing.height, "{rect:?}");
        }
    }
}
