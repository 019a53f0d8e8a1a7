//! Timelines of a step, predicted or measured, and their pictures.

mod canvas;
mod class;
mod lanes;

pub mod bars;
pub mod chrome;
pub mod collectives;
pub mod gantt;
pub mod html;
pub mod palette;
pub mod reference;
pub mod scatter;
pub mod snapshot;
pub mod statistics;
pub mod sweep;
pub mod timeline;

pub use canvas::{DrawError, Drawing, ImageFormat, Paper};
