//! Plans of every family of schedules: made, read back, played through, drawn.

use std::collections::BTreeMap;
use std::fs;
use std::slice;

use cost_models::clusters::preset;
use cost_models::frameworks;
use ir::collective::Collective;
use ir::graph::Recompute;
use ir::layout::{PartialLayout, ZeroStage};
use ir::plan::{MemoryUse, Optimizer, Training};
use ir::replication::DataParallelMethod;
use ir::schedule::{ActionKind, ScheduleKind};
use ir::units::{Bytes, Nanos};
use planner::report::SimulationReport;
use planner_core::plan::{self, CheckedPlan};
use planner_core::problem::Problem;
use planner_core::search::{EvaluatedPlan, Go, Request, search, simulated};
use planner_core::step::Simulated;
use serde_json::{Value, json};
use traces::timeline::{Activity, Event};

use crate::bad_input::{Workplace, check_error};
use crate::checks::planned;
use crate::cli::planner;
use crate::random::Setup;

/// 16 blocks of about equal cost, so that two stages on each of 4 ranks are about equal too.
fn setup(num_gpus: u32) -> Setup {
    let mut framework = frameworks::preset("ideal").unwrap();
    // Papers do not count what the host does between steps.
    framework.host.milliseconds_per_step = 0.0;
    Setup {
        model: json!({
            "architecture": "llama", "num_hidden_layers": 14, "hidden_size": 2048,
            "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 16_384,
            "tie_word_embeddings": false,
        }),
        cluster: preset("h100").unwrap(),
        framework,
        training: Training {
            sequence_length: 4096,
            global_batch_size: u64::from(num_gpus) * 4,
            precision: ir::cluster::Precision::Bf16,
            optimizer: Optimizer::AdamW,
            fp32_gradients: false,
            bf16_moments: false,
            no_master_weights: false,
            data_parallel_method: DataParallelMethod::AllReduce,
            gradient_compression: None,
        },
        adapters: None,
        num_gpus,
    }
}

/// The plan of a family on 4 pipeline ranks, everything else being equal.
fn fixed(schedule: ScheduleKind, zero_stage: ZeroStage) -> PartialLayout {
    PartialLayout {
        tensor_parallel: 1.into(),
        context_parallel: 1.into(),
        pipeline_parallel: 4.into(),
        virtual_stages: schedule.default_virtual_stages().into(),
        zero_stage: zero_stage.into(),
        micro_batch_size: 1.into(),
        recompute: Recompute::None.into(),
        schedule: schedule.into(),
        ..PartialLayout::default()
    }
}

fn best(problem: &Problem, fixed: &PartialLayout) -> EvaluatedPlan {
    let request = Request { fixed: *fixed, ..Request::default() };
    let outcome = search(problem, &request, &mut |_| Go::On);
    let best = outcome.plans.into_iter().next();
    best.unwrap_or_else(|| panic!("nothing fits {fixed:?}; closest: {:?}", outcome.closest))
}

/// The plan's text, as a search would write it.
fn written(setup: &Setup, problem: &Problem, found: &EvaluatedPlan) -> Value {
    let plan = planned(problem, &setup.cluster, ("model", &setup.model), slice::from_ref(found));
    serde_json::to_value(plan).unwrap()
}

/// Each family, with its plan on 8 GPUs, written and read back.
fn plans(zero_stage: ZeroStage) -> BTreeMap<ScheduleKind, CheckedPlan> {
    let setup = setup(8);
    let problem = setup.problem();
    let plans = ScheduleKind::ALL.map(|kind| {
        let found = best(&problem, &fixed(kind, zero_stage));
        let text = written(&setup, &problem, &found).to_string();
        let checked = plan::read(&text).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(checked.found, found, "{kind}");
        (kind, checked)
    });
    plans.into_iter().collect()
}

fn idle(checked: &CheckedPlan) -> f64 {
    SimulationReport::new(checked).idle_fraction
}

fn step_time(checked: &CheckedPlan) -> f64 {
    checked.found.evaluation.step_time.get()
}

