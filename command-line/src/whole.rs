//! Protection of files against signals that would end the program while they are written.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock that is held while a file is written.
static WRITING: Mutex<()> = Mutex::new(());

/// Prevents the signal handler from ending the program until the returned guard is dropped.
pub fn writing() -> MutexGuard<'static, ()> {
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}
