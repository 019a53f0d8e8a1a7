//! Layers that nanotron places on each stage; they follow from the model alone.

use planner_core::partition::filled;

/// Sizes of a Llama that nanotron's block costs depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) layers: u32,
    pub(super) hidden_size: u64,
    pub(super) intermediate_size: u64,
    pub(super) num_attention_heads: u64,
    pub(super) vocab_size: u64,
}

/// Blocks of each stage, where embedding and head count as one block each; `None` if nanotron's rule does not yield
/// this number of stages.
///
/// # Source
///
/// `get_block_compute_costs` of `nanotron/models/llama.py`, nanotron 0.4.
pub(super) fn blocks(sizes: &Sizes, num_stages: u32) -> Option<Vec<u32>> {
    let Sizes { layers, hidden_size, intermediate_size, num_attention_heads, vocab_size } = *sizes;
    let of_head = hidden_size / num_attention_heads.max(1);
    let of_layer =
        4 * num_attention_heads * of_head * hidden_size + 3 * intermediate_size * hidden_size;
    let layers = std::iter::repeat_n(of_layer, layers as usize);
    let costs: Vec<u64> =
        std::iter::once(0).chain(layers).chain([vocab_size * hidden_size]).collect();
    filled(&costs, num_stages)
}
