//! Windows of tokens, in a random order that is the same on all ranks.

use executor_kernels::random::hash;

use super::error::DataError;
use super::permutation::Permutation;
use super::tokens::Tokens;

/// Sampling of windows from tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Tokens of a sample that have a target.
    pub sequence_length: u64,
    /// Size of the vocabulary; token ids are below it.
    pub vocab_size: u64,
    /// Seed of the order.
    pub seed: u64,
}

/// The samples of a training run, by global index, without end.
///
/// The tokens are cut into disjoint windows of `sequence_length + 1`; a shorter remainder at the end is not used. Each
/// epoch takes every window once, in its own order.
#[derive(Debug)]
pub struct Samples {
    tokens: Tokens,
    sampling: Sampling,
    num_windows: u64,
}

impl Samples {
    /// The samples of `tokens`.
    ///
    /// # Errors
    ///
    /// [`DataError`] if there are fewer tokens than one window takes.
    pub fn new(tokens: Tokens, sampling: Sampling) -> Result<Self, DataError> {
        let num_windows = tokens.num_tokens() / sampling.sequence_length.saturating_add(1);
        if num_windows == 0 {
            let (num_tokens, length) = (tokens.num_tokens(), sampling.sequence_length);
            let hint = match num_tokens - 1 {
                0 => "use more data".to_owned(),
                longest => format!("sequence length {longest} fits"),
            };
            return Err(DataError::Unusable(format!(
                "`{}` ends after {num_tokens} of the {} tokens that a sample of sequence length {length} takes\nhint: \
                 {hint}",
                tokens.name(),
                length.saturating_add(1)
            )));
        }
        Ok(Self { tokens, sampling, num_windows })
    }

    /// Size of the vocabulary.
    pub fn vocab_size(&self) -> u64 {
        self.sampling.vocab_size
    }

    /// Number of samples of an epoch.
    pub fn num_windows(&self) -> u64 {
        self.num_windows
    }

    /// The `sequence_length + 1` token ids of a sample: all but the last are inputs, all but the first are targets.
    ///
    /// # Errors
    ///
    /// [`DataError`] if an id is not below `vocab_size`.
    pub fn window(&self, index: u64) -> Result<Vec<u32>, DataError> {
        let width = self.sampling.sequence_length + 1;
        let start = self.window_id(index) * width;
        let ids: Vec<u32> = self.tokens.ids(start..start + width).collect();
        let vocab_size = self.sampling.vocab_size;
        match ids.iter().position(|&id| u64::from(id) >= vocab_size) {
            None => Ok(ids),
            Some(place) => Err(DataError::Unusable(format!(
                "`{}`: token {} has id {}, but the model's vocabulary ends at {}\nhint: `vocab_size` must be above the \
                 largest id; text is read as bytes and takes 256",
                self.tokens.name(),
                start + place as u64,
                ids[place],
                vocab_size.saturating_sub(1)
            ))),
        }
    }

    /// The window of a sample, by its number in the order of the tokens.
    fn window_id(&self, index: u64) -> u64 {
        let (epoch, place) = (index / self.num_windows, index % self.num_windows);
        Permutation::new(self.num_windows, hash([self.sampling.seed, epoch])).at(place)
    }
}
