//! Random models, clusters and requests: small, but with room for every kind of parallelism.

use std::env;

use cost_models::clusters::preset;
use cost_models::frameworks;
use ir::cluster::Cluster;
use ir::cluster::Precision;
use ir::framework::Framework;
use ir::graph::{Adapters, ContextParallelKind, Recompute, WeightFormat};
use ir::layout::{Choice, PartialLayout, ZeroStage};
use ir::model::{GraphOptions, Model};
use ir::plan::{Optimizer, Training};
use ir::replication::{DataParallelMethod, GradientCompression};
use ir::schedule::ScheduleKind;
use ir::units::{Bytes, BytesPerSecond};
use planner_core::problem::Problem;
use planner_core::search::Request;
use planner_core::step::CONTEXT;
use proptest::collection::btree_set;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

/// So many cases of a property, drawn anew each time; `TIMES_CASES` multiplies them.
pub(crate) fn drawn(cases: u32) -> ProptestConfig {
    let cases = cases * times_cases().unwrap_or(1);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

pub(crate) fn times_cases() -> Option<u32> {
    env::var("TIMES_CASES").ok()?.parse().ok()
}

/// Parts of a [`Problem`], so that a test can change one of them.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) model: Value,
    pub(crate) cluster: Cluster,
    pub(crate) framework: Framework,
    pub(crate) training: Training,
    pub(crate) num_gpus: u32,
    pub(crate) adapters: Option<Adapters>,
}

impl Setup {
    pub(crate) fn problem(&self) -> Problem {
        let model = Model::from_json(&self.model.to_string(), "model").expect("a valid model");
        let graph = model.training_graph(GraphOptions::default(), self.adapters.as_ref());
        let graph = graph.expect("a model has a graph");
        let framework = self.framework.clone();
        Problem::new(graph, self.training, &self.cluster, framework, self.num_gpus)
            .expect("a problem")
    }
}

/// A model in the short form: dense or with experts, with equal or grouped heads.
pub(crate) fn models() -> impl Strategy<Value = Value> {
    let heads = select(vec![(4u64, 4u64), (6, 3), (8, 2), (8, 1), (12, 12), (16, 4), (32, 8)]);
    let experts = prop_oneof![
        2 => Just(None),
        1 => (select(vec![2u64, 4, 6, 8]), 1u64..3, select(vec![512u64, 516, 1536])).prop_map(Some),
    ];
    let sizes = (2u32..7, heads, select(vec![64u64, 128]), select(vec![1000u64, 32_000, 128_000]));
    (select(vec!["gpt", "llama"]), sizes, experts, any::<bool>()).prop_map(
        |(architecture, (layers, (heads, kv_heads), head_dim, vocab_size), experts, tied)| {
            let mut model = json!({
                "architecture": architecture,
                "num_hidden_layers": layers,
                "hidden_size": heads * head_dim,
                "num_attention_heads": heads,
                "num_key_value_heads": kv_heads,
                "vocab_size": vocab_size,
                "tie_word_embeddings": tied,
            });
            if let Some((num_experts, top_k, width)) = experts {
                model["num_experts"] = json!(num_experts);
                model["num_experts_per_tok"] = json!(top_k);
                model["moe_intermediate_size"] = json!(width);
            }
            model
        },
    )
}

/// None more often than not; else of a rank that all layers have room for.
fn adapters() -> impl Strategy<Value = Option<Adapters>> {
    let targets = select(vec!["all-linear", "query", "down", "output"]);
    let formats = select(WeightFormat::ALL.to_vec());
    let adapters = (1u64..17, targets, formats).prop_map(|(rank, target, base_weights)| {
        Some(Adapters { rank, alpha: 16, targets: vec![target.to_owned()], base_weights })
    });
    prop_oneof![2 => Just(None), 1 => adapters]
}

/// A preset with links slowed down and nodes of another size.
fn clusters() -> impl Strategy<Value = Cluster> {
    let names = select(vec!["h100", "a100", "l4", "mi300x", "gb200-nvl72", "rtx-4090"]);
    let scales = (-3.0..0.5f64, -3.0..0.5f64);
    (names, scales, select(vec![2u32, 3, 4, 8]), any::<bool>()).prop_map(
        |(name, (within, between), node, fitted)| {
            let mut cluster = preset(name).expect("a preset");
            cluster.gpus_per_node = node;
            let last = cluster.levels.len() - 1;
            for (index, level) in cluster.levels.iter_mut().enumerate() {
                let scale = 10f64.powf(if index == 0 { within } else { between });
                level.bandwidth = BytesPerSecond::new(level.bandwidth.get() * scale);
                if index < last {
                    level.ranks = Some(node * (index as u32 + 1));
                }
                if !fitted {
                    level.collective_rates = None;
                }
            }
            cluster
        },
    )
}

