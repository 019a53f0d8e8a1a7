//! Mixture of experts: choice of experts, dispatch of rows to them, and combination of their outputs.
//!
//! Each row goes to the `top_k` experts that its router finds most probable. Probabilities are `[rows, experts]`, from
//! the router's logits. All of these arrays stay on the device: the host reads counts of rows only where it must split
//! arrays by them.

use super::Kernels;
pub use super::composed::experts::{ExpertChoices, ExpertCounts, RoutingRule, Sorted};
use crate::array::{Array, ElementExt, Indices};

/// The experts that rows choose by probabilities `[rows, experts]`. Among experts with equal probabilities, the first
/// is chosen.
///
/// Weights are the probabilities of the chosen experts, divided by their sum if `rule.normalise`, and scaled.
/// `correction`, `[experts]`, is added to the probabilities for the choice alone.
///
/// # Panics
///
/// If there are fewer experts than a row chooses.
pub fn choose<B: Kernels>(
    probabilities: &Array<B>,
    correction: Option<&Array<B>>,
    rule: &RoutingRule,
) -> ExpertChoices<B> {
    let (top_k, num_experts) = (rule.top_k, probabilities.size(1));
    assert!(top_k <= num_experts, "each of the {top_k} chosen experts is another");
    B::choose_experts(probabilities, correction, rule)
}

/// Number of rows that chose each of `num_experts` experts, `[experts]` in fp32.
pub fn load<B: Kernels>(experts: &Indices<B>, num_experts: usize) -> Array<B> {
    ExpertCounts::counted(B::count_choices(experts, num_experts)).numbers()
}

/// Choices `[rows, top_k]` sorted by expert.
pub fn sort<B: Kernels>(experts: &Indices<B>, num_experts: usize) -> Sorted<B> {
    B::sort_choices(experts, num_experts)
}

/// For each choice of an expert, the number of earlier choices of the same expert.
pub fn places(choices: &[usize], num_experts: usize) -> Vec<usize> {
    let mut taken = vec![0; num_experts];
    let place = |expert: &usize| {
        taken[*expert] += 1;
        taken[*expert] - 1
    };
    choices.iter().map(place).collect()
}

/// The rows of `x`, `[rows, width]`, that are sent to experts, `[sent, width]`.
pub fn dispatch<B: Kernels>(x: &Array<B>, sorted: &Sorted<B>) -> Array<B> {
    B::select_rows(x, &sorted.rows)
}

/// The gradient of the rows before dispatch.
pub fn dispatch_grad<B: Kernels>(grad: Array<B>, sorted: &Sorted<B>) -> Array<B> {
    B::gather_sent(grad, &sorted.places, None)
}

/// The experts' outputs `y`, `[sent, width]`, brought back to rows and summed by the weights of `choices`.
pub fn combine<B: Kernels>(
    y: Array<B>,
    sorted: &Sorted<B>,
    choices: &ExpertChoices<B>,
) -> Array<B> {
    B::gather_sent(y, &sorted.places, Some(&choices.weights))
}

/// The gradient of the experts' outputs that were combined.
pub fn combine_input_grad<B: Kernels>(
    grad: &Array<B>,
    sorted: &Sorted<B>,
    choices: &ExpertChoices<B>,
) -> Array<B> {
    let num_choices = choices.weights.num_elements();
    let weights = choices.weights.clone().reshape(&[num_choices, 1]);
    let weights = B::select_rows(&weights, &sorted.choices);
    let rows = B::select_rows(grad, &sorted.rows);
    let element = grad.element();
    (rows.widened() * weights.cast(element.widened())).cast(element)
}

/// The gradient of the weights by which the experts' outputs `y` were combined, `[rows, top_k]`: zero for choices that
/// were not sent.
pub fn combine_weight_grad<B: Kernels>(
    y: Array<B>,
    grad: Array<B>,
    sorted: &Sorted<B>,
) -> Array<B> {
    B::choice_products(y, &sorted.places, grad)
}

/// The gradient of the probabilities from the gradient of the weights, `[rows, top_k]`.
///
/// ```text
/// dp_i = c dw_i                                   without division by the sum
/// dp_i = (c dw_i - sum_j w_j dw_j) / sum_j p_j    with it, over the chosen experts j; scaled by c
/// ```
///
/// Zero for experts that were not chosen.
pub fn probability_grad<B: Kernels>(
    probabilities: &Array<B>,
    choices: &ExpertChoices<B>,
    weight_grad: Array<B>,
    rule: &RoutingRule,
) -> Array<B> {
    B::probability_grad(probabilities, choices, weight_grad, rule)
}
