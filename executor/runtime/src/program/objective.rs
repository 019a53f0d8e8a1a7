//! What a model of tokens is trained to do.

/// The input of a decoder with an encoder before it.
pub(crate) const DECODER_TOKENS: &str = "decoder_tokens";

/// What a model of tokens is trained to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// To say what comes after each token.
    NextToken,
    /// To fill in tokens that were masked: what sees all positions would else see what it is to say (BERT).
    FillIn,
    /// To write the sequence anew from one with tokens masked, token after token (T5).
    Restore,
}
