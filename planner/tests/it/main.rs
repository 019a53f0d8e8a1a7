//! Promises of the planner, seen from outside.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod accuracy;
mod agents;
mod agreement;
mod bad_input;
mod bad_plans;
mod calibration;
mod chakra;
mod charts;
#[path = "../../core/tests/it/checks.rs"]
mod checks;
mod choosing;
#[path = "../../../traces/tests/browser/chromium.rs"]
mod chromium;
mod cli;
mod commands;
mod context;
mod destinations;
mod documents;
mod documents_of_many_lengths;
mod expert_load;
mod families;
mod given_schedules;
mod golden;
mod help;
mod interchange;
mod interrupted;
mod lint;
mod lint_files;
mod lint_tools;
mod measured_network;
mod measured_profiles;
mod megatron_memory;
mod mistakes;
mod names;
mod offload;
mod operators;
mod overwriting;
mod questions;
#[path = "../../core/tests/it/random.rs"]
mod random;
mod recompute;
mod report;
mod round_trips;
mod running;
mod schedule_commands;
mod scripts;
mod settings;
mod simulate_commands;
mod stages;
mod systems;
mod tools_read;
mod topologies;
mod training_runs;
mod unlike_gpus;
mod unprintable;
mod validation;
