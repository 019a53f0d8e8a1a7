//! The functions of the driver, of cuBLASLt and of NCCL, under their names.
//!
//! Each call is written down (`recording`), memory is memory of the host, copies copy, and kernels
//! are looked up and not run. All that is given to a stream has ended at once, so a program that is
//! not ordered well runs as well as any here; what is wrong with it is in the report.
//!
//! C libraries have no place for their state but a global one. It is made when it is first needed,
//! and locked by each call.
#![expect(clippy::cast_possible_wrap, reason = "C counts devices and ranks in signed numbers")]

mod call;
mod codes;
mod comms;
mod config;
mod context;
mod copies;
mod cublas;
mod descriptors;
mod device;
mod failures;
mod kernels;
mod loaded;
mod memory;
mod nccl;
mod post;
mod queue;
mod snapshots;
mod space;
mod state;
mod streams;
mod task;
mod windows;
