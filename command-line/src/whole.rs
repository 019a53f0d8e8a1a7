//! Files that are whole even where a signal ends the program.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held while a file is written.
static WRITING: Mutex<()> = Mutex::new(());

/// Keeps whoever handles signals from ending the program until what is returned is dropped.
pub fn writing() -> MutexGuard<'static, ()> {
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}
