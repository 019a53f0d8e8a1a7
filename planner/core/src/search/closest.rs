//! The layout that exceeds the memory least, if none fits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use ir::graph::BlockRecompute;
use ir::layout::Layout;
use ir::units::Bytes;
use rayon::prelude::*;

use super::evaluated_plan::EvaluatedPlan;
use super::family::{Family, ShapeFamily};
use super::node::{Searcher, of_last};
use super::queue::Subfamily;

/// Number of candidates between two updates of the closest layout so far.
const BATCH: usize = 8;

/// Layouts not yet looked at.
#[derive(Clone, Copy)]
enum Candidates<'a> {
    ShapeFamily(&'a ShapeFamily),
    Family(Family),
    Subfamily(Family, Subfamily),
}

/// A layout, and the memory of its fullest rank.
struct Misfit {
    key: (Bytes, Layout),
    ends: Arc<[usize]>,
}

/// The layout whose fullest rank exceeds a GPU's memory least, of equals the smallest; `None` if there are no layouts.
/// Candidates are looked at in the order of a lower bound of their fullest rank's memory, until that exceeds the least
/// found.
pub(super) fn closest(
    searcher: &Searcher<'_>,
    shape_families: &[ShapeFamily],
) -> Option<EvaluatedPlan> {
    let mut all: Vec<Candidates<'_>> = shape_families.iter().map(Candidates::ShapeFamily).collect();
    let first = |it: &ShapeFamily| it.families(searcher.problem).next();
    let parameters = searcher.all_parameters(shape_families.iter().filter_map(first));
    let least = shape_families.par_iter().map(|it| {
        let first = first(it);
        first.map_or(Bytes::ZERO, |first| searcher.least_states(&first, &parameters))
    });
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
        let looked: Vec<Looked> =
            batch.into_par_iter().map(|index| look(searcher, all[index], most)).collect();
        for Looked { parts, found } in looked {
            for (least, part) in parts {
                queue.push(Reverse((least, all.len())));
                all.push(part);
            }
            best = best.into_iter().chain(found).min_by_key(|misfit| misfit.key);
        }
    }
    best.map(|best| searcher.found(best.key.1, &best.ends))
}

/// Result of a look at candidates.
#[derive(Default)]
struct Looked {
    /// Families of a shape family or subfamilies of a family, each with a lower bound of its memory.
    parts: Vec<(Bytes, Candidates<'static>)>,
    /// The layout of a subfamily with the least memory.
    found: Option<Misfit>,
}

/// Splits candidates, or finds the best layout of a subfamily; leaves out what exceeds `most`.
fn look(searcher: &Searcher<'_>, candidates: Candidates<'_>, most: Bytes) -> Looked {
    match candidates {
        Candidates::ShapeFamily(shape_family) => {
            let parts = shape_family.families(searcher.problem).map(|family| {
                let shardings = family.shardings(searcher.problem, &searcher.request.fixed);
                let least = searcher.least_memory(&family, &shardings);
                let schedules = family.schedule_kinds(searcher.problem, &searcher.request.fixed);
                let searched = BlockRecompute::ALL.into_iter();
                let searched = searched.filter(|policy| searcher.policies[*policy].is_some());
                let bytes = searched.map(|policy| least.with_any(&family, policy, &schedules));
                (bytes.min().unwrap_or_default(), Candidates::Family(family))
            });
            Looked { parts: parts.filter(|(least, _)| *least <= most).collect(), found: None }
        }
        Candidates::Family(family) => {
            let shardings = family.shardings(searcher.problem, &searcher.request.fixed);
            let least_memory = searcher.least_memory(&family, &shardings);
            let mut least_memory =
                of_last(|(recompute, schedule)| least_memory.with(&family, recompute, schedule));
            let subfamilies = searcher.subfamilies(&family).into_iter().map(|subfamily| {
                let least = least_memory((subfamily.recompute, subfamily.schedule));
                (least, Candidates::Subfamily(family, subfamily))
            });
            Looked { parts: subfamilies.filter(|(least, _)| *least <= most).collect(), found: None }
        }
        Candidates::Subfamily(family, subfamily) => {
            let misfits = searcher.memories(&family, subfamily, most).into_iter();
            let misfits =
                misfits.map(|(layout, bytes, ends)| Misfit { key: (bytes, layout), ends });
            Looked { found: misfits.min_by_key(|misfit| misfit.key), ..Looked::default() }
        }
    }
}
