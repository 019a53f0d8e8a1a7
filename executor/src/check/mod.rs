//! What a device can do with this program: how fast it is, and whether what it computes is right.
//!
//! Every part is told a [`Deadline`] and tells a [`Finding`] as soon as it has one, so that what was found
//! remains where a device fails or time runs out.

mod case;
mod comparison;
mod finding;
mod kernels;
mod layouts;
mod model;
mod numbers;
mod products;
mod sheet;
mod speeds;
mod trials;

pub use case::{AdapterCase, parts, source};
pub use case::{Case, GLOBAL_BATCH_SIZE, GPT, LLAMA, MIXTRAL, NUM_STEPS, ONE, SEQUENCE_LENGTH};
pub use comparison::{Comparison, compare, error};
pub use finding::{Deadline, Finding, Verdict, caught, first_line};
pub use kernels::{elements, kernels};
pub use layouts::{LAYOUTS, layouts, layouts_of_ranks};
pub use model::{CheckedModel, MODELS, model};
pub use numbers::{Plain, random, random_indices};
pub use products::products;
pub use sheet::{recognised, share};
pub use speeds::speeds;
pub use trials::{
    Activations, Attend, AttentionSizes, CrossEntropy, MixtureSizes, Norms, Product, Rotations,
    Squares, ToExperts, Trial, Update,
};
