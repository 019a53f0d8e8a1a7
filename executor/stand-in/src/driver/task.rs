//! One thing that a stream has to do.

use std::sync::Arc;

use super::call::Outcome;
use super::codes::Code;
use super::copies::Rows;
use super::post::Post;
use super::queue::Moment;
use super::state::State;
use super::windows::Windows;
use crate::compute::{self, Fault, Grid, Program};
use crate::product::{Operands, Product};
use crate::recording::{Access, Range};

/// One thing that a stream has to do.
pub(super) enum Task {
    /// To wait for others.
    After(Vec<Moment>),
    /// A kernel, which is computed.
    Launch {
        name: Arc<str>,
        program: Result<Arc<Program>, Fault>,
        grid: Grid,
        params: Vec<u8>,
        accesses: Vec<Access>,
    },
    /// A product of matrices, which is computed.
    Product(Box<(Product, Operands)>),
    Copy(Rows),
    Fill {
        range: Range,
        value: u8,
    },
    Free(u64),
    /// What NCCL starts as one for a communicator.
    Exchange {
        comm: usize,
        posts: Vec<Post>,
    },
}

/// Whether something has been done.
pub(super) enum Ran {
    Done,
    Later(Task),
}

impl Task {
    /// Does it, if it can be done.
    pub(super) fn run(self, state: &mut State) -> Result<Ran, Code> {
        match self {
            Self::After(moments) => {
                if !moments.iter().all(|moment| state.queues.is_past(*moment)) {
                    return Ok(Ran::Later(Self::After(moments)));
                }
            }
            Self::Launch { name, program, grid, params, accesses } => {
                let outcome = program.and_then(|program| {
                    let mut global = Windows::new(accesses, &state.space);
                    compute::run(&program, &grid, &params, &mut global)
                });
                if let Err(fault) = outcome {
                    state.misuse(format!("{name}: {fault}"));
                    return Err(Code::LAUNCH_FAILED);
                }
            }
            Self::Product(what) => {
                let (product, operands) = *what;
                super::cublas::compute(&product, &operands);
            }
            Self::Copy(rows) => rows.copy(),
            Self::Fill { range, value } => state.space.fill(range, value),
            Self::Free(start) => give_back(state, start)?,
            Self::Exchange { comm, mut posts } => {
                let is_done = posts.iter_mut().map(|post| post.advance(state)).collect::<Vec<_>>();
                for outcome in &is_done {
                    (*outcome)?;
                }
                if is_done.contains(&Ok(false)) {
                    return Ok(Ran::Later(Self::Exchange { comm, posts }));
                }
            }
        }
        Ok(Ran::Done)
    }
}

fn give_back(state: &mut State, start: u64) -> Outcome {
    state.space.free(start).map(drop)
}
