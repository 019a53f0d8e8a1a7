//! Timelines of a step, predicted or measured, and their pictures.

pub mod bars;
mod canvas;
pub mod collectives;
pub mod gantt;
pub mod palette;
pub mod timeline;

pub use canvas::{DrawError, Paper};
