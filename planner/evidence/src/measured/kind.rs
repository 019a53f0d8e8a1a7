//! Detection of the tool that wrote a file, by its contents.

use super::nccl_tests;

/// Kind of a file, by the tool that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Empty file.
    Empty,
    /// A JSON list of measured steps.
    Steps,
    /// Output of nccl-tests.
    NcclTests,
    /// Trace of PyTorch's profiler, or another Chrome trace.
    Trace,
    /// SQLite database, such as an export of Nsight Systems.
    Sqlite,
    /// None of these kinds.
    Unknown,
}

impl Kind {
    /// The kind of a file, from its contents.
    pub fn of(bytes: &[u8]) -> Self {
        if bytes.starts_with(SQLITE) {
            return Self::Sqlite;
        }
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LOOKED_AT)]);
        let start = text.trim_start_matches('\u{feff}').trim_start();
        let has = |keys: [&str; 2]| keys.iter().all(|key| start.contains(&format!("\"{key}\"")));
        match () {
            () if start.is_empty() => Self::Empty,
            () if start.starts_with('{') && start.contains("\"traceEvents\"") => Self::Trace,
            () if start.starts_with('[') && start.contains("\"ph\"") => Self::Trace,
            () if start.starts_with('[') => Self::Steps,
            // A single step, without the list.
            () if start.starts_with('{') && (has(["n_gpus", "gpu"]) || has(["id", "plan"])) => {
                Self::Steps
            }
            // The part before the events may be long.
            () if start.starts_with('{') && contains(bytes, b"\"traceEvents\"") => Self::Trace,
            () if nccl_tests::is_like(&String::from_utf8_lossy(bytes)) => Self::NcclTests,
            () => Self::Unknown,
        }
    }

    /// Contents of such a file, in words.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Empty => "nothing",
            Self::Steps => "measured steps",
            Self::NcclTests => "tables of nccl-tests",
            Self::Trace => "a trace",
            Self::Sqlite => "an export of Nsight Systems",
            Self::Unknown => "something else",
        }
    }
}

/// Number of bytes that are inspected at the begin of a file.
const LOOKED_AT: usize = 1 << 16;

/// First bytes of an SQLite database.
const SQLITE: &[u8] = b"SQLite format 3\0";

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}
