//! A kernel's text, decoded.

use super::fragment::{Fragment, Multiply};
use super::function::Function;

/// Which register, of all that a thread has. Numbers that stand in the text, and those of the
/// thread and of its block, are registers too.
pub(super) type Register = usize;

/// What is taken for a number of TF32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tf32 {
    /// One of TF32, as on a GPU.
    Rounded,
    /// All of binary32, so that what a kernel computes can be told from how it rounds.
    Exact,
}

/// A kernel's text, decoded.
pub struct Program {
    pub(super) instructions: Vec<Decoded>,
    /// How many registers there are.
    pub(super) num_registers: usize,
    /// Registers that hold a number that stands in the text.
    pub(super) constants: Vec<(Register, u64)>,
    /// Registers that hold a number of the thread or of its block.
    pub(super) specials: Vec<(Register, Special)>,
    /// Bytes of shared memory that the text names, without what the launch gives.
    pub(super) shared_bytes: u64,
    /// Bytes of its own that each thread has in memory.
    pub(super) local_bytes: u64,
    /// Where each parameter begins, and how many bytes it has.
    pub(super) params: Vec<(usize, usize)>,
}

/// An instruction.
pub(super) struct Decoded {
    /// The predicate on which it hangs, and whether it must be unset.
    pub(super) guard: Option<(Register, bool)>,
    pub(super) operation: Operation,
    /// As it stands in the kernel.
    pub(super) text: String,
}

/// A number of the thread or of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Special {
    Thread(usize),
    NumThreads(usize),
    Block(usize),
    NumBlocks(usize),
    Lane,
    Warp,
    NumWarps,
    /// Those before it, up to it, behind it, and from it on; and itself alone.
    MaskBelow,
    MaskUpTo,
    MaskAbove,
    MaskFrom,
    MaskOfLane,
    DynamicShared,
}

/// Which memory an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// The address says it itself.
    Generic,
    Global,
    Shared,
    Local,
    Param,
}

/// A register and what is added to it.
#[derive(Clone, Copy)]
pub(super) struct Address {
    pub(super) base: Register,
    pub(super) offset: i64,
}

/// Reads what is at an address and writes what a function makes of that.
pub(super) type Change = Box<dyn Fn(u64, u64, u64) -> u64 + Send + Sync>;

pub(super) enum Operation {
    Compute {
        function: Function,
        dest: Register,
        sources: [Register; 4],
    },
    Load {
        space: Space,
        bytes: usize,
        is_signed: bool,
        dests: Vec<Register>,
        at: Address,
    },
    Store {
        space: Space,
        bytes: usize,
        sources: Vec<Register>,
        at: Address,
    },
    Atomic {
        space: Space,
        bytes: usize,
        change: Change,
        dest: Option<Register>,
        sources: [Register; 2],
        at: Address,
    },
    /// From global to shared memory, of which the rest is filled with zeros.
    Copy {
        bytes: usize,
        given: Option<Register>,
        to: Address,
        from: Address,
    },
    Branch(usize),
    Exit,
    Barrier {
        id: Register,
        count: Option<Register>,
    },
    /// Who is here with the thread.
    Active(Register),
    Together {
        members: Register,
        what: Together,
    },
    Nothing,
}

/// From which lane a lane takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What lanes find out by showing each other a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
    /// Who has the same value.
    MatchAny,
}

/// What lanes of a warp do together.
pub(super) enum Together {
    Wait,
    Shuffle {
        mode: Shuffle,
        dest: Register,
        is_valid: Option<Register>,
        value: Register,
        by: Register,
        clamp: Register,
    },
    Vote {
        mode: Vote,
        dest: Register,
        predicate: Register,
    },
    /// One of all, by a function of two.
    Reduce {
        change: Change,
        dest: Register,
        value: Register,
    },
    /// The least of the members, and whether the thread is that one.
    Elect {
        dest: Option<Register>,
        is_elected: Register,
    },
    LoadFragment {
        fragment: Fragment,
        space: Space,
        dests: Vec<Register>,
        at: Address,
        stride: Register,
    },
    StoreFragment {
        fragment: Fragment,
        space: Space,
        sources: Vec<Register>,
        at: Address,
        stride: Register,
    },
    Multiply {
        what: Multiply,
        d: Vec<Register>,
        a: Vec<Register>,
        b: Vec<Register>,
        c: Vec<Register>,
    },
    LoadRows {
        space: Space,
        is_transposed: bool,
        dests: Vec<Register>,
        at: Address,
    },
}

impl Program {
    /// Where each parameter begins, and how many bytes it has.
    pub fn params(&self) -> &[(usize, usize)] {
        &self.params
    }
}
