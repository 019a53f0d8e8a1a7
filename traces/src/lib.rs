//! Timelines of a step, predicted or measured, and their pictures.

mod class;
mod lanes;

pub mod chrome;
pub mod html;
pub mod timeline;
