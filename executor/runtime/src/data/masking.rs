//! Sequences with masked tokens, for models that are trained to predict the masked tokens.
//!
//! # Source
//!
//! Devlin et al. 2018, *BERT* (arXiv 1810.04805), section 3.1; for models with a decoder, which writes the whole
//! sequence, Raffel et al. 2019 (arXiv 1910.10683), section 3.3.1.

use executor_kernels::random::hash;

/// The target of a token that is not to be predicted.
pub(crate) const IGNORED: u32 = u32::MAX;

/// The share of tokens that are masked.
const SHARE: f64 = 0.15;

/// Of ten masked tokens, eight become the mask, one becomes another token, and one stays.
const KINDS: u64 = 10;
const BECOME_MASK: u64 = 8;
const BECOME_ANOTHER: u64 = 9;

/// Number of masked tokens of a sequence, the same for all sequences of a length, so that all count equally.
pub(crate) fn num_masked(length: usize) -> usize {
    ((length as f64 * SHARE).round() as usize).clamp(1, length.max(1))
}

/// Masking of tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Masking {
    /// Size of the vocabulary. The last id is the mask, as RoBERTa's is; configurations do not name it.
    pub(crate) vocab_size: u64,
    /// Seed of the random numbers.
    pub(crate) seed: u64,
}

impl Masking {
    /// A sample's tokens with some masked, and the targets: the original tokens at masked positions, else [`IGNORED`].
    pub(crate) fn masked(&self, sample: u64, tokens: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let of_sample = hash([self.seed, sample]);
        let mut order: Vec<usize> = (0..tokens.len()).collect();
        order.sort_by_key(|position| hash([of_sample, *position as u64]));
        let (mut masked, mut targets) = (tokens.to_vec(), vec![IGNORED; tokens.len()]);
        for position in order.into_iter().take(num_masked(tokens.len())) {
            let number = hash([of_sample, position as u64, 1]);
            targets[position] = tokens[position];
            masked[position] = match number % KINDS {
                kind if kind < BECOME_MASK => (self.vocab_size - 1) as u32,
                kind if kind < BECOME_ANOTHER => (number / KINDS % self.vocab_size) as u32,
                _ => tokens[position],
            };
        }
        (masked, targets)
    }
}

#[cfg(test)]
mod tests {
    use super::{IGNORED, Masking, num_masked};

    /// Every sequence has the same number of masked tokens, every run masks the same ones, and only they are targets.
    #[test]
    fn masked_tokens_are_the_targets() {
        let masking = Masking { vocab_size: 1000, seed: 3 };
        let tokens: Vec<u32> = (0..200).collect();
        let (mut became_mask, mut stayed) = (0, 0);
        for sample in 0..50 {
            let (masked, targets) = masking.masked(sample, &tokens);
            assert_eq!(masking.masked(sample, &tokens), (masked.clone(), targets.clone()));
            assert_eq!(targets.iter().filter(|it| **it != IGNORED).count(), num_masked(200));
            for ((token, masked), target) in tokens.iter().zip(&masked).zip(&targets) {
                assert!(*target == IGNORED && masked == token || target == token);
                became_mask += u32::from(*masked == 999);
                stayed += u32::from(*target != IGNORED && masked == token);
            }
        }
        // Of 1,500 masked tokens, 80 % become the mask and 10 % stay.
        assert!((1100..1300).contains(&became_mask) && (100..200).contains(&stayed));
        assert_eq!((num_masked(1), num_masked(100)), (1, 15));
    }
}
