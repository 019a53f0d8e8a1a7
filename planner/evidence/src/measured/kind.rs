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
    /// PyTorch's profiler, or another that writes Chrome traces.
    Trace,
    /// A database of SQLite, such as Nsight Systems export.
    Sqlite,
    /// None of these.
    Unknown,
}

impl Kind {
    /// That of a file.
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
            // One step, without the list.
            () if start.starts_with('{') && (has(["n_gpus", "gpu"]) || has(["id", "plan"])) => {
                Self::Steps
            }
            // What comes before the events may be long.
            () if start.starts_with('{') && contains(bytes, b"\"traceEvents\"") => Self::Trace,
            () if nccl_tests::is_like(&String::from_utf8_lossy(bytes)) => Self::NcclTests,
            () => Self::Unknown,
        }
    }

    /// In words, as what a file has.
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

/// How much of a file is looked at where it begins.
const LOOKED_AT: usize = 1 << 16;

/// How a database of SQLite begins.
const SQLITE: &[u8] = b"SQLite format 3\0";

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}
