//! Routing of rows to experts, in burn's operations and, for the choice of experts, on the host.

use std::sync::{Arc, OnceLock};

use burn::tensor::backend::Backend;
use ir::graph::ExpertGroups;

use crate::array::{Array, Element, ElementExt, Indices};

/// Rule for the choice and the weights of a row's experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoutingRule {
    /// Number of experts of a row.
    pub top_k: usize,
    /// True where the probabilities of the chosen experts are divided by their sum.
    pub normalise: bool,
    /// Factor of the weights.
    pub scaling: f64,
    /// Groups of experts, of which some are chosen first; none if all experts compete.
    pub groups: Option<ExpertGroups>,
}

impl RoutingRule {
    /// The `top_k` most probable of all experts.
    pub const fn likeliest(top_k: usize, normalise: bool) -> Self {
        Self { top_k, normalise, scaling: 1.0, groups: None }
    }
}

/// The experts that rows chose.
#[derive(Clone, Debug)]
pub struct ExpertChoices<B: Backend> {
    /// Numbers of the experts, `[rows, top_k]`, the most probable first.
    pub experts: Indices<B>,
    /// Weight of each expert's output, `[rows, top_k]`, in fp32 at least.
    pub weights: Array<B>,
}

/// Number of rows of each expert, where rows are sorted by expert. The counts are on the device, and on the host too
/// once the host has read them.
#[derive(Clone, Debug)]
pub struct ExpertCounts<B: Backend> {
    on_device: Indices<B>,
    on_host: Arc<OnceLock<Vec<usize>>>,
}

impl<B: Backend> ExpertCounts<B> {
    /// Counts computed on a device, `[experts]`.
    pub fn counted(on_device: Indices<B>) -> Self {
        Self { on_device, on_host: Arc::default() }
    }

    /// Counts known on the host.
    pub fn known(counts: Vec<usize>, device: &B::Device) -> Self {
        let values: Vec<u32> = counts.iter().map(|count| *count as u32).collect();
        let on_device = Indices::new(&values, &[values.len()], device);
        Self { on_device, on_host: Arc::new(OnceLock::from(counts)) }
    }

    /// Number of experts.
    pub fn num_experts(&self) -> usize {
        self.on_device.shape()[0]
    }

    /// Rows of each expert, `[experts]`.
    pub const fn on_device(&self) -> &Indices<B> {
        &self.on_device
    }

    /// Rows of each expert. Waits for the device the first time, unless the host knows them.
    pub fn on_host(&self) -> &[usize] {
        let read = || self.on_device.to_vec().into_iter().map(|count| count as usize).collect();
        self.on_host.get_or_init(read)
    }

    /// Rows of each expert as floating-point numbers to be sent or added up, `[experts]` in fp32, exact below 2^24.
    pub fn numbers(&self) -> Array<B> {
        self.on_device.numbers(Element::F32)
    }
}

/// Choices sorted by expert; choices of one expert are sorted by row. Choice `slot` of row `r` has the number
/// `r top_k + slot`.
#[derive(Clone, Debug)]
pub struct Sorted<B: Backend> {
    /// The choices that are sent to an expert, in the sorted order, `[sent]`.
    pub choices: Indices<B>,
    /// The row of each sorted choice, `[sent]`.
    pub rows: Indices<B>,
    /// The position of each choice in the sorted order, `[rows, top_k]`; past the last position for choices that are
    /// not sent.
    pub places: Indices<B>,
    /// Number of choices that are sent to each expert.
    pub counts: ExpertCounts<B>,
}

impl<B: Backend> Sorted<B> {
    /// Sorted choices from `[rows, top_k]` on the host; none for a choice that is not sent.
    pub fn of_known(
        experts: &[Option<u32>],
        [num_experts, top_k]: [usize; 2],
        device: &B::Device,
    ) -> Self {
        let mut counts = vec![0; num_experts];
        for expert in experts.iter().flatten() {
            counts[*expert as usize] += 1;
        }
        let mut next: Vec<usize> = Vec::with_capacity(num_experts);
        let mut sent = 0;
        for count in &counts {
            next.push(sent);
            sent += count;
        }
        let mut choices = vec![0; sent];
        let mut places = vec![sent as u32; experts.len()];
        for (choice, expert) in experts.iter().enumerate() {
            if let Some(expert) = expert {
                let place = &mut next[*expert as usize];
                choices[*place] = choice as u32;
                places[choice] = *place as u32;
                *place += 1;
            }
        }
        let rows: Vec<u32> = choices.iter().map(|choice| choice / top_k as u32).collect();
        Self {
            choices: Indices::new(&choices, &[sent], device),
            rows: Indices::new(&rows, &[sent], device),
            places: Indices::new(&places, &[experts.len() / top_k, top_k], device),
            counts: ExpertCounts::known(counts, device),
        }
    }

    /// Number of choices that are sent to an expert.
    pub fn num_sent(&self) -> usize {
        self.rows.shape()[0]
    }
}

