//! Tests of what the crate promises to others.

mod hostile;
mod lowering;
mod models;
mod oracle;
