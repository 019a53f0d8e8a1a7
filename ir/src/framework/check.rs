//! Checks of the ranges of a framework's constants.

use super::Framework;
use super::error::FrameworkError;
use crate::graph::LossGradient;

impl Framework {
    /// Checks that every constant is in its range.
    pub(super) fn check_numbers(&self) -> Result<(), FrameworkError> {
        let loss = &self.kernels.loss;
        let factors = [
            ("kernels.elementwise_traffic", self.kernels.elementwise_traffic),
            ("exchanges.within_blocks", self.exchanges.within_blocks),
            ("exchanges.over_replicas", self.exchanges.over_replicas),
            ("memory.saved", self.memory.saved),
        ];
        for (field, value) in factors {
            if !(0.01..=100.0).contains(&value) {
                return Err(FrameworkError::unusable(field, value, "from 0.01 to 100, such as 1"));
            }
        }
        let amounts = [
            ("kernels.loss.forward_bytes_per_logit", loss.forward_bytes_per_logit),
            ("kernels.loss.backward_bytes_per_logit", loss.backward_bytes_per_logit),
            ("kernels.loss.buffer_bytes_per_logit", loss.buffer_bytes_per_logit),
            ("host.microseconds_per_operator", self.host.microseconds_per_operator),
            ("host.milliseconds_per_step", self.host.milliseconds_per_step),
            (
                "pipeline_parallel.microseconds_per_awaited_message",
                self.pipeline_parallel.microseconds_per_awaited_message,
            ),
            ("parameters.microseconds_per_shard", self.parameters.microseconds_per_shard),
            ("parameters.microseconds_per_gather", self.parameters.microseconds_per_gather),
            ("memory.parameter_copies", self.memory.parameter_copies),
            ("memory.update_bytes", self.memory.update_bytes),
            ("memory.update_buffers.held", self.memory.update_buffers.held),
            ("memory.update_buffers.freed", self.memory.update_buffers.freed),
            ("memory.libraries_gib", self.memory.libraries_gib),
        ];
        for (field, value) in amounts {
            if !(0.0..=1e6).contains(&value) {
                return Err(FrameworkError::unusable(field, value, "from 0 to 1e6, such as 4"));
            }
        }
        let calibrated = self.calibration.iter().flat_map(|it| it.constants.values());
        for [_, value] in calibrated {
            if !(1e-6..=1e6).contains(value) {
                let field = "calibration.constants";
                return Err(FrameworkError::unusable(
                    field,
                    *value,
                    "from 1e-6 to 1e6, such as 0.8",
                ));
            }
        }
        if loss.gradient == LossGradient::Chunked && loss.chunks < 2 {
            let (field, value) = ("kernels.loss.chunks", loss.chunks as f64);
            return Err(FrameworkError::unusable(field, value, "2 or more, such as 8"));
        }
        let spreads = self.calibration.iter().flat_map(|it| it.spreads.values());
        for spread in spreads {
            if !(0.0..=100.0).contains(spread) {
                let field = "calibration.spreads";
                return Err(FrameworkError::unusable(field, *spread, "from 0 to 100, such as 0.1"));
            }
        }
        let counts = [
            ("tensor_parallel.vocabulary_multiple", Some(self.tensor_parallel.vocabulary_multiple)),
            ("experts.most_domains", self.experts.most_domains),
        ];
        for (field, count) in counts {
            if count.is_some_and(|count| !(1..=1 << 20).contains(&count)) {
                let value = f64::from(count.unwrap_or_default());
                return Err(FrameworkError::unusable(field, value, "from 1 to 1048576, such as 8"));
            }
        }
        Ok(())
    }
}
