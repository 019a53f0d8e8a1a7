//! GPUs of several kinds: laws of the choice of nodes, and of what comes to each.

use cost_models::clusters::preset;
use cost_models::frameworks;
use ir::cluster::{Cluster, NodeGroup, Precision};
use ir::framework::IDEAL;
use ir::layout::{Choice, Layout, LayoutSpec, MicroBatchesByGroup, PartialLayout, ZeroStage};
use ir::model::{GraphOptions, Model};
use ir::plan::{Optimizer, Training};
use ir::replication::DataParallelMethod;
use ir::units::{BytesPerSecond, FlopsPerSecond, Nanos};
use planner_core::answers::{WhyNot, batches, why_not};
use planner_core::partition::{balanced, partition_of};
use planner_core::plan::planned_ranks;
use planner_core::problem::Problem;
use planner_core::search::space::Rejection;
use planner_core::search::{
    EvaluatedPlan, Go, OnNodes, Outcome, Request, StopReason, best_nodes, search, search_nodes,
    simulated,
};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::checks::checked_plans;
use crate::random::{drawn, models};

/// A preset with two GPUs a node, so that clusters are small.
fn small(name: &str) -> Cluster {
    let mut cluster = preset(name).unwrap();
    cluster.gpus_per_node = 2;
    cluster.levels[0].ranks = Some(2);
    cluster
}

fn group(name: &str, nodes: u32) -> NodeGroup {
    NodeGroup { nodes, cluster: small(name) }
}

fn training(batch: u64) -> Training {
    Training {
        sequence_length: 512,
        global_batch_size: batch,
        precision: Precision::Bf16,
        optimizer: Optimizer::default(),
        fp32_gradients: false,
        bf16_moments: false,
        no_master_weights: false,
        data_parallel_method: DataParallelMethod::default(),
        gradient_compression: None,
    }
}

fn problem(model: &Value, batch: u64, cluster: &Cluster, num_gpus: u32) -> Problem {
    let model = Model::from_json(&model.to_string(), "model").unwrap();
    let graph = model.training_graph(GraphOptions::default(), None).unwrap();
    let ideal = frameworks::preset(IDEAL).unwrap();
    Problem::new(graph, training(batch), cluster, ideal, num_gpus).unwrap()
}

fn of_groups(model: &Value, batch: u64, groups: Vec<NodeGroup>) -> Problem {
    let num_gpus = groups.iter().map(NodeGroup::num_gpus).sum();
    problem(model, batch, &Cluster::of_groups(groups, Vec::new()).unwrap(), num_gpus)
}

fn best(problem: &Problem, request: &Request) -> Option<(Problem, EvaluatedPlan)> {
    let OnNodes { problem, outcome, .. } = search_nodes(problem, request, &mut |_| Go::On);
    outcome.plans.into_iter().next().map(|found| (problem, found))
}

fn nodes() -> impl Strategy<Value = Vec<NodeGroup>> {
    let names =
        select(vec![["a100", "h100"], ["l40s", "h100"], ["h200", "b200"], ["l40s", "a100-40gb"]]);
    (names, 1u32..3, 1u32..3).prop_map(|([one, other], a, b)| vec![group(one, a), group(other, b)])
}

fn requests() -> impl Strategy<Value = Request> {
    (1usize..4, any::<bool>()).prop_map(|(top, less_headroom)| Request {
        top,
        less_headroom,
        ..Request::default()
    })
}

