//! Dynamic scaling of the loss.

use crate::settings::LossScaling;

/// Scale of the loss, which grows while gradients stay finite and shrinks when one does not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scaler {
    settings: Option<LossScaling>,
    scale: f64,
    /// Steps since it last changed.
    good_steps: u64,
}

impl Scaler {
    pub(crate) fn new(settings: Option<LossScaling>) -> Self {
        Self { settings, scale: settings.map_or(1.0, |settings| settings.initial), good_steps: 0 }
    }

    /// Factor of the loss.
    pub(crate) fn scale(&self) -> f64 {
        self.scale
    }

    /// The scale and the steps since it last changed, for a checkpoint.
    pub(crate) fn state(&self) -> (f64, u64) {
        (self.scale, self.good_steps)
    }

    /// Restores the values that [`Self::state`] gave, where the loss is scaled.
    pub(crate) fn restore(&mut self, (scale, good_steps): (f64, u64)) {
        if self.settings.is_some() {
            self.scale = scale;
            self.good_steps = good_steps;
        }
    }

    /// Updates the scale by the norm of a step's gradients, and returns whether the step's update is to be skipped.
    pub(crate) fn observe(&mut self, norm: f64) -> bool {
        let Some(settings) = self.settings else { return false };
        if !norm.is_finite() {
            self.scale *= settings.backoff;
            self.good_steps = 0;
            return true;
        }
        self.good_steps += 1;
        if self.good_steps == settings.growth_interval {
            self.scale *= settings.growth;
            self.good_steps = 0;
        }
        false
    }
}
