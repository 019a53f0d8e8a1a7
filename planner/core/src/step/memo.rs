//! Memoised values, shared by threads.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Cache of values by the key from which they are computed.
#[derive(Debug)]
pub struct Memo<K, V>(Mutex<BTreeMap<K, V>>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, V: Clone> Memo<K, V> {
    /// The value of `key`, computed if it is not cached. Two threads may both compute it: neither waits for the other.
    pub fn get(&self, key: K, make: impl FnOnce() -> V) -> V {
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all().get(&key).cloned();
        known.unwrap_or_else(|| {
            let made = make();
            all().insert(key, made.clone());
            made
        })
    }

    /// The value of `key`, computed together with those of other keys if it is not cached.
    ///
    /// # Panics
    ///
    /// If `make` leaves out the key.
    pub fn get_with_others<I: IntoIterator<Item = (K, V)>>(
        &self,
        key: &K,
        make: impl FnOnce() -> I,
    ) -> V {
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all().get(key).cloned();
        known.unwrap_or_else(|| {
            let made = make();
            let mut all = all();
            all.extend(made);
            all[key].clone()
        })
    }
}
