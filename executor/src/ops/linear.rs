//! Linear layers `y = x W + b` on rows `[rows, in]`, with weights `[in, out]`; and as many of them as there
//! are experts, each applied to rows of its own.

use super::Kernels;
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

/// `x W + z`, `[rows, out]`, of `z` in that shape.
pub fn forward_plus<B: Kernels>(x: Array<B>, weight: Array<B>, addend: Array<B>) -> Array<B> {
    B::matmul_plus(x, weight, addend)
}

/// The gradient of the rows, `[rows, in]`.
pub fn input_grad<B: Kernels>(grad: Array<B>, weight: Array<B>) -> Array<B> {
    B::matmul(grad, weight.transpose())
}

/// The gradient of the rows added to another, `[rows, in]`.
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
    counts: &[usize],
    weight: Array<B>,
    bias: Option<Array<B>>,
) -> Array<B> {
    let num_outputs = weight.size(2);
    by_expert(x, counts, num_outputs, |expert, rows| {
        forward(rows, of_expert(&weight, expert), bias.as_ref().map(|b| of_expert(b, expert)))
    })
}

/// [`input_grad`] for experts.
pub fn grouped_input_grad<B: Kernels>(
    grad: Array<B>,
    counts: &[usize],
    weight: Array<B>,
) -> Array<B> {
    let num_inputs = weight.size(1);
    by_expert(grad, counts, num_inputs, |expert, rows| input_grad(rows, of_expert(&weight, expert)))
}

/// [`weight_grad`] for experts, `[experts, in, out]`; zeros for an expert without rows.
pub fn grouped_weight_grad<B: Kernels>(x: Array<B>, counts: &[usize], grad: Array<B>) -> Array<B> {
    let (num_inputs, num_outputs) = (x.size(1), grad.size(1));
    let gradients = x.split(0, counts).into_iter().zip(grad.split(0, counts)).map(|(x, grad)| {
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
pub fn grouped_bias_grad<B: Kernels>(counts: &[usize], grad: Array<B>) -> Array<B> {
    let num_outputs = grad.size(1);
    let gradients = grad.split(0, counts).into_iter().map(|grad| {
        let gradient = if grad.size(0) == 0 {
            Array::zeros(&[num_outputs], grad.element(), &grad.device())
        } else {
            bias_grad(grad)
        };
        gradient.reshape(&[1, num_outputs])
    });
    Array::concat(gradients.collect(), 0)
}

/// `apply` to the rows of each expert that has some; the results, of `width` features, below each other.
fn by_expert<B: Kernels>(
    rows: Array<B>,
    counts: &[usize],
    width: usize,
    apply: impl Fn(usize, Array<B>) -> Array<B>,
) -> Array<B> {
    assert_eq!(counts.iter().sum::<usize>(), rows.size(0), "every row has an expert");
    let parts: Vec<_> = rows
        .split(0, counts)
        .into_iter()
        .enumerate()
        .filter(|(_, part)| part.size(0) > 0)
        .map(|(expert, part)| apply(expert, part))
        .collect();
    if parts.is_empty() {
        return Array::zeros(&[0, width], rows.element(), &rows.device());
    }
    Array::concat(parts, 0)
}

/// What expert number `expert` has of `[experts, ..]`, without that dimension.
fn of_expert<B: Kernels>(parameters: &Array<B>, expert: usize) -> Array<B> {
    let shape = parameters.shape();
    parameters.narrow(0, expert..expert + 1).reshape(&shape[1..])
}
