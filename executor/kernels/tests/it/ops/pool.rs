//! Pooling.

use executor_kernels::ops::pool;
use ir::graph::Window2d;
use proptest::prelude::*;

use super::{Plain, assert_close, random};

/// What `reduce` makes of the elements of each window of each channel; a window is given as its range of
/// rows and its range of columns for each row and column of the output.
fn definition(
    x: &Plain,
    rows: &[std::ops::Range<usize>],
    columns: &[std::ops::Range<usize>],
    reduce: impl Fn(Vec<f64>) -> f64,
) -> Plain {
    let (shape, images) = (x.shape(), x.to_f64());
    let mut values = Vec::new();
    for channel in 0..shape[0] * shape[1] {
        for rows in rows {
            for columns in columns {
                let row = |i: usize| (channel * shape[2] + i) * shape[3];
                let seen = rows.clone().flat_map(|i| columns.clone().map(move |j| row(i) + j));
                values.push(reduce(seen.map(|place| images[place]).collect()));
            }
        }
    }
    Plain::from_f64(
        values,
        &[shape[0], shape[1], rows.len(), columns.len()],
        x.element(),
        &x.device(),
    )
}

/// The ranges of a side of `size` elements that its windows cover, padding left out.
fn ranges(window: &Window2d, axis: usize, size: usize) -> Vec<std::ops::Range<usize>> {
    let of = |pair: [u64; 2]| pair[axis] as usize;
    let (kernel, stride, padding) = (of(window.kernel), of(window.stride), of(window.padding));
    let count = (size + 2 * padding - kernel) / stride + 1;
    let start = |output: usize| output * stride;
    (0..count)
        .map(|i| start(i).saturating_sub(padding)..(start(i) + kernel - padding).min(size))
        .collect()
}

/// Kernels of 2 or 3 with padding of less than half, as PyTorch demands.
fn windows() -> impl Strategy<Value = Window2d> {
    ([2u64..4, 2u64..4], [1u64..3, 1u64..3], [0u64..2, 0u64..2])
        .prop_map(|(kernel, stride, padding)| Window2d { kernel, stride, padding, dilation: [1, 1], rounds_up: false })
}

/// A linear function's gradient is its transpose.
fn check_transpose(
    forward: impl Fn(Plain) -> Plain,
    gradient: impl Fn(Plain) -> Plain,
    shape: &[usize],
) {
    let x = random(shape, 1);
    let y = forward(x.clone());
    let grad = random(&y.shape(), 2);
    assert_close(&(y * grad.clone()).sum(), &(x * gradient(grad)).sum(), 1e-11);
}

proptest! {
    #[test]
    fn means_of_windows_are_as_defined(
        window in windows(), (b, c, h, w) in (1usize..3, 1usize..3, 3usize..7, 3usize..7), seed: u16,
    ) {
        let x = random(&[b, c, h, w], seed.into());
        let area = (window.kernel[0] * window.kernel[1]) as f64;
        let (rows, columns) = (ranges(&window, 0, h), ranges(&window, 1, w));
        let mean = |seen: Vec<f64>| seen.iter().sum::<f64>() / area;
        let expected = definition(&x, &rows, &columns, mean);
        assert_close(&pool::average_forward(x, &window), &expected, 1e-12);
        let shape = [b, c, h, w];
        check_transpose(
            |x| pool::average_forward(x, &window),
            |grad| pool::average_input_grad(&shape, &window, grad),
            &shape,
        );
    }

    #[test]
    fn means_of_adaptive_windows_are_as_defined(
        (b, c, h, w) in (1usize..3, 1usize..3, 1usize..8, 1usize..8),
        (rows, columns) in (1u64..4, 1u64..4), seed: u16,
    ) {
        let x = random(&[b, c, h, w], seed.into());
        let cover = |size: usize, count: u64| {
            let count = count as usize;
            let range = |i: usize| i * size / count..((i + 1) * size).div_ceil(count);
            (0..count).map(range).collect::<Vec<_>>()
        };
        let mean = |seen: Vec<f64>| seen.iter().sum::<f64>() / seen.len() as f64;
        let expected = definition(&x, &cover(h, rows), &cover(w, columns), mean);
        assert_close(&pool::adaptive_average_forward(x, [rows, columns]), &expected, 1e-12);
        let shape = [b, c, h, w];
        check_transpose(
            |x| pool::adaptive_average_forward(x, [rows, columns]),
            |grad| pool::adaptive_average_input_grad(&shape, grad),
            &shape,
        );
    }

    /// The largest element alone has a gradient: that of the outputs which it is.
    #[test]
    fn largest_of_windows_are_as_defined(
        window in windows(), (b, c, h, w) in (1usize..3, 1usize..3, 3usize..7, 3usize..7), seed: u16,
    ) {
        let x = random(&[b, c, h, w], seed.into());
        let (y, places) = pool::max_forward(x.clone(), &window);
        let (rows, columns) = (ranges(&window, 0, h), ranges(&window, 1, w));
        let expected =
            definition(&x, &rows, &columns, |seen| seen.into_iter().fold(f64::MIN, f64::max));
        assert_close(&y, &expected, 0.0);
        let grad = random(&y.shape(), 3);
        let gradient = pool::max_input_grad(x.clone(), places, &window, grad.clone());
        let (outputs, grads) = (y.to_f64(), grad.to_f64());
        let per_channel = rows.len() * columns.len();
        let expected = x.to_f64().into_iter().enumerate().map(|(place, value)| {
            let channel = place / (h * w);
            let own = channel * per_channel..(channel + 1) * per_channel;
            own.filter(|output| outputs[*output].to_bits() == value.to_bits())
                .map(|output| grads[output])
                .sum()
        });
        let expected = Plain::from_f64(expected.collect(), &[b, c, h, w], x.element(), &x.device());
        assert_close(&gradient, &expected, 1e-12);
    }
}
