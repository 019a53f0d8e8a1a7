//! Models as people describe them, and their graphs.

pub mod transformer;
