//! Tokens that the experts of the busiest rank receive, by random draws of the experts' shares.

use std::sync::Arc;

use ir::expert_load::{CORRECTED_SIGMA, ExpertLoad, USUAL_SIGMA};
use ir::graph::{Block, Graph, RoutedTokens};
use simulator::normal_deviates;

use crate::step::Memo;

/// Random draws of the shares of all experts.
const DRAWS: usize = 32;

/// Largest number of shares in a draw. In larger models, only as many layers are drawn as have this number of experts
/// together; they stand for all layers.
const MOST_SHARES: usize = 1 << 16;

/// Seed of the draws.
const SEED: u64 = 1;

/// Share of the draws, and of a draw's pipeline ranks, in which the fullest rank needs at most the memory that is planned
/// for.
const OF_MEMORY: f64 = 0.9;

/// Spread of experts over the ranks that share a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Spread {
    num_experts: u64,
    /// Experts that each token goes to.
    top_k: u64,
    expert_parallel: u32,
    /// Pipeline ranks, each of which has the tokens of its own layers in memory.
    pipeline_parallel: u32,
}

/// Shares of all experts, for each draw and each layer.
type Draws = Arc<Vec<Vec<Vec<f64>>>>;

/// Tokens on ranks with a load of experts.
#[derive(Clone, Debug, Default)]
pub struct RankLoads {
    /// The load.
    pub load: ExpertLoad,
    /// Number of layers with experts.
    num_layers: usize,
    /// Quantile of the draws that is evaluated: the share of draws that are at most as bad. `None` for the one that
    /// plans are made for.
    quantile: Option<f64>,
    /// Shares of all experts for each draw and layer, by the number of experts and the number of experts of a token.
    shares: Arc<Memo<(u64, u64), Draws>>,
    /// Results, in thousandths of an even share, in ascending order: the busiest rank of each draw, and the fullest
    /// rank of each draw and pipeline rank.
    drawn: Arc<Memo<Spread, Arc<[Vec<u64>; 2]>>>,
}

/// The default load of experts in a training run of `graph`.
pub fn usual_load(graph: &Graph) -> ExpertLoad {
    let corrects = graph.blocks().any(|class| graph.class(class).corrects_router());
    ExpertLoad::LogNormal(if corrects { CORRECTED_SIGMA } else { USUAL_SIGMA })
}

impl RankLoads {
    /// Loads of the ranks of a model with `num_layers` layers of experts.
    pub(super) fn new(load: ExpertLoad, num_layers: usize) -> Self {
        Self { load, num_layers: num_layers.max(1), ..Self::default() }
    }

    /// The load at a quantile of the draws.
    pub(super) fn at(&self, quantile: f64) -> Self {
        Self { quantile: Some(quantile), ..self.clone() }
    }

    /// Number of pipeline ranks that differ in the tokens of their experts; one where no rank has more than others.
    pub(crate) fn stages(&self, expert_parallel: u32, pipeline_parallel: u32) -> u32 {
        if self.is_even(expert_parallel) { 1 } else { pipeline_parallel }
    }

    /// Returns whether all ranks that share the experts of a block have equally many tokens.
    fn is_even(&self, expert_parallel: u32) -> bool {
        expert_parallel == 1 || self.load.is_balanced()
    }

    /// Tokens of ranks that share the experts of a block; balanced where a rank has all experts.
    pub(crate) fn of(
        &self,
        block: &Block,
        expert_parallel: u32,
        pipeline_parallel: u32,
    ) -> RoutedTokens {
        // The experts whose counts were checked: a model's file may state others for its router.
        let experts = block.num_experts().zip(block.top_k());
        let Some((num_experts, top_k)) = experts.filter(|_| !self.is_even(expert_parallel)) else {
            return RoutedTokens::BALANCED;
        };
        let spread = Spread { num_experts, top_k, expert_parallel, pipeline_parallel };
        let drawn = self.drawn.get(spread, || Arc::new(self.spread_over_ranks(spread)));
        let at =
            |all: &[u64], quantile: f64| all[((all.len() - 1) as f64 * quantile).round() as usize];
        RoutedTokens {
            busiest: at(&drawn[0], self.quantile.unwrap_or(0.5)),
            fullest: at(&drawn[1], self.quantile.unwrap_or(OF_MEMORY)),
        }
    }

