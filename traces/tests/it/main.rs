//! Tests of what the crate promises to others.
