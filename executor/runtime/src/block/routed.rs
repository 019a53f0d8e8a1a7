//! Rows of tokens on the ranks of their experts, and the record of their dispatch.

use std::sync::Arc;

use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use executor_kernels::ops::experts::{ExpertChoices, ExpertCounts, RoutingRule, Sorted};

/// Rows of tokens on the ranks of their experts, sorted by expert.
#[derive(Clone, Debug)]
pub(crate) struct Routed<B: Kernels> {
    /// `[rows, width]`.
    pub(super) rows: Array<B>,
    /// Rows of each expert that this rank has.
    pub(super) counts: ExpertCounts<B>,
    pub(super) sent: Arc<Sent<B>>,
    /// The order of rows gathered from expert-tensor-parallel ranks, where they were gathered.
    pub(super) joined: Option<Arc<Order>>,
}

/// Record of a dispatch of a rank's rows to experts.
#[derive(Debug)]
pub(super) struct Sent<B: Kernels> {
    pub(super) rule: RoutingRule,
    /// The experts that each token chose.
    pub(super) choices: ExpertChoices<B>,
    /// The choices that were sent, in the order of experts.
    pub(super) sorted: Sorted<B>,
    /// The exchange with expert-parallel ranks; none where this rank has all experts.
    pub(super) exchanged: Option<Exchanged>,
    /// Rows received for each expert of this rank.
    pub(super) counts: ExpertCounts<B>,
}

/// An exchange of rows among expert-parallel ranks.
#[derive(Debug)]
pub(super) struct Exchanged {
    /// Rows sent to each rank.
    pub(super) counts: Vec<usize>,
    /// The reordering of the rows received from all ranks.
    pub(super) order: Order,
}

/// Rows from several sources, each sorted by expert, put in the order of experts.
#[derive(Debug)]
pub(super) struct Order {
    /// Rows of each source and expert.
    pub(super) counts: Vec<Vec<usize>>,
}

impl Order {
    /// Rows of each source.
    pub(super) fn source_sizes(&self) -> Vec<usize> {
        self.counts.iter().map(|counts| counts.iter().sum()).collect()
    }

    /// Rows of each expert.
    pub(super) fn expert_sizes(&self) -> Vec<usize> {
        let experts = self.counts.first().map_or(0, Vec::len);
        (0..experts).map(|expert| self.counts.iter().map(|counts| counts[expert]).sum()).collect()
    }

    /// For each row in the order of experts, its index in the order of sources.
    pub(super) fn by_expert(&self) -> Vec<u32> {
        let mut starts: Vec<u32> = Vec::new();
        let mut next = 0;
        for size in self.source_sizes() {
            starts.push(next);
            next += size as u32;
        }
        let mut places = Vec::with_capacity(next as usize);
        for expert in 0..self.expert_sizes().len() {
            for (start, counts) in starts.iter_mut().zip(&self.counts) {
                let end = *start + counts[expert] as u32;
                places.extend(*start..end);
                *start = end;
            }
        }
        places
    }

    /// For each row in the order of sources, its index in the order of experts.
    pub(super) fn by_source(&self) -> Vec<u32> {
        let by_expert = self.by_expert();
        let mut inverse = vec![0; by_expert.len()];
        for (place, source) in by_expert.into_iter().enumerate() {
            inverse[source as usize] = place as u32;
        }
        inverse
    }
}

impl<B: Kernels> Routed<B> {
    /// Other rows in the same order.
    pub(super) fn with_rows(&self, rows: Array<B>) -> Self {
        Self { rows, ..self.clone() }
    }
}
