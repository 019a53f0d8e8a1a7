//! Answers to what people ask next: what one plan gains over another, why something is not chosen, how long a
//! sequence may be, how large a batch should be, what a whole run takes, and what would change the choice.

mod difference;
mod front;
mod limits;
mod sensitivity;
mod training_run;
mod why_not;

pub use difference::depends_on;
pub use difference::{Difference, MemoryDifference, TermDifference};
pub use front::{FrontPoint, cheapest_number_of_gpus, front, least_memory};
pub use limits::{BatchPoint, batches, longest_sequence};
pub use sensitivity::{Sensitivity, sensitivities};
pub use training_run::{Failures, Prices, TrainingRun, TrainingRunError};
pub use why_not::{WhyNot, why_not};
