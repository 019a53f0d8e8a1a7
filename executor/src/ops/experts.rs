//! Mixture of experts: which rows go where, on the host, and how they get there and back.
//!
//! Each row goes to the `top_k` experts that its router finds likeliest. Probabilities are `[rows, experts]`
//! in row-major order, made of the router's logits.

use std::ops::Range;

use ir::graph::ExpertGroups;

use super::Kernels;
use crate::array::{Array, ElementExt, Indices};

/// A row that goes to an expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assignment {
    /// Which row.
    pub row: usize,
    /// Whether the expert is the row's likeliest, 0, or the next, 1, and so on.
    pub slot: usize,
    /// What the expert's output counts for.
    pub weight: f64,
}

/// Which rows go to which expert.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// What each expert is sent, by row.
    pub experts: Vec<Vec<Assignment>>,
    choices: Vec<usize>,
    top_k: usize,
    rule: Rule,
}

/// How a row's experts are chosen and weighed.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Whether the probabilities of the chosen experts are divided by their sum.
    pub normalise: bool,
    /// What they are multiplied by then.
    pub scaling: f64,
    /// Groups of experts of which some are chosen first.
    pub groups: Option<ExpertGroups>,
    /// What is added to the probabilities of each expert for the choice alone; nothing if it is empty.
    pub correction: Vec<f64>,
}

impl Rule {
    /// The likeliest of all experts.
    pub const fn likeliest(normalise: bool) -> Self {
        Self { normalise, scaling: 1.0, groups: None, correction: Vec::new() }
    }

    /// What the experts of a row are chosen by: minus infinity in the groups that were not chosen.
    fn scores(&self, probabilities: &[f64]) -> Vec<f64> {
        let mut scores = probabilities.to_vec();
        for (score, correction) in scores.iter_mut().zip(&self.correction) {
            *score += correction;
        }
        let Some(groups) = self.groups else { return scores };
        let size = scores.len() / groups.count as usize;
        let of_group = |group: &[f64]| {
            let mut best = group.to_vec();
            best.sort_by(|a, b| b.total_cmp(a));
            best.iter().take(groups.scored_by as usize).sum()
        };
        let of_groups: Vec<f64> = scores.chunks_exact(size).map(of_group).collect();
        for group in &in_order(&of_groups)[groups.chosen as usize..] {
            scores[group * size..(group + 1) * size].fill(f64::NEG_INFINITY);
        }
        scores
    }
}

/// Places of `scores`, that of the greatest first; of equal ones, the first first.
fn in_order(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order
}

/// The `top_k` likeliest experts of each row; of equally likely ones, the first.
///
/// Weights are the probabilities, divided by their sum over the chosen ones where `rule` says so, and scaled.
pub fn route(probabilities: &[f64], num_experts: usize, top_k: usize, rule: Rule) -> Routing {
    assert!(top_k <= num_experts, "each of the {top_k} chosen experts is another");
    let mut experts = vec![Vec::new(); num_experts];
    let mut choices = Vec::new();
    for (row, probabilities) in probabilities.chunks_exact(num_experts).enumerate() {
        let order = in_order(&rule.scores(probabilities));
        let chosen = &order[..top_k];
        let sum = divisor(probabilities, chosen, &rule);
        for (slot, expert) in chosen.iter().enumerate() {
            let weight = probabilities[*expert] / sum;
            experts[*expert].push(Assignment { row, slot, weight });
        }
        choices.extend_from_slice(chosen);
    }
    Routing { experts, choices, top_k, rule }
}

/// For each choice of an expert, how many choices of the same expert come before it.
pub fn places(choices: &[usize], num_experts: usize) -> Vec<usize> {
    let mut taken = vec![0; num_experts];
    let place = |expert: &usize| {
        taken[*expert] += 1;
        taken[*expert] - 1
    };
    choices.iter().map(place).collect()
}

