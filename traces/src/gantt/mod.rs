//! A timeline as a Gantt chart: ranks down, time across.
//!
//! Boxes are passes of micro-batches with their numbers; overlapping ones on a rank are drawn at half height, one above
//! the other. Other streams are thin lanes below their rank, memory is a panel below all ranks. Where events are too
//! narrow to be seen one by one, bars in columns of some pixels show their shares of time, so the size of a picture
//! does not depend on the number of events.

mod boxes;
mod chart;
mod columns;
mod evenly;
mod memory;
mod options;
mod panel;
mod placed;
mod row;

pub use chart::draw;
pub use options::{GanttOptions, TimeAxis, Visibility, Window};
