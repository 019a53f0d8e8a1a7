//! Layouts: the distribution of a step over GPUs.
//!
//! A [`Layout`] value is valid: it is checked against model, batch and number of GPUs when it is made. The order of
//! ranks is defined in one place, [`Mesh::stride`].

mod by_group;
mod choice;
mod error;
mod fields;
mod limits;
mod mesh;
mod offload;
mod parse;
mod partial;
mod spec;
mod zero;

use std::fmt;
use std::ops::Deref;

pub use by_group::{MOST_GROUPS, MicroBatchesByGroup};
pub use choice::{Choice, ParseDegreesError};
pub use error::{LayoutError, largest_divisor, multiples_around};
pub use fields::{Arity, Field};
pub use limits::Limits;
pub use mesh::{Mesh, MeshAxis, common_divisor};
pub use offload::{Offload, OffloadedActivations, ParseOffloadError};
pub use parse::ParseLayoutError;
pub use spec::{LayoutSpec, PartialLayout};
pub use zero::ZeroStage;

/// A layout that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layout(LayoutSpec);

impl Deref for Layout {
    type Target = LayoutSpec;

    fn deref(&self) -> &LayoutSpec {
        &self.0
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Layout {
    /// Checks `spec` against model, GPUs and batch.
    ///
    /// # Errors
    ///
    /// The first requirement that is not met, with the numbers.
    pub fn new(spec: LayoutSpec, limits: &Limits) -> Result<Self, LayoutError> {
        limits.check(&spec)?;
        Ok(Self(spec))
    }

    /// The layout of the replicas in a group of GPUs, as if all replicas had that group's number of micro-batches.
    #[must_use]
    pub fn of_group(&self, group: usize) -> Self {
        Self(self.0.of_group(group))
    }

    /// Stages of all pipeline ranks together. [`ScheduleKind::placement`](crate::schedule::ScheduleKind::placement)
    /// maps stages to ranks.
    pub fn num_stages(&self) -> u32 {
        self.pipeline_parallel * self.virtual_stages
    }
}
