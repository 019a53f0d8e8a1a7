//! Memory of ranks is what the plan's formulas say, of every family: in one layout each, in all with
//! `RUN_SLOW_TESTS=1`.

use std::sync::Arc;

use burn_flex::FlexDevice;
use executor_communicators::local;
use executor_kernels::array::Element;
use executor_runtime::program::Program;
use executor_runtime::rank::RunError;
use ir::graph::{BlockRecompute, Recompute, ShardContext};

use super::traffic::{graph, setting};
use super::training::{LayoutCase, ONE, parts, rank};

/// Bytes of a parameter's weight, gradient and two moments in fp32.
const STATE_BYTES: u64 = 16;

/// Bytes of each rank at its fullest in a step, and those of the plan: states, and what each block keeps.
fn held(program: Program) -> (Vec<u64>, u64) {
    let graph = graph(&program);
    let policy = program.layout.recompute.of_other_layers();
    let last = graph.num_blocks() - 1;
    let mut planned = 0;
    for (position, class) in graph.blocks().enumerate() {
        let setting = ShardContext { compute_bytes: 4, ..setting(&program, position == 0) };
        let work = graph.class(class).work(&setting);
        let is_end = position == 0 || position == last;
        let policy = if is_end { BlockRecompute::None } else { policy };
        planned += work.saved_bytes(policy).get();
        planned += STATE_BYTES * (work.parameters.dense + work.parameters.expert);
    }
    let program = Arc::new(program);
    let peaks = local::run(program.num_ranks(), &[FlexDevice], |communicator| {
        let mut rank = rank(&program, communicator)?;
        // Moments are there from the first update on.
        rank.step()?;
        rank.step()?;
        Ok::<_, RunError>(rank.peak_memory().get())
    });
    (peaks.unwrap_or_else(|failure| panic!("{failure}")), planned)
}

#[test]
fn memory_of_families_is_as_planned() {
    let whole = LayoutCase { micro_batch_size: 4, ..ONE };
    let tensor = LayoutCase { tensor: 2, sequence: true, ..whole };
    let cases = [
        whole,
        tensor,
        LayoutCase { recompute: Recompute::Selective, ..whole },
        LayoutCase { recompute: Recompute::Selective, ..tensor },
    ];
    let (mut wrong, mut compared) = (Vec::new(), 0);
    let all = super::runs_slow_tests();
    for (place, (name, model)) in super::drawn::models().into_iter().enumerate() {
        for (turn, case) in cases.into_iter().enumerate() {
            if !all && place % cases.len() != turn {
                continue;
            }
            // Images have no sequence to cut.
            let Ok(program) = Program::new(parts(&model, case, Element::F32)) else { continue };
            let (peaks, planned) = held(program);
            compared += 1;
            for peak in peaks {
                // Indices, and how many rows each expert has, are on the host.
                let ratio = peak as f64 / planned as f64;
                if !(0.99..1.01).contains(&ratio) {
                    wrong.push(format!("{name}: {peak}, {planned} planned, {ratio:.3}: {case:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared >= if all { 4 * 65 + 2 } else { 65 }, "{compared}");
}
