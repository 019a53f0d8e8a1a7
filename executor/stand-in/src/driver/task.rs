//! One thing that a stream has to do.

use std::sync::Arc;

use super::post::Post;
use super::rows::Rows;
use crate::compute::{Fault, Grid, Program};
use crate::product::{Operands, Product};
use crate::recording::{Access, Range, StreamId};

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

impl Task {
    /// What it is, in words.
    pub(super) fn told(&self) -> String {
        match self {
            Self::After(moments) => {
                let one =
                    |moment: &Moment| format!("{} of stream {}", moment.count, moment.stream.0);
                format!("after {}", moments.iter().map(one).collect::<Vec<_>>().join(" and "))
            }
            Self::Launch { name, .. } => name.to_string(),
            Self::Product(_) => "a product".to_owned(),
            Self::Copy(_) => "a copy".to_owned(),
            Self::Fill { .. } => "a fill".to_owned(),
            Self::Free(_) => "a free".to_owned(),
            Self::Exchange { comm, posts } => {
                let posts = posts.iter().map(Post::told).collect::<Vec<_>>();
                format!("for {comm:#x} {}", posts.join(" and "))
            }
        }
    }
}

/// All that a stream was given up to now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) stream: StreamId,
    pub(super) count: u64,
}
