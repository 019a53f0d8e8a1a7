//! Drawings: shapes in CSS pixels, and their file formats.
//!
//! Text is measured with the embedded font for all formats, so a picture has one layout. SVG names common fonts that
//! are no wider, and a generic one last; no text is clipped where they are missing.

mod font;
mod legend;
mod pdf;
mod shape;
mod text;
mod ticks;
mod title;

use ir::text::printable;
use ir::units::Nanos;
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::{RGBColor, ShapeStyle};

use crate::palette::{Rgb, Theme};
use font::ScaledText;
use shape::{Grid, Points, Shape};
use text::{Text, opaque};

pub(crate) use font::{baseline_around, text_width, wrap};
pub(crate) use legend::{Entry, Legend, Swatch};
pub(crate) use shape::Area;
pub(crate) use text::{Align, TextStyle};
pub(crate) use ticks::Ticks;
pub(crate) use title::Title;

/// Size and theme of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paper {
    /// Width of the picture, in CSS pixels.
    pub width: u32,
    /// Theme: dark on light, or light on dark.
    pub theme: Theme,
    /// Pixels of a bitmap to a CSS pixel: 2 for sharp text on most screens. SVG does not need it.
    pub pixel_ratio: u32,
}

impl Default for Paper {
    fn default() -> Self {
        Self { width: 1200, theme: Theme::Light, pixel_ratio: 2 }
    }
}

/// File format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageFormat {
    /// Scalable vector graphics.
    Svg,
    /// Bitmap.
    Png,
    /// PDF, with a page of the picture's size.
    Pdf,
}

/// Reason why a picture cannot be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DrawError {
    /// The picture is too small for its contents.
    #[error("{what} of {given} pixels is too small; this picture needs {least}")]
    TooSmall {
        /// Width or height.
        what: &'static str,
        /// The given size.
        given: u32,
        /// The least size that suffices.
        least: u32,
    },
    /// A side is longer than the limit.
    #[error("{what} of {given} pixels is too large; at most {most}")]
    TooLong {
        /// Width or height.
        what: &'static str,
        /// The given size.
        given: u32,
        /// The limit.
        most: u32,
    },
    /// The bitmap has more pixels than the limit.
    #[error("a bitmap of {width} x {height} pixels is too large: at most {most} pixels")]
    TooLarge {
        /// Width in pixels.
        width: u64,
        /// Height in pixels.
        height: u64,
        /// The limit on pixels.
        most: u64,
    },
    /// The requested part of the step is empty.
    #[error("there is nothing to draw from {from} to {to}; the step goes from 0 to {end}")]
    NothingThere {
        /// Start of the part.
        from: Nanos,
        /// End of the part.
        to: Nanos,
        /// End of the step.
        end: Nanos,
    },
    /// Drawing or encoding failed.
    #[error("cannot draw: {message}")]
    Backend {
        /// Message of the backend.
        message: String,
    },
}

impl DrawError {
    fn backend(error: &impl ToString) -> Self {
        Self::Backend { message: error.to_string() }
    }

    /// Checks that a side has at least `least` pixels.
    pub(crate) fn check_side(what: &'static str, given: u32, least: f64) -> Result<(), Self> {
        let least = least.ceil() as u32;
        if given < least { Err(Self::TooSmall { what, given, least }) } else { Ok(()) }
    }
}

/// Limit on the pixels of a bitmap, which takes 192 MiB while it is drawn.
const MOST_PIXELS: u64 = 1 << 26;

/// Limit on a side, in CSS pixels: 17 m of paper; coordinates end at 2^31.
const MOST_SIDE: u32 = 1 << 16;

/// Grid of SVG and PDF, of quarters of a CSS pixel, since backends take integers.
const SCALABLE: Grid = Grid { scale: 4 };

/// A picture as shapes in CSS pixels from its upper left corner, from back to front.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// Text for readers who do not see the picture: its name in the first line, its contents in the others.
    title: String,
    width: u32,
    height: u32,
    pixel_ratio: u32,
    shapes: Vec<Shape>,
}

impl Drawing {
    /// An empty drawing, with its background.
    pub(crate) fn new(
        title: impl Into<String>,
        width: f64,
        height: f64,
        paper: Paper,
    ) -> Result<Self, DrawError> {
        let [width, height] = [width, height].map(|side| side.ceil() as u32);
        for (what, given) in [("width", width), ("height", height)] {
            if given > MOST_SIDE {
                return Err(DrawError::TooLong { what, given, most: MOST_SIDE });
            }
        }
        let (title, pixel_ratio) = (title.into(), paper.pixel_ratio.max(1));
        let mut drawing = Self { title, width, height, pixel_ratio, shapes: Vec::new() };
        let [width, height] = [width, height].map(f64::from);
        drawing.fill(Area { left: 0.0, top: 0.0, width, height }, paper.theme.background());
        Ok(drawing)
    }

    /// The drawing as a file.
    ///
    /// # Errors
    ///
    /// If a bitmap has too many pixels, or cannot be encoded.
    pub fn file(&self, format: ImageFormat) -> Result<Vec<u8>, DrawError> {
        match format {
            ImageFormat::Svg => self.svg().map(String::into_bytes),
            ImageFormat::Png => self.png(),
            ImageFormat::Pdf => {
                let title = title_and_notes(&self.title).0;
                Ok(pdf::file(title, &self.shapes, self.units(), SCALABLE))
            }
        }
    }

