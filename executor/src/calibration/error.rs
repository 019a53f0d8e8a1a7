//! What goes wrong with a calibration.

use executor_communicators::CommunicationError;
use executor_runtime::program::ProgramError;
use executor_runtime::rank::RunError;

/// Why a machine was not calibrated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// A rank could not train.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A model that comes with the program is not run.
    #[error("a model to calibrate with cannot be run")]
    Model(#[from] ProgramError),
}

impl From<CommunicationError> for CalibrationError {
    fn from(error: CommunicationError) -> Self {
        Self::Run(error.into())
    }
}
