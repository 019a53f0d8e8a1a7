//! Experts: choice of experts, sorting of rows, and a product with each expert's matrix. Counts stay on the device, so
//! that the host does not wait for them.

mod choose;
mod cores;
mod products;
mod rows;
mod sort;
mod tiles;

pub(super) use self::choose::{choose, most_experts};
pub(super) use self::products::{matmul, outer};
pub(super) use self::rows::{gather, probability_grad, products as choice_products};
pub(super) use self::sort::{count, sort};
