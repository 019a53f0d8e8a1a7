//! Locks that outlive panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What `mutex` guards, which no code that can panic leaves half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
