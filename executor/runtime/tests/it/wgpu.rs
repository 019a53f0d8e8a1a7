//! Layouts whose ranks share a device compute what one rank computes on the CPU.

use std::sync::Arc;

use executor_communicators::{Communicator, local};
use executor_kernels::array::Element;
use executor_kernels::wgpu::Wgpu;
use executor_kernels::wgpu::WgpuDevice;
use ir::graph::Recompute;
use ir::layout::ZeroStage;
use ir::schedule::ScheduleKind;

use crate::parity::{Outcome, difference, gathered, train};
use crate::training::{GPT, LLAMA, LayoutCase, MIXTRAL, ONE, program, rank_on, stepped};

/// The device, or none where there is no driver, which the test then says.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn device() -> Option<WgpuDevice> {
    let device = executor_kernels::wgpu::device();
    if let Err(error) = &device {
        eprintln!("skipped: {error}");
    }
    device.ok()
}

/// Tolerance of losses in fp32, as between layouts on the CPU.
const TOLERANCE: f64 = 1e-4;

fn train_on(device: &WgpuDevice, model: &str, case: LayoutCase) -> Outcome {
    let program = Arc::new(program(model, case, Element::F32));
    let devices = [device.clone()];
    let run = |communicator: Arc<dyn Communicator<Wgpu>>| {
        stepped(rank_on(&program, communicator, device.clone())?)
    };
    let outcomes = local::run(program.num_ranks(), &devices, run);
    gathered(&program, &outcomes.unwrap_or_else(|failure| panic!("{failure}")))
}

fn check(model: &str, cases: &[LayoutCase]) {
    let Some(device) = device() else { return };
    let one = train(program(model, ONE, Element::F64));
    for case in cases {
        let (losses, _, weights) = difference(&one, &train_on(&device, model, *case));
        assert!(losses < TOLERANCE, "losses {losses:.1e} weights {weights:.1e}: {case:?}");
    }
}

#[test]
fn llama() {
    check(
        LLAMA,
        &[
            ONE,
            LayoutCase { tensor: 2, sequence: true, pipeline: 2, ..ONE },
            LayoutCase { data: 2, zero: ZeroStage::Parameters, recompute: Recompute::Full, ..ONE },
            LayoutCase { context: 2, micro_batch_size: 2, ..ONE },
        ],
    );
}

#[test]
fn gpt() {
    let schedule = ScheduleKind::ZbH1;
    check(GPT, &[LayoutCase { tensor: 2, pipeline: 2, schedule, micro_batch_size: 2, ..ONE }]);
}

#[test]
fn mixtral() {
    check(MIXTRAL, &[LayoutCase { expert: 2, data: 2, micro_batch_size: 2, ..ONE }]);
}
