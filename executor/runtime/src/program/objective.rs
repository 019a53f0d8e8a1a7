//! Training objectives of models of tokens.

/// Name of the input of a decoder that follows an encoder.
pub(crate) const DECODER_TOKENS: &str = "decoder_tokens";

/// Training objective of a model of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Predict the token after each token.
    NextToken,
    /// Predict masked tokens, as attention without a causal mask sees the next token anyway (BERT).
    FillIn,
    /// Generate the sequence, token after token, from one with masked tokens (T5).
    Restore,
}