/// How replicas come to their weights: as usual more often than not.
fn replication() -> impl Strategy<Value = (DataParallelMethod, Option<GradientCompression>)> {
    let methods = ["parameter-server", "ring-averaging", "asynchronous:0", "asynchronous:3"];
    let methods = select(methods.map(|name| name.parse().expect("a method")).to_vec());
    let compressions = ["top-k:0.01", "random-k:0.3", "int8", "int4", "sign"];
    let compressions = compressions.map(|name| name.parse().expect("a compression"));
    prop_oneof![
        5 => Just((DataParallelMethod::AllReduce, None)),
        1 => methods.prop_map(|method| (method, None)),
        1 => select(compressions.to_vec()).prop_map(|it| (DataParallelMethod::AllReduce, Some(it))),
    ]
}

fn trainings() -> impl Strategy<Value = Training> {
    let sizes = (select(vec![96u64, 512, 1000, 2048]), 1u64..25);
    let optimizers = select(vec![Optimizer::AdamW, Optimizer::Momentum, Optimizer::Sgd]);
    let precisions = select(vec![Precision::Bf16, Precision::Fp16, Precision::Fp32]);
    (sizes, precisions, optimizers, any::<[bool; 3]>(), replication()).prop_map(
        |(
            sizes,
            precision,
            optimizer,
            [fp32_gradients, bf16_moments, no_master_weights],
            replication,
        )| {
            let (data_parallel_method, gradient_compression) = replication;
            Training {
                sequence_length: sizes.0,
                global_batch_size: sizes.1,
                precision,
                optimizer,
                fp32_gradients,
                bf16_moments,
                no_master_weights,
                data_parallel_method,
                gradient_compression,
            }
        },
    )
}

/// A framework that ships, or its habits without its limits.
fn frameworks() -> impl Strategy<Value = Framework> {
    let all: Vec<Framework> = frameworks::all().collect();
    (select(all), prop::bool::weighted(0.7))
        .prop_map(|(framework, is_ideal)| if is_ideal { framework.ideal() } else { framework })
}

/// A model, a batch and a few GPUs; with memory between far too little and plenty.
pub(crate) fn setups() -> impl Strategy<Value = Setup> {
    let machines = (clusters(), frameworks());
    (models(), machines, trainings(), adapters(), 1u32..17, -2.0..3.0f64).prop_map(
        |(model, (cluster, framework), training, adapters, num_gpus, plenty)| {
            let mut setup = Setup { model, cluster, framework, training, num_gpus, adapters };
            let states = 16 * setup.problem().parameters().total / u64::from(num_gpus);
            let room = Bytes::from_f64(states as f64 * plenty.exp2());
            setup.cluster.gpu.memory = CONTEXT + room;
            setup
        },
    )
}

/// As [`setups`], with as many layers, sequences and GPUs as models of some ten billion parameters have.
pub(crate) fn large_setups() -> impl Strategy<Value = Setup> {
    let gpus = select(vec![8u32, 24, 48, 64, 96, 128, 256]);
    (setups(), 8u32..97, 1u64..129, gpus, -1.0..3.0f64).prop_map(
        |(mut setup, layers, batch, num_gpus, plenty)| {
            setup.model["num_hidden_layers"] = json!(layers);
            setup.training.global_batch_size = 8 * batch;
            setup.num_gpus = num_gpus;
            let states = 16 * setup.problem().parameters().total / u64::from(num_gpus);
            setup.cluster.gpu.memory = CONTEXT + Bytes::from_f64(states as f64 * plenty.exp2());
            setup
        },
    )
}

/// Decisions of users, now and then.
pub(crate) fn requests() -> impl Strategy<Value = Request> {
    let degree = || prop::option::weighted(0.06, select(vec![1u32, 2, 3, 4, 8]));
    let degrees = (degree(), degree(), degree(), degree(), degree(), degree(), degree());
    let policies = (
        prop::option::weighted(0.1, select(ZeroStage::ALL.to_vec())),
        prop::option::weighted(0.1, select(Recompute::ALL.to_vec())),
        prop::option::weighted(0.06, select(ScheduleKind::ALL.to_vec())),
        prop::option::weighted(0.06, any::<bool>()),
        prop::option::weighted(0.1, select(ContextParallelKind::ALL.to_vec())),
    );
    (degrees, policies, 1usize..6).prop_map(|((tp, cp, ep, etp, pp, dp, mbs), policies, top)| {
        let (zero_stage, recompute, schedule, sequence_parallel, kind) = policies;
        let fixed = PartialLayout {
            tensor_parallel: tp.into(),
            sequence_parallel: sequence_parallel.into(),
            context_parallel: cp.into(),
            context_parallel_kind: kind.into(),
            expert_parallel: ep.into(),
            expert_tensor_parallel: etp.into(),
            pipeline_parallel: pp.into(),
            data_parallel: dp.into(),
            micro_batch_size: mbs.into(),
            zero_stage: zero_stage.into(),
            recompute: recompute.into(),
            schedule: schedule.into(),
            ..PartialLayout::default()
        };
        Request { fixed, top, ..Request::default() }
    })
}

/// Requests that name a schedule or two, mostly of those that a search does not try by itself.
pub(crate) fn named_schedules() -> impl Strategy<Value = Request> {
    let named = btree_set(select(ScheduleKind::ALL.to_vec()), 1..3);
    (requests(), named).prop_map(|(request, named)| {
        let fixed = PartialLayout { schedule: Choice::of(named), ..request.fixed };
        Request { fixed, ..request }
    })
}
