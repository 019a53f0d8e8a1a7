//! Mistakes planted by hand, each with its mended twin; and laws.

mod laws;
mod planted;
mod script;