/// The experts that rows choose by probabilities `[rows, experts]`. Among experts with equal probabilities, the first
/// is chosen. `correction`, `[experts]`, is added to the probabilities for the choice alone.
pub(in crate::ops) fn choose<B: Backend>(
    probabilities: &Array<B>,
    correction: Option<&Array<B>>,
    rule: &RoutingRule,
) -> ExpertChoices<B> {
    let (device, element) = (probabilities.device(), probabilities.element().widened());
    let shape = [probabilities.size(0), rule.top_k];
    let correction = correction.map(Array::to_f64).unwrap_or_default();
    let (mut experts, mut weights) = (Vec::new(), Vec::new());
    for of_row in probabilities.to_f64().chunks_exact(probabilities.size(1)) {
        let order = in_order(&scores(of_row, &correction, rule.groups));
        let chosen = &order[..rule.top_k];
        let sum: f64 = chosen.iter().map(|expert| of_row[*expert]).sum();
        let divisor = if rule.normalise { sum } else { 1.0 } / rule.scaling;
        experts.extend(chosen.iter().map(|expert| *expert as u32));
        weights.extend(chosen.iter().map(|expert| of_row[*expert] / divisor));
    }
    ExpertChoices {
        experts: Indices::new(&experts, &shape, &device),
        weights: Array::from_f64(weights, &shape, element, &device),
    }
}

/// Scores by which the experts of a row are chosen: minus infinity in groups that were not chosen.
fn scores(probabilities: &[f64], correction: &[f64], groups: Option<ExpertGroups>) -> Vec<f64> {
    let mut scores = probabilities.to_vec();
    for (score, correction) in scores.iter_mut().zip(correction) {
        *score += correction;
    }
    let Some(groups) = groups else { return scores };
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

/// Indices of `scores`, sorted from the greatest score to the least. Equal scores keep their order.
fn in_order(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order
}

/// Number of rows that chose each of `num_experts` experts, `[experts]`.
pub(in crate::ops) fn count<B: Backend>(experts: &Indices<B>, num_experts: usize) -> Indices<B> {
    let mut counts = vec![0; num_experts];
    for expert in experts.to_vec() {
        counts[expert as usize] += 1;
    }
    Indices::new(&counts, &[num_experts], &experts.device())
}

/// Choices `[rows, top_k]`, all of which are sent, sorted.
pub(in crate::ops) fn sort<B: Backend>(experts: &Indices<B>, num_experts: usize) -> Sorted<B> {
    let chosen: Vec<Option<u32>> = experts.to_vec().into_iter().map(Some).collect();
    Sorted::of_known(&chosen, [num_experts, experts.shape()[1]], &experts.device())
}

/// The sent row of each choice, `[rows, top_k, width]`, from rows `[sent, width]`; zero where the choice was not sent.
fn of_choices<B: Backend>(sent: Array<B>, places: &Indices<B>) -> Array<B> {
    let (width, element, device) = (sent.size(1), sent.element(), sent.device());
    let [rows, top_k] = [0, 1].map(|dim| places.shape()[dim]);
    let nothing = Array::zeros(&[1, width], element, &device);
    let sent =
        if sent.size(0) < rows * top_k { Array::concat(vec![sent, nothing], 0) } else { sent };
    sent.select(0, &places.clone().flatten()).reshape(&[rows, top_k, width])
}

/// [`BasicKernels::gather_sent`](super::super::BasicKernels::gather_sent).
pub(in crate::ops) fn gather<B: Backend>(
    sent: Array<B>,
    places: &Indices<B>,
    weights: Option<&Array<B>>,
) -> Array<B> {
    let (element, width) = (sent.element(), sent.size(1));
    let [rows, top_k] = [0, 1].map(|dim| places.shape()[dim]);
    if rows == 0 {
        return Array::zeros(&[0, width], element, &sent.device());
    }
    let mut each = of_choices(sent, places).widened();
    if let Some(weights) = weights {
        each = each * weights.clone().cast(element.widened()).reshape(&[rows, top_k, 1]);
    }
    each.sum_dim(1).reshape(&[rows, width]).cast(element)
}

/// [`BasicKernels::choice_products`](super::super::BasicKernels::choice_products).
pub(in crate::ops) fn products<B: Backend>(
    sent: Array<B>,
    places: &Indices<B>,
    grad: Array<B>,
) -> Array<B> {
    let [rows, top_k] = [0, 1].map(|dim| places.shape()[dim]);
    let (width, element) = (sent.size(1), sent.element().widened());
    if rows == 0 {
        return Array::zeros(&[0, top_k], element, &sent.device());
    }
    // Rows are copied because burn reads an array that is broadcast along a middle dimension one element at a time.
    let grad = Array::concat(vec![grad.widened().reshape(&[rows, 1, width]); top_k], 1);
    (of_choices(sent, places).widened() * grad).sum_dim(2).reshape(&[rows, top_k])
}

/// [`BasicKernels::probability_grad`](super::super::BasicKernels::probability_grad).
pub(in crate::ops) fn probability_grad<B: Backend>(
    probabilities: &Array<B>,
    choices: &ExpertChoices<B>,
    weight_grad: Array<B>,
    rule: &RoutingRule,
) -> Array<B> {
    let element = probabilities.element();
    let mut of_chosen = weight_grad.cast(element.widened());
    if rule.normalise {
        let weights = choices.weights.clone();
        let along = (weights * of_chosen.clone()).sum_dim(1).scale(1.0 / rule.scaling);
        let sum = probabilities.gather(1, &choices.experts).widened().sum_dim(1);
        of_chosen = (of_chosen - along) * sum.recip();
    }
    let nothing = Array::zeros(&probabilities.shape(), element.widened(), &probabilities.device());
    nothing.scatter_add(1, &choices.experts, of_chosen.scale(rule.scaling)).cast(element)
}
