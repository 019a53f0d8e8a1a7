//! Tests of what the crate promises to others.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod bars;
mod browser;
mod chrome;
#[path = "../browser/chromium.rs"]
mod chromium;
mod collectives;
mod dense;
mod drawing;
mod example;
mod gantt;
mod html;
mod palette;
mod pdf;
mod samples;
mod scatter;
