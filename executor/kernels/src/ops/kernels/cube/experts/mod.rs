//! Experts: which rows go to which, where rows lie then, and a product with each expert's matrix. Counts stay on the
//! device, so that nobody waits for it.

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
