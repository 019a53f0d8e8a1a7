//! Plans in the words of other tools.
//!
//! A plan becomes a [`Setting`] once, which no tool's words are in; each target writes that in its own. What a target
//! cannot say is never left out: it is an error, or, where the user asks for the nearest plan that it can, a change
//! that is stated with what it costs. Abilities are those of the framework's file, by which the search proposes.

mod accelerate;
mod approximate;
mod argument;
mod bridge;
mod chakra;
mod deepspeed;
mod error;
mod executor;
mod export;
mod file;
mod imported;
mod lacks;
mod launch;
mod llama;
mod manifest;
mod megatron;
mod nanotron;
mod options;
mod ranks;
mod read;
mod setting;
mod shell;
mod source;
mod target;
mod torchtitan;
mod tree;
mod write;

pub use argument::{Argument, Section};
pub(crate) use bridge::{HowGiven, settings as bridge_settings};
pub use chakra::ChakraTraces;
pub use error::{ExportError, Lack};
pub use launch::Launcher;
pub use setting::{Setting, StageParts};
pub use target::Target;

pub use export::{Export, Wanted, export, lacked_by_tools};
pub use file::File;
pub use imported::{
    Divided, ImportError, Imported, ModelDifference, Posed, StatedStages, StatedTraining,
};
pub use lacks::named;
pub use manifest::{Job, job};
pub use options::OptionError;
pub use read::{Import, import, settings};
pub use shell::{End, ShellError};
pub(crate) use source::is_script;
pub use source::{Stated, is_read, launches, named_files, variables};
