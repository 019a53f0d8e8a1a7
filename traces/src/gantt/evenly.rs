//! Evenly spaced selection.

/// At most `most` items, evenly spaced, including the first and the last; at least these two.
pub(super) fn evenly<T: Copy>(all: &[T], most: u32) -> Vec<T> {
    let count = all.len().min(most.max(2) as usize);
    let (last, steps) = (all.len().saturating_sub(1), count.saturating_sub(1).max(1));
    (0..count).map(|index| all[(index * last + steps / 2) / steps]).collect()
}
