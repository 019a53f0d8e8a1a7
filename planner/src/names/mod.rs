//! What people call things: names in any writing, and for a name that nothing has, those that were likely meant.

mod clusters;
mod flags;
mod frameworks;
mod models;
mod nearest;
mod options;

pub use clusters::cluster;
pub use ir::text::folded;

pub use flags::{beside, flag, instead};
pub use frameworks::framework;
pub use models::{Sought, model};
pub use nearest::{nearest, or_nearest};
pub use options::{
    context_names, launcher_names, precision_names, schedule, schedule_names, schedules_like,
    target_names,
};

/// A name as [`folded`], without words that say nothing of which thing it is.
fn folded_without(name: &str, words: &[&str]) -> String {
    let small = name.to_lowercase();
    let parts = small.split(|c: char| !c.is_alphanumeric());
    parts.filter(|part| !words.contains(part)).collect()
}

#[cfg(test)]
mod tests;
