//! Emulation of kernels from their PTX.
//!
//! A [`DecodedKernel`] is a kernel's decoded text. [`run`] executes it for a grid, block by block. The threads of a
//! warp execute together while they are at the same instruction; where they diverge, those at the earliest instruction
//! go first, so that the warp reconverges as early as possible. At barriers and warp-synchronous instructions threads
//! wait for each other as CUDA defines.
//!
//! Unknown code is an error: a program with an unknown instruction is not decoded, and a thread that reads or writes
//! outside of its memory ends the launch.
//!
//! # Source
//!
//! NVIDIA, *PTX ISA* 8.8, sections 9.7 ("Instructions") and 5 ("State Spaces, Types, and Variables").

mod access;
mod block;
mod decode;
mod fault;
mod fragment;
mod function;
mod hazard;
mod lanes;
mod program;
mod registers;
mod space;
#[cfg(test)]
mod tests;
mod together;
mod warp;

pub use block::{Grid, run};
pub use fault::Fault;
pub use program::{DecodedKernel, Tf32};
pub use space::Global;
