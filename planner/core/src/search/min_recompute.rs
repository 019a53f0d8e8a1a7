//! Full recompute of as few layers of each stage as fit in memory.
//!
//! With each additional recomputed layer, a rank holds less and its backward takes longer, so the fewest layers with
//! which it fits are the fastest. Stages are partitioned as if nothing were recomputed, as recompute would add about
//! the same time to each.

use std::sync::Arc;

use ir::graph::Recompute;
use ir::layout::{Layout, LayoutSpec};
use ir::units::Nanos;

use super::family::Family;
use super::node::{Balanced, Expansion, Searcher};
use super::queue::Subfamily;
use crate::step::Assignment;

impl Searcher<'_> {
    /// Expands a subfamily to layouts with the fewest recomputed layers that fit.
    pub(super) fn expand_min_recompute(
        &self,
        family: &Family,
        subfamily: Subfamily,
        limit: Nanos,
    ) -> Expansion {
        let mut expansion = Expansion::default();
        let Some(balanced) = self.balanced(family, subfamily) else { return expansion };
        let Balanced { layouts, ends, .. } = &balanced;
        let cuts_within_memory = self.cuts_within_memory(&layouts[0]);
        let without = Subfamily { recompute: Recompute::None, ..subfamily };
        if balanced.least_time(self, family, without, cuts_within_memory) > limit {
            expansion.counts.pruned_by_time += layouts.len() as u64;
            return expansion;
        }
        for layout in layouts {
            let found = self.min_recompute(&balanced, layout, ends).or_else(|| {
                let ends = self.cut_within_memory(&balanced, layout)?;
                self.min_recompute(&balanced, layout, &ends)
            });
            match found {
                Some((layout, assignment)) => {
                    let bound = assignment.lower_bound(&layout);
                    expansion.add(&layout, &assignment.ends, bound, limit);
                }
                None => expansion.counts.add_misfit(true),
            }
        }
        expansion
    }

    /// Ends of stages that fit in memory with all their layers recomputed.
    fn cut_within_memory(&self, of: &Balanced, layout: &Layout) -> Option<Arc<[usize]>> {
        if !self.cuts_within_memory(layout) {
            return None;
        }
        let layout = self.recomputing(layout, self.chain.num_blocks() as u32);
        let all = self.assign(of, layout.recompute, Arc::clone(&of.ends));
        self.within_memory(&layout, &all).map(Arc::from)
    }

    /// The layout with the fewest recomputed layers with which the fullest rank fits, found by bisection.
    fn min_recompute<'s>(
        &'s self,
        of: &'s Balanced,
        layout: &Layout,
        ends: &Arc<[usize]>,
    ) -> Option<(Layout, Assignment<'s>)> {
        let with = |count: u32| {
            let layout = self.recomputing(layout, count);
            let assignment = self.assign(of, layout.recompute, Arc::clone(ends));
            let kept = self.peaks(&assignment, &layout);
            assignment.fits(&layout, &kept).then_some((layout, assignment))
        };
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let layers =
            starts.zip(ends.iter()).map(|(start, end)| self.chain.num_layers(&(start..*end)));
        let (mut too_few, mut enough) = (0, layers.max().unwrap_or_default());
        if let Some(found) = with(0) {
            return Some(found);
        }
        let mut found = with(enough)?;
        while too_few + 1 < enough {
            let between = too_few.midpoint(enough);
            match with(between) {
                Some(fewer) => (found, enough) = (fewer, between),
                None => too_few = between,
            }
        }
        Some(found)
    }

    /// The layout with the first `count` layers of each stage recomputed.
    fn recomputing(&self, layout: &Layout, count: u32) -> Layout {
        let recompute = if count == 0 { Recompute::None } else { Recompute::FirstLayers(count) };
        let layout = Layout::new(LayoutSpec { recompute, ..**layout }, &self.problem.limits);
        layout.expect("recompute changes nothing about whether a layout is valid")
    }
}
