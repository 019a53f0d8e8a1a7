//! Pictures as PDF: lines and areas as they are, text in the embedded font, to be found and copied.

use std::collections::BTreeMap;
use std::convert::Infallible;

use flate2::{Compress, Compression, FlushCompress};
use pdf_writer::types::{CidFontType, FontFlags, SystemInfo, UnicodeCmap};
use pdf_writer::{Content, Filter, Finish as _, Name, Pdf, Rect, Ref, Str, TextStr};
use plotters::backend::DrawingBackend;
use plotters_backend::text_anchor::HPos;
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingErrorKind,
};

use super::font::{self, RISE, SVG_SIZE_PER_EM, text_width};

/// A point is 1/72 of an inch, a CSS pixel 1/96.
const POINTS_PER_PIXEL: f32 = 0.75;

/// What content calls the font, and what the file does.
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

/// What is drawn so far, in the units of the canvas, down from the upper left corner.
pub(super) struct PdfBackend {
    content: Content,
    size: (u32, u32),
    units_per_pixel: f32,
    /// Glyphs that are used, and what each stands for.
    glyphs: BTreeMap<u16, char>,
}

impl PdfBackend {
    /// An empty page of so many units.
    pub(super) fn new(size: (u32, u32), units_per_pixel: u32) -> Self {
        let units_per_pixel = units_per_pixel as f32;
        let scale = POINTS_PER_PIXEL / units_per_pixel;
        let mut content = Content::new();
        content.transform([scale, 0.0, 0.0, -scale, 0.0, scale * size.1 as f32]);
        Self { content, size, units_per_pixel, glyphs: BTreeMap::new() }
    }

    /// The file.
    pub(super) fn finish(self, title: &str) -> Vec<u8> {
        let scale = POINTS_PER_PIXEL / self.units_per_pixel;
        let (width, height) = (self.size.0 as f32 * scale, self.size.1 as f32 * scale);
        let mut pdf = Pdf::new();
        pdf.catalog(CATALOG).pages(PAGES);
        pdf.pages(PAGES).kids([PAGE]).count(1);
        let mut page = pdf.page(PAGE);
        page.parent(PAGES).media_box(Rect::new(0.0, 0.0, width, height)).contents(CONTENT);
        page.resources().fonts().pair(FONT, TYPE_0);
        page.finish();
        pdf.stream(CONTENT, &deflated(&self.content.finish())).filter(Filter::FlateDecode);
        write_font(&mut pdf, &self.glyphs);
        pdf.document_info(INFO).title(TextStr(title));
        pdf.finish()
    }

    fn fill(&mut self, BackendColor { rgb: (red, green, blue), .. }: BackendColor) {
        let [red, green, blue] = [red, green, blue].map(share);
        self.content.set_fill_rgb(red, green, blue);
    }

    /// A path through points; false if there is none.
    fn path(&mut self, points: impl IntoIterator<Item = BackendCoord>) -> bool {
        let mut points = points.into_iter().map(|(x, y)| (x as f32, y as f32));
        let Some((x, y)) = points.next() else { return false };
        self.content.move_to(x, y);
        for (x, y) in points {
            self.content.line_to(x, y);
        }
        true
    }
}

/// The font, whole, with the widths and meanings of the glyphs that are used.
fn write_font(pdf: &mut Pdf, glyphs: &BTreeMap<u16, char>) {
    const SYSTEM: SystemInfo<'static> =
        SystemInfo { registry: Str(b"Adobe"), ordering: Str(b"Identity"), supplement: 0 };
    // In thousandths of an em.
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

fn share(part: u8) -> f32 {
    f32::from(part) / 255.0
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    // What does not get smaller grows by less than a hundredth, and a few bytes around it.
    let mut packed = Vec::with_capacity(bytes.len() + bytes.len() / 100 + 64);
    let mut compress = Compress::new(Compression::best(), true);
    compress
        .compress_vec(bytes, &mut packed, FlushCompress::Finish)
        .expect("memory takes all that is written");
    packed
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for PdfBackend {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, color: BackendColor) -> Drawn {
        let (x, y) = at;
        self.fill(color);
        self.content.rect(x as f32, y as f32, 1.0, 1.0).fill_nonzero();
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        (left, top): BackendCoord,
        (right, bottom): BackendCoord,
        style: &S,
        _fill: bool,
    ) -> Drawn {
        self.fill(style.color());
        let (width, height) = ((right - left) as f32, (bottom - top) as f32);
        self.content.rect(left as f32, top as f32, width, height).fill_nonzero();
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        let (red, green, blue) = style.color().rgb;
        self.content.set_stroke_rgb(share(red), share(green), share(blue));
        self.content.set_line_width(style.stroke_width() as f32);
        if self.path(path) {
            self.content.stroke();
        }
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        style: &S,
    ) -> Drawn {
        self.fill(style.color());
        if self.path(corners) {
            self.content.fill_nonzero();
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Drawn {
        let em = style.size() / SVG_SIZE_PER_EM;
        let width = text_width(text, em);
        let left = match style.anchor().h_pos {
            HPos::Left => 0.0,
            HPos::Center => width / 2.0,
            HPos::Right => width,
        };
        let mut glyphs = Vec::new();
        for c in text.chars() {
            let glyph = font::glyph(c);
            self.glyphs.insert(glyph, c);
            glyphs.extend(glyph.to_be_bytes());
        }
        self.fill(style.color());
        let (x, baseline) = (f64::from(x) - left, f64::from(y) + RISE * em);
        let content = self.content.begin_text();
        content.set_font(FONT, em as f32);
        content.set_text_matrix([1.0, 0.0, 0.0, -1.0, x as f32, baseline as f32]);
        content.show(Str(&glyphs)).end_text();
        Ok(())
    }
}
