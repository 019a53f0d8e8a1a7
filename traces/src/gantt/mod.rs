//! A timeline as a Gantt chart: ranks down, time across.
//!
//! Boxes are passes of micro-batches with their numbers; what overlaps on a rank is drawn at half
//! height, one above the other. Other streams lie in thin lanes below their rank, memory in a panel
//! below all ranks. Where events are too narrow to be seen one by one, bars in columns of some pixels say
//! what share of their time goes to what, so a picture's size does not depend on the number of events.

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
