//! Operators that a backend may do better, in burn's operations one after another.
//!
//! [`Kernels`](super::Kernels) falls back on these, and the functions of [`ops`](super) call its methods:
//! what they measure and are told is defined here, below both.

pub(crate) mod activation;
pub(crate) mod adamw;
pub(crate) mod attention;
pub(crate) mod experts;
pub(crate) mod loss;
pub(crate) mod norm;
pub(crate) mod rotary;
