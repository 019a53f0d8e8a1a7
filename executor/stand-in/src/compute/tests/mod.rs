//! Kernels, computed, against arithmetic on paper and of the processor.

mod bench;
mod instructions;
mod matrices;
mod threads;
