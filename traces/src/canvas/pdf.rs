//! PDF output: lines and areas as vectors, text in the embedded font, which can be searched and copied.

use std::collections::BTreeMap;

use flate2::{Compress, Compression, FlushCompress};
use ir::text::printable;
use pdf_writer::types::{CidFontType, FontFlags, SystemInfo, UnicodeCmap};
use pdf_writer::{Content, Filter, Finish as _, Name, Pdf, Rect, Ref, Str, TextStr};

use super::font::{self, RISE, text_width};
use super::shape::{Grid, Shape};
use super::text::{Align, Text};
use crate::palette::Rgb;

/// A point is 1/72 of an inch, a CSS pixel 1/96.
const POINTS_PER_PIXEL: f32 = 0.75;

/// Names of the font, in the content and in the file.
const FONT: Name = Name(b"F");
const FONT_NAME: Name = Name(b"AAAAAA+DejaVuSans");

const CATALOG: Ref = Ref::new(1);
const PAGES: Ref = Ref::new(2);
const PAGE: Ref = Ref::new(3);
const CONTENT: Ref = Ref::new(4);
const TYPE_0: Ref = Ref::new(5);
const CID_FONT: Ref = Ref::new(6);
const DESCRIPTOR: Ref = Ref::new(7);
const FONT_FILE: Ref = Ref::new(8);
const UNICODE: Ref = Ref::new(9);
const INFO: Ref = Ref::new(10);

/// The PDF file of a page with shapes on a grid.
pub(super) fn file(title: &str, shapes: &[Shape], size: (u32, u32), grid: Grid) -> Vec<u8> {
    let scale = POINTS_PER_PIXEL / grid.scale as f32;
    let (width, height) = (size.0 as f32 * scale, size.1 as f32 * scale);
    let mut page = Page { content: Content::new(), grid, glyphs: BTreeMap::new() };
    page.content.transform([scale, 0.0, 0.0, -scale, 0.0, height]);
    for shape in shapes {
        page.draw(shape);
    }
    let mut pdf = Pdf::new();
    pdf.catalog(CATALOG).pages(PAGES);
    pdf.pages(PAGES).kids([PAGE]).count(1);
    let mut first = pdf.page(PAGE);
    first.parent(PAGES).media_box(Rect::new(0.0, 0.0, width, height)).contents(CONTENT);
    first.resources().fonts().pair(FONT, TYPE_0);
    first.finish();
    pdf.stream(CONTENT, &deflated(&page.content.finish())).filter(Filter::FlateDecode);
    write_font(&mut pdf, &page.glyphs);
    pdf.document_info(INFO).title(TextStr(title));
    pdf.finish()
}

/// A page in units of a grid, with y downwards from the upper left corner.
struct Page {
    content: Content,
    grid: Grid,
    /// Glyphs in use, with their characters.
    glyphs: BTreeMap<u16, char>,
}

