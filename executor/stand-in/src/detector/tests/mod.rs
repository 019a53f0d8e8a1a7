//! Planted mistakes, each with its corrected twin; and properties.

mod laws;
mod planted;
mod script;
