//! Help headings for options after a flattened group. Without them, clap would continue the group's heading.

pub(super) const SEARCH: &str = "Search";
pub(super) const OUTPUT: &str = "Output";
