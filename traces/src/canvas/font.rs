//! Text: its width, and its pixels where a format does not draw text itself.

use std::sync::LazyLock;

use ab_glyph::{Font as _, FontRef, GlyphId, Point, ScaleFont as _};
use plotters_backend::text_anchor::{HPos, Pos, VPos};
use plotters_backend::{BackendColor, BackendTextStyle, FontFamily};

use super::text::{Align, Text, opaque};

/// Letters, digits and a few signs of DejaVu Sans; its licence is in the same folder.
pub(super) const FILE: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");

/// Fonts named in SVG. None is wider than the embedded font, which determines layout.
const FAMILIES: &str = "Helvetica, Arial, DejaVu Sans, sans-serif";

/// Distance from the top of a line to its baseline, in ems, as in the SVG backend for text aligned at its top; bitmaps
/// use the same.
pub(crate) const RISE: f64 = 0.76;

/// Factor from ems to sizes in the SVG backend, which divides by it.
const SVG_SIZE_PER_EM: f64 = 1.24;

/// Height of capitals and digits in the embedded font, in ems.
const CAP_HEIGHT: f64 = 0.729;

/// Baseline of text whose capitals and digits are centred at `y`.
pub(crate) fn baseline_around(y: f64, size: f64) -> f64 {
    y + CAP_HEIGHT / 2.0 * size
}

/// The embedded font.
static FONT: LazyLock<FontRef<'static>> =
    LazyLock::new(|| FontRef::try_from_slice(FILE).expect("the embedded file is a font"));

/// Width of a text in CSS pixels, with `size` CSS pixels per em.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let advance = |c: char| match FONT.glyph_id(c) {
        // Another font draws the letter, and hardly any letter is wider than an em.
        GlyphId(0) => units_per_em(),
        glyph => f64::from(FONT.h_advance_unscaled(glyph)),
    };
    text.chars().map(advance).sum::<f64>() * size / units_per_em()
}

/// Lines of `text` of at most `width`, broken between words; a longer word has its own line.
pub(crate) fn wrap(text: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(&format!("{line} {word}"), size) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Index of a letter's glyph; 0 if it has none.
pub(super) fn glyph(letter: char) -> u16 {
    FONT.glyph_id(letter).0
}

/// Advance of a glyph, in thousandths of an em.
pub(super) fn advance(glyph: u16) -> f32 {
    FONT.h_advance_unscaled(GlyphId(glyph)) * 1000.0 / units_per_em() as f32
}

/// Ascent, descent and height of capitals, in thousandths of an em.
pub(super) fn heights() -> (f32, f32, f32) {
    let per_em = 1000.0 / units_per_em() as f32;
    let (ascent, descent) = (FONT.ascent_unscaled(), FONT.descent_unscaled());
    (ascent * per_em, descent * per_em, CAP_HEIGHT as f32 * 1000.0)
}

fn units_per_em() -> f64 {
    f64::from(FONT.units_per_em().expect("a TrueType font has its units"))
}

/// A text for the backends, with `scale` units of the backend per CSS pixel.
pub(super) struct ScaledText<'a> {
    pub(super) text: &'a Text,
    pub(super) scale: f64,
}

impl ScaledText<'_> {
    fn em(&self) -> f64 {
        self.text.style.size * self.scale
    }
}

impl BackendTextStyle for ScaledText<'_> {
    type FontError = std::convert::Infallible;

    fn color(&self) -> BackendColor {
        opaque(self.text.style.color)
    }

    fn size(&self) -> f64 {
        self.em() * SVG_SIZE_PER_EM
    }

    fn anchor(&self) -> Pos {
        let h_pos = match self.text.style.align {
            Align::Left => HPos::Left,
            Align::Center => HPos::Center,
            Align::Right => HPos::Right,
        };
        Pos::new(h_pos, VPos::Top)
    }

    fn family(&self) -> FontFamily<'_> {
        FontFamily::Name(FAMILIES)
    }

    fn layout_box(&self, text: &str) -> Result<((i32, i32), (i32, i32)), Self::FontError> {
        let width = text_width(text, self.em());
        Ok(((0, 0), (width.round() as i32, self.em().round() as i32)))
    }

    fn draw<E, DrawFunc: FnMut(i32, i32, BackendColor) -> Result<(), E>>(
        &self,
        text: &str,
        (left, top): (i32, i32),
        mut draw: DrawFunc,
    ) -> Result<Result<(), E>, Self::FontError> {
        // A scale is the height from descender to ascender, which is more than an em.
        let scale = self.em() * f64::from(FONT.height_unscaled()) / units_per_em();
        let scaled = FONT.as_scaled(scale as f32);
        let mut pen = Point { x: left as f32, y: top as f32 + (RISE * self.em()).round() as f32 };
        for c in text.chars() {
            let mut glyph = scaled.scaled_glyph(c);
            glyph.position = pen;
            pen.x += scaled.h_advance(glyph.id);
            let Some(outline) = FONT.outline_glyph(glyph) else { continue };
            let corner = outline.px_bounds().min;
            let mut drawn = Ok(());
            outline.draw(|x, y, coverage| {
                if drawn.is_ok() && coverage > 0.0 {
                    let (x, y) = (x.cast_signed(), y.cast_signed());
                    let at = (corner.x as i32 + x, corner.y as i32 + y);
                    let alpha = f64::from(coverage.min(1.0));
                    drawn = draw(at.0, at.1, BackendColor { alpha, ..self.color() });
                }
            });
            if drawn.is_err() {
                return Ok(drawn);
            }
        }
        Ok(Ok(()))
    }
}
