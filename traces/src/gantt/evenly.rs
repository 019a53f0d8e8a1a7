//! Some of many, evenly apart.

/// At most `most` of all items, evenly apart, the first and the last among them; at least these two.
pub(super) fn evenly<T: Copy>(all: &[T], most: u32) -> Vec<T> {
    let count = all.len().min(most.max(2) as usize);
    let (last, steps) = (all.len().saturating_sub(1), count.saturating_sub(1).max(1));
    (0..count).map(|index| all[(index * last + steps / 2) / steps]).collect()
}
