//! Help headings for options after a flattened group, whose own heading clap would otherwise continue.

pub(super) const SEARCH: &str = "Search";
pub(super) const OUTPUT: &str = "Output";