proptest! {
    #![proptest_config(drawn(12))]

    #[test]
    fn bounds_exclude_nothing_that_is_faster(
        model in models(), batch in select(vec![8u64, 12, 16]), nodes in nodes(), request in requests(),
    ) {
        let problem = of_groups(&model, batch, nodes);
        for found in checked_plans(&problem, &request)? {
            let ranks = planned_ranks(&problem, &found);
            let replicas = ranks.last().and_then(|rank| rank.replica).map_or(1, |last| last + 1);
            let layers: u32 = ranks.iter().map(|rank| rank.layers).sum();
            prop_assert_eq!(u64::from(layers / replicas), problem.limits.num_blocks - 2);
            let shares: f64 = ranks.iter().map(|rank| rank.share_of_batch).sum();
            prop_assert!((shares - f64::from(found.layout.pipeline_parallel)).abs() < 1e-9);
        }
    }

    /// Replicas that lie in groups are the same whatever the order of the groups.
    #[test]
    fn the_order_of_nodes_does_not_matter_to_replicas(
        model in models(), batch in select(vec![8u64, 12]), nodes in nodes(),
    ) {
        let whole = of_groups(&model, batch, nodes.clone());
        let cluster = whole.groups.as_ref().unwrap().cluster.clone();
        let fixed = PartialLayout { pipeline_parallel: 1.into(), ..PartialLayout::default() };
        let request = Request { fixed, ..Request::default() };
        let times = [nodes.clone(), nodes.into_iter().rev().collect()].map(|nodes| {
            let (cluster, num_gpus) = cluster.of_nodes(&nodes);
            let problem = whole.on_cluster(&cluster, num_gpus).unwrap();
            let found = search(&problem, &request, &mut |_| Go::On).plans;
            found.first().map(|found| found.evaluation.step_time)
        });
        prop_assert_eq!(times[0], times[1]);
    }

    /// A search of nodes that is stopped has what it found until then, and a bound of all that is left.
    #[test]
    fn what_was_found_before_a_stop_is_kept(
        model in models(), nodes in nodes(), looks in 0usize..40,
    ) {
        let problem = of_groups(&model, 12, nodes);
        let request = Request::default();
        let all = best_nodes(&problem, &request, &mut |_| Go::On).unwrap();
        let mut left = looks;
        let stopped = best_nodes(&problem, &request, &mut |_| match left.checked_sub(1) {
            Some(less) => {
                left = less;
                Go::On
            }
            None => Go::Stop(StopReason::TimeLimit),
        });
        let stopped = stopped.unwrap();
        let time = |outcome: &Outcome| outcome.plans[0].evaluation.step_time;
        prop_assert!(stopped.searched <= all.searched);
        let Some(found) = stopped.found else { return Ok(()) };
        let best = time(all.found.as_ref().unwrap());
        prop_assert!(time(&found) >= best);
        prop_assert_eq!(found.stop_reason, stopped.stop_reason);
        if stopped.stop_reason == StopReason::Exhausted {
            prop_assert_eq!(time(&found), best);
        } else if time(&found) > best {
            prop_assert!(found.least_left.unwrap() <= best);
        }
        // A search that stops at once has what was known before.
        let none = search(&problem, &request, &mut |_| Go::Stop(StopReason::TimeLimit));
        prop_assert_eq!(&none.or_earlier(Some(found.clone())).plans, &found.plans);
    }

    /// Groups that differ in name alone have the steps of one group.
    #[test]
    fn a_border_between_equal_nodes_costs_nothing(
        model in models(), batch in select(vec![8u64, 16]), nodes in 2u32..4,
    ) {
        let one = group("a100", nodes);
        let mut other = one.clone();
        other.cluster.name = "another".to_owned();
        let whole = problem(&model, batch, &one.cluster, 2 * one.num_gpus());
        let split = of_groups(&model, batch, vec![one, other]);
        prop_assert!(split.groups.is_some());
        for found in search(&split, &Request { top: 3, ..Request::default() }, &mut |_| Go::On).plans {
            let by_group = found.layout.micro_batches_by_group;
            if !by_group.are_equal() || !by_group.is_empty() && found.layout.pipeline_parallel > 1 {
                continue;
            }
            let micro_batches_by_group = MicroBatchesByGroup::NONE;
            let layout = LayoutSpec { micro_batches_by_group, ..*found.layout };
            let layout = Layout::new(layout, &whole.limits).unwrap();
            let (same, _) = simulated(&whole, layout, &found.stage_ends);
            let ratio = found.evaluation.step_time.get() / same.evaluation.step_time.get();
            // A norm's all-reduce crosses one level more, with its latency.
            prop_assert!((ratio - 1.0).abs() < 0.01, "{ratio} of {:?}", found.layout);
            prop_assert_eq!(found.evaluation.memory, same.evaluation.memory);
        }
    }

    /// Equal stages in any partition: as fast as the partition of equal ranks.
    #[test]
    fn equal_stages_are_cut_as_fast(times in prop::collection::vec(1u64..50, 2..30), stages in 1usize..8) {
        let mut prefix = vec![Nanos::ZERO];
        for time in &times {
            prefix.push(prefix[prefix.len() - 1] + Nanos::new(*time));
        }
        let time = |_: usize, start: usize, end: usize| prefix[end] - prefix[start];
        let slowest = |ends: &Vec<usize>| {
            let starts = std::iter::once(&0).chain(ends);
            starts.zip(ends).map(|(start, end)| prefix[*end] - prefix[*start]).max()
        };
        let unlike = partition_of(times.len(), stages, stages, time, |_, _, _| true);
        let alike = balanced(&prefix, stages);
        prop_assert_eq!(unlike.as_ref().and_then(slowest), alike.as_ref().and_then(slowest));
    }

    /// No partition of a few blocks has a faster slowest stage, whatever a block takes where.
    #[test]
    fn no_other_cut_is_faster(
        times in prop::collection::vec(prop::array::uniform3(1u64..20), 3..9), most in 1usize..5,
    ) {
        let time = |stage: usize, start: usize, end: usize| {
            Nanos::new(times[start..end].iter().map(|block| block[stage]).sum())
        };
        let fits = |stage: usize, start: usize, end: usize| end - start <= most + stage;
        let slowest = |ends: [usize; 3]| {
            let parts = [(0, 0, ends[0]), (1, ends[0], ends[1]), (2, ends[1], ends[2])];
            let fit = parts.iter().all(|(stage, start, end)| fits(*stage, *start, *end));
            fit.then(|| parts.map(|(stage, start, end)| time(stage, start, end)).into_iter().max())
        };
        let blocks = times.len();
        let cuts = (1..blocks - 1).flat_map(|a| (a + 1..blocks).map(move |b| [a, b, blocks]));
        let least = cuts.filter_map(slowest).min();
        let found = partition_of(blocks, 3, 3, time, fits);
        let found = found.map(|ends| slowest([ends[0], ends[1], ends[2]]).unwrap());
        prop_assert_eq!(found, least);
    }
}

