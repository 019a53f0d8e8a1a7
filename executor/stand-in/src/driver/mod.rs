//! The functions of the driver, of cuBLASLt and of NCCL, under their names.
//!
//! Each call is recorded (`recording`). Device memory is memory of the host, and copies are executed. Kernels are
//! looked up, and computed if that is switched on. Work on a stream is done at once, unless it must wait for another
//! rank ([`queue`]). So a program with missing synchronisation runs here like a correct one; its errors are in the
//! report.
//!
//! C libraries can keep their state only in a global variable. It is created at first use, and locked by each call.
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
mod queues;
mod rows;
mod running;
mod snapshots;
mod space;
mod state;
mod streams;
mod task;
mod times;
mod windows;
