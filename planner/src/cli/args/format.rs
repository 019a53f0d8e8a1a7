//! Output format of a command.

use clap::ValueEnum;
use command_line::terminal::{print, print_json};
use serde::Serialize;

use crate::cli::answer::Answer;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for people.
    Table,
    /// JSON for programs.
    Json,
}

impl Format {
    /// Prints a report as JSON, or its text.
    pub(crate) fn print(
        self,
        report: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<Answer> {
        match self {
            Self::Json => print_json(report)?,
            Self::Table => print(&text())?,
        }
        Ok(Answer::Found)
    }
}
