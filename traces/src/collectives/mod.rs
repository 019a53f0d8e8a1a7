//! Collective operations as pictures: who holds what before, between and after.
//!
//! A picture is as wide as it needs to be, at most as its paper.
//!
//! What is drawn is computed: every state is a set of contributions, and the ring algorithms are
//! carried out on them.
//!
//! # Source
//!
//! Rings: Patarasuk and Yuan 2009, *Bandwidth optimal all-reduce algorithms for clusters of
//! workstations*, sections 3 and 4; Thakur, Rabenseifner and Gropp 2005, *Optimization of Collective
//! Communication Operations in MPICH*, section 4.

mod chart;
mod holdings;
mod operation;
mod ring;

use crate::canvas::{self, DrawError, Font, Format, Paper};
use chart::Chart;
pub use holdings::{Holdings, Piece};
pub use operation::Operation;
pub use ring::{Ring, Send, Step};

/// The operation on `num_ranks` ranks, before and after, as an SVG document.
///
/// # Errors
///
/// If the picture is too small for so many ranks.
pub fn svg(operation: Operation, num_ranks: u32, paper: &Paper) -> Result<String, DrawError> {
    let font = Font::embedded();
    canvas::svg(&Chart::of_operation(operation, num_ranks, paper, &font)?, &font)
}

/// The operation on `num_ranks` ranks, before and after, as a file of a format.
///
/// # Errors
///
/// As [`svg()`], and if a bitmap has too many pixels.
pub fn draw(
    operation: Operation,
    num_ranks: u32,
    paper: &Paper,
    format: Format,
) -> Result<Vec<u8>, DrawError> {
    let font = Font::embedded();
    let chart = Chart::of_operation(operation, num_ranks, paper, &font)?;
    canvas::draw(&chart, &font, format, paper.pixel_ratio)
}

/// Every step of a ring algorithm on `num_ranks` ranks, as an SVG document. Arrows are what is sent
/// next.
///
/// # Errors
///
/// If the picture is too small for so many ranks.
pub fn ring_svg(ring: Ring, num_ranks: u32, paper: &Paper) -> Result<String, DrawError> {
    let font = Font::embedded();
    canvas::svg(&Chart::of_ring(ring, num_ranks, paper, &font)?, &font)
}

/// Every step of a ring algorithm on `num_ranks` ranks, as a file of a format.
///
/// # Errors
///
/// As [`ring_svg()`], and if a bitmap has too many pixels.
pub fn draw_ring(
    ring: Ring,
    num_ranks: u32,
    paper: &Paper,
    format: Format,
) -> Result<Vec<u8>, DrawError> {
    let font = Font::embedded();
    let chart = Chart::of_ring(ring, num_ranks, paper, &font)?;
    canvas::draw(&chart, &font, format, paper.pixel_ratio)
}
