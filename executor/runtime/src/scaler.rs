//! Dynamic scaling of the loss.

use crate::settings::LossScaling;

/// The scale of the loss, grown while gradients stay finite and cut when one does not.
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

    /// What the loss is multiplied by.
    pub(crate) fn scale(&self) -> f64 {
        self.scale
    }

    /// The scale and the steps since it last changed, to be saved.
    pub(crate) fn state(&self) -> (f64, u64) {
        (self.scale, self.good_steps)
    }

    /// Goes on from what [`Self::state`] gave.
    pub(crate) fn restore(&mut self, (scale, good_steps): (f64, u64)) {
        self.scale = scale;
        self.good_steps = good_steps;
    }

    /// Whether the update of a step with such a norm of gradients is to be skipped; changes the scale.
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
