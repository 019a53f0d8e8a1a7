//! Linear layers `y = x W + b` on rows `[rows, in]`, with weights `[in, out]`; and grouped ones, one for each expert,
//! applied to the rows of that expert.

use super::Kernels;
use super::experts::ExpertCounts;
use crate::array::Array;

/// `x W + b`, `[rows, out]`.
pub fn forward<B: Kernels>(x: Array<B>, weight: Array<B>, bias: Option<Array<B>>) -> Array<B> {
    let y = B::matmul(x, weight);
    match bias {
        Some(bias) => {
            let width = bias.num_elements();
            y + bias.reshape(&[1, width])
        }
        None => y,
    }
}

/// `x W + z`, `[rows, out]`, with `z` of that shape.
pub fn forward_plus<B: Kernels>(x: Array<B>, weight: Array<B>, addend: Array<B>) -> Array<B> {
    B::matmul_plus(x, weight, addend)
}

/// The gradient of the rows, `[rows, in]`.
pub fn input_grad<B: Kernels>(grad: Array<B>, weight: Array<B>) -> Array<B> {
    B::matmul(grad, weight.transpose())
}

/// The gradient of the rows plus another gradient, `[rows, in]`.
pub fn input_grad_plus<B: Kernels>(grad: Array<B>, weight: Array<B>, addend: Array<B>) -> Array<B> {
    B::matmul_plus(grad, weight.transpose(), addend)
}

/// The gradient of the weight, `[in, out]`.
pub fn weight_grad<B: Kernels>(x: Array<B>, grad: Array<B>) -> Array<B> {
    B::matmul(x.transpose(), grad)
}

/// The gradient of the bias, `[out]`.
pub fn bias_grad<B: Kernels>(grad: Array<B>) -> Array<B> {
    let element = grad.element();
    grad.widened().sum_dim(0).flatten().cast(element)
}

/// [`forward`] for experts: the first `counts[0]` rows by the first expert, the next `counts[1]` by the
/// second, and so on. `weight` is `[experts, in, out]`, `bias` is `[experts, out]`.
pub fn grouped_forward<B: Kernels>(
    x: Array<B>,
    counts: &ExpertCounts<B>,
    weight: Array<B>,
    bias: Option<Array<B>>,
) -> Array<B> {
    let ones = bias.is_some().then(|| ones_of_rows(&x));
    let y = grouped_product(x, counts, &weight, false);
    match (ones, bias) {
        (Some(ones), Some(bias)) => {
            let [experts, width] = [bias.size(0), bias.size(1)];
            y + grouped_product(ones, counts, &bias.reshape(&[experts, 1, width]), false)
        }
        _ => y,
    }
}

/// [`input_grad`] for experts.
pub fn grouped_input_grad<B: Kernels>(
    grad: Array<B>,
    counts: &ExpertCounts<B>,
    weight: Array<B>,
) -> Array<B> {
    grouped_product(grad, counts, &weight, true)
}

/// [`weight_grad`] for experts, `[experts, in, out]`; zeros for an expert without rows.
pub fn grouped_weight_grad<B: Kernels>(
    x: Array<B>,
    counts: &ExpertCounts<B>,
    grad: Array<B>,
) -> Array<B> {
    if let Some(product) = B::grouped_outer(&x, counts, &grad) {
        return product;
    }
    let (num_inputs, num_outputs) = (x.size(1), grad.size(1));
    let sizes = counts.on_host();
    let gradients = x.split(0, sizes).into_iter().zip(grad.split(0, sizes)).map(|(x, grad)| {
        let gradient = if x.size(0) == 0 {
            Array::zeros(&[num_inputs, num_outputs], grad.element(), &grad.device())
        } else {
            weight_grad(x, grad)
        };
        gradient.reshape(&[1, num_inputs, num_outputs])
    });
    Array::concat(gradients.collect(), 0)
}

/// [`bias_grad`] for experts, `[experts, out]`; zeros for an expert without rows.
pub fn grouped_bias_grad<B: Kernels>(counts: &ExpertCounts<B>, grad: Array<B>) -> Array<B> {
    let shape = [counts.num_experts(), grad.size(1)];
    grouped_weight_grad(ones_of_rows(&grad), counts, grad).reshape(&shape)
}

/// One for each row, `[rows, 1]`: a product with ones adds a bias to rows, or adds rows up.
fn ones_of_rows<B: Kernels>(rows: &Array<B>) -> Array<B> {
    Array::ones(&[rows.size(0), 1], rows.element(), &rows.device())
}

/// The rows of each expert times its matrix of `[experts, in, out]`, or the transposed one, expert by expert.
fn grouped_product<B: Kernels>(
    rows: Array<B>,
    counts: &ExpertCounts<B>,
    weight: &Array<B>,
    is_transposed: bool,
) -> Array<B> {
    let turned = |weight: Array<B>| if is_transposed { weight.transpose() } else { weight };
    if let Some(product) = B::grouped_matmul(&rows, counts, &turned(weight.clone())) {
        return product;
    }
    let sizes = counts.on_host();
    assert_eq!(sizes.iter().sum::<usize>(), rows.size(0), "every row has an expert");
    let of_experts = rows.split(0, sizes).into_iter().enumerate();
    let products: Vec<_> = of_experts
        .filter(|(_, rows)| rows.size(0) > 0)
        .map(|(expert, rows)| B::matmul(rows, turned(of_expert(weight, expert))))
        .collect();
    if products.is_empty() {
        let width = weight.size(if is_transposed { 1 } else { 2 });
        return Array::zeros(&[0, width], rows.element(), &rows.device());
    }
    Array::concat(products, 0)
}

/// The part of expert number `expert` of `[experts, ..]`, without that dimension.
fn of_expert<B: Kernels>(parameters: &Array<B>, expert: usize) -> Array<B> {
    let shape = parameters.shape();
    parameters.narrow(0, expert..expert + 1).reshape(&shape[1..])
}
