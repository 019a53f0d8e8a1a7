//! The layout that exceeds the memory least, if none fits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use ir::layout::Layout;
use ir::units::Bytes;
use rayon::prelude::*;

use super::evaluated_plan::EvaluatedPlan;
use super::family::Family;
use super::node::{Searcher, of_last};
use super::queue::Subfamily;

/// Number of candidates between two updates of the closest layout so far.
const BATCH: usize = 8;

/// Layouts not yet looked at: those of a family, or those of them with the same stages.
struct Candidates<'a> {
    family: &'a Family,
    subfamily: Option<Subfamily>,
}

/// A layout, and the memory of its fullest rank.
struct Misfit {
    key: (Bytes, Layout),
    ends: Arc<[usize]>,
}

/// The layout whose fullest rank exceeds a GPU's memory least, of equals the smallest; `None` if there are no layouts.
/// Candidates are looked at in the order of a lower bound of their fullest rank's memory, until that exceeds the least
/// found.
pub(super) fn closest(searcher: &Searcher<'_>, families: &[Family]) -> Option<EvaluatedPlan> {
    let mut all: Vec<Candidates<'_>> =
        families.iter().map(|family| Candidates { family, subfamily: None }).collect();
    let parameters = searcher.all_parameters(families);
    let least = families.par_iter().map(|family| searcher.least_states(family, &parameters));
    let least: Vec<Bytes> = least.collect();
    let mut queue: BinaryHeap<Reverse<(Bytes, usize)>> =
        least.into_iter().zip(0..).map(Reverse).collect();
    let mut best: Option<Misfit> = None;
    loop {
        let most = best.as_ref().map_or(Bytes::new(u64::MAX), |best| best.key.0);
        let batch: Vec<usize> = std::iter::from_fn(|| {
            let is_candidate = queue.peek().is_some_and(|Reverse((least, _))| *least <= most);
            is_candidate.then(|| queue.pop()).flatten().map(|Reverse((_, index))| index)
        })
        .take(BATCH)
        .collect();
        if batch.is_empty() {
            break;
        }
        let looked: Vec<Looked<'_>> =
            batch.into_par_iter().map(|index| look(searcher, &all[index], most)).collect();
        for Looked { subfamilies, found } in looked {
            for (least, subfamily) in subfamilies {
                queue.push(Reverse((least, all.len())));
                all.push(subfamily);
            }
            best = best.into_iter().chain(found).min_by_key(|misfit| misfit.key);
        }
    }
    best.map(|best| searcher.found(best.key.1, &best.ends))
}

/// Result of a look at candidates.
#[derive(Default)]
struct Looked<'a> {
    /// Subfamilies of a family, each with a lower bound of its memory.
    subfamilies: Vec<(Bytes, Candidates<'a>)>,
    /// The layout of a subfamily with the least memory.
    found: Option<Misfit>,
}

/// Splits a family, or finds the best layout of a subfamily; leaves out what exceeds `most`.
fn look<'a>(searcher: &Searcher<'_>, candidates: &Candidates<'a>, most: Bytes) -> Looked<'a> {
    let family = candidates.family;
    let Some(subfamily) = candidates.subfamily else {
        let shardings = family.shardings(searcher.problem, &searcher.request.fixed);
        let least_memory = searcher.least_memory(family, &shardings);
        let mut least_memory =
            of_last(|(recompute, schedule)| least_memory.with(family, recompute, schedule));
        let subfamilies = searcher.subfamilies(family).into_iter().filter_map(|subfamily| {
            let least = least_memory((subfamily.recompute, subfamily.schedule));
            (least <= most).then_some((least, Candidates { family, subfamily: Some(subfamily) }))
        });
        return Looked { subfamilies: subfamilies.collect(), found: None };
    };
    let misfits = searcher.memories(family, subfamily, most).into_iter();
    let misfits = misfits.map(|(layout, bytes, ends)| Misfit { key: (bytes, layout), ends });
    Looked { found: misfits.min_by_key(|misfit| misfit.key), ..Looked::default() }
}
