//! What the pictures are drawn on: one set of strokes for SVG and for bitmaps, in CSS pixels.
//!
//! Text is measured with the embedded font in both, so a picture has one layout. SVG names common
//! fonts that are no wider, and a generic one last; no text is clipped where they are missing.

mod font;
mod legend;
mod notes;
mod paint;
mod pdf;
mod ticks;
mod title;

use std::borrow::Cow;

use ir::text::printable;
use ir::units::Nanos;
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters_backend::DrawingErrorKind;

use crate::palette::{Rgb, Theme};
use pdf::PdfBackend;

pub(crate) use font::{Align, Font, Text, baseline_around};
pub(crate) use legend::{Entry, Legend, Swatch};
use paint::{Stroke, paint};
pub(crate) use ticks::Ticks;
pub(crate) use title::Title;

/// What every picture is drawn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paper {
    /// Width of the picture, in CSS pixels.
    pub width: u32,
    /// Dark on light, or light on dark.
    pub theme: Theme,
    /// How many pixels of a bitmap make a CSS pixel: 2 for sharp text on most screens. SVG does not
    /// need it.
    pub pixel_ratio: u32,
}

impl Default for Paper {
    fn default() -> Self {
        Self { width: 1200, theme: Theme::Light, pixel_ratio: 2 }
    }
}

/// What a picture is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Scalable, as text.
    Svg,
    /// Pixels.
    Png,
    /// Scalable, a page of its size.
    Pdf,
}

/// A picture that cannot be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DrawError {
    /// It has no room for what it must show.
    #[error("{what} of {given} pixels is too small; this picture needs {least}")]
    TooSmall {
        /// Width or height.
        what: &'static str,
        /// How much there is.
        given: u32,
        /// How much would do.
        least: u32,
    },
    /// It is wider or higher than any picture may be.
    #[error("{what} of {given} pixels is too large; at most {most}")]
    TooLong {
        /// Width or height.
        what: &'static str,
        /// How much there is.
        given: u32,
        /// The most that is drawn.
        most: u32,
    },
    /// It has more pixels than a bitmap may have.
    #[error("a bitmap of {width} x {height} pixels is too large: at most {most} pixels")]
    TooLarge {
        /// Its width.
        width: u64,
        /// Its height.
        height: u64,
        /// The most pixels.
        most: u64,
    },
    /// The part that was asked for holds nothing.
    #[error("there is nothing to draw from {from} to {to}; the step goes from 0 to {end}")]
    NothingThere {
        /// From when.
        from: Nanos,
        /// Until when.
        to: Nanos,
        /// When the step ends.
        end: Nanos,
    },
    /// Drawing or encoding failed.
    #[error("cannot draw: {message}")]
    Backend {
        /// What the backend says.
        message: String,
    },
}

impl DrawError {
    fn backend(error: &impl ToString) -> Self {
        Self::Backend { message: error.to_string() }
    }
}

/// A bitmap of this many pixels takes 192 MiB while it is drawn.
const MOST_PIXELS: u64 = 1 << 26;

/// A side of this many CSS pixels is 17 m of paper; coordinates end at 2^31.
const MOST_SIDE: u32 = 1 << 16;

/// SVG and PDF are drawn on a grid of quarters of a CSS pixel, since backends take whole numbers.
const UNITS_PER_PIXEL: u32 = 4;

/// Something that knows its size before it is drawn.
pub(crate) trait Picture {
    /// What readers who do not see it are told: its name in the first line, what it shows in others.
    fn title(&self) -> Cow<'_, str>;

    /// Width and height, in CSS pixels.
    fn size(&self) -> (u32, u32);

    /// What it lies on.
    fn background(&self) -> Rgb;

    /// Draws all of it on a canvas of its size.
    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<(), DrawError>;
}

/// The picture as a file.
pub(crate) fn draw(
    picture: &impl Picture,
    font: &Font,
    format: Format,
    pixel_ratio: u32,
) -> Result<Vec<u8>, DrawError> {
    match format {
        Format::Svg => svg(picture, font).map(String::into_bytes),
        Format::Png => png(picture, font, pixel_ratio),
        Format::Pdf => pdf(picture, font),
    }
}

