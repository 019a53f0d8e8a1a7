//! Visibility of keys, and computation of a score from a product.

use cubecl::prelude::*;

/// Finite replacement for a maximum of minus infinity. Lower than any score.
pub(super) const LOWEST: f32 = -1e30;

/// Threshold between hidden keys, which have lower values, and scores, which are higher.
pub(super) const LOW: f32 = -1e29;

/// Compile-time options of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Terms {
    pub(super) mask: Mask,
    pub(super) is_capped: bool,
    pub(super) has_slopes: bool,
}

impl Terms {
    /// Returns whether scores are scaled products and nothing else.
    pub(super) const fn is_plain(self) -> bool {
        !self.is_capped && !self.has_slopes
    }
}

/// Mask of the attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mask {
    Full,
    Causal,
    Window,
}

/// Scalars of a scoring, and positions of the queries.
#[derive(Clone, Copy, CubeType, CubeLaunch)]
pub(super) struct Numbers {
    pub(super) scale: f32,
    pub(super) cap: f32,
    /// Position of the first query minus that of the first key.
    pub(super) shift: i32,
    /// Number of positions that a query sees under a sliding window.
    pub(super) window: i32,
}

/// Returns whether query number `query` sees key number `key`.
#[cube]
pub(super) fn sees(query: usize, key: usize, numbers: &Numbers, #[comptime] terms: Terms) -> bool {
    let ahead = i32::cast_from(key) - i32::cast_from(query) - numbers.shift;
    match terms.mask {
        Mask::Full => true.runtime(),
        Mask::Causal => ahead <= 0,
        Mask::Window => ahead <= 0 && ahead + numbers.window > 0,
    }
}

/// The first of `keys` keys that is seen by query number `query` or one after it.
#[cube]
pub(super) fn first_key(
    query: usize,
    keys: usize,
    numbers: &Numbers,
    #[comptime] terms: Terms,
) -> usize {
    match terms.mask {
        Mask::Full | Mask::Causal => 0usize.runtime(),
        Mask::Window => within(i32::cast_from(query) + numbers.shift - numbers.window + 1, keys),
    }
}

/// End of the keys, at most `keys`, that are seen by query number `query` or one before it.
#[cube]
pub(super) fn end_of_keys(
    query: usize,
    keys: usize,
    numbers: &Numbers,
    #[comptime] terms: Terms,
) -> usize {
    match terms.mask {
        Mask::Full => keys,
        Mask::Causal | Mask::Window => within(i32::cast_from(query) + numbers.shift + 1, keys),
    }
}

/// The first of `queries` queries that sees key number `key` or one after it.
#[cube]
pub(super) fn first_query(
    key: usize,
    queries: usize,
    numbers: &Numbers,
    #[comptime] terms: Terms,
) -> usize {
    match terms.mask {
        Mask::Full => 0usize.runtime(),
        Mask::Causal | Mask::Window => within(i32::cast_from(key) - numbers.shift, queries),
    }
}

/// End of the queries, at most `queries`, that see key number `key` or one before it.
#[cube]
pub(super) fn end_of_queries(
    key: usize,
    queries: usize,
    numbers: &Numbers,
    #[comptime] terms: Terms,
) -> usize {
    match terms.mask {
        Mask::Full | Mask::Causal => queries,
        Mask::Window => within(i32::cast_from(key) - numbers.shift + numbers.window, queries),
    }
}

/// Returns whether every query from `first` to `last` sees `count` keys from `first_key` on, and all of them exist.
#[cube]
pub(super) fn is_whole(
    first: usize,
    last: usize,
    first_key: usize,
    #[comptime] count: usize,
    keys: usize,
    numbers: &Numbers,
    #[comptime] terms: Terms,
) -> bool {
    let last_key = first_key + count - 1;
    match terms.mask {
        Mask::Full => last_key < keys,
        Mask::Causal => last_key < keys && sees(first, last_key, numbers, terms),
        Mask::Window => {
            last_key < keys
                && sees(first, last_key, numbers, terms)
                && sees(last, first_key, numbers, terms)
        }
    }
}

/// A position clamped to `0..=count`.
#[cube]
fn within(place: i32, count: usize) -> usize {
    usize::cast_from(clamp(place, 0i32, i32::cast_from(count)))
}

/// The product scaled, and capped where there is a cap.
#[cube]
pub(super) fn capped(product: f32, numbers: &Numbers, #[comptime] terms: Terms) -> f32 {
    let scaled = product * numbers.scale;
    if terms.is_capped { numbers.cap * f32::tanh(scaled / numbers.cap) } else { scaled }
}

/// The slope of a head; zero where scores have no slopes.
#[cube]
pub(super) fn slope_of(slopes: &Array<f32>, head: usize, #[comptime] terms: Terms) -> f32 {
    if terms.has_slopes { slopes[head] } else { f32::new(0.0) }
}

/// The position bias of the score of a query and a key.
#[cube]
pub(super) fn bias(
    query: usize,
    key: usize,
    slope: f32,
    numbers: &Numbers,
    #[comptime] terms: Terms,
) -> f32 {
    if terms.has_slopes {
        let ahead = i32::cast_from(key) - i32::cast_from(query) - numbers.shift;
        slope * f32::cast_from(ahead)
    } else {
        f32::new(0.0)
    }
}

/// The gradient of the scaled product: `P (dP - delta)` times the slope of the cap. `capped` is the score after the
/// cap.
#[cube]
pub(super) fn score_grad(
    probability: f32,
    probability_grad: f32,
    delta: f32,
    capped: f32,
    numbers: &Numbers,
    #[comptime] terms: Terms,
) -> f32 {
    let grad = probability * (probability_grad - delta);
    if terms.is_capped {
        let share = capped / numbers.cap;
        grad * (1.0 - share * share)
    } else {
        grad
    }
}
