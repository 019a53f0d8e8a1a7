//! The functions of the driver, of cuBLASLt and of NCCL, under their names.
//!
//! Each call is written down (`recording`), memory is memory of the host, copies copy, and kernels
//! are looked up, and computed if that is asked for. All that is given to a stream is done at once,
//! unless it must wait for another rank ([`queue`]), so a program that is not ordered well runs as
//! well as any here; what is wrong with it is in the report.
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
mod lines;
mod loaded;
mod memory;
mod nccl;
mod post;
mod queue;
mod rows;
mod running;
mod snapshots;
mod space;
mod state;
mod streams;
mod task;
mod times;
mod windows;
