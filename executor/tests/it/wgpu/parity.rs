//! Layouts whose ranks share a device compute what one rank computes on the CPU.

use std::sync::Arc;

use burn_wgpu::WgpuDevice;
use executor::array::Element;
use executor::communicator::{Communicator, local};
use executor::wgpu::Wgpu;
use ir::graph::Recompute;
use ir::layout::ZeroStage;
use ir::schedule::ScheduleKind;

use super::device;
use crate::parity::{Outcome, difference, gathered, train};
use crate::training::{Case, GPT, LLAMA, MIXTRAL, ONE, program, rank_on, stepped};

/// What losses differ by in fp32, as between layouts on the CPU.
const TOLERANCE: f64 = 1e-4;

fn train_on(device: &WgpuDevice, model: &str, case: Case) -> Outcome {
    let program = Arc::new(program(model, case, Element::F32));
    let devices = [device.clone()];
    let run = |communicator: Arc<dyn Communicator<Wgpu>>| {
        stepped(rank_on(&program, communicator, device.clone())?)
    };
    let outcomes = local::run(program.num_ranks(), &devices, run);
    gathered(&program, &outcomes.unwrap_or_else(|failure| panic!("{failure}")))
}

fn check(model: &str, cases: &[Case]) {
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
            Case { tensor: 2, sequence: true, pipeline: 2, ..ONE },
            Case { data: 2, zero: ZeroStage::Parameters, recompute: Recompute::Full, ..ONE },
            Case { context: 2, micro_batch_size: 2, ..ONE },
        ],
    );
}

#[test]
fn gpt() {
    let schedule = ScheduleKind::ZbH1;
    check(GPT, &[Case { tensor: 2, pipeline: 2, schedule, micro_batch_size: 2, ..ONE }]);
}

#[test]
fn mixtral() {
    check(MIXTRAL, &[Case { expert: 2, data: 2, micro_batch_size: 2, ..ONE }]);
}
