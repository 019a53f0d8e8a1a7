//! Speeds of a device: memory bandwidth, launch overhead, and copies to and from its host.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use burn::tensor::TensorData;
use executor_kernels::array::{Array, Element};
use executor_kernels::clock::Deadline;
use executor_kernels::ops::Kernels;
use ir::cluster::Cluster;
use ir::units::{Bytes, Seconds};

use super::finding::CheckFinding;
use super::sheet::share;
use crate::measure::{Measured, Repeats, alone, measure};

/// Smallest and largest arrays of fp32 that are measured, in elements: the largest is more than caches hold.
const SMALLEST: usize = 1 << 20;
const LARGEST: usize = 64 << 20;

/// Arrays stop growing once an operation takes this long.
const LONG: Duration = Duration::from_millis(20);

/// Repetitions of each measurement, of which the fastest counts. Each has several operations in a row, so that the wait
/// at its end weighs little.
const REPEATS: Repeats = Repeats { warm_ups: 1, times: 5, in_a_row: 4 };

/// Number of kernels that are launched without a wait between them.
const LAUNCHES: u32 = 300;

/// Minimum share of the data sheet's bandwidth that a device reaches when it works correctly.
const LEAST_SHARE_OF_MEMORY: f64 = 0.6;

/// Maximum time of a kernel launch on a GPU when it works correctly, in seconds.
const LONGEST_LAUNCH: f64 = 100e-6;

/// Measures bandwidths of memory and of the link to the host, and the time of a launch. `sheet` is the data sheet of a
/// GPU, with which the bandwidths are compared; `is_host` says that the device is the host itself.
pub fn speeds<B: Kernels>(
    device: &B::Device,
    sheet: Option<&Cluster>,
    is_host: bool,
    deadline: Deadline,
    found: &mut dyn FnMut(CheckFinding),
) {
    let sheet_bandwidth = sheet.map(|it| it.gpu.memory_bandwidth.get());
    memory::<B>(device, sheet_bandwidth, deadline, found);
    if deadline.is_over() {
        return found(CheckFinding::out_of_time("launches and the host"));
    }
    launches::<B>(device, sheet.is_some(), found);
    if !is_host {
        host::<B>(device, sheet, found);
    }
}

/// The minimum time of an operation, in seconds.
pub(super) fn least<B: Kernels, T>(
    device: &B::Device,
    repeats: Repeats,
    run: impl FnMut() -> T,
) -> f64 {
    alone::<B, _>(device, repeats, run).times.least()
}

fn memory<B: Kernels>(
    device: &B::Device,
    sheet: Option<f64>,
    deadline: Deadline,
    found: &mut dyn FnMut(CheckFinding),
) {
    let mut length = SMALLEST;
    let (bytes, copy, sum) = loop {
        let [one, other] = [(); 2].map(|()| Array::<B>::ones(&[length], Element::F32, device));
        let bytes = one.num_bytes();
        let copy = least::<B, _>(device, REPEATS, || one.clone().scale(1.5));
        let sum = least::<B, _>(device, REPEATS, || one.clone() + other.clone());
        if copy.max(sum) > LONG.as_secs_f64() || length >= LARGEST || deadline.is_over() {
            break (bytes, copy, sum);
        }
        length *= 4;
    };
    let size = Bytes::new(bytes);
    for (name, arrays, time) in [("copy", 2.0, copy), ("sum of two", 3.0, sum)] {
        let rate = arrays * bytes as f64 / time;
        let said = format!("{:.1} GB/s{}", rate / 1e9, share(rate, sheet));
        let name = format!("{name} of {size}");
        let is_right = sheet.is_none_or(|sheet| rate >= LEAST_SHARE_OF_MEMORY * sheet);
        let hint = "see with `nvidia-smi` whether something else uses the GPU, and whether its power or \
                    clock is held down";
        let finding = CheckFinding::judged(name, said, is_right, hint);
        found(finding.with("bandwidth_bytes_per_second", rate).with("size_bytes", bytes as f64));
    }
}

fn launches<B: Kernels>(device: &B::Device, is_gpu: bool, found: &mut dyn FnMut(CheckFinding)) {
    let one = Array::<B>::ones(&[1], Element::F32, device);
    let [launch, wait] = [LAUNCHES, 1].map(|in_a_row| {
        let repeats = Repeats { in_a_row, ..REPEATS };
        least::<B, _>(device, repeats, || one.clone() + one.clone())
    });
    let said = format!("{} each, {} with a wait", Seconds::new(launch), Seconds::new(wait));
    let is_right = !is_gpu || launch <= LONGEST_LAUNCH;
    let hint = "the host is slow: is its processor shared, or its clock held down?";
    let finding = CheckFinding::judged("launches in a row", said, is_right, hint);
    found(finding.with("launch_seconds", launch).with("launch_and_wait_seconds", wait));
}

/// Elements of fp32 that are copied to the device and back.
const SENT: usize = 16 << 20;

fn host<B: Kernels>(
    device: &B::Device,
    sheet: Option<&Cluster>,
    found: &mut dyn FnMut(CheckFinding),
) {
    let data = TensorData::new(vec![1.0f32; SENT], [SENT]);
    let bytes = (SENT * size_of::<f32>()) as f64;
    let repeats = Repeats { warm_ups: 0, in_a_row: 1, ..REPEATS };
    let own = Cell::new(None);
    let ready = || {
        own.set(Some(data.clone()));
        Ok::<(), Infallible>(())
    };
    let send = || Ok(Array::<B>::from_data(own.take().expect("each run has data"), device));
    let Ok(Measured { times: to_device, last: there }) =
        measure::<B, _, _>(device, repeats, ready, send);
    let Measured { times: to_host, last: came_back } =
        alone::<B, _>(device, repeats, || there.clone().into_data());
    let is_same = came_back.as_bytes() == data.as_bytes();
    let sheet = sheet.map(|it| it.host_link_bandwidth.get());
    let size = Bytes::new(bytes as u64);
    for (name, time) in [("from the host", to_device), ("to the host", to_host)] {
        let rate = bytes / time.least();
        let wrong = if is_same { "" } else { ", but what came back is not what was sent" };
        let said = format!("{:.1} GB/s{}{wrong}", rate / 1e9, share(rate, sheet));
        let hint = "nothing else can be trusted: look at the device's own errors first";
        let finding = CheckFinding::judged(format!("{size} {name}"), said, is_same, hint);
        found(finding.with("bandwidth_bytes_per_second", rate).with("size_bytes", bytes));
    }
}
