//! Decoded kernels.

use super::fragment::{Fragment, Multiply};
use super::function::Function;

/// Number of a register of a thread. Constants and special registers (thread and block numbers) are registers too.
pub(super) type Register = usize;

/// Treatment of TF32 operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tf32 {
    /// Rounded to TF32, as on a GPU.
    Rounded,
    /// Kept in binary32, which separates a kernel's errors from effects of rounding.
    Exact,
}

/// A decoded kernel.
pub struct DecodedKernel {
    pub(super) instructions: Vec<Decoded>,
    /// Number of registers.
    pub(super) num_registers: usize,
    /// Registers that hold constants, with their values.
    pub(super) constants: Vec<(Register, u64)>,
    /// Registers that hold thread or block numbers.
    pub(super) specials: Vec<(Register, Special)>,
    /// Bytes of static shared memory.
    pub(super) shared_bytes: u64,
    /// Bytes of local memory of each thread.
    pub(super) local_bytes: u64,
    /// Offset and size in bytes of each parameter.
    pub(super) params: Vec<(usize, usize)>,
}

/// An instruction.
pub(super) struct Decoded {
    /// The guard predicate, and true where the instruction executes if the predicate is unset.
    pub(super) guard: Option<(Register, bool)>,
    pub(super) operation: Operation,
    /// The instruction's PTX.
    pub(super) text: String,
}

/// A special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Special {
    Thread(usize),
    NumThreads(usize),
    Block(usize),
    NumBlocks(usize),
    Lane,
    Warp,
    NumWarps,
    /// Masks of lanes relative to the own lane: before it, up to it, after it, from it on, and the lane alone.
    MaskBelow,
    MaskUpTo,
    MaskAbove,
    MaskFrom,
    MaskOfLane,
    DynamicShared,
}

/// State space of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// The upper bits of the address give the space.
    Generic,
    Global,
    Shared,
    Local,
    Param,
}

/// A base register and an offset.
#[derive(Clone, Copy)]
pub(super) struct Address {
    pub(super) base: Register,
    pub(super) offset: i64,
}

/// The new value of an atomic update, from the old value and two operands.
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
    /// From global to shared memory; bytes after the given ones are filled with zeros.
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
    /// The mask of active threads.
    Active(Register),
    Together {
        members: Register,
        what: Together,
    },
    Nothing,
}

/// The source lane of a shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// Vote over a predicate of the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
    /// The mask of lanes with the same value.
    MatchAny,
}

/// A warp-synchronous operation.
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
    /// The reduction of all lanes' values by a binary function.
    Reduce {
        change: Change,
        dest: Register,
        value: Register,
    },
    /// The first of the members, and a predicate that is true in that member.
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

impl DecodedKernel {
    /// Offset and size in bytes of each parameter.
    pub fn params(&self) -> &[(usize, usize)] {
        &self.params
    }
}
