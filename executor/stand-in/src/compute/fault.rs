//! Faults, which end a launch.

use std::fmt;

/// Reason why a kernel is not decoded or does not finish.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// An instruction is unknown.
    Unknown(String),
    /// A thread read or wrote outside of its memory, or unaligned.
    Access {
        /// The access: reads or writes.
        what: &'static str,
        /// The state space.
        space: &'static str,
        /// The address.
        address: u64,
        /// Number of bytes.
        bytes: usize,
        /// The instruction.
        instruction: String,
        /// The block.
        block: [u32; 3],
        /// The thread's number in the block.
        thread: u32,
    },
    /// Threads wait for others that never arrive.
    Deadlock {
        /// The block.
        block: [u32; 3],
        /// The instruction at which the first of them waits.
        instruction: String,
    },
    /// A warp exceeds the limit of instructions.
    Endless {
        /// The block.
        block: [u32; 3],
        /// The warp's current instruction.
        instruction: String,
    },
    /// An instruction is used in an undefined way.
    Misuse {
        /// The error.
        what: &'static str,
        /// The block.
        block: [u32; 3],
        /// The instruction.
        instruction: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => write!(f, "`{text}` is not known"),
            Self::Access { what, space, address, bytes, instruction, block, thread } => write!(
                f,
                "thread {thread} of block {block:?} {what} {bytes} bytes of {space} memory at \
                 {address:#x}, by `{instruction}`"
            ),
            Self::Deadlock { block, instruction } => {
                write!(f, "threads of block {block:?} wait in vain at `{instruction}`")
            }
            Self::Endless { block, instruction } => {
                write!(f, "a warp of block {block:?} comes to no end, at `{instruction}`")
            }
            Self::Misuse { what, block, instruction } => {
                write!(f, "{what}, in block {block:?} by `{instruction}`")
            }
        }
    }
}
