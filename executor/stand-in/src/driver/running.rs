//! Execution of single tasks.

use super::codes::Code;
use super::cublas;
use super::state::State;
use super::task::Task;
use super::windows::Windows;
use crate::compute;

/// Outcome of a task: done, or to be tried later.
pub(super) enum Ran {
    Done,
    Later(Task),
}

/// Executes a task, if it can be executed.
pub(super) fn run(task: Task, state: &mut State) -> Result<Ran, Code> {
    match task {
        Task::After(moments) => {
            if !moments.iter().all(|moment| state.queues.is_past(*moment)) {
                return Ok(Ran::Later(Task::After(moments)));
            }
        }
        Task::Launch { name, program, grid, params, accesses } => {
            let outcome = program.and_then(|program| {
                let mut global = Windows::new(accesses, &state.space);
                compute::run(&program, &grid, &params, &mut global)
            });
            if let Err(fault) = outcome {
                state.misuse(format!("{name}: {fault}"));
                return Err(Code::LAUNCH_FAILED);
            }
        }
        Task::Product(what) => {
            let (product, operands) = *what;
            cublas::compute(&product, &operands);
        }
        Task::Copy(rows) => rows.copy(),
        Task::Free(start) => state.space.free(start)?,
        Task::Exchange { comm, mut posts } => {
            let is_done =
                posts.iter_mut().map(|post| post.advance(&state.space)).collect::<Vec<_>>();
            for outcome in &is_done {
                (*outcome)?;
            }
            if is_done.contains(&Ok(false)) {
                return Ok(Ran::Later(Task::Exchange { comm, posts }));
            }
        }
    }
    Ok(Ran::Done)
}
