//! Identity of the model of a checkpoint.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Identity of a model, which differs for different models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelIdentity {
    /// Name of the model.
    pub name: String,
    /// SHA-256 of the description, in hexadecimal.
    pub sha256: String,
}

impl fmt::Display for ModelIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model `{}` (SHA-256 {})", self.name, self.sha256)
    }
}
