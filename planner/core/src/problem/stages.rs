//! Stages that a user gives by hand.

use std::sync::Arc;

use ir::graph::Graph;
use ir::model::{Description, Model};

use crate::partition::prefix_sums;

/// Pipeline stages as the user gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenStages {
    ends: Arc<[usize]>,
    counts: StageCounts,
}

/// Layers or blocks of each stage, as the user gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StageCounts {
    of_stages: Vec<u32>,
    /// True if the counts leave out the first and the last block of the chain: embedding and head of a transformer.
    leaves_out_ends: bool,
}

/// Reason why stages given by hand do not fit the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StagesError {
    /// The stages have more or fewer layers than the model.
    #[error(
        "the stages given have {given} {counted} together, but the model has {has}\nhint: {works} fits"
    )]
    Sum {
        /// The unit of the numbers.
        counted: &'static str,
        /// Sum over all stages.
        given: u64,
        /// Number in the model.
        has: u64,
        /// An even partition that fits.
        works: String,
    },
    /// A stage would be empty.
    #[error(
        "stage {stage} of {stages} is given no {counted}{}\nhint: {works} fits",
        if *.has_ends { "; only the first, with the embedding, and the last, with the head, may have none" } else { "" }
    )]
    Empty {
        /// The stage, counting from 1.
        stage: usize,
        /// Number of stages.
        stages: usize,
        /// The unit of the numbers.
        counted: &'static str,
        /// True if the first and the last stage have a block that is not counted.
        has_ends: bool,
        /// An even partition that fits.
        works: String,
    },
    /// There are no stages, or more than blocks.
    #[error(
        "{stages} stages are given, but the model has only {blocks} blocks to put on them\nhint: {blocks} stages at most"
    )]
    TooMany {
        /// Number of stages that are given.
        stages: usize,
        /// Blocks of the chain.
        blocks: usize,
    },
}

impl GivenStages {
    /// Stages with these numbers of layers, in the order of the model. Embedding and head are not counted, and are on
    /// the first and the last stage. For a model that is not a stack of layers, blocks are counted. Errors propose
    /// stages for `num_ranks` pipeline ranks, where given.
    ///
    /// # Errors
    ///
    /// [`StagesError`] where they do not cover the model.
    pub fn new(
        model: &Model,
        graph: &Graph,
        of_stages: &[u32],
        num_ranks: Option<u32>,
    ) -> Result<Self, StagesError> {
        let leaves_out_ends = matches!(model.description, Description::Transformer(_));
        let counts = StageCounts { of_stages: of_stages.to_vec(), leaves_out_ends };
        let (stages, blocks) = (of_stages.len(), graph.num_blocks());
        if stages > blocks || stages == 0 {
            return Err(StagesError::TooMany { stages, blocks });
        }
        let counted = counts.counted();
        let works = || counts.evenly(blocks, counts.number_meant(blocks, num_ranks));
        let given: u64 = of_stages.iter().copied().map(u64::from).sum();
        let has = counts.all(blocks) as u64;
        if given != has {
            return Err(StagesError::Sum { counted, given, has, works: works() });
        }
        let mut ends = Vec::with_capacity(stages);
        let mut end = 0;
        for (stage, count) in of_stages.iter().enumerate() {
            let own = *count as usize + counts.uncounted(stage);
            if own == 0 {
                let (stage, has_ends) = (stage + 1, leaves_out_ends);
                return Err(StagesError::Empty {
                    stage,
                    stages,
                    counted,
                    has_ends,
                    works: works(),
                });
            }
            end += own;
            ends.push(end);
        }
        Ok(Self { ends: ends.into(), counts })
    }

    /// Stages with these numbers of blocks, expressed in the counts that a user would give by hand.
    pub fn of_blocks(model: &Model, of_stages: &[u32]) -> Self {
        let leaves_out_ends = matches!(model.description, Description::Transformer(_));
        let mut counts = StageCounts { of_stages: of_stages.to_vec(), leaves_out_ends };
        let uncounted: Vec<usize> = (0..of_stages.len()).map(|it| counts.uncounted(it)).collect();
        for (count, uncounted) in counts.of_stages.iter_mut().zip(uncounted) {
            *count = count.saturating_sub(uncounted as u32);
        }
        let ends = prefix_sums(of_stages.iter().map(|count| *count as usize));
        Self { ends: ends[1..].into(), counts }
    }

    /// Size of each stage, and its unit: layers, or blocks.
    pub fn counts(&self) -> (&[u32], &'static str) {
        (&self.counts.of_stages, self.counts.counted())
    }

    /// End of each stage, in blocks of the chain.
    pub fn ends(&self) -> &Arc<[usize]> {
        &self.ends
    }

    /// Example for a number of stages, with layers spread evenly over them: `8,8,8,8`.
    pub fn evenly(&self, num_stages: u32) -> String {
        let blocks = self.ends.last().copied().unwrap_or_default();
        self.counts.evenly(blocks, num_stages as usize)
    }

    /// Number of stages of all ranks together.
    pub fn num_stages(&self) -> u32 {
        self.ends.len() as u32
    }
}

impl std::fmt::Display for GivenStages {
    /// Stages as they were given: `10,11,11,10 layers`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = self.counts.of_stages.iter().map(u32::to_string);
        write!(f, "{} {}", counts.collect::<Vec<_>>().join(","), self.counts.counted())
    }
}

impl StageCounts {
    const fn counted(&self) -> &'static str {
        if self.leaves_out_ends { "layers" } else { "blocks" }
    }

    /// Blocks of a stage that are not counted.
    fn uncounted(&self, stage: usize) -> usize {
        self.uncounted_of(stage, stage + 1 == self.of_stages.len())
    }

    fn uncounted_of(&self, stage: usize, is_last: bool) -> usize {
        let ends = usize::from(stage == 0) + usize::from(is_last);
        if self.leaves_out_ends { ends } else { 0 }
    }

    /// Number of blocks of a chain that are counted.
    const fn all(&self, blocks: usize) -> usize {
        if self.leaves_out_ends { blocks.saturating_sub(2) } else { blocks }
    }

    /// Number of stages that a user meant by counts that do not fit: the number of counts, if it divides over the
    /// ranks; for a single count, the number of stages of that size.
    fn number_meant(&self, blocks: usize, num_ranks: Option<u32>) -> usize {
        let (given, all) = (self.of_stages.len(), self.all(blocks));
        let divides =
            |stages: usize| num_ranks.is_none_or(|ranks| stages.is_multiple_of(ranks as usize));
        let of_each = match self.of_stages[..] {
            [each] if each > 0 && all.is_multiple_of(each as usize) => all / each as usize,
            _ => given,
        };
        let ranks = num_ranks.map_or(given, |ranks| ranks as usize);
        [of_each, given].into_iter().find(|stages| divides(*stages)).unwrap_or(ranks)
    }

    /// Text of an even partition: of the counted blocks if they divide evenly, or else of all blocks.
    fn evenly(&self, blocks: usize, stages: usize) -> String {
        let (stages, all) = (stages.max(1), self.all(blocks));
        let of_stage = |stage| {
            if all.is_multiple_of(stages) {
                return (all / stages).to_string();
            }
            let own = blocks / stages + usize::from(stage < blocks % stages);
            let is_last = stage + 1 == stages;
            own.saturating_sub(self.uncounted_of(stage, is_last)).to_string()
        };
        (0..stages).map(of_stage).collect::<Vec<_>>().join(",")
    }
}
