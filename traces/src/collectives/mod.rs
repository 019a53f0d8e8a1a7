//! Collective operations as pictures: the buffers of all ranks before, between and after.
//!
//! A picture is as wide as needed, at most as its paper.
//!
//! Pictures are computed: every state is a set of contributions, and the ring algorithms are run on them.
//!
//! # Source
//!
//! Rings: Patarasuk and Yuan 2009, *Bandwidth optimal all-reduce algorithms for clusters of
//! workstations*, sections 3 and 4; Thakur, Rabenseifner and Gropp 2005, *Optimization of Collective
//! Communication Operations in MPICH*, section 4.

mod chart;
mod contents;
mod operation;
mod ring;

pub use chart::{draw, draw_ring};
pub use contents::{BufferContents, InputChunk};
pub use operation::Operation;
pub use ring::{Ring, RingStep, Send};
