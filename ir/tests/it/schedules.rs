//! Schedules: what the families are, that they are right, and what wrong ones are told.

mod defects;
mod families;
mod files;
mod grids;
mod laws;
mod passes;
mod played;
mod pytorch;
