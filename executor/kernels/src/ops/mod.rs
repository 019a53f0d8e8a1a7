//! The mathematics of the operators: forward passes and gradients, each written out by hand.
//!
//! Plain functions of arrays. They save nothing, send nothing and know no plan: the saved arrays of a backward pass are
//! arguments, and where ranks communicate in the middle of an operator, its parts are separate functions. An input
//! gradient and a weight gradient are separate functions, so that a schedule can run them apart.
//!
//! Shapes stand in brackets: `b` sequences of `s` positions, `t` keys, `d` features of a head.
//!
//! Results have the element type of the inputs. Functions that are not linear, and all sums of statistics, are computed
//! in fp32 at least, see [`Array::widened`].

#![expect(
    clippy::needless_pass_by_value,
    reason = "an array is a handle that is handed over, so that whoever is last may work in its memory"
)]

#[cfg(doc)]
use crate::array::Array;

pub mod activation;
pub mod attention;
mod backend;
pub(crate) mod composed;
pub mod conv;
pub mod dropout;
pub mod embedding;
pub mod experts;
pub mod kernels;
pub mod linear;
pub mod loss;
pub mod norm;
pub mod pool;
pub mod recurrence;
pub mod rotary;
pub mod short_convolution;

pub use backend::Kernels;
pub use composed::adamw::AdamW;
pub use kernels::BasicKernels;
