//! The models whose steps are measured.

use crate::alone;
use executor_kernels::ops::Kernels;
use executor_runtime::rank::Rank;
use executor_runtime::settings::compute_element;
use ir::cluster::Precision;

use super::error::CalibrationRunError;

/// Extent of a calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A few steps of two models, for a first look; it takes seconds.
    Quick,
    /// Steps of models of many shapes.
    Full,
}

impl Effort {
    /// Steps before the timed ones.
    pub(super) const fn warm_ups(self) -> usize {
        match self {
            Self::Quick => 1,
            Self::Full => 2,
        }
    }

    /// Number of timed steps.
    pub(super) const fn steps(self) -> usize {
        match self {
            Self::Quick => 3,
            Self::Full => 8,
        }
    }
}

/// A model, and the batch of its steps.
#[derive(Clone, Debug)]
pub struct TrainedModel {
    is_llama: bool,
    hidden_size: u64,
    /// Tokens in a sequence.
    pub sequence_length: u64,
    /// Sequences in a step.
    pub batch: u64,
    vocab_size: u64,
}

/// Number of layers of each model. The second layer follows another layer, as most blocks of a model do.
const NUM_LAYERS: u64 = 2;

/// Features of a head.
const HEAD_DIM: u64 = 32;

/// The models, small ones first, with shapes of whole models and of shards of larger ones.
pub(super) fn all(effort: Effort) -> Vec<TrainedModel> {
    let model = |(is_llama, hidden_size, sequence_length, batch, vocab_size)| TrainedModel {
        is_llama,
        hidden_size,
        sequence_length,
        batch,
        vocab_size,
    };
    let quick = [(true, 64, 64, 2, 320), (false, 128, 64, 1, 512)];
    let full = [
        (true, 64, 64, 1, 320),
        (false, 64, 128, 4, 512),
        (true, 128, 128, 1, 1024),
        (false, 128, 64, 4, 512),
        (true, 128, 256, 2, 1024),
        (false, 256, 64, 1, 1024),
        (true, 256, 128, 2, 2048),
        (false, 256, 256, 2, 1024),
        (true, 256, 256, 4, 512),
        (false, 512, 128, 1, 2048),
        (true, 512, 256, 1, 1024),
        (false, 512, 64, 4, 512),
    ];
    match effort {
        Effort::Quick => quick.map(model).into(),
        Effort::Full => full.map(model).into(),
    }
}

impl TrainedModel {
    /// Name of the model.
    pub fn name(&self) -> String {
        let kind = if self.is_llama { "llama" } else { "gpt" };
        let Self { hidden_size, sequence_length, batch, .. } = self;
        format!("{kind}, {hidden_size} features, {batch} x {sequence_length} tokens")
    }

    fn description(&self) -> String {
        let Self { hidden_size, sequence_length, vocab_size, .. } = self;
        let heads = hidden_size / HEAD_DIM;
        let common = format!(
            r#""num_hidden_layers": {NUM_LAYERS}, "hidden_size": {hidden_size},
            "num_attention_heads": {heads}, "vocab_size": {vocab_size},
            "max_position_embeddings": {sequence_length}"#
        );
        if self.is_llama {
            // 8/3 of the features, as in Llama 2; query heads share keys as in Llama 3.
            let intermediate = hidden_size * 8 / 3 / 8 * 8;
            let kv_heads = heads / 2;
            format!(
                r#"{{"architecture": "llama", {common}, "num_key_value_heads": {kv_heads},
                "intermediate_size": {intermediate}}}"#
            )
        } else {
            format!(r#"{{"architecture": "gpt", {common}}}"#)
        }
    }

    /// The single rank that trains it.
    pub(super) fn rank<B: Kernels>(
        &self,
        device: &B::Device,
        precision: Precision,
    ) -> Result<Rank<B>, CalibrationRunError> {
        let sizes = [self.batch, self.sequence_length];
        let compute = compute_element(precision);
        let program = alone::program(self.description(), &self.name(), sizes, compute, 1e-4)?;
        Ok(alone::rank(program, device, |parameter| parameter.initial_values(0))?)
    }
}
