//! Computes what kernels compute, from their text.
//!
//! A [`Program`] is a kernel's text, decoded once. [`run`] takes it through a grid, block
//! by block. The threads of a warp go on together as long as they are at the same place; where they
//! part, those who are farthest behind go first, so that they meet again as soon as they can. At a
//! barrier, and where lanes of a warp work together, threads wait for each other as CUDA says.
//!
//! What is not known is not passed over: a program with an instruction that is not known here cannot
//! be decoded, and a thread that reads or writes where it may not ends the launch.
//!
//! # Source
//!
//! NVIDIA, *PTX ISA* 8.8, sections 9.7 ("Instructions") and 5 ("State Spaces, Types, and
//! Variables").

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
pub use program::{Program, Tf32};
pub use space::Global;
