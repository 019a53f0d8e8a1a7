//! Systems of parallel training, each with a command that plans it and one that runs it.

use serde::{Deserialize, Serialize};

/// A system with its commands, as typed in the folder that contains `models`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct System {
    /// Name of the system, with its synonyms.
    pub name: String,
    /// Command that plans it, on models that a laptop runs.
    pub plan: String,
    /// Command that runs it.
    pub run: String,
}

/// Returns all systems.
///
/// # Panics
///
/// If the list that ships is invalid.
pub fn systems() -> Vec<System> {
    serde_json::from_str(include_str!("systems.json")).expect("what ships is valid; a test")
}
