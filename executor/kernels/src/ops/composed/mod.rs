//! Operators composed of burn's operations, one after another, which a backend may replace.
//!
//! [`Kernels`](super::Kernels) falls back on these operators, and the functions of [`ops`](super) call the methods of
//! `Kernels`. So the types of arguments and results are defined here, below both.

pub(crate) mod activation;
pub(crate) mod adamw;
pub(crate) mod attention;
pub(crate) mod embedding;
pub(crate) mod experts;
pub(crate) mod loss;
pub(crate) mod norm;
pub(crate) mod rotary;
