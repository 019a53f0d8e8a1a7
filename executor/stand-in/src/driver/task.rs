//! Tasks of streams.

use std::sync::Arc;

use super::post::Post;
use super::rows::Rows;
use crate::compute::{DecodedKernel, Fault, Grid};
use crate::product::{Operands, Product};
use crate::recording::{Access, StreamId};

/// A task of a stream.
pub(super) enum Task {
    /// A wait for points of other streams.
    After(Vec<Moment>),
    /// A kernel to compute.
    Launch {
        name: Arc<str>,
        program: Result<Arc<DecodedKernel>, Fault>,
        grid: Grid,
        params: Vec<u8>,
        accesses: Vec<Access>,
    },
    /// A product of matrices to compute.
    Product(Box<(Product, Operands)>),
    Copy(Rows),
    Free(u64),
    /// The calls of NCCL that start as one for a communicator.
    Exchange {
        comm: usize,
        posts: Vec<Post>,
    },
}

impl Task {
    /// The task as text.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::After(moments) => {
                let one =
                    |moment: &Moment| format!("{} of stream {}", moment.count, moment.stream.0);
                format!("after {}", moments.iter().map(one).collect::<Vec<_>>().join(" and "))
            }
            Self::Launch { name, .. } => name.to_string(),
            Self::Product(_) => "a product".to_owned(),
            Self::Copy(_) => "a copy".to_owned(),
            Self::Free(_) => "a free".to_owned(),
            Self::Exchange { comm, posts } => {
                let posts = posts.iter().map(Post::describe).collect::<Vec<_>>();
                format!("for {comm:#x} {}", posts.join(" and "))
            }
        }
    }
}

/// A point of a stream, after its first `count` tasks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) stream: StreamId,
    pub(super) count: u64,
}
