//! Token streams: text or ids, from a file or built in.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

use super::error::DataError;
use crate::mapped::map;

/// Lewis Carroll, *Alice's Adventures in Wonderland*, 1865; `executor/runtime/data/README.md` has the source.
const ALICE: &[u8] = include_bytes!("../../data/alice.txt");

/// Format of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFormat {
    /// UTF-8 text, each byte of which is a token: ids 0 to 255.
    Text,
    /// Token ids of two bytes, little endian.
    U16,
    /// Token ids of four bytes, little endian.
    U32,
}

impl TokenFormat {
    /// The format of a file by its extension: `.txt` and `.md` are text, `.u16` and `.bin` are ids of two bytes, `.u32`
    /// ids of four.
    ///
    /// # Errors
    ///
    /// [`DataError`] for any other extension.
    pub fn of_path(path: &Path) -> Result<Self, DataError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("txt" | "md") => Ok(Self::Text),
            Some("u16" | "bin") => Ok(Self::U16),
            Some("u32") => Ok(Self::U32),
            _ => Err(DataError::Unusable(format!(
                "`{}`: its extension does not tell what it holds\nhint: name it `.txt` for text, `.u16` or `.u32` for \
                 token ids of 2 or 4 bytes, little endian",
                path.display()
            ))),
        }
    }

    /// Bytes of a token.
    const fn width(self) -> u64 {
        match self {
            Self::Text => 1,
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }
}

/// Tokens in order; at least one. A file is memory-mapped, so it may be larger than memory; it must not change while it
/// is used.
#[derive(Debug)]
pub struct Tokens {
    name: String,
    format: TokenFormat,
    bytes: TokenBytes,
}

impl Tokens {
    /// A book of 148,476 bytes that comes with the program.
    pub fn built_in() -> Self {
        let bytes = TokenBytes::BuiltIn(ALICE);
        Self { name: "alice.txt".to_owned(), format: TokenFormat::Text, bytes }
    }

    /// The tokens of a file, by its extension.
    ///
    /// # Errors
    ///
    /// Those of [`TokenFormat::of_path`] and [`Tokens::open_as`].
    pub fn open(path: &Path) -> Result<Self, DataError> {
        Self::open_as(path, TokenFormat::of_path(path)?)
    }

    /// The tokens of a file in `format`, whatever its extension.
    ///
    /// # Errors
    ///
    /// [`DataError`] if the file cannot be read, is empty, ends within a token, or should be text but is not.
    pub fn open_as(path: &Path, format: TokenFormat) -> Result<Self, DataError> {
        let unreadable = |source| DataError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let name = path.display().to_string();
        if !metadata.is_file() {
            return Err(DataError::NotAFile { path: path.to_owned() });
        }
        if metadata.len() == 0 {
            return Err(DataError::Unusable(format!("`{name}` is empty")));
        }
        let map = map(&file).map_err(unreadable)?;
        let num_bytes = map.len() as u64;
        let width = format.width();
        if !num_bytes.is_multiple_of(width) {
            let hint = match num_bytes - num_bytes % width {
                0 => "use more data".to_owned(),
                whole => format!("{whole} bytes would be"),
            };
            return Err(DataError::Unusable(format!(
                "`{name}` has {num_bytes} bytes, which are no whole number of token ids of {width} bytes\nhint: {hint}"
            )));
        }
        if format == TokenFormat::Text
            && let Err(error) = str::from_utf8(&map)
        {
            return Err(DataError::Unusable(format!(
                "`{name}` is not UTF-8 text: byte {} does not belong there\nhint: token ids go into a file named `.u16` \
                 or `.u32`",
                error.valid_up_to()
            )));
        }
        Ok(Self { name, format, bytes: TokenBytes::Mapped(map) })
    }

    /// Name of the tokens in messages: the path, or the name of the book.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of tokens.
    pub fn num_tokens(&self) -> u64 {
        self.bytes.get().len() as u64 / self.format.width()
    }

    /// The ids of a range of tokens, counted from 0.
    pub(super) fn ids(&self, places: Range<u64>) -> impl Iterator<Item = u32> {
        let width = self.format.width() as usize;
        let bytes = &self.bytes.get()[places.start as usize * width..places.end as usize * width];
        bytes.chunks_exact(width).map(little_endian)
    }
}

/// Storage of the bytes.
#[derive(Debug)]
enum TokenBytes {
    BuiltIn(&'static [u8]),
    Mapped(Mmap),
}

impl TokenBytes {
    fn get(&self) -> &[u8] {
        match self {
            Self::BuiltIn(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

/// The number of at most four bytes, the lowest first.
fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}
