//! LongCat-Flash: two attentions and two dense blocks in each layer, with experts in parallel to them.

use super::parts::{self, Finished, Shape};
use crate::model::fields::Fields;
use crate::model::transformer::{FeedForward, Mixture, Mlp, Shortcut, Transformer, ZeroExperts};

pub(super) fn longcat(
    fields: Fields<'_>,
    shape: &Shape,
    transformer: &mut Transformer,
) -> Finished {
    let zero = fields.count_or("zero_expert_num", 256)?;
    let latent = transformer.layers.first().and_then(|it| it.layer.attention());
    let head_dim = latent.map_or(0, |attention| attention.head_dim);
    let stated = fields.optional_size("qk_head_dim")?.filter(|stated| *stated != head_dim);
    if let Some(stated) = stated {
        return Err(fields.unsupported(format!("`qk_head_dim` {stated} instead of {head_dim}")));
    }
    transformer.each_layer(|_, layer| {
        let FeedForward::Mixture(mixture) = layer.feed_forward else { return Ok(()) };
        let dense = Mlp { intermediate_size: shape.intermediate_size, ..mixture.expert };
        let dense = FeedForward::Dense(dense);
        layer.feed_forward = dense.clone();
        let second = parts::layer(layer.mixer.clone(), dense, layer.norm, layer.norm_placement);
        let mixture = with_zero_experts(mixture, zero);
        layer.shortcut = Some(Box::new(Shortcut { mixture, second }));
        Ok(())
    })
}

/// `mixture` with experts whose output is their input. Tokens go to the other experts in proportion to their share of
/// all experts: LongCat's correction keeps it so (LongCat Team 2025, arXiv 2509.01322, section 2.1). transformers
/// gives all experts the weights of the input projections.
fn with_zero_experts(mixture: Mixture, zero: u64) -> Mixture {
    if zero == 0 {
        return mixture;
    }
    let all = mixture.num_experts.saturating_add(zero);
    let top_k = mixture.top_k.saturating_mul(mixture.num_experts).div_ceil(all.max(1));
    let zero_experts = Some(ZeroExperts { count: zero, has_weights: true });
    Mixture { top_k, zero_experts, ..mixture }
}