impl Routing {
    /// Leaves each expert the first `capacity` rows that chose it; the others go without it, and their
    /// weights stay as they are. `places` are those of all rows that share the experts' places, as
    /// [`places`] counts them, of which these rows' are given here.
    pub fn limited(mut self, capacity: usize, places: &[usize]) -> Self {
        assert_eq!(places.len(), self.choices.len(), "each choice has its place");
        for assignments in &mut self.experts {
            assignments.retain(|it| places[it.row * self.top_k + it.slot] < capacity);
        }
        self
    }

    /// The experts that rows chose, `[rows, top_k]`, those included that had no place left.
    pub fn choices(&self) -> &[usize] {
        &self.choices
    }

    /// How many rows each expert is sent.
    pub fn counts(&self) -> Vec<usize> {
        self.experts.iter().map(Vec::len).collect()
    }

    /// How many rows chose each expert, whether or not it had room for them.
    pub fn load(&self) -> Vec<usize> {
        let mut counts = vec![0; self.experts.len()];
        for expert in &self.choices {
            counts[*expert] += 1;
        }
        counts
    }

    /// The rows that are sent, those of the first expert before those of the next.
    pub fn rows(&self) -> Vec<u32> {
        self.assignments().map(|assignment| assignment.row as u32).collect()
    }

    /// What their outputs count for, in the order of [`Self::rows`].
    pub fn weights(&self) -> Vec<f64> {
        self.assignments().map(|assignment| assignment.weight).collect()
    }

    /// The gradient of the probabilities from that of [`Self::weights`].
    ///
    /// ```text
    /// dp_i = c dw_i                                   without division by the sum
    /// dp_i = (c dw_i - sum_j w_j dw_j) / sum_j p_j    with it, over the chosen experts j; scaled by c
    /// ```
    ///
    /// Zero for experts that were not chosen, and what had no place left has no weight.
    pub fn probability_grad(&self, probabilities: &[f64], weight_grad: &[f64]) -> Vec<f64> {
        let num_experts = self.experts.len();
        let mut weight_grads = vec![0.0; self.choices.len()];
        for (assignment, grad) in self.assignments().zip(weight_grad) {
            weight_grads[assignment.row * self.top_k + assignment.slot] = *grad;
        }
        let mut gradient = vec![0.0; probabilities.len()];
        for row in 0..self.num_rows() {
            let of_row = row * num_experts..(row + 1) * num_experts;
            let probabilities = &probabilities[of_row.clone()];
            let chosen = &self.choices[self.slots(row)];
            let weight_grads = &weight_grads[self.slots(row)];
            let sum = divisor(probabilities, chosen, &self.rule);
            let product = |(expert, grad): (&usize, &f64)| probabilities[*expert] / sum * grad;
            let along = if self.rule.normalise {
                chosen.iter().zip(weight_grads).map(product).sum::<f64>() / self.rule.scaling
            } else {
                0.0
            };
            for (expert, grad) in chosen.iter().zip(weight_grads) {
                gradient[of_row.start + expert] = (grad - along) / sum;
            }
        }
        gradient
    }

    /// A loss that is `top_k` where all experts are chosen equally often, and more where some are both
    /// likelier and more often chosen than others.
    ///
    /// ```text
    /// E sum_e f_e P_e
    /// ```
    ///
    /// `f_e` is how many of the rows chose expert `e` of `E`, by the number of rows, and `P_e` its mean
    /// probability.
    ///
    /// # Source
    ///
    /// Fedus, Zoph and Shazeer 2021, *Switch Transformers*, equations 4 to 6,
    /// <https://arxiv.org/abs/2101.03961>; for more than one choice as `load_balancing_loss_func` of
    /// Hugging Face transformers' Mixtral, which has no division by `top_k` and takes the rows of all
    /// layers together.
    pub fn load_balancing_loss(&self, probabilities: &[f64]) -> f64 {
        let gradient = self.load_balancing_grad();
        probabilities.iter().zip(gradient).map(|(probability, slope)| probability * slope).sum()
    }

