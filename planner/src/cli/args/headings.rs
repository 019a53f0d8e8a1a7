//! Headings of options that stand after a group with one of its own, which clap would go on with.

pub(super) const SEARCH: &str = "Search";
pub(super) const OUTPUT: &str = "Output";