    /// Loads of the busiest and of the fullest ranks of all draws, in ascending order. All ranks of a layer wait for
    /// its busiest rank. So the time depends on the mean over all layers of the busiest rank's tokens. The memory
    /// depends on the rank with the most tokens in the mean over the layers of its pipeline rank.
    fn spread_over_ranks(&self, spread: Spread) -> [Vec<u64>; 2] {
        let Spread { num_experts, top_k, expert_parallel, pipeline_parallel } = spread;
        let key = (num_experts, top_k);
        let draws = self.shares.get(key, || Arc::new(self.draw(num_experts as usize, top_k)));
        let (experts, shared_by) = (num_experts as usize, expert_parallel as usize);
        let thousandths = |sum: f64, layers: usize| (sum / layers as f64 * 1000.0).round() as u64;
        let (mut busiest, mut fullest) = (Vec::with_capacity(draws.len()), Vec::new());
        for layers in draws.iter() {
            let mut busiest_sum = 0.0;
            for of_stage in layers.chunks(self.num_layers.div_ceil(pipeline_parallel as usize)) {
                let mut sums = vec![0.0; shared_by];
                for shares in of_stage {
                    let mut most = 0.0_f64;
                    for (rank, sum) in sums.iter_mut().enumerate() {
                        let own = rank * experts / shared_by..(rank + 1) * experts / shared_by;
                        let of_rank = shares[own].iter().sum::<f64>() * shared_by as f64;
                        most = most.max(of_rank);
                        *sum += of_rank;
                    }
                    busiest_sum += most;
                }
                let most = sums.into_iter().fold(0.0, f64::max);
                fullest.push(thousandths(most, of_stage.len()));
            }
            busiest.push(thousandths(busiest_sum, layers.len()));
        }
        busiest.sort_unstable();
        fullest.sort_unstable();
        [busiest, fullest]
    }

    /// Shares of the experts of each layer, for each draw; counts make one draw.
    fn draw(&self, experts: usize, top_k: u64) -> Vec<Vec<Vec<f64>>> {
        let num_layers = self.num_layers.min((MOST_SHARES / experts.max(1)).max(1));
        let mut deviates = normal_deviates(SEED);
        let num_draws = if matches!(self.load, ExpertLoad::LogNormal(_)) { DRAWS } else { 1 };
        let mut of_layer = |layer: usize| {
            let mut shares: Vec<f64> = match &self.load {
                ExpertLoad::LogNormal(sigma) => {
                    let draws = deviates.by_ref().take(experts);
                    draws.map(|deviate| (sigma * deviate).exp()).collect()
                }
                ExpertLoad::Counts(rows) => {
                    rows[layer.min(rows.len() - 1)].iter().map(|count| *count as f64).collect()
                }
                ExpertLoad::Balanced => vec![1.0; experts],
            };
            cap(&mut shares, 1.0 / top_k as f64);
            shares
        };
        (0..num_draws).map(|_| (0..num_layers).map(&mut of_layer).collect()).collect()
    }
}

/// Divides shares by their sum, with none above `most`: no token goes to an expert twice. The excess goes to the other
/// experts, in proportion to their shares.
fn cap(shares: &mut [f64], most: f64) {
    let (mut is_full, mut left) = (vec![false; shares.len()], 1.0);
    loop {
        let others = shares.iter().zip(&is_full).filter(|(_, is_full)| !**is_full);
        let sum: f64 = others.map(|(share, _)| share).sum();
        if sum <= 0.0 {
            return;
        }
        let mut is_done = true;
        for (share, is_full) in shares.iter_mut().zip(&mut is_full).filter(|(_, full)| !**full) {
            *share *= left / sum;
            if *share > most {
                (*share, *is_full, is_done) = (most, true, false);
            }
        }
        if is_done {
            return;
        }
        left = 1.0 - most * is_full.iter().filter(|is_full| **is_full).count() as f64;
    }
}
