//! What a backend may compute better than burn's operations one after another.

use burn::tensor::backend::Backend;
use burn_flex::Flex;

/// A backend that the operators run on.
///
/// Every method has a composition of burn's operations as its default, so a backend needs no more than
/// `impl Kernels for ..`.
pub trait Kernels: Backend {}

impl Kernels for Flex {}
