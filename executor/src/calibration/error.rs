//! Errors of calibration.

use executor_communicators::CommunicationError;
use executor_runtime::program::ProgramError;
use executor_runtime::rank::RunError;

/// Errors of calibration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationRunError {
    /// A rank could not train.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A built-in model is not supported.
    #[error("a model to calibrate with cannot be run")]
    Model(#[from] ProgramError),
}

impl From<CommunicationError> for CalibrationRunError {
    fn from(error: CommunicationError) -> Self {
        Self::Run(error.into())
    }
}
