//! Checks of the ranges of a framework's constants.

use std::ops::RangeInclusive;

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
        in_range(factors, 0.01..=100.0, "from 0.01 to 100, such as 1")?;
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
        in_range(amounts, 0.0..=1e6, "from 0 to 1e6, such as 4")?;
        let constants = self.calibration.iter().flat_map(|it| it.constants.values());
        let constants = constants.map(|[_, value]| ("calibration.constants", *value));
        in_range(constants, 1e-6..=1e6, "from 1e-6 to 1e6, such as 0.8")?;
        if loss.gradient == LossGradient::Chunked {
            let chunks = [("kernels.loss.chunks", loss.chunks as f64)];
            in_range(chunks, 2.0..=f64::INFINITY, "2 or more, such as 8")?;
        }
        let spreads = self.calibration.iter().flat_map(|it| it.spreads.values());
        let spreads = spreads.map(|spread| ("calibration.spreads", *spread));
        in_range(spreads, 0.0..=100.0, "from 0 to 100, such as 0.1")?;
        let multiple = Some(self.tensor_parallel.vocabulary_multiple);
        let counts = [
            ("tensor_parallel.vocabulary_multiple", multiple),
            ("experts.most_domains", self.experts.most_domains),
        ];
        let counts = counts.into_iter().filter_map(|(field, it)| Some((field, f64::from(it?))));
        in_range(counts, 1.0..=1_048_576.0, "from 1 to 1048576, such as 8")
    }
}

/// Checks that the values of fields are in a range; `works` says which, with an example.
fn in_range(
    values: impl IntoIterator<Item = (&'static str, f64)>,
    range: RangeInclusive<f64>,
    works: &'static str,
) -> Result<(), FrameworkError> {
    match values.into_iter().find(|(_, value)| !range.contains(value)) {
        Some((field, value)) => {
            Err(FrameworkError::Unusable { field, value: value.to_string(), works })
        }
        None => Ok(()),
    }
}
