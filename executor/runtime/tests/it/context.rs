//! Context parallelism: a ring of keys and values, or heads exchanged for positions.

use executor_kernels::array::Element;
use ir::graph::ContextParallelKind;
use ir::layout::ZeroStage;
use ir::schedule::ScheduleKind;

use super::parity::check;
use super::traffic::sent_for_attention;
use super::training::{GPT, LLAMA, LayoutCase, MIXTRAL, ONE, program};

/// Heads exchanged for positions, which need not divide as a ring's do.
#[test]
fn context_parallel_by_heads() {
    let by_heads = LayoutCase { context: 2, context_kind: ContextParallelKind::AllToAll, ..ONE };
    let again =
        |policy: &str, case: LayoutCase| LayoutCase { recompute: policy.parse().unwrap(), ..case };
    let cases = [
        by_heads,
        LayoutCase { data: 2, zero: ZeroStage::Gradients, ..by_heads },
        LayoutCase { pipeline: 2, schedule: ScheduleKind::ZbH1, ..by_heads },
        LayoutCase { pipeline: 2, schedule: ScheduleKind::DualPipe, ..by_heads },
        again("full", by_heads),
        again("attention", by_heads),
        again(
            "attention+norms",
            LayoutCase { pipeline: 2, schedule: ScheduleKind::ZbH1, ..by_heads },
        ),
    ];
    check(LLAMA, &cases);
    check(MIXTRAL, &[by_heads, LayoutCase { expert: 2, ..by_heads }]);
    let tensor = LayoutCase { tensor: 2, sequence: true, ..by_heads };
    check(
        GPT,
        &[tensor, LayoutCase { sequence: false, ..tensor }, LayoutCase { context: 4, ..by_heads }],
    );
}

/// What is sent for attention in a step is what the plan's exchanges say, to the byte.
#[test]
fn context_parallel_traffic_is_as_planned() {
    for (context, context_kind, recompute) in [
        (2, ContextParallelKind::Ring, "none"),
        (4, ContextParallelKind::Ring, "none"),
        (4, ContextParallelKind::Ring, "full"),
        (2, ContextParallelKind::AllToAll, "none"),
        (4, ContextParallelKind::AllToAll, "none"),
        (4, ContextParallelKind::AllToAll, "full"),
    ] {
        let recompute = recompute.parse().unwrap();
        let case = LayoutCase { context, context_kind, recompute, ..ONE };
        let (sent, planned) = sent_for_attention(program(GPT, case, Element::F64));
        assert!(
            planned > 0 && sent.iter().all(|sent| *sent == planned),
            "{sent:?}, not {planned}: {case:?}"
        );
    }
}