proptest! {
    #![proptest_config(drawn(20))]

    /// No other shares of the batch make a step faster by more than what they are not chosen by: reductions, which take
    /// longer within some groups, and the ends of pipelines. These are much of such small steps.
    #[test]
    fn no_other_shares_are_faster(
        model in models(), batch in select(vec![12u64, 24, 36]), nodes in nodes(),
    ) {
        let problem = of_groups(&model, batch, nodes);
        // With sharded gradients replicas exchange them with each micro-batch, of which all have as many.
        let zero_stage = Choice::Range { least: None, most: Some(ZeroStage::OptimizerState) };
        let fixed =
            PartialLayout { micro_batch_size: 1.into(), zero_stage, ..PartialLayout::default() };
        let request = Request { fixed, top: 20, ..Request::default() };
        let plans = search(&problem, &request, &mut |_| Go::On).plans;
        let by_group = |found: &&EvaluatedPlan| !found.layout.micro_batches_by_group.is_empty();
        for found in plans.iter().filter(by_group) {
            let time = found.evaluation.step_time.get();
            for first in 1..batch as u32 {
                for second in 1..batch as u32 {
                    let micro_batches_by_group = MicroBatchesByGroup::new(&[first, second]).unwrap();
                    let num_micro_batches = first.max(second);
                    let spec =
                        LayoutSpec { num_micro_batches, micro_batches_by_group, ..*found.layout };
                    let Ok(other) = Layout::new(spec, &problem.limits) else { continue };
                    let (other, _) = simulated(&problem, other, &found.stage_ends);
                    let faster = other.evaluation.step_time.get() / time;
                    prop_assert!(faster > 0.9, "{faster} of {time} with {spec:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(drawn(4))]

    #[test]
    fn of_all_choices_of_nodes_the_fastest_is_found(
        model in models(), batch in select(vec![8u64, 12]), nodes in nodes(),
    ) {
        let whole = of_groups(&model, batch, nodes.clone());
        let request = Request::default();
        let cluster = Cluster::of_groups(nodes.clone(), Vec::new()).unwrap();
        let mut fastest = f64::INFINITY;
        for a in 0..=nodes[0].nodes {
            for b in 0..=nodes[1].nodes {
                let some = [(0, a), (1, b)].into_iter().filter(|(_, number)| *number > 0);
                let mut some: Vec<NodeGroup> = some
                    .map(|(index, number)| NodeGroup { nodes: number, ..nodes[index].clone() })
                    .collect();
                for _ in 0..some.len() {
                    some.reverse();
                    let (cluster, num_gpus) = cluster.of_nodes(&some);
                    let problem = whole.on_cluster(&cluster, num_gpus).unwrap();
                    let found = search(&problem, &request, &mut |_| Go::On).plans;
                    let time = found.first().map(|found| found.evaluation.step_time.get());
                    fastest = fastest.min(time.unwrap_or(f64::INFINITY));
                }
            }
        }
        let found = best(&whole, &request).map(|(_, found)| found.evaluation.step_time.get());
        prop_assert_eq!(found.unwrap_or(f64::INFINITY).to_bits(), fastest.to_bits());
    }

    /// Questions about other batches and layouts are answered on the nodes that are best for these.
    #[test]
    fn questions_are_about_all_nodes(model in models(), nodes in nodes(), stages in 1u32..4) {
        let problem = of_groups(&model, 12, nodes);
        let request = Request::default();
        for point in batches(&problem, &request, &mut || Go::On).unwrap().into_iter().skip(2).take(2) {
            let batch = Training { global_batch_size: point.global_batch_size, ..problem.training };
            let (_, own) = best(&problem.with_training(batch).unwrap(), &request).unwrap();
            let time = own.evaluation.step_time.get();
            prop_assert_eq!(point.step_time_seconds.to_bits(), time.to_bits());
        }
        let Some((chosen, plan)) = best(&problem, &request) else { return Ok(()) };
        let fixed = PartialLayout { pipeline_parallel: stages.into(), ..PartialLayout::default() };
        let own = best(&problem, &Request { fixed, ..request }).map(|(_, own)| own.evaluation);
        let (answer, _) = why_not((&chosen, &plan), &problem, &request, &fixed, &mut || Go::On);
        match answer {
            WhyNot::Slower { found, .. } | WhyNot::AsFast { found, .. } => {
                prop_assert_eq!(Some(found.evaluation.step_time), own.map(|own| own.step_time));
            }
            WhyNot::Chosen => prop_assert_eq!(plan.layout.pipeline_parallel, stages),
            _ => prop_assert!(own.is_none()),
        }
    }

    #[test]
    fn a_slower_node_more_is_no_worse(
        model in models(), batch in select(vec![8u64, 16]), nodes in nodes(),
    ) {
        let request = Request::default();
        let fewer = best(&of_groups(&model, batch, nodes.clone()), &request);
        let more = best(&of_groups(&model, batch, [nodes, vec![group("l4", 1)]].concat()), &request);
        if let Some((_, fewer)) = fewer {
            let (_, more) = more.unwrap();
            prop_assert!(more.evaluation.step_time <= fewer.evaluation.step_time);
        }
    }
}

/// Nodes of a kind, and of one that computes and copies twice as fast.
fn slow_and_fast() -> [Cluster; 2] {
    let mut slow = small("a100");
    slow.gpu.kernel_rates = None;
    // Power may limit the one, not the other.
    slow.gpu.power_watts = None;
    let mut fast = slow.clone();
    "fast".clone_into(&mut fast.name);
    let twice = |rate: &mut FlopsPerSecond| *rate = FlopsPerSecond::new(rate.get() * 2.0);
    fast.gpu.peak.values_mut().chain(fast.gpu.sustained.values_mut()).for_each(twice);
    let bandwidth = fast.gpu.memory_bandwidth.get();
    fast.gpu.memory_bandwidth = BytesPerSecond::new(bandwidth * 2.0);
    [slow, fast]
}

/// A GPU that computes and copies twice as fast has twice the sequences, but for what launches of kernels take.
#[test]
fn twice_as_fast_has_twice_the_sequences() {
    let model = json!({
        "architecture": "llama", "num_hidden_layers": 8, "hidden_size": 4096,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 1000,
    });
    let groups = slow_and_fast().map(|cluster| NodeGroup { nodes: 1, cluster });
    let problem = of_groups(&model, 1440, groups.into());
    let fixed = PartialLayout {
        pipeline_parallel: 1.into(),
        tensor_parallel: 1.into(),
        micro_batch_size: 8.into(),
        ..PartialLayout::default()
    };
    let request = Request { fixed, ..Request::default() };
    let found = search(&problem, &request, &mut |_| Go::On).plans.into_iter().next().unwrap();
    let ranks = planned_ranks(&problem, &found);
    let share = |name: &str| ranks.iter().find(|it| it.group == name).unwrap().share_of_batch;
    let sequences = |name: &str| (share(name) * 180.0).round() as u32;
    assert_eq!(2 * (sequences("fast") + sequences("a100")), 180);
    assert!((59..=61).contains(&sequences("fast")), "{ranks:?}");
    assert_eq!(ranks.iter().map(|it| it.replica).collect::<Vec<_>>(), [0, 1, 2, 3].map(Some));
}

/// A GPU that computes and copies twice as fast has twice the layers, to a layer and what embedding and head take.
#[test]
fn twice_as_fast_has_twice_the_layers() {
    let model = json!({
        "architecture": "llama", "num_hidden_layers": 60, "hidden_size": 4096,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 1000,
    });
    let groups = slow_and_fast().map(|cluster| NodeGroup { nodes: 1, cluster });
    let problem = of_groups(&model, 128, groups.into());
    let fixed = PartialLayout {
        pipeline_parallel: 2.into(),
        tensor_parallel: 1.into(),
        micro_batch_size: 8.into(),
        virtual_stages: 1.into(),
        ..PartialLayout::default()
    };
    let request = Request { fixed, exhaustive: true, ..Request::default() };
    let open = problem.with_headroom(ir::units::Bytes::ZERO);
    let outcome = search(&open, &request, &mut |_| Go::On);
    let found = outcome.plans.first().or(outcome.closest.as_ref()).unwrap();
    let ranks = planned_ranks(&open, found);
    let layers = |name: &str| ranks.iter().find(|it| it.group == name).unwrap().layers;
    assert_eq!(layers("fast") + layers("a100"), 60);
    assert!((39..=41).contains(&layers("fast")), "{ranks:?}");
}

/// A batch that no shares make up is undivided; memory has nothing to do with it.
#[test]
fn an_odd_batch_is_not_too_large_for_pairs_of_replicas() {
    let model = json!({
        "architecture": "llama", "num_hidden_layers": 2, "hidden_size": 64,
        "num_attention_heads": 4, "vocab_size": 1000,
    });
    let problem = of_groups(&model, 25, vec![group("a100", 1), group("h100", 1)]);
    let fixed = PartialLayout { data_parallel: 4.into(), ..PartialLayout::default() };
    let outcome = search(&problem, &Request { fixed, ..Request::default() }, &mut |_| Go::On);
    assert!(outcome.plans.is_empty());
    let reasons: Vec<Rejection> = outcome.rejected.keys().copied().collect();
    assert_eq!(reasons, [Rejection::Batch]);
}

#[test]
fn equal_groups_are_one_cluster() {
    let split = vec![group("a100", 1), group("a100", 3)];
    assert_eq!(Cluster::of_groups(split, Vec::new()).unwrap(), small("a100"));
    let orders =
        [vec![group("a100", 1), group("h100", 2)], vec![group("h100", 2), group("a100", 1)]];
    let [one, other] = orders.map(|groups| Cluster::of_groups(groups, Vec::new()).unwrap());
    assert_eq!(one, other);
    assert_eq!(one.name, "a100:1,h100:2");
}
