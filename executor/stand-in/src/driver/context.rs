//! Which device a thread uses.

use std::cell::Cell;

use super::codes::Code;

thread_local! {
    /// The device whose context the thread uses.
    pub(super) static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The device of the thread's context.
pub(super) fn current() -> Result<u32, Code> {
    CURRENT.get().ok_or(Code::INVALID_CONTEXT)
}
