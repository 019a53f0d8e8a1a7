//! Why data cannot be trained on.

use std::io;
use std::path::PathBuf;

/// Why data cannot be trained on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file is missing, or may not be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A directory, a pipe or a device.
    #[error("`{}` is not a regular file", .path.display())]
    NotAFile {
        /// What was to be read.
        path: PathBuf,
    },
    /// The extension does not tell what the file holds.
    #[error(
        "`{}`: its extension does not tell what it holds\nhint: name it `.txt` for text, `.u16` or \
         `.u32` for token ids of 2 or 4 bytes, little endian",
        .path.display()
    )]
    UnknownExtension {
        /// The file.
        path: PathBuf,
    },
    /// There is nothing in the file.
    #[error("`{name}` is empty")]
    Empty {
        /// The file.
        name: String,
    },
    /// The length is not that of whole token ids.
    #[error(
        "`{name}` has {num_bytes} bytes, which are no whole number of token ids of {width} bytes\nhint: \
         {}",
        match .num_bytes - .num_bytes % .width {
            0 => "use more data".to_owned(),
            whole => format!("{whole} bytes would be"),
        }
    )]
    PartialToken {
        /// The file.
        name: String,
        /// Its length.
        num_bytes: u64,
        /// Bytes of a token id.
        width: u64,
    },
    /// A text that is no text.
    #[error(
        "`{name}` is not UTF-8 text: byte {offset} does not belong there\nhint: token ids go into a \
         file named `.u16` or `.u32`"
    )]
    NotUtf8 {
        /// The file.
        name: String,
        /// The first byte that is not UTF-8, from 0.
        offset: u64,
    },
    /// Not enough tokens for one sample.
    #[error(
        "`{name}` ends after {num_tokens} of the {} tokens that a sample of sequence length \
         {sequence_length} takes\nhint: {}",
        .sequence_length.saturating_add(1),
        match .num_tokens - 1 {
            0 => "use more data".to_owned(),
            longest => format!("sequence length {longest} fits"),
        }
    )]
    TooShort {
        /// The file.
        name: String,
        /// Tokens in it, at least one.
        num_tokens: u64,
        /// The sequence length asked for.
        sequence_length: u64,
    },
    /// A token that the model has no embedding of.
    #[error(
        "`{name}`: token {position} has id {id}, but the model's vocabulary ends at {}\nhint: \
         `vocab_size` must be above the largest id; text is read as bytes and takes 256",
        .vocab_size.saturating_sub(1)
    )]
    Vocabulary {
        /// The file.
        name: String,
        /// The token's place, in tokens from 0.
        position: u64,
        /// Its id.
        id: u32,
        /// The model's vocabulary.
        vocab_size: u64,
    },
}
