//! Context parallelism: a ring of keys and values, or heads exchanged for positions.

use std::sync::Arc;

use burn_flex::FlexDevice;
use executor::array::Element;
use executor::communicator::local;
use executor::program::Program;
use executor::rank::RunError;
use ir::collective::Collective;
use ir::graph::{Axis, ContextParallelKind, Pass, Recompute};
use ir::layout::ZeroStage;
use ir::schedule::ScheduleKind;
use traces::timeline::Stream;

use super::parity::check;
use super::traffic::setting;
use super::training::{Case, GPT, LLAMA, MIXTRAL, ONE, program, rank};

/// Heads exchanged for positions, which need not divide as a ring's do.
#[test]
fn context_parallel_by_heads() {
    let by_heads = Case { context: 2, context_kind: ContextParallelKind::AllToAll, ..ONE };
    let again = |policy: &str, case: Case| Case { recompute: policy.parse().unwrap(), ..case };
    let cases = [
        by_heads,
        Case { data: 2, zero: ZeroStage::Gradients, ..by_heads },
        Case { pipeline: 2, schedule: ScheduleKind::ZbH1, ..by_heads },
        Case { pipeline: 2, schedule: ScheduleKind::DualPipe, ..by_heads },
        again("full", by_heads),
        again("attention", by_heads),
        again("attention+norms", Case { pipeline: 2, schedule: ScheduleKind::ZbH1, ..by_heads }),
    ];
    check(LLAMA, &cases);
    check(MIXTRAL, &[by_heads, Case { expert: 2, ..by_heads }]);
    let tensor = Case { tensor: 2, sequence: true, ..by_heads };
    check(GPT, &[tensor, Case { sequence: false, ..tensor }, Case { context: 4, ..by_heads }]);
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
        let case = Case { context, context_kind, recompute, ..ONE };
        let program = Arc::new(program(GPT, case, Element::F64));
        let sent = local::run(program.num_ranks(), &[FlexDevice], |communicator| {
            let mut rank = rank(&program, communicator)?;
            let before = rank.communicator().traffic();
            rank.step()?;
            let sent = rank.communicator().traffic().since(&before).bytes(Stream::Context);
            Ok::<_, RunError>(sent.get())
        });
        let sent = sent.unwrap_or_else(|failure| panic!("{failure}"));
        let planned = planned_traffic(&program);
        assert!(
            planned > 0 && sent.iter().all(|sent| *sent == planned),
            "{sent:?}, not {planned}: {case:?}"
        );
    }
}

/// Bytes that a rank sends along context parallelism in a step, by the graph's exchanges.
fn planned_traffic(program: &Program) -> u64 {
    let spec = program.layout;
    let model = ir::model::Model::from_json(&program.description, "test").unwrap();
    let graph = model.graph(ir::model::GraphOptions::default()).unwrap();
    let mut sum = 0;
    for (run, position) in graph.chain().iter().zip(0..) {
        let setting = setting(program, position == 0);
        let work = graph.class(run.class).work(&setting);
        for exchange in work.exchanges.iter().filter(|it| it.axis == Axis::Context) {
            let bytes = exchange.bytes.get();
            let sent = match exchange.collective {
                Collective::AllToAll => bytes - bytes / u64::from(spec.context_parallel),
                _ => bytes,
            };
            let is_again = exchange.pass == Pass::Forward && spec.recompute == Recompute::Full;
            sum += sent * u64::from(run.count) * if is_again { 2 } else { 1 };
        }
    }
    sum * u64::from(spec.num_micro_batches)
}
