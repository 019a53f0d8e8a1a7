//! Rates of matrix products on a device.

use std::collections::BTreeMap;

use burn::tensor::DType;
use executor_kernels::array::{Array, Element};
use executor_kernels::clock::Deadline;
use executor_kernels::ops::Kernels;
use executor_runtime::settings::compute_element;
use ir::cluster::{Cluster, Precision};

use super::finding::{CheckFinding, caught};
use super::sheet::share;
use super::speeds::least;
use crate::measure::Repeats;

/// Rows and columns of each product, and the length of its sums: square products, and those of a Llama of a billion
/// parameters on 4,096 tokens (queries, feed-forward in and out, a quarter of the head). Lengths are powers of two, so
/// that sums of ones are exact.
const SHAPES: [[usize; 3]; 10] = [
    [256, 256, 256],
    [512, 512, 512],
    [1024, 1024, 1024],
    [2048, 2048, 2048],
    [4096, 4096, 4096],
    [8192, 8192, 8192],
    [4096, 2048, 2048],
    [4096, 8192, 2048],
    [4096, 2048, 8192],
    [4096, 32_064, 2048],
];

/// The measured precisions.
const PRECISIONS: [Precision; 3] = [Precision::Fp32, Precision::Fp16, Precision::Bf16];

/// Limit of a product's expected time, in seconds; longer ones are skipped.
const LONG: f64 = 0.25;

/// Repetitions of each measurement; the fastest counts.
pub(super) const REPEATS: Repeats = Repeats { warm_ups: 1, times: 3, in_a_row: 2 };

/// Minimum share of the data sheet's peak that the fastest product reaches if its kernel is made for the device.
const LEAST_SHARE_OF_PEAK: f64 = 0.3;

/// Measures matrix products of many shapes, in each precision that the device supports, and compares the fastest with
/// the peak of its data sheet.
pub fn products<B: Kernels>(
    device: &B::Device,
    sheet: Option<&Cluster>,
    deadline: Deadline,
    found: &mut dyn FnMut(CheckFinding),
) {
    let mut precisions: Vec<_> = PRECISIONS
        .into_iter()
        .filter(|it| B::supports_dtype(device, DType::from(compute_element(*it))))
        .collect();
    let mut fastest: BTreeMap<Precision, f64> = BTreeMap::new();
    // Small products have lower rates than large ones, so their rate bounds the time of large ones.
    let mut last: BTreeMap<Precision, f64> = BTreeMap::new();
    let mut left_out = 0;
    for shape in SHAPES {
        let operations = 2.0 * shape.iter().map(|size| *size as f64).product::<f64>();
        let mut rates = Vec::new();
        precisions.retain(|precision| {
            let expected = last.get(precision).map_or(0.0, |rate| operations / rate);
            if expected > LONG || deadline.is_over() {
                left_out += 1;
                return true;
            }
            let said = match caught(|| rate::<B>(shape, compute_element(*precision), device)) {
                Ok(Some(rate)) => {
                    last.insert(*precision, rate);
                    let best = fastest.entry(*precision).or_default();
                    *best = best.max(rate);
                    rates.push((*precision, rate));
                    return true;
                }
                Ok(None) => "the product of ones is wrong".to_owned(),
                Err(said) => said,
            };
            // Other products of this precision would fail too.
            let hint = "report it with the name of the device; `--only kernels` looks closer";
            found(CheckFinding::fail(named(shape), format!("{precision}: {said}"), hint));
            false
        });
        tell(shape, &rates, sheet, found);
    }
    if left_out > 0 && deadline.is_over() {
        found(CheckFinding::out_of_time(format!("{left_out} larger products")));
    } else if left_out > 0 {
        let said = format!("would take longer than {LONG} s each");
        found(CheckFinding::skip(format!("{left_out} larger products"), said));
    }
    for (precision, rate) in fastest {
        let peak = peak(sheet, precision);
        let said = format!("{}{}", describe_rate(rate), share(rate, peak));
        let name = format!("fastest in {precision}");
        let is_right = peak.is_none_or(|peak| rate >= LEAST_SHARE_OF_PEAK * peak);
        let hint = "this executor's products are not made for this device, or its clock is held down: `nvidia-smi -q -d CLOCK`";
        let finding = CheckFinding::judged(name, said, is_right, hint);
        found(finding.with("flops_per_second", rate));
    }
}

/// Operations per second of a product; none where its result is wrong.
fn rate<B: Kernels>([m, n, k]: [usize; 3], element: Element, device: &B::Device) -> Option<f64> {
    let left = Array::<B>::ones(&[m, k], element, device);
    let right = Array::<B>::ones(&[k, n], element, device);
    let product = left.clone().matmul(right.clone());
    let corner = product.narrow(0, m - 1..m).narrow(1, n - 4..n).to_f64();
    if corner.iter().any(|value| value.total_cmp(&(k as f64)).is_ne()) {
        return None;
    }
    let time = least::<B, _>(device, REPEATS, || left.clone().matmul(right.clone()));
    Some(2.0 * m as f64 * n as f64 * k as f64 / time)
}

fn tell(
    shape: [usize; 3],
    rates: &[(Precision, f64)],
    sheet: Option<&Cluster>,
    found: &mut dyn FnMut(CheckFinding),
) {
    if rates.is_empty() {
        return;
    }
    let said = rates.iter().map(|(precision, rate)| {
        let share = peak(sheet, *precision).map(|peak| format!(" ({:.0} %)", rate / peak * 100.0));
        format!("{precision} {}{}", describe_rate(*rate), share.unwrap_or_default())
    });
    let finding = CheckFinding::pass(named(shape), said.collect::<Vec<_>>().join(", "));
    found(rates.iter().fold(finding, |finding, (precision, rate)| {
        finding.with(format!("{precision}_flops_per_second"), *rate)
    }));
}

fn named([m, n, k]: [usize; 3]) -> String {
    format!("{m} x {n} x {k}")
}

/// A rate as text: `12.3 TFLOP/s`.
fn describe_rate(rate: f64) -> String {
    if rate < 1e12 {
        format!("{:.1} GFLOP/s", rate / 1e9)
    } else {
        format!("{:.1} TFLOP/s", rate / 1e12)
    }
}

fn peak(sheet: Option<&Cluster>, precision: Precision) -> Option<f64> {
    sheet.and_then(|it| it.gpu.peak.get(&precision)).map(|peak| peak.get())
}
