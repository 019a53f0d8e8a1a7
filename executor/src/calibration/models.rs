//! The models whose steps are measured.

use std::sync::Arc;

use ir::cluster::Precision;
use ir::layout::LayoutSpec;
use ir::model::GraphOptions;
use ir::plan::Optimizer;
use ir::replication::Replication;
use ir::schedule::{ScheduleKind, generate};

use super::error::CalibrationError;
use crate::array::Element;
use crate::batches::Source;
use crate::communicator::Communicator;
use crate::data::{Samples, Sampling, Tokens};
use crate::ops::Kernels;
use crate::parameters::LocalParameter;
use crate::program::{Parts, Program};
use crate::rank::{Rank, RunError};
use crate::settings::{LearningRate, OptimizerSettings, Settings};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A few steps of two models: seconds, for a first look.
    Quick,
    /// Steps of models of many shapes.
    Full,
}

impl Effort {
    /// Steps before those that count.
    pub(super) const fn warm_ups(self) -> usize {
        match self {
            Self::Quick => 1,
            Self::Full => 2,
        }
    }

    /// Steps that count.
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

/// Two blocks of each: the second begins as the first has ended, as most blocks of a model do.
const NUM_LAYERS: u64 = 2;

/// Features of a head.
const HEAD_DIM: u64 = 32;

/// The models, small ones first. Their shapes are those of whole models and of parts of larger ones.
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
    /// What it is called.
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
            // Of Llama 2: 8/3 of the features, and query heads that share keys as in Llama 3.
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

    /// The rank that trains it alone.
    pub(super) fn rank<B: Kernels>(
        &self,
        alone: Arc<dyn Communicator<B>>,
        device: B::Device,
        precision: Precision,
    ) -> Result<Rank<B>, CalibrationError> {
        let schedule =
            generate(ScheduleKind::OneFOneB, 1, 1, 1).expect("one rank, one micro-batch");
        let description = self.description();
        // Table, blocks, head.
        let num_blocks = NUM_LAYERS as usize + 2;
        let program = Program::new(Parts {
            adapters: None,
            description,
            options: GraphOptions::default(),
            model_name: self.name(),
            layout: self.layout(),
            schedule,
            stage_sizes: vec![num_blocks],
            sequence_length: self.sequence_length,
            global_batch_size: self.batch,
            settings: settings(precision),
        })?;
        let sampling = Sampling {
            sequence_length: self.sequence_length,
            vocab_size: self.vocab_size,
            seed: 0,
        };
        let samples = Samples::new(Tokens::built_in(), sampling).map_err(RunError::from)?;
        let values = |parameter: &LocalParameter| Ok::<_, RunError>(parameter.initial_values(0));
        let (program, source) = (Arc::new(program), Arc::new(Source::Tokens(samples)));
        Ok(Rank::new(program, source, alone, device, values)?)
    }

    fn layout(&self) -> LayoutSpec {
        LayoutSpec { micro_batch_size: self.batch as u32, ..LayoutSpec::ONE_RANK }
    }
}

/// The settings of `executor run` in a precision.
fn settings(precision: Precision) -> Settings {
    let compute = match precision {
        Precision::Fp32 => Element::F32,
        Precision::Fp16 => Element::F16,
        Precision::Bf16 | Precision::Fp8 | Precision::Fp4 => Element::BF16,
    };
    Settings {
        replication: Replication::default(),
        straggler: None,
        optimizer: OptimizerSettings::usual(Optimizer::AdamW),
        max_gradient_norm: Some(1.0),
        schedule: LearningRate::constant(1e-4),
        compute,
        gradients: compute,
        master: Element::F32,
        moments: Element::F32,
        loss_scaling: None,
        bucket_bytes: 25 << 20,
        expert_capacity_factor: None,
        seed: 0,
    }
}
