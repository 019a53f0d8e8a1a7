//! Where nothing fits: the layout that misses by least.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use ir::layout::Layout;
use ir::units::Bytes;
use rayon::prelude::*;

use super::node::Searcher;
use super::space::Family;
use super::{Found, evaluated};

/// Families that go through between two looks at the closest so far.
const BATCH: usize = 8;

/// The layout whose fullest rank exceeds a GPU by least, of equals the smallest; `None` if there are no
/// layouts at all. Families are looked at in the order of what their fullest rank holds at least, until
/// that is more than the least that was found.
pub(super) fn closest(searcher: &Searcher<'_>, families: &[Family]) -> Option<Found> {
    let least = searcher.least_states(families);
    let mut queue: BinaryHeap<Reverse<(Bytes, usize)>> =
        least.into_iter().zip(0..).map(Reverse).collect();
    let mut best: Option<Misfit> = None;
    loop {
        let most = best.as_ref().map_or(Bytes::new(u64::MAX), |best| best.key.0);
        let batch: Vec<usize> = std::iter::from_fn(|| {
            let is_near = queue.peek().is_some_and(|Reverse((least, _))| *least <= most);
            is_near.then(|| queue.pop()).flatten().map(|Reverse((_, family))| family)
        })
        .take(BATCH)
        .collect();
        if batch.is_empty() {
            break;
        }
        let found: Vec<Option<Misfit>> = batch
            .into_par_iter()
            .map(|family| of_family(searcher, &families[family], most))
            .collect();
        best = found.into_iter().flatten().chain(best).min_by_key(|misfit| misfit.key);
    }
    best.map(|best| evaluated(searcher.problem, best.key.1, &best.ends))
}

/// A layout, and what its fullest rank holds.
struct Misfit {
    key: (Bytes, Layout),
    ends: Arc<[usize]>,
}

/// The layout of a family that holds least, if any holds no more than `most`.
fn of_family(searcher: &Searcher<'_>, family: &Family, most: Bytes) -> Option<Misfit> {
    let mut best: Option<Misfit> = None;
    let shardings = family.shardings(searcher.problem, &searcher.request.fixed);
    for group in searcher.groups(family) {
        let most = best.as_ref().map_or(most, |best| best.key.0);
        if searcher.least_memory(family, group, &shardings) > most {
            continue;
        }
        let misfits = searcher
            .memories(family, group, most)
            .into_iter()
            .map(|(layout, bytes, ends)| Misfit { key: (bytes, layout), ends });
        best = misfits.chain(best).min_by_key(|misfit| misfit.key);
    }
    best
}