/// The picture as an SVG document.
pub(crate) fn svg(picture: &impl Picture, font: &Font) -> Result<String, DrawError> {
    let (width, height) = checked_size(picture)?;
    let units = (width * UNITS_PER_PIXEL, height * UNITS_PER_PIXEL);
    let mut drawing = String::new();
    {
        let mut backend = SVGBackend::with_string(&mut drawing, units);
        let scale = f64::from(UNITS_PER_PIXEL);
        Canvas { backend: &mut backend, scale, joins: Joins::Backend, font }.draw(picture)?;
    }
    // Both are the defaults of SVG. Text cannot contain them, since its quotation marks are escaped.
    let drawing = drawing.replace(" opacity=\"1\"", "").replace(" stroke=\"none\"", "");
    let title = picture.title();
    let (title, notes) = notes::parts(&title);
    let notes: Vec<&str> = notes.lines().filter(|note| !note.is_empty()).collect();
    let description = match &*notes {
        [] => String::new(),
        notes => format!("<desc>{}</desc>\n", escape(&notes.join("; "))),
    };
    let title = escape(title);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {} {}\" role=\"img\">\n<title>{title}</title>\n{description}{drawing}</svg>\n",
        units.0, units.1
    ))
}

/// The picture as a PDF file of one page.
fn pdf(picture: &impl Picture, font: &Font) -> Result<Vec<u8>, DrawError> {
    let (width, height) = checked_size(picture)?;
    let units = (width * UNITS_PER_PIXEL, height * UNITS_PER_PIXEL);
    let mut backend = PdfBackend::new(units, UNITS_PER_PIXEL, font);
    let scale = f64::from(UNITS_PER_PIXEL);
    Canvas { backend: &mut backend, scale, joins: Joins::Backend, font }.draw(picture)?;
    let title = picture.title();
    Ok(backend.finish(notes::parts(&title).0))
}

/// The picture as a PNG file, with `pixel_ratio` pixels to a CSS pixel.
fn png(picture: &impl Picture, font: &Font, pixel_ratio: u32) -> Result<Vec<u8>, DrawError> {
    let (width, height) = checked_size(picture)?;
    let ratio = pixel_ratio.max(1);
    let (wide, high) = (u64::from(width) * u64::from(ratio), u64::from(height) * u64::from(ratio));
    if wide.saturating_mul(high) > MOST_PIXELS {
        return Err(DrawError::TooLarge { width: wide, height: high, most: MOST_PIXELS });
    }
    let (wide, high) = (wide as u32, high as u32);
    let mut pixels = vec![0; wide as usize * high as usize * 3];
    {
        let mut backend = BitMapBackend::with_buffer(&mut pixels, (wide, high));
        let scale = f64::from(ratio);
        Canvas { backend: &mut backend, scale, joins: Joins::Overlapping, font }.draw(picture)?;
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, wide, high);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&pixels)?;
        writer.finish()
    });
    written.map_err(|error| DrawError::backend(&error))?;
    Ok(file)
}

fn checked_size(picture: &impl Picture) -> Result<(u32, u32), DrawError> {
    let (width, height) = picture.size();
    for (what, given) in [("width", width), ("height", height)] {
        if given > MOST_SIDE {
            return Err(DrawError::TooLong { what, given, most: MOST_SIDE });
        }
    }
    Ok((width, height))
}

fn escape(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A rectangle, in CSS pixels from the upper left corner of the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Area {
    pub(crate) fn right(self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(self) -> f64 {
        self.top + self.height
    }
}

/// Where a picture is drawn, with CSS pixels as coordinates.
pub(crate) struct Canvas<'a, B: DrawingBackend> {
    backend: &'a mut B,
    /// Units of the backend in a CSS pixel.
    scale: f64,
    joins: Joins,
    font: &'a Font,
}

/// How the parts of a line are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joins {
    /// By the backend.
    Backend,
    /// By drawing each part a little longer. The bitmap backend fills the outline of a line by the
    /// even-odd rule, which leaves holes where its parts are close.
    Overlapping,
}

