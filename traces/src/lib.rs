//! Timelines of a step, predicted or measured, and their pictures.

mod class;

pub mod chrome;
pub mod timeline;
