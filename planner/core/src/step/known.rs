//! What was made once and is asked for again, from several threads.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Values by what they were made from.
#[derive(Debug)]
pub struct Known<K, V>(Mutex<BTreeMap<K, V>>);

impl<K, V> Default for Known<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, V: Clone> Known<K, V> {
    /// The value of `key`, made where it is not known; twice, rather than that one thread waits for another.
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
