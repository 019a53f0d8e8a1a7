//! Why a file cannot be read.

use ir::text::{json, printable};

/// Why a file is not one of measured runs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Not JSON.
    #[error("not JSON, line {line}, column {column}: {problem}")]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong.
        problem: String,
    },
    /// JSON, but no list of runs.
    #[error("not a list of runs, each with an `id`, as in `[{{\"id\": .., \"n_layers\": ..}}]`")]
    NotRuns,
    /// A table whose name does not end with a GPU that is known.
    #[error(
        "its name ends with `{0}`, which is no GPU that is known; it is of the GPU that its name ends with, as `products_h100.csv` \
         is (`planner list clusters`)"
    )]
    UnknownGpu(String),
    /// A table with other columns, or no table.
    #[error("it begins with `{found}`, not with the columns of a table that is known{}; {known}", told(*.why))]
    OtherColumns {
        /// Its first line, shortened.
        found: String,
        /// What separates its columns, where that is no comma.
        why: Option<&'static str>,
        /// What tables begin with.
        known: String,
    },
}

impl FileError {
    /// What kept `text` from being read as JSON.
    pub(super) fn json(text: &str, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self::Json { line, column, problem: json::problem(text, error) }
    }

    /// A table whose first line is another than those of `known`.
    pub(super) fn other_columns(header: &str, known: String) -> Self {
        const MOST_SHOWN: usize = 80;
        let others = [(';', "semicolons"), ('\t', "tabs"), ('|', "bars")];
        let why = others.iter().find(|(sign, _)| header.contains(*sign) && !header.contains(','));
        let found = printable(&header.chars().take(MOST_SHOWN).collect::<String>()).into_owned();
        Self::OtherColumns { found, why: why.map(|(_, name)| *name), known }
    }
}

fn told(why: Option<&str>) -> String {
    why.map_or_else(String::new, |why| format!(" (columns are parted by commas, not by {why})"))
}