impl<B: DrawingBackend> Canvas<'_, B> {
    fn draw(&mut self, picture: &impl Picture) -> Result<(), DrawError> {
        let (width, height) = picture.size();
        let (width, height) = (f64::from(width), f64::from(height));
        self.fill(Area { left: 0.0, top: 0.0, width, height }, picture.background())?;
        picture.draw(self)?;
        self.backend.present().map_err(|error| DrawError::backend(&error))
    }

    /// Fills a rectangle; one that is thinner than the backend can draw gets its thinnest line.
    pub(crate) fn fill(&mut self, area: Area, color: Rgb) -> Result<(), DrawError> {
        let (left, top) = (self.unit(area.left), self.unit(area.top));
        let right = self.unit(area.right()).max(left + 1);
        let bottom = self.unit(area.bottom()).max(top + 1);
        let done = self.backend.draw_rect((left, top), (right, bottom), &paint(color), true);
        checked(done)
    }

    /// Draws the border of a rectangle inside of it.
    pub(crate) fn frame(
        &mut self,
        area: Area,
        thickness: f64,
        color: Rgb,
    ) -> Result<(), DrawError> {
        let Area { left, top, width, height } = area;
        self.fill(Area { height: thickness, ..area }, color)?;
        self.fill(Area { top: area.bottom() - thickness, height: thickness, ..area }, color)?;
        self.fill(Area { left, top, width: thickness, height }, color)?;
        self.fill(Area { left: left + width - thickness, top, width: thickness, height }, color)
    }

    /// Draws a horizontal line of dashes, its middle at `y`.
    pub(crate) fn dashes(
        &mut self,
        left: f64,
        right: f64,
        y: f64,
        color: Rgb,
    ) -> Result<(), DrawError> {
        const DASH: f64 = 6.0;
        const GAP: f64 = 4.0;
        const THICKNESS: f64 = 1.5;
        let mut at = left;
        while at < right {
            let width = DASH.min(right - at);
            let top = y - THICKNESS / 2.0;
            self.fill(Area { left: at, top, width, height: THICKNESS }, color)?;
            at += DASH + GAP;
        }
        Ok(())
    }

    /// Draws a line through all points, each straight above, below or beside the one before.
    pub(crate) fn steps(
        &mut self,
        points: &[(f64, f64)],
        thickness: f64,
        color: Rgb,
    ) -> Result<(), DrawError> {
        if self.joins == Joins::Overlapping {
            return points.windows(2).try_for_each(|part| {
                let [(x0, y0), (x1, y1)] = [part[0], part[1]];
                let (left, top) = (x0.min(x1) - thickness / 2.0, y0.min(y1) - thickness / 2.0);
                let (width, height) = ((x1 - x0).abs() + thickness, (y1 - y0).abs() + thickness);
                self.fill(Area { left, top, width, height }, color)
            });
        }
        let mut units: Vec<(i32, i32)> =
            points.iter().map(|(x, y)| (self.unit(*x), self.unit(*y))).collect();
        units.dedup();
        if units.len() < 2 {
            return Ok(());
        }
        let stroke = Stroke { color, width: self.unit(thickness).max(1).cast_unsigned() };
        checked(self.backend.draw_path(units, &stroke))
    }

    /// Fills a polygon.
    pub(crate) fn polygon(&mut self, points: &[(f64, f64)], color: Rgb) -> Result<(), DrawError> {
        let units: Vec<(i32, i32)> =
            points.iter().map(|(x, y)| (self.unit(*x), self.unit(*y))).collect();
        checked(self.backend.fill_polygon(units, &paint(color)))
    }

    /// Writes a line of text.
    pub(crate) fn text(&mut self, text: &Text<'_>) -> Result<(), DrawError> {
        let style = font::Style { text, font: self.font, scale: self.scale };
        let at = (self.unit(text.x), self.unit(text.baseline - font::RISE * text.size));
        checked(self.backend.draw_text(&printable(text.content), &style, at))
    }

    fn unit(&self, pixels: f64) -> i32 {
        (pixels * self.scale).round() as i32
    }
}

fn checked<E: std::error::Error + Send + Sync>(
    done: Result<(), DrawingErrorKind<E>>,
) -> Result<(), DrawError> {
    done.map_err(|error| DrawError::backend(&error))
}
