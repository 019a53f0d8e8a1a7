//! Laws of every plan, and of every two problems of which one is easier.

use cost_models::StridedGroup;
use ir::graph::{Recompute, Sharding, Switches, WeightFormat};
use ir::layout::PartialLayout;
use ir::schedule::StagePlacement;
use ir::units::{BytesPerSecond, Seconds};
use planner_core::problem::Choices;
use planner_core::search::least_gpus;
use planner_core::search::{Go, Request, search, simulated};
use planner_core::step::{Assignment, ChainIndex, Holdings, PipelineRanks, Shape, ShapeKey};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::checks::{check_found, check_timeline, plans};
use crate::random::{Setup, drawn, models, named_schedules, requests, setups, times_cases};

/// Sums of the same times in another order differ in their last bits.
const ROUNDING: f64 = 1e-12;

/// The same cases each time, so that how long they take and what they reach is known; other ones where
/// `TIMES_CASES` asks for more.
fn drawn_alike(cases: u32, seed: u64) -> ProptestConfig {
    let alike = ProptestConfig { rng_seed: RngSeed::Fixed(seed), ..drawn(cases) };
    if times_cases().is_some() { drawn(cases) } else { alike }
}

fn best_time(setup: &Setup, request: &Request) -> Option<Seconds> {
    let plans = plans(&setup.problem(), &Request { top: 1, ..*request });
    plans.first().map(|found| found.evaluation.step_time)
}

proptest! {
    #![proptest_config(drawn_alike(40, 12))]

    #[test]
    fn schedules_that_are_named_add_up_and_play_as_the_search_says(setup in setups(), request in named_schedules()) {
        let problem = setup.problem();
        for found in plans(&problem, &request) {
            check_found(&problem, &found)?;
            check_timeline(&problem, &found)?;
        }
    }
}