    /// The gradient of the probabilities of the loss above, which is linear in them: `E f_e / rows`.
    pub fn load_balancing_grad(&self) -> Vec<f64> {
        let (num_experts, num_rows) = (self.experts.len(), self.num_rows());
        let mut slopes = vec![0.0; num_experts];
        for expert in &self.choices {
            slopes[*expert] += num_experts as f64 / (num_rows * num_rows) as f64;
        }
        slopes.repeat(num_rows)
    }

    fn assignments(&self) -> impl Iterator<Item = &Assignment> {
        self.experts.iter().flatten()
    }

    fn num_rows(&self) -> usize {
        self.choices.len() / self.top_k.max(1)
    }

    /// Where the choices of a row are.
    fn slots(&self, row: usize) -> Range<usize> {
        row * self.top_k..(row + 1) * self.top_k
    }
}

/// The gradient of the router's logits from that of the probabilities: `p (dp - sum(p dp))` in each row.
pub fn logits_grad(
    probabilities: &[f64],
    probability_grad: &[f64],
    num_experts: usize,
) -> Vec<f64> {
    let rows =
        probabilities.chunks_exact(num_experts).zip(probability_grad.chunks_exact(num_experts));
    rows.flat_map(|(p, grad)| {
        let along: f64 = p.iter().zip(grad).map(|(p, grad)| p * grad).sum();
        p.iter().zip(grad).map(move |(p, grad)| p * (grad - along))
    })
    .collect()
}

/// The rows of `x` that `rows` names, one for each pair of row and expert: [`Routing::rows`].
pub fn dispatch<B: Kernels>(x: Array<B>, rows: &[u32]) -> Array<B> {
    if rows.is_empty() {
        return Array::zeros(&[0, x.size(1)], x.element(), &x.device());
    }
    B::select_rows(&x, &Indices::new(rows, &[rows.len()], &x.device()))
}

/// The gradient of the `num_rows` rows that were dispatched.
pub fn dispatch_grad<B: Kernels>(grad: Array<B>, rows: &[u32], num_rows: usize) -> Array<B> {
    let element = grad.element();
    if rows.is_empty() {
        return Array::zeros(&[num_rows, grad.size(1)], element, &grad.device());
    }
    B::sum_rows(grad, rows, num_rows).cast(element)
}

/// The experts' outputs `y` brought back to `num_rows` rows and summed by `weights`.
pub fn combine<B: Kernels>(
    y: Array<B>,
    rows: &[u32],
    weights: &[f64],
    num_rows: usize,
) -> Array<B> {
    dispatch_grad(weigh(y, weights), rows, num_rows)
}

/// The gradient of the experts' outputs that were combined.
pub fn combine_input_grad<B: Kernels>(grad: Array<B>, rows: &[u32], weights: &[f64]) -> Array<B> {
    weigh(dispatch(grad, rows), weights)
}

/// The gradient of the weights by which the experts' outputs `y` were combined. Waits for the device.
pub fn combine_weight_grad<B: Kernels>(y: Array<B>, grad: Array<B>, rows: &[u32]) -> Vec<f64> {
    if rows.is_empty() {
        return Vec::new();
    }
    (y.widened() * dispatch(grad, rows).widened()).sum_dim(1).to_f64()
}

/// Each row times its weight.
fn weigh<B: Kernels>(rows: Array<B>, weights: &[f64]) -> Array<B> {
    if weights.is_empty() {
        return rows;
    }
    let element = rows.element();
    let weights =
        Array::from_f64(weights.to_vec(), &[weights.len(), 1], element.widened(), &rows.device());
    (rows.widened() * weights).cast(element)
}

/// What the probabilities of the chosen experts are divided by.
fn divisor(probabilities: &[f64], chosen: &[usize], rule: &Rule) -> f64 {
    let sum: f64 = chosen.iter().map(|expert| probabilities[*expert]).sum();
    let divisor = if rule.normalise { sum } else { 1.0 };
    divisor / rule.scaling
}