/// Bytes of a line of memory on each rank.
fn line(checked: &CheckedPlan, line: fn(&MemoryUse) -> Bytes) -> Vec<u64> {
    checked.simulated.memory_by_rank.iter().map(|memory| line(memory).get()).collect()
}

#[test]
fn every_family_has_a_plan() {
    for zero_stage in ZeroStage::ALL {
        for (kind, checked) in plans(zero_stage) {
            let CheckedPlan { plan, simulated, .. } = &checked;
            let Simulated { simulation, memory_by_rank, .. } = simulated;
            assert_eq!(plan.layout.schedule, kind);
            assert_eq!(plan.layout.zero_stage, zero_stage);
            let ranks: Vec<u32> = plan.stages.iter().map(|stage| stage.pipeline_rank).collect();
            let expected: &[u32] = match kind {
                ScheduleKind::Zbv | ScheduleKind::VHalf => &[0, 1, 2, 3, 3, 2, 1, 0],
                ScheduleKind::VMin | ScheduleKind::DualPipeV => &[0, 1, 2, 3, 3, 2, 1, 0],
                ScheduleKind::Interleaved | ScheduleKind::LoopedBfs => &[0, 1, 2, 3, 0, 1, 2, 3],
                ScheduleKind::InterleavedZb => &[0, 1, 2, 3, 0, 1, 2, 3],
                _ => &[0, 1, 2, 3],
            };
            assert_eq!(ranks, expected, "{kind}");
            let parts = plan.prediction.breakdown.parts();
            let step = step_time(&checked);
            assert!(parts.iter().all(|(_, seconds)| *seconds >= 0.0), "{kind}: {parts:?}");
            // All ranks together compute the model's forwards and backwards, whoever does what.
            let compute: Nanos = simulation.ranks.iter().map(|rank| rank.passes).sum();
            assert!(compute.as_f64() * 1e-9 < 4.0 * step, "{kind}");
            assert!((0.0..1.0).contains(&idle(&checked)), "{kind}: {}", idle(&checked));
            assert_eq!(memory_by_rank.len(), 4, "{kind}");
        }
    }
}

/// What the papers promise, on a plan with its collectives, its messages and blocks that are not quite
/// alike.
#[test]
fn families_differ_as_their_papers_say() {
    let plans = plans(ZeroStage::None);
    let idle = |kind: ScheduleKind| idle(&plans[&kind]);
    let one = idle(ScheduleKind::OneFOneB);
    // Qi et al. 2023, section 6.
    assert!(idle(ScheduleKind::Zbv) < 0.7 * one, "{} and {one}", idle(ScheduleKind::Zbv));
    assert!(idle(ScheduleKind::InterleavedZb) < one);
    assert!(idle(ScheduleKind::DualPipeV) < one);
    // DeepSeek-AI 2024, table 2.
    assert!(idle(ScheduleKind::DualPipe) < one);
    // Only one stage works at a time: (p - 1) / p.
    assert!((idle(ScheduleKind::Sequential) - 0.75).abs() < 0.02);
    // Qi et al. 2024, table 1: half and a third of the activations, at more bubble.
    let activations = |kind: ScheduleKind| {
        line(&plans[&kind], |memory| memory.activations_bytes).into_iter().max().unwrap() as f64
    };
    let [zbv, half, third] =
        [ScheduleKind::Zbv, ScheduleKind::VHalf, ScheduleKind::VMin].map(activations);
    assert!(half < 0.85 * zbv && third < 0.85 * half, "{zbv}, {half}, {third}");
    let micro_batch = activations(ScheduleKind::Sequential);
    for (kind, _) in plans.iter().filter(|(kind, _)| **kind != ScheduleKind::Sequential) {
        assert!(activations(*kind) > micro_batch, "{kind}");
    }
}