proptest! {
    #![proptest_config(drawn_alike(150, 7))]

    #[test]
    fn every_plan_is_as_asked_adds_up_and_plays_as_the_search_says(setup in setups(), request in requests()) {
        let problem = setup.problem();
        let outcome = search(&problem, &request, &mut |_| Go::On);
        prop_assert!(outcome.plans.len() <= request.top);
        for found in &outcome.plans {
            check_found(&problem, found)?;
            check_timeline(&problem, found)?;
            prop_assert!(request.fixed.allows(&found.layout), "{:?}", found.layout);
            prop_assert!(found.evaluation.memory.total() <= problem.hardware.memory);
        }
        if let Some(closest) = &outcome.closest {
            check_found(&problem, closest)?;
            prop_assert!(closest.evaluation.memory.total() > problem.hardware.memory);
        }
        let order: Vec<_> = outcome
            .plans
            .iter()
            .map(|found| (found.evaluation.step_time.get(), found.layout))
            .collect();
        prop_assert!(order.is_sorted_by(|a, b| a < b), "{order:?}");
    }

    /// Deciding something never finds a better plan than leaving it open; but for the kind of context
    /// parallelism, of which one is tried, for schedules that are tried only where they are named, and for
    /// pipelines that are cut otherwise where model states leave them less room.
    #[test]
    fn a_constraint_never_helps(setup in setups(), request in requests()) {
        let context_parallel_kind = request.fixed.context_parallel_kind;
        let schedule = request.fixed.schedule.one().filter(|it| !it.is_searched()).into();
        let open = PartialLayout { context_parallel_kind, schedule, ..PartialLayout::default() };
        let best = |fixed: PartialLayout| {
            let request = Request { fixed, top: 1, ..request };
            plans(&setup.problem(), &request).into_iter().next()
        };
        let Some(found) = best(request.fixed) else { return Ok(()) };
        let Some(any) = best(open) else { panic!("{:?} is found where it is asked for", found.layout) };
        if any.evaluation.step_time > found.evaluation.step_time {
            let spec = *found.layout;
            let states_open = PartialLayout {
                tensor_parallel: spec.tensor_parallel.into(),
                context_parallel: spec.context_parallel.into(),
                expert_parallel: spec.expert_parallel.into(),
                pipeline_parallel: spec.pipeline_parallel.into(),
                virtual_stages: spec.virtual_stages.into(),
                micro_batch_size: spec.micro_batch_size.into(),
                schedule: spec.schedule.into(),
                recompute: spec.recompute.into(),
                ..open
            };
            let cut = best(states_open).map(|alike| alike.stage_ends);
            prop_assert!(
                spec.pipeline_parallel > 1 && cut.is_some_and(|cut| cut != found.stage_ends),
                "{any:?}\n{found:?}\n{:?} on {} with {:?}", setup.training, setup.num_gpus, request.fixed
            );
        }
    }

    /// Without a pipeline. With one, the dynamic program minimises the slowest stage's passes, and the
    /// partition that less memory enforces may do better in what comes once a step.
    #[test]
    fn more_memory_is_never_slower(setup in setups(), request in requests(), factor in 1.0..4.0f64) {
        let fixed = PartialLayout { pipeline_parallel: 1.into(), ..request.fixed };
        let request = Request { fixed, ..request };
        let mut larger = setup.clone();
        larger.cluster.gpu.memory = ir::units::Bytes::from_f64(setup.cluster.gpu.memory.as_f64() * factor);
        if let Some(less) = best_time(&setup, &request) {
            let more = best_time(&larger, &request);
            prop_assert!(more.is_some_and(|more| more <= less), "{more:?}, {less} with less");
        }
    }

    #[test]
    fn faster_links_are_never_slower(
        setup in setups(), request in requests(), factors in (1.0..30.0f64, 1.0..30.0f64),
    ) {
        let mut faster = setup.clone();
        for (index, level) in faster.cluster.levels.iter_mut().enumerate() {
            let factor = if index == 0 { factors.0 } else { factors.1 };
            level.bandwidth = BytesPerSecond::new(level.bandwidth.get() * factor);
            level.latency = Seconds::new(level.latency.get() / factor);
        }
        if let Some(slow) = best_time(&setup, &request) {
            let fast = best_time(&faster, &request);
            // Where the host sets the pace, what the device waits for it is a difference that is rounded.
            let most = slow.get() * (1.0 + ROUNDING);
            prop_assert!(fast.is_some_and(|fast| fast.get() <= most), "{fast:?}, {slow:?} with slower links");
        }
    }

    /// The same layout with the same stages takes longer on longer sequences, or as long where the host sets
    /// the pace, and more memory.
    #[test]
    fn longer_sequences_take_longer(setup in setups(), request in requests(), factor in 2u64..5) {
        let mut longer = setup.clone();
        longer.training.sequence_length *= factor;
        let (short, long) = (setup.problem(), longer.problem());
        for found in plans(&short, &request) {
            let (again, _) = simulated(&long, found.layout, &found.stage_ends);
            let (less, more) = (&found.evaluation, &again.evaluation);
            // Passes beside each other hide exchanges that the host was seen to wait for.
            let hides = found.layout.schedule.overlaps_passes();
            prop_assert!(hides || more.step_time >= less.step_time, "{less:?}
{more:?}");
            prop_assert!(more.memory.total() >= less.memory.total());
        }
    }

    /// Every parameter is on one stage, and the tied embedding on the last too where that is another.
    #[test]
    fn stages_hold_the_parameters_of_the_model(setup in setups(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5)) {
        let mut setup = setup;
        if let Some(adapters) = &mut setup.adapters {
            adapters.base_weights = WeightFormat::Plain;
        }
        // Padding of the vocabulary is no parameter.
        setup.framework.tensor_parallel.vocabulary_multiple = 1;
        let problem = setup.problem();
        let num_blocks = problem.graph.num_blocks();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| 1 + cut.index(num_blocks)).collect();
        ends.push(num_blocks);
        ends.sort_unstable();
        ends.dedup();
        let key = ShapeKey {
            sharding: Sharding::NONE,
            micro_batch_size: 1,
            switches: Switches::USUAL,
            gathers_by_operator: false,
            documents: None,
            offloaded: None,
            loaded_stages: 1,
        };
        let chain = ChainIndex::new(&problem);
        let shape = Shape::new(&problem, &chain, key);
        let group = StridedGroup { size: ends.len() as u32, stride: 1 };
        let ranks = PipelineRanks { group, placement: StagePlacement::Loop };
        let assignment =
            Assignment::new(&problem, &chain, &shape, Recompute::None, ranks, ends.clone().into());
        let frozen = |held: &Holdings| held.parameters.frozen.dense.get() + held.parameters.frozen.expert.get();
        let plain = problem.training.compute_bytes();
        let of = |held: &Holdings| held.parameters.trained() + frozen(held) / plain;
        let held: u64 = assignment.held.iter().map(of).sum();
        let tied = setup.model["tie_word_embeddings"] == true && ends.len() > 1;
        let size = |field: &str| setup.model[field].as_u64().unwrap();
        let copy = if tied { size("vocab_size") * size("hidden_size") } else { 0 };
        prop_assert_eq!(held, problem.parameters().total + copy);
        let blocks: u32 = assignment.held.iter().map(|held| held.num_blocks).sum();
        prop_assert_eq!(blocks as usize, num_blocks);
    }
}

proptest! {
    #![proptest_config(drawn_alike(8, 7))]

    /// The least number of GPUs fits, and of the numbers that are tried no smaller one does.
    #[test]
    fn the_least_number_of_gpus_is_the_least(model in models(), setup in setups()) {
        let mut setup = Setup { model, adapters: None, ..setup };
        setup.training.sequence_length = 96;
        let model = ir::model::Model::from_json(&setup.model.to_string(), "model").unwrap();
        let asked = setup.problem();
        let choices = Choices {
            sequence_length: Some(setup.training.sequence_length),
            global_batch_size: Some(16),
            precision: Some(setup.training.precision),
            optimizer: Some(setup.training.optimizer),
            fp32_gradients: setup.training.fp32_gradients,
            bf16_moments: setup.training.bf16_moments,
            no_master_weights: setup.training.no_master_weights,
            data_parallel_method: setup.training.data_parallel_method,
            gradient_compression: setup.training.gradient_compression,
        };
        let any = Request::default();
        let go = &mut || Go::On;
        let least = least_gpus(&model, &asked, &choices, &setup.cluster, &any, go).unwrap();
        let fits = |num_gpus| {
            let training = ir::plan::Training { global_batch_size: 16, ..setup.training };
            !plans(&Setup { training, num_gpus, ..setup.clone() }.problem(), &any).is_empty()
        };
        if let Some(least) = least {
            prop_assert!(fits(least), "{least} do not do");
            let node = setup.cluster.gpus_per_node;
            let tried = |gpus: &u32| gpus.is_multiple_of(node) || (*gpus < node && gpus.is_power_of_two());
            for fewer in (1..least).rev().filter(tried).take(2) {
                prop_assert!(!fits(fewer), "{fewer} do, but {least} are said to be the least");
            }
        }
    }
}
