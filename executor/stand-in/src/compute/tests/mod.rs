//! Tests of emulated kernels against the host's arithmetic and results worked out by hand.

mod bench;
mod instructions;
mod matrices;
mod threads;
