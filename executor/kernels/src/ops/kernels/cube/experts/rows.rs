//! Combination of the rows that experts return, and its gradients.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::launch::{
    Grid, cube_sum, empty, has_planes, launch, len, rows_and_width, sum_of, units_of_row,
    vector_size,
};

/// The sum of the returned rows of each row's choices, by fp32 weights if there are any: `[rows, width]`.
pub(in super::super) fn gather<R: CubeRuntime>(
    sent: CubeTensor<R>,
    places: CubeTensor<R>,
    weights: Option<CubeTensor<R>>,
) -> CubeTensor<R> {
    let (sent, places) = (into_contiguous(sent), into_contiguous(places));
    let [rows, top_k] = rows_and_width(&places);
    let [_, width] = rows_and_width(&sent);
    let element = sent.dtype;
    let y = empty(&sent, &[rows, width], element);
    if len(&y) > 0 {
        let is_weighted = weights.is_some();
        // Absent weights are not read: any array of their type will do.
        let weights = weights.map_or_else(|| empty(&y, &[1], DType::F32), into_contiguous);
        let size = vector_size(&[&sent, &y]);
        launch!(
            gather_kernel,
            Grid::of_units(&[&sent, &y], len(&y) / size),
            size,
            sent.into_array_arg(),
            places.into_array_arg(),
            weights.into_array_arg(),
            y.clone().into_array_arg(),
            width / size,
            top_k,
            is_weighted,
            element.into(),
        );
    }
    y
}

/// `rowsum(grad sent)` of each choice, `[rows, top_k]` in fp32.
pub(in super::super) fn products<R: CubeRuntime>(
    sent: CubeTensor<R>,
    places: CubeTensor<R>,
    grad: CubeTensor<R>,
) -> CubeTensor<R> {
    let [sent, places, grad] = [sent, places, grad].map(into_contiguous);
    let [_, top_k] = rows_and_width(&places);
    let [_, width] = rows_and_width(&sent);
    let sums = empty(&places, places.meta.shape(), DType::F32);
    let num_choices = len(&sums);
    if num_choices > 0 {
        let size = vector_size(&[&sent, &grad]);
        let (units, planes) = (units_of_row(width / size), has_planes(&sent.client));
        let element = sent.dtype.into();
        launch!(
            products_kernel,
            Grid::of_cubes(&[&sent, &grad], num_choices, units),
            size,
            sent.into_array_arg(),
            places.into_array_arg(),
            grad.into_array_arg(),
            sums.clone().into_array_arg(),
            num_choices,
            width / size,
            top_k,
            units,
            planes,
            element,
        );
    }
    sums
}

/// The gradient of probabilities `[rows, experts]` in fp32 from the gradient of weights.
pub(in super::super) fn probability_grad<R: CubeRuntime>(
    probabilities: CubeTensor<R>,
    [experts, weights, weight_grad]: [CubeTensor<R>; 3],
    scaling: f32,
    is_normalised: bool,
) -> CubeTensor<R> {
    let probabilities = into_contiguous(probabilities);
    let [experts, weights, weight_grad] = [experts, weights, weight_grad].map(into_contiguous);
    let [_, num_experts] = rows_and_width(&probabilities);
    let [_, top_k] = rows_and_width(&experts);
    let grad = empty(&probabilities, probabilities.meta.shape(), DType::F32);
    if len(&grad) > 0 {
        launch!(
            probability_kernel,
            Grid::of_units(&[&probabilities], len(&grad)),
            probabilities.into_array_arg(),
            experts.into_array_arg(),
            weights.into_array_arg(),
            weight_grad.into_array_arg(),
            grad.clone().into_array_arg(),
            num_experts,
            top_k,
            scaling,
            is_normalised,
        );
    }
    grad
}

#[cube(launch, address_type = "dynamic")]
fn gather_kernel<F: Float, N: Size>(
    sent: &Array<Vector<F, N>>,
    places: &Array<i32>,
    weights: &Array<f32>,
    y: &mut Array<Vector<F, N>>,
    width: usize,
    top_k: usize,
    #[comptime] is_weighted: bool,
    #[define(F)] _element: StorageType,
) {
    let element = ABSOLUTE_POS;
    if element < y.len() {
        let (row, feature) = (element / width, element % width);
        let mut sum = Vector::<f32, N>::new(0.0);
        for slot in 0..top_k {
            let choice = row * top_k + slot;
            let place = usize::cast_from(places[choice]) * width + feature;
            if place < sent.len() {
                let mut vector = Vector::<f32, N>::cast_from(sent[place]);
                if is_weighted {
                    vector *= Vector::<f32, N>::new(weights[choice]);
                }
                sum += vector;
            }
        }
        y[element] = Vector::cast_from(sum);
    }
}

#[cube(launch, address_type = "dynamic")]
fn products_kernel<F: Float, N: Size>(
    sent: &Array<Vector<F, N>>,
    places: &Array<i32>,
    grad: &Array<Vector<F, N>>,
    sums: &mut Array<f32>,
    num_choices: usize,
    width: usize,
    top_k: usize,
    #[comptime] units: usize,
    #[comptime] planes: bool,
    #[define(F)] _element: StorageType,
) {
    let choice = CUBE_POS;
    if choice < num_choices {
        let start = usize::cast_from(places[choice]) * width;
        let of_row = choice / top_k * width;
        let mut sum = Vector::<f32, N>::new(0.0);
        if start < sent.len() {
            for feature in range_stepped(UNIT_POS as usize, width, units) {
                let row = Vector::<f32, N>::cast_from(sent[start + feature]);
                sum += row * Vector::cast_from(grad[of_row + feature]);
            }
        }
        let sum = cube_sum(sum_of(sum), units, planes);
        if UNIT_POS == 0 {
            sums[choice] = sum;
        }
    }
}

#[cube(launch, address_type = "dynamic")]
fn probability_kernel(
    probabilities: &Array<f32>,
    experts: &Array<i32>,
    weights: &Array<f32>,
    weight_grad: &Array<f32>,
    grad: &mut Array<f32>,
    num_experts: usize,
    top_k: usize,
    scaling: f32,
    #[comptime] is_normalised: bool,
) {
    let place = ABSOLUTE_POS;
    if place < grad.len() {
        let (row, expert) = (place / num_experts, place % num_experts);
        let mut own = f32::new(0.0);
        let mut is_chosen = false;
        let mut along = f32::new(0.0);
        let mut sum = f32::new(0.0);
        for choice in row * top_k..(row + 1) * top_k {
            let other = usize::cast_from(experts[choice]);
            if other == expert {
                own = weight_grad[choice];
                is_chosen = true;
            }
            if is_normalised {
                along += weights[choice] * weight_grad[choice];
                sum += probabilities[row * num_experts + other];
            }
        }
        let mut value = f32::new(0.0);
        if is_chosen {
            if is_normalised {
                value = (own - along / scaling) / sum * scaling;
            } else {
                value = own * scaling;
            }
        }
        grad[place] = value;
    }
}
