//! Plans as files of other tools, and settings of other tools as plans.
//!
//! A plan is converted once to an [`ExportView`], which is independent of tools; each target writes the view as its own
//! settings. A part that a tool does not support is an error, or, if the user asks for the nearest plan that the tool
//! runs, a change that is reported with its cost. The abilities of a tool are those in its framework's file, which the
//! search uses too.

mod adapters;
mod approximate;
mod argument;
mod chakra;
mod detect;
mod differences;
mod error;
mod export;
mod fields;
mod file;
mod imported;
mod index;
mod keys;
mod lacks;
mod launch;
mod llama;
mod manifest;
mod option_error;
mod options;
mod others;
mod own_options;
mod ranks;
mod read;
mod run;
mod shell;
mod source;
mod stages;
mod table;
mod target;
mod tool;
mod tools;
pub(crate) mod tree;
mod unread;
mod view;

pub use argument::{Argument, Section};
pub use chakra::ChakraTraces;
pub use launch::Launcher;
pub use stages::StageParts;
pub(crate) use stages::num_layers;
pub use target::Target;
pub use unread::{Unread, by_reason};
pub use view::ExportView;

pub use detect::{LaunchScript, is_read};
pub(crate) use detect::{is_script, tool_of_file};
pub use differences::ModelDifference;
pub use error::{Divided, ExportError, ImportError, Lack};
pub use export::{Export, Wanted, export, lacked_by_tools};
pub use file::File;
pub(crate) use file::basename;
pub use imported::{Imported, Posed, Stated, StatedStages, StatedTraining};
pub use lacks::named;
pub use manifest::{Job, job};
pub use options::{OptionError, Repeated, UnknownPart};
pub(crate) use read::tool_of;
pub use read::{Import, import, settings};
pub(crate) use run::Run;
pub use shell::{End, ShellError};
pub(crate) use source::is_toml;
pub(crate) use table::{Difference, Table};
pub(crate) use tool::{OwnKey, Tool};
pub(crate) use tools::{bridge_setting, bridge_settings, built_in_stage, tool, tools};
