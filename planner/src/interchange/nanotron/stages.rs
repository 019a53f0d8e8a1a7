//! Which layers nanotron puts on each stage, which nothing but the model decides.

/// A Llama, as far as its cost goes by nanotron's count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) layers: u32,
    pub(super) hidden_size: u64,
    pub(super) intermediate_size: u64,
    pub(super) num_attention_heads: u64,
    pub(super) vocab_size: u64,
}

/// Blocks of each stage, embedding and head counted as one each; none where a stage would be empty, or where the last
/// norm would stand apart from the head.
///
/// # Source
///
/// `build_model` of `nanotron/models/base.py` and `get_block_compute_costs` of `nanotron/models/llama.py`, nanotron
/// 0.4: a block goes to the stage that is being filled, which is full once the costs so far exceed its share.
pub(super) fn blocks(sizes: &Sizes, num_stages: u32) -> Option<Vec<u32>> {
    let Sizes { layers, hidden_size, intermediate_size, num_attention_heads, vocab_size } = *sizes;
    let of_head = hidden_size / num_attention_heads.max(1);
    let of_layer =
        4 * num_attention_heads * of_head * hidden_size + 3 * intermediate_size * hidden_size;
    let all = u64::from(layers) * of_layer + vocab_size * hidden_size;
    let share = |stage: u32| all as f64 * (f64::from(stage + 1) / f64::from(num_stages));
    let mut counts = vec![0; num_stages as usize];
    let (mut stage, mut so_far) = (0, 0);
    let mut put = |cost: u64, counted: u32| {
        so_far += cost;
        let here = stage;
        counts[here as usize] += counted;
        if so_far as f64 > share(stage) && stage + 1 < num_stages {
            stage += 1;
        }
        here
    };
    put(0, 1);
    for _ in 0..layers {
        put(of_layer, 1);
    }
    let norm = put(0, 0);
    let head = put(vocab_size * hidden_size, 1);
    (norm == head && counts.iter().all(|count| *count > 0)).then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, of what `build_model` computes: a Llama 2 7B's head is 0.65 layers.
    #[test]
    fn stages_are_those_of_build_model() {
        let llama = Sizes {
            layers: 32,
            hidden_size: 4096,
            intermediate_size: 11_008,
            num_attention_heads: 32,
            vocab_size: 32_000,
        };
        assert_eq!(blocks(&llama, 1), Some(vec![34]));
        assert_eq!(blocks(&llama, 2), Some(vec![18, 16]));
        assert_eq!(blocks(&llama, 4), Some(vec![10, 8, 8, 8]));
        assert_eq!(blocks(&llama, 64), None);
    }
}
