//! A step as a graph of tasks: the computation and exchanges of every rank, with their dependencies.
//!
//! The simulator runs a step with times for everything. The graph is for tools that time exchanges themselves, such as
//! network simulators: the same parts of the same passes in the same order, without times of waiting. Where the
//! simulator waits, a task depends on another.

mod build;
mod exchanges;
mod task;

use super::work::{Builder, Step};
use build::RankTasks;
pub use task::{Members, Peer, Task, TaskId, TaskKind, TasksError};

impl Step<'_> {
    /// Tasks of each pipeline rank, in an order in which it could run them one after the other.
    ///
    /// Exchanges of a rank follow each other, so that no two ranks begin two exchanges in different orders. Kernels
    /// have their time with nothing overlapped. So has an exchange whose pieces overlap those of a kernel; it is one
    /// task here.
    ///
    /// # Errors
    ///
    /// Replicas whose exchanges are not collectives, and a vocabulary that is sharded over pipeline ranks.
    pub fn tasks(&self) -> Result<Vec<Vec<Task>>, TasksError> {
        self.check_transparent()?;
        let order = simulator::Order::new(&self.schedule()?);
        let parts = self.assignment.parts();
        let builder = Builder::new(self.assignment, &self.layout);
        let of_rank = |rank: usize| {
            let parts = &parts[self.assignment.groups[rank]];
            RankTasks::new(self, &builder, parts, &order, rank).all()
        };
        Ok((0..order.ranks().len()).map(of_rank).collect())
    }

    fn check_transparent(&self) -> Result<(), TasksError> {
        let Some(what) = Builder::new(self.assignment, &self.layout).any_replicas().opaque() else {
            return Ok(());
        };
        let works = "a plan with `--data-parallel-method all-reduce` and gradients as they are";
        Err(TasksError::Opaque { what, works })
    }
}
