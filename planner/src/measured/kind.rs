//! Which tool wrote a file, by what is in it.

use super::nccl_tests;

/// What wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing is in it.
    Empty,
    /// A JSON list of measured steps.
    Steps,
    /// nccl-tests.
    NcclTests,
    /// None of these.
    Unknown,
}

impl Kind {
    /// That of a file.
    pub fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LOOKED_AT)]);
        let start = text.trim_start_matches('\u{feff}').trim_start();
        match () {
            () if start.is_empty() => Self::Empty,
            () if start.starts_with('[') => Self::Steps,
            () if nccl_tests::is_like(&String::from_utf8_lossy(bytes)) => Self::NcclTests,
            () => Self::Unknown,
        }
    }

    /// In words, after "a file of".
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Empty => "nothing",
            Self::Steps => "measured steps",
            Self::NcclTests => "tables of nccl-tests",
            Self::Unknown => "something else",
        }
    }
}

/// How much of a file is looked at where it begins.
const LOOKED_AT: usize = 1 << 16;
