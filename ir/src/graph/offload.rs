//! Modules of a layer whose activations may be in the host's memory.

use super::modules::{LayerModule, ModuleSet};
use super::op::{Op, OpKind};
use super::recompute::Within;
use super::tensor::DimName;

named_enum! {
    /// A part of a layer whose saved tensors may be in the host's memory between forward and backward.
    ///
    /// # Source
    ///
    /// Megatron-Core, `docs/user-guide/features/fine_grained_activation_offloading.md`.
    pub enum OffloadModule {
        /// The norm before latent attention. Before other attention it is part of [`Self::QueryKeyValue`]: Transformer
        /// Engine computes both in one module.
        AttentionNorm = "attention_norm",
        /// Projections to queries, keys and values; for latent attention, everything before attention itself.
        QueryKeyValue = "query_key_value",
        /// Attention itself: scores, softmax and weighted sum, or the fused kernel.
        Attention = "attention",
        /// The projection after attention.
        AttentionOutput = "attention_output",
        /// The norm before a mixture of experts.
        ExpertNorm = "expert_norm",
        /// The first products of experts.
        ExpertInputs = "expert_inputs",
        /// Activation functions of experts.
        ExpertActivations = "expert_activations",
    }
}

/// A set of modules whose saved tensors are in the host's memory.
pub type OffloadModules = ModuleSet<OffloadModule>;

impl LayerModule for OffloadModule {
    const ALL: &'static [Self] = &Self::ALL;

    fn name(self) -> &'static str {
        self.name()
    }

    /// Name in Megatron-Core's `--offload-modules`.
    fn megatron_name(self) -> Option<&'static str> {
        Some(match self {
            Self::AttentionNorm => "attn_norm",
            Self::QueryKeyValue => "qkv_linear",
            Self::Attention => "core_attn",
            Self::AttentionOutput => "attn_proj",
            Self::ExpertNorm => "mlp_norm",
            Self::ExpertInputs => "expert_fc1",
            Self::ExpertActivations => "moe_act",
        })
    }
}

impl OffloadModule {
    /// The module that an operator belongs to, if any.
    ///
    /// # Source
    ///
    /// Megatron-Core, where `off_interface` is entered in `attention.py`, `multi_latent_attention.py`, `experts.py`
    /// and `transformer_layer.py`.
    pub(super) fn of(op: &Op, within: Within<'_>) -> Option<Self> {
        let Within { layer, reads_experts, has_router, has_latents } = within;
        let is_norm = matches!(op.kind, OpKind::Norm { .. });
        match op.kind {
            OpKind::Attention { .. }
            | OpKind::AttentionScores
            | OpKind::AttentionValues
            | OpKind::Softmax { over: DimName::Context } => Some(Self::Attention),
            OpKind::Dropout { .. } if op.output.dim(DimName::Context).is_some() => {
                Some(Self::Attention)
            }
            OpKind::GroupedLinear { .. } => {
                (layer.name != "mlp.down").then_some(Self::ExpertInputs)
            }
            _ if op.is_activation() => reads_experts.then_some(Self::ExpertActivations),
            _ => match layer.name {
                "attention.norm" if has_latents => Some(Self::AttentionNorm),
                "attention.norm" => Some(Self::QueryKeyValue),
                "attention.output" => Some(Self::AttentionOutput),
                "mlp.norm" if has_router => Some(Self::ExpertNorm),
                name if !name.starts_with("attention.") => None,
                _ if has_latents => Some(Self::QueryKeyValue),
                _ => (!is_norm && matches!(op.kind, OpKind::Linear { .. }))
                    .then_some(Self::QueryKeyValue),
            },
        }
    }
}
