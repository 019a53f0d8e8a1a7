//! Primary contexts, and the current one of a thread.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::codes::Code;

thread_local! {
    /// The device whose context is current on the thread.
    pub(super) static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The number of users of each device's primary context. When the last user releases the context, it is destroyed.
static USERS: Mutex<BTreeMap<u32, u32>> = Mutex::new(BTreeMap::new());

/// Adds a user to a device's primary context.
pub(super) fn retain(device: u32) {
    *USERS.lock().unwrap_or_else(PoisonError::into_inner).entry(device).or_default() += 1;
}

/// Removes a user from a device's primary context.
pub(super) fn release(device: u32) -> Result<(), Code> {
    let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
    let users = users.get_mut(&device).filter(|users| **users > 0);
    *users.ok_or(Code::INVALID_CONTEXT)? -= 1;
    Ok(())
}

/// Returns whether a device's primary context exists.
fn is_active(device: u32) -> bool {
    USERS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&device)
        .is_some_and(|users| *users > 0)
}

/// The device of the thread's context.
pub(super) fn current() -> Result<u32, Code> {
    let device = CURRENT.get().ok_or(Code::INVALID_CONTEXT)?;
    if is_active(device) { Ok(device) } else { Err(Code::CONTEXT_IS_DESTROYED) }
}
