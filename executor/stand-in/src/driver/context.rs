//! The current device of a thread.

use std::cell::Cell;

use super::codes::Code;

thread_local! {
    /// The device whose context is current on the thread.
    pub(super) static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The device of the thread's context.
pub(super) fn current() -> Result<u32, Code> {
    CURRENT.get().ok_or(Code::INVALID_CONTEXT)
}
