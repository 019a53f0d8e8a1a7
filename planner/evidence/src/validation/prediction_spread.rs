//! Evidence for a prediction.

use cost_models::Hardware;
use cost_models::residuals::{Spread, SpreadOf};

/// Spread of a prediction of a quantity.
#[derive(Clone, Debug)]
pub struct PredictionSpread {
    /// Stack, as named by [`SpreadOf::stack`].
    pub stack: String,
    /// Standard deviation of the logarithm of measured over predicted.
    pub deviation: f64,
    /// The shipped interval of measured over predicted.
    pub interval: [f64; 2],
}

impl PredictionSpread {
    pub(super) fn of(of: SpreadOf, hardware: &Hardware, deviation: f64) -> Self {
        let (_, spread) = Spread::shipped(of, hardware);
        Self { stack: of.stack(hardware), deviation, interval: spread.interval(deviation) }
    }
}
