//! Values of parameters that no checkpoint has: initial weights, and frozen ones.

use std::ops::Range;

use ir::graph::Learning;
use sha2::{Digest, Sha256};

use crate::checkpoint::{CheckpointError, Form, ModelParameter, Weights};
use crate::parameters::LocalParameter;
use crate::program::Program;

/// Source of a model's own parameters.
#[derive(Debug)]
pub enum Base {
    /// Random numbers.
    Random {
        /// Seed of the random numbers.
        seed: u64,
    },
    /// Weights read from files.
    Weights(Weights),
}

impl Base {
    /// The initial values of a rank's part of a parameter. Adapters are in no files of a model: they begin as random
    /// numbers drawn by `seed`.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] where files lack the parameter.
    pub fn values(
        &self,
        parameter: &LocalParameter,
        seed: u64,
    ) -> Result<Vec<f64>, CheckpointError> {
        match self {
            Self::Weights(weights) if parameter.learning != Learning::Adapter => {
                weights.read(&parameter.id, &parameter.part)
            }
            Self::Weights(_) => Ok(parameter.initial_values(seed)),
            Self::Random { seed } => Ok(parameter.initial_values(*seed)),
        }
    }

    /// Checks that the source has all of the model's parameters.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] where a parameter is missing.
    pub fn check(&self) -> Result<(), CheckpointError> {
        match self {
            Self::Random { .. } => Ok(()),
            Self::Weights(weights) => weights.check(),
        }
    }

    /// Identity of a program's frozen weights, which differs for other files or seeds; none where nothing is frozen.
    /// For weights in files, it is a hash over a few elements of each parameter.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] where files lack a parameter.
    pub fn identity(&self, program: &Program) -> Result<Option<String>, CheckpointError> {
        if program.adapters.is_none() {
            return Ok(None);
        }
        let weights = match self {
            Self::Random { seed } => return Ok(Some(format!("random weights of seed {seed}"))),
            Self::Weights(weights) => weights,
        };
        let mut digest = Sha256::new();
        for parameter in &program.parameters() {
            digest.update(parameter.id.to_string());
            for value in weights.read(&parameter.id, &sample(parameter))? {
                digest.update(value.to_le_bytes());
            }
        }
        Ok(Some(format!("weights of SHA-256 {:x}, by samples", digest.finalize())))
    }
}

/// The smallest part of a parameter that shows that all of its tensors are there: one element of each expert's tensor.
fn sample(parameter: &ModelParameter) -> Vec<Range<usize>> {
    let is_of_experts = matches!(parameter.form, Form::Experts { .. });
    let size = |(dim, size): (usize, &usize)| if is_of_experts && dim == 0 { *size } else { 1 };
    parameter.shape.iter().enumerate().map(|dim| 0..size(dim)).collect()
}
