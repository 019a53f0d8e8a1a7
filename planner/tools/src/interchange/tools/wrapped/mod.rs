//! Tools, and older versions of tools, whose settings are those of another tool under other names.

mod adds;
mod hydra;
mod megatron_yaml;
mod own;
mod read;
mod references;
mod swift;
mod tools;
mod verl;
mod wrapper;

pub(super) use tools::WRAPPED;
