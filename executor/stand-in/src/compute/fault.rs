//! What ends a launch.

use std::fmt;

/// Why a kernel is not decoded, or does not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// An instruction is not known here.
    Unknown(String),
    /// A thread read or wrote where it may not.
    Access {
        /// What it tried.
        what: &'static str,
        /// Of which memory.
        space: &'static str,
        /// Where.
        address: u64,
        /// How many bytes.
        bytes: usize,
        /// By which instruction.
        instruction: String,
        /// In which block.
        block: [u32; 3],
        /// Which thread of the block.
        thread: u32,
    },
    /// Threads wait for others that do not come.
    Deadlock {
        /// In which block.
        block: [u32; 3],
        /// Where the first of those that wait is.
        instruction: String,
    },
    /// A warp goes on and on.
    Endless {
        /// In which block.
        block: [u32; 3],
        /// Where it is.
        instruction: String,
    },
    /// An instruction is used as it must not be used.
    Misuse {
        /// What is wrong with it.
        what: &'static str,
        /// In which block.
        block: [u32; 3],
        /// Which it is.
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
