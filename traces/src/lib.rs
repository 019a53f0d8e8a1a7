//! Timelines of a step, predicted or measured, and their pictures.

pub mod palette;
pub mod timeline;
