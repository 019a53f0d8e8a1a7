//! What a device can do with this program: how fast it is, and whether what it computes is right.
//!
//! Every part is told a [`Deadline`] and tells a [`CheckFinding`] as soon as it has one, so that what was found
//! remains where a device fails or time runs out.

mod finding;
mod kernels;
mod layouts;
mod model;
mod products;
mod sheet;
mod speeds;

pub use finding::{CheckFinding, Deadline, Verdict, caught, first_line};
pub use kernels::{elements, kernels};
pub use layouts::{LAYOUTS, layouts, layouts_of_ranks};
pub use model::{CheckedModel, MODELS, model};
pub use products::products;
pub use sheet::{recognised, share};
pub use speeds::speeds;
