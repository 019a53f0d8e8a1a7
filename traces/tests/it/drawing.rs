//! Queries of tests to a picture.

use std::collections::BTreeSet;

use traces::palette::Rgb;

/// A PNG file's width, height and pixels.
pub(crate) struct Bitmap {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pixels: Vec<u8>,
}

impl Bitmap {
    #[track_caller]
    pub(crate) fn decode(file: &[u8]) -> Self {
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!(info.color_type, png::ColorType::Rgb);
        Self { width: info.width, height: info.height, pixels }
    }

    pub(crate) fn at(&self, x: u32, y: u32) -> Rgb {
        let start = (y * self.width + x) as usize * 3;
        let [red, green, blue] = self.pixels[start..start + 3].try_into().unwrap();
        Rgb { red, green, blue }
    }

    pub(crate) fn colors(&self) -> BTreeSet<Rgb> {
        let pixels = self.pixels.chunks_exact(3);
        pixels.map(|rgb| Rgb { red: rgb[0], green: rgb[1], blue: rgb[2] }).collect()
    }
}

/// A rectangle of an SVG document, in CSS pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rect {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) color: Rgb,
}

/// Elements of an SVG document.
#[derive(Debug)]
pub(crate) struct Drawing {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) rects: Vec<Rect>,
    pub(crate) texts: Vec<String>,
    /// Where the top of each text is, from that of the picture.
    pub(crate) tops: Vec<f64>,
}

impl Drawing {
    /// Reads a document; whatever is not well-formed fails the test.
    #[track_caller]
    pub(crate) fn parse(svg: &str) -> Self {
        let document = roxmltree::Document::parse(svg).unwrap();
        let root = document.root_element();
        let number = |node: roxmltree::Node, name| -> f64 {
            node.attribute(name).unwrap_or_else(|| panic!("no `{name}`")).parse().unwrap()
        };
        let (width, height) = (number(root, "width"), number(root, "height"));
        let view: Vec<f64> =
            root.attribute("viewBox").unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
        let units = view[2] / width;
        let rects = document.descendants().filter(|node| node.has_tag_name("rect"));
        let rects = rects.map(|node| Rect {
            left: number(node, "x") / units,
            top: number(node, "y") / units,
            width: number(node, "width") / units,
            height: number(node, "height") / units,
            color: color(node.attribute("fill").unwrap()),
        });
        let texts = || document.descendants().filter(|node| node.has_tag_name("text"));
        let tops = texts().map(|node| number(node, "y") / units).collect();
        let texts = texts().map(|node| node.text().unwrap_or_default().trim().to_owned());
        Self { width, height, rects: rects.collect(), texts: texts.collect(), tops }
    }

    pub(crate) fn of_color(&self, color: Rgb) -> Vec<Rect> {
        self.rects.iter().copied().filter(|rect| rect.color == color).collect()
    }

    /// Distance of the top of a text from the top of the picture.
    #[track_caller]
    pub(crate) fn top_of(&self, text: &str) -> f64 {
        self.says(text);
        let is_it = |(it, _): &(&String, &f64)| *it == text;
        *self.texts.iter().zip(&self.tops).find(is_it).unwrap().1
    }

    #[track_caller]
    pub(crate) fn says(&self, text: &str) {
        assert!(self.texts.iter().any(|t| t.contains(text)), "no `{text}` in {:?}", self.texts);
    }
}

fn color(text: &str) -> Rgb {
    Rgb::new(u32::from_str_radix(text.strip_prefix('#').unwrap(), 16).unwrap())
}