/// Two copies of the parameters, of what is made of them, and of nothing else; and their gradients meet.
#[test]
fn dualpipe_has_two_copies() {
    for num_gpus in [4, 8] {
        for zero_stage in ZeroStage::ALL {
            let problem = setup(num_gpus).problem();
            let played = |kind| {
                let found = best(&problem, &fixed(kind, zero_stage));
                simulated(&problem, found.layout, &found.stage_ends).1
            };
            let (one, two) = (played(ScheduleKind::OneFOneB), played(ScheduleKind::DualPipe));
            let sum = |played: &Simulated, line: fn(&MemoryUse) -> Bytes| -> u64 {
                played.memory_by_rank.iter().map(|memory| line(memory).get()).sum()
            };
            let lines: [fn(&MemoryUse) -> Bytes; 3] = [
                |memory| memory.parameters_bytes,
                |memory| memory.gradients_bytes,
                |memory| memory.optimizer_bytes,
            ];
            for line in lines {
                assert_eq!(sum(&two, line), 2 * sum(&one, line), "ZeRO {}", zero_stage.number());
            }
            check_reduction_of_copies(&two, problem.parameters().total / u64::from(num_gpus / 4));
        }
    }
}

/// Rank `r` and its mirror reduce the gradients of both of their stages together, once.
fn check_reduction_of_copies(played: &Simulated, parameters: u64) {
    let tracks = &played.simulation.timeline.tracks;
    let reduced = |rank: usize| -> Vec<(Nanos, Nanos, Bytes)> {
        let is_meant = |event: &&Event| {
            matches!(event.activity,
            Activity::Action(action) if action.kind == ActionKind::ReduceGrad)
        };
        let reductions = tracks[rank].events.iter().filter(is_meant);
        reductions.map(|event| (event.start, event.end, event.bytes)).collect()
    };
    for rank in 0..2 {
        assert_eq!(reduced(rank).len(), 2, "{:?}", reduced(rank));
        assert_eq!(reduced(rank), reduced(3 - rank));
    }
    let bytes: u64 = (0..2).flat_map(reduced).map(|(_, _, bytes)| bytes.get()).sum();
    // Each replica has its part of them, rounded up, in 2 bytes.
    assert!(bytes.abs_diff(2 * parameters) <= 8, "{bytes}, {parameters} parameters");
}

/// A version of the weights for each micro-batch in flight, and an update for each (PipeDream).
#[test]
fn the_asynchronous_schedule_stashes_weights() {
    for zero_stage in ZeroStage::ALL {
        let plans = plans(zero_stage);
        let [flushed, each] =
            [ScheduleKind::OneFOneB, ScheduleKind::AsyncOneFOneB].map(|kind| &plans[&kind]);
        let parameters = |checked| line(checked, |memory| memory.parameters_bytes);
        for (rank, (one, stashed)) in
            parameters(flushed).into_iter().zip(parameters(each)).enumerate()
        {
            assert_eq!(stashed, one * (4 - rank as u64), "rank {rank}");
        }
        let others: [fn(&MemoryUse) -> Bytes; 3] = [
            |memory| memory.gradients_bytes,
            |memory| memory.optimizer_bytes,
            |memory| memory.activations_bytes,
        ];
        for other in others {
            assert_eq!(line(flushed, other), line(each, other));
        }
        assert!(step_time(each) > step_time(flushed));
        let m = each.plan.layout.num_micro_batches as usize;
        for track in &each.simulated.simulation.timeline.tracks {
            let updates = track.events.iter().filter(|event| {
                matches!(event.activity,
                    Activity::Action(action) if action.kind == ActionKind::OptimizerStep)
            });
            assert_eq!(updates.count(), m);
            // With replicas, gradients are reduced with each micro-batch, in one way or the other.
            let reductions = track.events.iter().filter(|event| {
                let kinds = [Collective::AllReduce, Collective::ReduceScatter];
                matches!(event.activity,
                    Activity::Collective { collective, .. } if kinds.contains(&collective))
            });
            assert!(reductions.count() >= m);
        }
    }
}

