//! Errors of reading a file of measured runs.

use ir::text::json::JsonError;
use ir::text::printable;

/// Reason why a file does not contain measured runs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Not JSON.
    #[error("not JSON, {0}")]
    Json(JsonError),
    /// JSON, but not a list of runs.
    #[error("not a list of runs, each with an `id`, as in `[{{\"id\": .., \"n_layers\": ..}}]`")]
    NotRuns,
    /// A table whose name does not end with a known GPU.
    #[error(
        "its name ends with `{0}`, which is no GPU that is known; it is of the GPU that its name ends with, as `products_h100.csv` \
         is (`planner list clusters`)"
    )]
    UnknownGpu(String),
    /// A table with other columns, or not a table.
    #[error("it begins with `{found}`, not with the columns of a table that is known{}; {known}", separator_hint(*.why))]
    OtherColumns {
        /// First line, shortened.
        found: String,
        /// Separator of its columns, if that is not a comma.
        why: Option<&'static str>,
        /// Known first lines of tables.
        known: String,
    },
}

impl FileError {
    /// The error of a table with an unknown first line.
    pub(super) fn other_columns(header: &str, known: String) -> Self {
        const MOST_SHOWN: usize = 80;
        let others = [(';', "semicolons"), ('\t', "tabs"), ('|', "bars")];
        let why = others.iter().find(|(sign, _)| header.contains(*sign) && !header.contains(','));
        let found = printable(&header.chars().take(MOST_SHOWN).collect::<String>()).into_owned();
        Self::OtherColumns { found, why: why.map(|(_, name)| *name), known }
    }
}

fn separator_hint(why: Option<&str>) -> String {
    why.map_or_else(String::new, |why| format!(" (columns are parted by commas, not by {why})"))
}