impl Page {
    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Fill(area, color) => {
                let ((left, top), (right, bottom)) = self.grid.corners(*area);
                let (width, height) = ((right - left) as f32, (bottom - top) as f32);
                self.set_fill(*color);
                self.content.rect(left as f32, top as f32, width, height).fill_nonzero();
            }
            Shape::Steps { points, thickness, color } => {
                let points = self.grid.points(points);
                let [red, green, blue] = shares(*color);
                self.content.set_stroke_rgb(red, green, blue);
                self.content.set_line_width(self.grid.thickness(*thickness) as f32);
                if points.len() > 1 {
                    self.path(points);
                    self.content.stroke();
                }
            }
            Shape::Polygon(points, color) => {
                self.set_fill(*color);
                self.path(self.grid.points(points));
                self.content.fill_nonzero();
            }
            Shape::Text(text) => self.text(text),
        }
    }

    fn set_fill(&mut self, color: Rgb) {
        let [red, green, blue] = shares(color);
        self.content.set_fill_rgb(red, green, blue);
    }

    fn path(&mut self, points: Vec<(i32, i32)>) {
        for (index, (x, y)) in points.into_iter().enumerate() {
            let (x, y) = (x as f32, y as f32);
            if index == 0 {
                self.content.move_to(x, y);
            } else {
                self.content.line_to(x, y);
            }
        }
    }

    fn text(&mut self, text: &Text) {
        let em = text.style.size * f64::from(self.grid.scale);
        let content = printable(&text.content);
        let width = text_width(&content, em);
        let left = match text.style.align {
            Align::Left => 0.0,
            Align::Center => width / 2.0,
            Align::Right => width,
        };
        let mut glyphs = Vec::new();
        for c in content.chars() {
            let glyph = font::glyph(c);
            self.glyphs.insert(glyph, c);
            glyphs.extend(glyph.to_be_bytes());
        }
        self.set_fill(text.style.color);
        let (x, y) = self.grid.top_of(text);
        let (x, baseline) = (f64::from(x) - left, f64::from(y) + RISE * em);
        let content = self.content.begin_text();
        content.set_font(FONT, em as f32);
        content.set_text_matrix([1.0, 0.0, 0.0, -1.0, x as f32, baseline as f32]);
        content.show(Str(&glyphs)).end_text();
    }
}

/// Writes the whole font, with widths and characters of the glyphs in use.
fn write_font(pdf: &mut Pdf, glyphs: &BTreeMap<u16, char>) {
    const SYSTEM: SystemInfo<'static> =
        SystemInfo { registry: Str(b"Adobe"), ordering: Str(b"Identity"), supplement: 0 };
    // Heights in thousandths of an em.
    let (ascent, descent, cap_height) = font::heights();
    let mut type_0 = pdf.type0_font(TYPE_0);
    type_0.base_font(FONT_NAME).encoding_predefined(Name(b"Identity-H"));
    type_0.descendant_font(CID_FONT).to_unicode(UNICODE);
    type_0.finish();
    let mut cid = pdf.cid_font(CID_FONT);
    cid.subtype(CidFontType::Type2).base_font(FONT_NAME).system_info(SYSTEM);
    cid.font_descriptor(DESCRIPTOR).default_width(0.0).cid_to_gid_map_predefined(Name(b"Identity"));
    let mut widths = cid.widths();
    for glyph in glyphs.keys() {
        widths.consecutive(*glyph, [font::advance(*glyph)]);
    }
    widths.finish();
    cid.finish();
    pdf.font_descriptor(DESCRIPTOR)
        .name(FONT_NAME)
        .flags(FontFlags::NON_SYMBOLIC)
        .bbox(Rect::new(-1000.0, descent, 2000.0, ascent))
        .italic_angle(0.0)
        .ascent(ascent)
        .descent(descent)
        .cap_height(cap_height)
        .stem_v(80.0)
        .font_file2(FONT_FILE);
    let file = font::FILE;
    pdf.stream(FONT_FILE, &deflated(file))
        .filter(Filter::FlateDecode)
        .pair(Name(b"Length1"), file.len().cast_signed() as i32);
    let mut unicode = UnicodeCmap::new(Name(b"Custom"), SYSTEM);
    for (glyph, meaning) in glyphs {
        unicode.pair(*glyph, *meaning);
    }
    pdf.cmap(UNICODE, &unicode.finish());
}

fn shares(Rgb { red, green, blue }: Rgb) -> [f32; 3] {
    [red, green, blue].map(|part| f32::from(part) / 255.0)
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    // Incompressible data grow by less than a hundredth and a few bytes.
    let mut packed = Vec::with_capacity(bytes.len() + bytes.len() / 100 + 64);
    let mut compress = Compress::new(Compression::best(), true);
    compress
        .compress_vec(bytes, &mut packed, FlushCompress::Finish)
        .expect("memory takes all that is written");
    packed
}