    /// The drawing as an SVG document.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn svg(&self) -> Result<String, DrawError> {
        let (units, mut shapes) = (self.units(), String::new());
        self.paint(&mut SVGBackend::with_string(&mut shapes, units), SCALABLE, false)?;
        // Both are the defaults of SVG. Text cannot contain them, since its quotation marks are escaped.
        let shapes = shapes.replace(" opacity=\"1\"", "").replace(" stroke=\"none\"", "");
        let escape = |text: &str| {
            printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
        };
        let (title, notes) = title_and_notes(&self.title);
        let notes: Vec<&str> = notes.lines().filter(|note| !note.is_empty()).collect();
        let description = match &*notes {
            [] => String::new(),
            notes => format!("<desc>{}</desc>\n", escape(&notes.join("; "))),
        };
        let (title, Self { width, height, .. }) = (escape(title), self);
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {} {}\" role=\"img\">\n<title>{title}</title>\n{description}{shapes}</svg>\n",
            units.0, units.1
        ))
    }

    /// The drawing as a PNG file, with `pixel_ratio` pixels per CSS pixel.
    fn png(&self) -> Result<Vec<u8>, DrawError> {
        let [width, height] =
            [self.width, self.height].map(|side| u64::from(side) * u64::from(self.pixel_ratio));
        if width.saturating_mul(height) > MOST_PIXELS {
            return Err(DrawError::TooLarge { width, height, most: MOST_PIXELS });
        }
        let (wide, high) = (width as u32, height as u32);
        let mut pixels = vec![0; wide as usize * high as usize * 3];
        let mut bitmap = BitMapBackend::with_buffer(&mut pixels, (wide, high));
        self.paint(&mut bitmap, Grid { scale: self.pixel_ratio }, true)?;
        drop(bitmap);
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

    /// Width and height on the grid of the scalable formats.
    fn units(&self) -> (u32, u32) {
        (self.width * SCALABLE.scale, self.height * SCALABLE.scale)
    }

    /// Draws all shapes on the grid of a backend.
    ///
    /// On a bitmap each part of a line is a slightly longer rectangle: the bitmap backend fills the outline of a line
    /// by the even-odd rule, which leaves holes where its parts are close.
    fn paint(
        &self,
        backend: &mut impl DrawingBackend,
        grid: Grid,
        is_bitmap: bool,
    ) -> Result<(), DrawError> {
        for shape in &self.shapes {
            let drawn = match shape {
                Shape::Fill(area, color) => {
                    let (from, to) = grid.corners(*area);
                    backend.draw_rect(from, to, &opaque(*color), true)
                }
                Shape::Steps { points, thickness, color } if is_bitmap => {
                    points.windows(2).try_for_each(|part| {
                        let [(x0, y0), (x1, y1)] = [part[0], part[1]];
                        let (from, to) = grid.corners(Area {
                            left: x0.min(x1) - thickness / 2.0,
                            top: y0.min(y1) - thickness / 2.0,
                            width: (x1 - x0).abs() + thickness,
                            height: (y1 - y0).abs() + thickness,
                        });
                        backend.draw_rect(from, to, &opaque(*color), true)
                    })
                }
                Shape::Steps { points, thickness, color } => {
                    let color = RGBColor(color.red, color.green, color.blue);
                    let stroke = ShapeStyle::from(color).stroke_width(grid.thickness(*thickness));
                    let points = grid.points(points);
                    if points.len() > 1 { backend.draw_path(points, &stroke) } else { Ok(()) }
                }
                Shape::Polygon(points, color) => {
                    backend.fill_polygon(grid.points(points), &opaque(*color))
                }
                Shape::Text(text) => {
                    let style = ScaledText { text, scale: grid.scale.into() };
                    backend.draw_text(&printable(&text.content), &style, grid.top_of(text))
                }
            };
            drawn.map_err(|error| DrawError::backend(&error))?;
        }
        backend.present().map_err(|error| DrawError::backend(&error))
    }

    /// Fills a rectangle.
    pub(crate) fn fill(&mut self, area: Area, color: Rgb) {
        self.shapes.push(Shape::Fill(area, color));
    }

    /// Draws the border of a rectangle, inside of it.
    pub(crate) fn frame(&mut self, area: Area, thickness: f64, color: Rgb) {
        self.fill(Area { height: thickness, ..area }, color);
        self.fill(Area { top: area.bottom() - thickness, height: thickness, ..area }, color);
        self.fill(Area { width: thickness, ..area }, color);
        self.fill(Area { left: area.right() - thickness, width: thickness, ..area }, color);
    }

    /// Draws a horizontal dashed line centred at `y`.
    pub(crate) fn dashes(&mut self, left: f64, right: f64, y: f64, color: Rgb) {
        const DASH: f64 = 6.0;
        const GAP: f64 = 4.0;
        const THICKNESS: f64 = 1.5;
        let mut at = left;
        while at < right {
            let (width, top) = (DASH.min(right - at), y - THICKNESS / 2.0);
            self.fill(Area { left: at, top, width, height: THICKNESS }, color);
            at += DASH + GAP;
        }
    }

    /// Draws a line through all points, each straight above, below or next to the one before.
    pub(crate) fn steps(&mut self, points: Points, thickness: f64, color: Rgb) {
        self.shapes.push(Shape::Steps { points, thickness, color });
    }

    /// Fills a polygon.
    pub(crate) fn polygon(&mut self, corners: &[(f64, f64)], color: Rgb) {
        self.shapes.push(Shape::Polygon(corners.to_vec(), color));
    }

    /// Draws a line of text at an x and a baseline.
    pub(crate) fn text(&mut self, content: &str, (x, baseline): (f64, f64), style: TextStyle) {
        self.shapes.push(Shape::Text(Text { content: content.to_owned(), x, baseline, style }));
    }
}

/// A title's first line and the notes below it.
fn title_and_notes(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}