/// A stage where its schedule does not place it, and numbers that the schedule does not take.
#[test]
fn plans_are_checked_by_the_placement() {
    let setup = setup(8);
    let problem = setup.problem();
    for kind in [ScheduleKind::Zbv, ScheduleKind::DualPipe, ScheduleKind::InterleavedZb] {
        let good = written(&setup, &problem, &best(&problem, &fixed(kind, ZeroStage::None)));
        let refused = |pointer: &str, value: Value| {
            let mut plan = good.clone();
            *plan.pointer_mut(pointer).unwrap() = value;
            let error = plan::read(&plan.to_string()).unwrap_err();
            format!("{:#}", anyhow::Error::from(error))
        };
        for stage in 0..good["stages"].as_array().unwrap().len() {
            let rank = good["stages"][stage]["pipeline_rank"].as_u64().unwrap();
            let other = json!((rank + 1) % 4);
            let error = refused(&format!("/stages/{stage}/pipeline_rank"), other);
            let expected = format!("`stages[{stage}]` is not stage {stage} on rank {rank}");
            assert!(error.contains(&expected), "{kind}: {error}");
        }
        let more = good["layout"]["virtual_stages"].as_u64().unwrap() + 1;
        let error = refused("/layout/virtual_stages", json!(more));
        assert!(error.contains("virtual_stages") || error.contains("`stages`"), "{kind}: {error}");
    }
}

/// Through the command: every family is evaluated, simulated, explained and drawn.
#[test]
fn the_command_takes_every_family() {
    let place = Workplace::new();
    let model = place.write("deep.json", setup(8).model.to_string());
    for kind in ScheduleKind::ALL {
        let path = place.path(&format!("{kind}.json"));
        let args = ["evaluate", &model, "--gpus", "4", "--layout", "pp4-mbs1-zero0", "--quiet"];
        let named = ["--schedule", kind.name(), "--recompute", "none", "-o", &path];
        let sizes = ["--seq-len", "1024", "--global-batch-size", "8", "--format", "json"];
        let report = planner(&[&args[..], &named, &sizes].concat()).json();
        assert_eq!(report["plans"][0]["layout"]["schedule"], kind.name());
        let step = &report["plans"][0]["step_time_seconds"];
        let simulation = planner(&["simulate", &path, "--format", "json"]).json();
        assert_eq!(&simulation["step_time_seconds"], step, "{kind}");
        let explained = planner(&["explain", &path]);
        assert_eq!((explained.code, explained.stderr.as_str()), (Some(0), ""), "{kind}");
        assert!(explained.stdout.contains(&format!(", {kind}, ")), "{}", explained.stdout);
        for picture in ["step.svg", "step.html", "step.json"] {
            let picture = place.path(picture);
            let run = planner(&["chart", &path, "-o", &picture]);
            assert_eq!(run.code, Some(0), "{kind}: {run:?}");
            assert!(fs::metadata(&picture).unwrap().len() > 1000);
        }
    }
}

/// What a family cannot do is said, with what it could.
#[test]
fn layouts_that_a_family_does_not_have() {
    let place = Workplace::new();
    let model = place.write("deep.json", setup(8).model.to_string());
    for (flags, words) in [
        ("--gpus 3 --layout pp3 --schedule dualpipe", &["dualpipe", "`pipeline_parallel` 4"][..]),
        ("--gpus 4 --layout pp4-mbs1-dp1 --schedule dualpipe", &["dualpipe", "at least 8, not 4"]),
        ("--gpus 4 --layout pp4-mbs1-dp1 --schedule dualpipev", &["dualpipev", "at least 8"]),
        ("--gpus 4 --layout pp4-vpp3 --schedule zbv", &["zbv", "`virtual_stages` 2, not 3"]),
        ("--gpus 4 --layout pp4-vpp2 --schedule dualpipe", &["dualpipe", "1, not 2"]),
        ("--gpus 12 --layout pp12 --schedule v-half", &["24 stages", "16 blocks"]),
        ("--gpus 1 --layout pp1 --schedule sequential", &["sequential", "`--layout pp1` has one"]),
    ] {
        let batch = if flags.contains("mbs1") { "4" } else { "12" };
        let args = ["evaluate", &model, "--global-batch-size", batch, "--seq-len", "512"];
        let args: Vec<&str> = args.into_iter().chain(flags.split_whitespace()).collect();
        check_error(&planner(&args), &args, words);
    }
}
