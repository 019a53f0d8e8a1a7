//! Where parameters come from that no checkpoint has: first weights, and frozen ones.

use std::ops::Range;

use ir::graph::Learning;
use sha2::{Digest, Sha256};

use crate::checkpoint::{CheckpointError, Form, ModelParameter, Weights, hexadecimal};
use crate::parameters::LocalParameter;
use crate::program::Program;

/// Where a model's own parameters come from.
#[derive(Debug)]
pub enum Base {
    /// They are random.
    Random {
        /// Which random numbers.
        seed: u64,
    },
    /// They are in files.
    Weights(Weights),
}

impl Base {
    /// The first values of a rank's part of a parameter. Adapters are in no files of a model, and begin as
    /// random numbers that `seed` decides.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] where files lack them.
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

    /// Whether all of the model's parameters are there.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] where one is not.
    pub fn check(&self) -> Result<(), CheckpointError> {
        match self {
            Self::Random { .. } => Ok(()),
            Self::Weights(weights) => weights.check(),
        }
    }

    /// What tells the frozen weights of a program from those of other files or seeds; none where nothing is
    /// frozen. Of files, a few elements of each parameter count.
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
        Ok(Some(format!("weights of SHA-256 {}, by samples", hexadecimal(&digest.finalize()))))
    }
}

/// As little of a parameter as shows that all of its tensors are there: an element of each expert's.
fn sample(parameter: &ModelParameter) -> Vec<Range<usize>> {
    let is_of_experts = matches!(parameter.form, Form::Experts { .. });
    let size = |(dim, size): (usize, &usize)| if is_of_experts && dim == 0 { *size } else { 1 };
    parameter.shape.iter().enumerate().map(|dim| 0..size(dim)).collect()
}
