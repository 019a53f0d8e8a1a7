//! Which model a checkpoint is of.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A model, so that another one is told from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelIdentity {
    /// What it is called.
    pub name: String,
    /// SHA-256 of its description, in hexadecimal.
    pub sha256: String,
}

impl fmt::Display for ModelIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model `{}` (SHA-256 {})", self.name, self.sha256)
    }
}
