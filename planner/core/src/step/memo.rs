//! Memoised values, shared by threads.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Values by the key that they were made from.
#[derive(Debug)]
pub struct Memo<K, V>(Mutex<BTreeMap<K, V>>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, V: Clone> Memo<K, V> {
    /// The value of `key`, made if it is not there. Two threads may both make it: neither waits for the other.
    pub fn get(&self, key: K, make: impl FnOnce() -> V) -> V {
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all().get(&key).cloned();
        known.unwrap_or_else(|| {
            let made = make();
            all().insert(key, made.clone());
            made
        })
    }
}
