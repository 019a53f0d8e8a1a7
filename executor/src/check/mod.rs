//! Checks of a device: its speed, and the correctness of its results.
//!
//! Every part has a deadline and reports each [`CheckFinding`] at once, so that findings remain where a device
//! fails or time runs out.

mod finding;
mod kernels;
mod layouts;
mod model;
mod products;
mod sheet;
mod speeds;

pub use finding::{CheckFinding, Verdict, caught, first_line};
pub use kernels::{elements, kernels};
pub use layouts::{LAYOUTS, layouts, layouts_of_ranks};
pub use model::{CheckedModel, MODELS, model};
pub use products::products;
pub use sheet::{recognised, share};
pub use speeds::speeds;
