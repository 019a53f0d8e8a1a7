//! Text: how wide it is, and its pixels where no one else draws it.

use ab_glyph::{Font as _, FontRef, GlyphId, Point, ScaleFont as _};
use plotters_backend::text_anchor::{HPos, Pos, VPos};
use plotters_backend::{BackendColor, BackendTextStyle, FontFamily};

use super::paint::paint;
use crate::palette::Rgb;

/// Letters, digits and a few signs of DejaVu Sans; its licence lies beside it.
pub(super) const FILE: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");

/// What SVG asks for. None is wider than the embedded font, by which pictures are laid out.
const FAMILIES: &str = "Helvetica, Arial, DejaVu Sans, sans-serif";

/// From the top of a line to its baseline, in ems. The SVG backend places text that hangs from its
/// top so; bitmaps do the same.
pub(crate) const RISE: f64 = 0.76;

/// The SVG backend divides sizes by this to get ems.
pub(super) const SVG_SIZE_PER_EM: f64 = 1.24;

/// The height of a capital or a digit of the embedded font, in ems.
const CAP_HEIGHT: f64 = 0.729;

/// Which part of a text is at its x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Center,
    Right,
}

/// A line of text and where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    pub(crate) content: &'a str,
    pub(crate) x: f64,
    pub(crate) baseline: f64,
    /// The em, in CSS pixels.
    pub(crate) size: f64,
    pub(crate) align: Align,
    pub(crate) color: Rgb,
}

/// The baseline of text whose capitals and digits have their middle at `y`.
pub(crate) fn baseline_around(y: f64, size: f64) -> f64 {
    y + CAP_HEIGHT / 2.0 * size
}

/// The embedded font.
pub(crate) struct Font(FontRef<'static>);

impl Font {
    pub(crate) fn embedded() -> Self {
        Self(FontRef::try_from_slice(FILE).expect("the embedded file is a font"))
    }

    /// How wide `text` is, in CSS pixels, if an em has `size` of them.
    pub(crate) fn width(&self, text: &str, size: f64) -> f64 {
        let units_per_em = self.units_per_em();
        let advance = |c: char| match self.0.glyph_id(c) {
            // Another font draws it, and hardly any letter is wider than an em.
            GlyphId(0) => units_per_em,
            glyph => f64::from(self.0.h_advance_unscaled(glyph)),
        };
        text.chars().map(advance).sum::<f64>() * size / units_per_em
    }

    /// The number of a letter's glyph; 0 if it has none.
    pub(super) fn glyph(&self, letter: char) -> u16 {
        self.0.glyph_id(letter).0
    }

    /// How far a glyph takes the pen, in thousandths of an em.
    pub(super) fn advance(&self, glyph: u16) -> f32 {
        self.0.h_advance_unscaled(GlyphId(glyph)) * 1000.0 / self.units_per_em() as f32
    }

    /// Ascent, descent and the height of capitals, in thousandths of an em.
    pub(super) fn heights(&self) -> (f32, f32, f32) {
        let per_em = 1000.0 / self.units_per_em() as f32;
        let (ascent, descent) = (self.0.ascent_unscaled(), self.0.descent_unscaled());
        (ascent * per_em, descent * per_em, CAP_HEIGHT as f32 * 1000.0)
    }

    /// `text` in lines of at most `width`, broken between words; a longer word stands alone.
    pub(crate) fn wrap(&self, text: &str, size: f64, width: f64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            match lines.last_mut() {
                Some(line) if self.width(&format!("{line} {word}"), size) <= width => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        lines
    }

    fn units_per_em(&self) -> f64 {
        f64::from(self.0.units_per_em().expect("a TrueType font has its units"))
    }
}

/// A text as the backends want it.
pub(crate) struct Style<'a> {
    pub(crate) text: &'a Text<'a>,
    pub(crate) font: &'a Font,
    /// Units of the backend in a CSS pixel.
    pub(crate) scale: f64,
}

impl Style<'_> {
    fn em(&self) -> f64 {
        self.text.size * self.scale
    }
}

impl BackendTextStyle for Style<'_> {
    type FontError = std::convert::Infallible;

    fn color(&self) -> BackendColor {
        paint(self.text.color)
    }

    fn size(&self) -> f64 {
        self.em() * SVG_SIZE_PER_EM
    }

    fn anchor(&self) -> Pos {
        let h_pos = match self.text.align {
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
        let width = self.font.width(text, self.em());
        Ok(((0, 0), (width.round() as i32, self.em().round() as i32)))
    }

    fn draw<E, DrawFunc: FnMut(i32, i32, BackendColor) -> Result<(), E>>(
        &self,
        text: &str,
        (left, top): (i32, i32),
        mut draw: DrawFunc,
    ) -> Result<Result<(), E>, Self::FontError> {
        let font = &self.font.0;
        // A scale is the height from descender to ascender, which is more than an em.
        let scale = self.em() * f64::from(font.height_unscaled()) / self.font.units_per_em();
        let scaled = font.as_scaled(scale as f32);
        let mut pen = Point { x: left as f32, y: top as f32 + (RISE * self.em()).round() as f32 };
        for c in text.chars() {
            let mut glyph = scaled.scaled_glyph(c);
            glyph.position = pen;
            pen.x += scaled.h_advance(glyph.id);
            let Some(outline) = font.outline_glyph(glyph) else { continue };
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
