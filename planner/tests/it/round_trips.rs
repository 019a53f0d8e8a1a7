//! Plans that are searched for a tool are accepted by it, and come back from its files.

use std::collections::BTreeMap;
use std::fs;
use std::slice;

use cost_models::clusters::preset;
use ir::cluster::Cluster;
use ir::framework::JobFacts;
use ir::graph::Graph;
use ir::model::{GraphOptions, Model};
use ir::plan::Plan;
use ir::replication::DataParallelMethod;
use planner_core::plan::{self, CheckedPlan};
use planner_core::problem::{Choices, Problem, usual_load, with_usual_modules};
use planner_core::search::{EvaluatedPlan, Go, LOOKED_AT, Request, chosen, search};
use planner_tools::interchange::{
    Export, ExportError, Import, Job, LaunchScript, Launcher, Stated, Target, Wanted, export,
    import, job,
};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::checks::planned;
use crate::cli::root;
use crate::random::{Setup, drawn, requests, setups};

/// The plan of what a search found, read back as from a file.
fn checked(
    problem: &Problem,
    cluster: &Cluster,
    model: &Model,
    text: &str,
    found: &EvaluatedPlan,
) -> CheckedPlan {
    let description = serde_json::from_str(text).unwrap();
    let plan = planned(problem, cluster, (&model.name, &description), slice::from_ref(found));
    plan::read(&serde_json::to_string(&plan).unwrap()).unwrap()
}

fn exported(
    checked: &CheckedPlan,
    target: Target,
    launcher: Launcher,
) -> Result<Export, ExportError> {
    export(checked, Wanted { target, launcher, approximate: false })
}

/// The plan that the files of an export are, and the user's word for what they do not say.
fn imported(files: &Export, plan: &Plan, model: &Model, text: &str) -> Plan {
    let written = &files.files[0].text;
    let is_manifest = files.files[0].name.ends_with("-job.yaml");
    let job = job(written, &[]).unwrap().inspect(|job| {
        assert!(job.is_in_place && job.text.len() == written.len(), "{written}");
    });
    assert_eq!(job.is_some(), is_manifest, "{written}");
    let Job { text: script, variables: set, files: mounted, .. } =
        job.unwrap_or_else(|| Job { text: written.clone(), ..Job::default() });
    let first = script.as_str();
    let named = LaunchScript::read(first, &set, &BTreeMap::new()).unwrap().named_files();
    // What a manifest mounts need not lie next to it.
    let lying = files.files.iter().map(|file| (&file.name, &file.text));
    let beside = if is_manifest { mounted.iter().collect() } else { lying.collect::<Vec<_>>() };
    let beside: BTreeMap<String, String> = beside
        .into_iter()
        .filter(|(name, _)| named.iter().any(|it| it.rsplit('/').next() == Some(name)))
        .map(|(name, text)| (name.clone(), text.clone()))
        .collect();
    let is_silent = ["deepspeed", "accelerate", "trainer"].contains(&files.target.name());
    let is_accelerate = files.target.name() == "accelerate";
    let import = import(&Import {
        text: first,
        from: None,
        files: &beside,
        stated: Stated {
            sequence_length: is_silent.then_some(plan.training.sequence_length),
            micro_batch_size: is_accelerate.then_some(plan.layout.micro_batch_size),
            ..Stated::default()
        },
        set: &set,
        model,
        model_text: text,
        cluster: &plan.cluster,
        command: "planner".to_owned(),
    });
    let (again, unread) = import.unwrap_or_else(|error| {
        panic!("{} of {}: {error}\n{written}", plan.layout, files.target.name())
    });
    assert_eq!(unread, [], "all of an export is read: {written}");
    again
}

/// Tools that plans are exported to and imported from.
fn read_and_written() -> Vec<Target> {
    Target::imported().filter(|it| Target::all().any(|written| written == *it)).collect()
}

/// Dense models of the short form as a Hugging Face configuration, which more tools take.
fn of_hub(short: &Value) -> Value {
    if short["architecture"] != "llama" || short.get("num_experts").is_some() {
        return short.clone();
    }
    let hidden = short["hidden_size"].as_u64().unwrap();
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": short["num_hidden_layers"],
        "num_attention_heads": short["num_attention_heads"],
        "num_key_value_heads": short["num_key_value_heads"],
        "vocab_size": short["vocab_size"],
        "tie_word_embeddings": short["tie_word_embeddings"],
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
    })
}

/// What says nothing of a model is left out: copies and gradients of weights in 32 bits, moments of which there are
/// none.
fn in_use(plan: &Plan) -> Value {
    let mut training = plan.training;
    if training.precision.activation_bytes() != 2 {
        (training.fp32_gradients, training.no_master_weights) = (false, false);
    }
    if !training.optimizer.has_full_moments() {
        training.bf16_moments = false;
    }
    json!([plan.layout, training, plan.stages, plan.num_gpus, plan.model])
}

proptest! {
    #![proptest_config(drawn(500))]

    /// Any plan that a tool takes as it is comes back from its files, whatever starts them: layout, training, stages;
    /// and with the tool's habits the predicted step, to the nanosecond.
    #[test]
    fn what_a_tool_takes_comes_back(
        setup in setups(), request in requests(), is_open in any::<bool>(),
        target in select(read_and_written()), launcher in select(Launcher::ALL.to_vec()),
    ) {
        let mut setup = Setup { adapters: None, framework: target.framework(), model: of_hub(&setup.model), ..setup };
        setup.training.data_parallel_method = DataParallelMethod::AllReduce;
        setup.training.gradient_compression = None;
        let facts = setup.problem().facts;
        setup.training = setup.training.with_gradients_of(&setup.framework.abilities, facts);
        let problem = setup.problem();
        let headroom = problem.usual_headroom();
        let load = usual_load(&problem.graph);
        let problem = problem.with_headroom(headroom).with_expert_load(load).unwrap();
        let request = if is_open { Request { top: 4, ..Request::default() } } else { request };
        let outcome = search(&problem, &request, &mut |_| Go::On);
        let text = setup.model.to_string();
        let model = Model::from_json(&text, "model").unwrap();
        for found in outcome.plans.iter().take(4) {
            let plan = checked(&problem, &setup.cluster, &model, &text, found);
            for target in read_and_written() {
                let Ok(files) = exported(&plan, target, launcher) else { continue };
                let back = imported(&files, &plan.plan, &model, &text);
                prop_assert_eq!(in_use(&plan.plan), in_use(&back), "{}", target.name());
                if plan.plan.framework.name == target.framework().name {
                    prop_assert_eq!(&plan.plan.framework, &back.framework, "{}", target.name());
                    prop_assert_eq!(&plan.plan.prediction, &back.prediction, "{}", target.name());
                }
            }
        }
    }
}

/// A problem as `planner search` poses it.
fn posed(model: &Model, target: Target, cluster: &Cluster, gpus: u32) -> Option<Problem> {
    let framework = target.framework();
    let graph: Graph = model.graph(GraphOptions::default()).unwrap();
    let choices = Choices::default();
    let training = choices.resolve(model, graph.has_sequence(), cluster, gpus);
    let facts = JobFacts::of(&graph);
    let training = training.with_gradients_of(&framework.abilities, facts);
    let graph = with_usual_modules(graph, &framework, facts);
    let problem = Problem::new(graph, training, cluster, framework, gpus).ok()?;
    let headroom = problem.usual_headroom();
    let load = usual_load(&problem.graph);
    problem.with_headroom(headroom).with_expert_load(load).ok()
}

/// Search and export do not disagree: the best three that are proposed for a tool's framework are exported as they are.
#[test]
fn what_is_searched_for_a_tool_it_takes() {
    let cluster = preset("h100").unwrap();
    let cases = [
        ("models/gpt2/config.json", &[1, 4][..]),
        ("models/llama-3.1-8b/config.json", &[1, 8, 64]),
        ("models/llama-2-7b/config.json", &[8, 24]),
        ("models/llama-3.1-70b/config.json", &[64]),
        ("models/mixtral-8x7b/config.json", &[32]),
        ("models/qwen3-30b-a3b/config.json", &[16]),
    ];
    let mut taken = BTreeMap::<&str, u32>::new();
    for (path, sizes) in cases {
        let text = fs::read_to_string(root().join(path)).unwrap();
        let model = Model::from_json(&text, path).unwrap();
        for (gpus, target) in
            sizes.iter().flat_map(|gpus| Target::all().map(|target| (*gpus, target)))
        {
            let Some(problem) = posed(&model, target, &cluster, gpus) else { continue };
            let request = Request { top: LOOKED_AT, ..Request::default() };
            let outcome = search(&problem, &request, &mut |_| Go::On);
            for best in chosen(&problem, &outcome.plans, 3) {
                let plan = checked(&problem, &cluster, &model, &text, &best.found);
                let at = format!("{path} on {gpus} for {}: {}", target.name(), plan.plan.layout);
                match exported(&plan, target, Launcher::Torchrun) {
                    Ok(_) => *taken.entry(target.name()).or_default() += 1,
                    // No layout changes what a tool cannot be given.
                    Err(ExportError::Model { .. }) => break,
                    Err(ExportError::Lacks { lacks, .. }) => {
                        // Where nanotron cuts a pipeline depends on weights, which the search does not go by.
                        let is_own = |what: &str| {
                            target.name() == "nanotron" && what.contains("its own rule")
                        };
                        let others: Vec<&str> = lacks
                            .iter()
                            .filter(|lack| !lack.is_free && !is_own(&lack.what))
                            .map(|lack| lack.what.as_str())
                            .collect();
                        assert!(
                            others.is_empty(),
                            "{at}, {}: {others:?}",
                            plan.plan.training.precision
                        );
                    }
                    Err(error) => panic!("{at}: {error}"),
                }
            }
        }
    }
    assert!(taken.values().all(|count| *count >= 3) && taken.len() >= 7, "{taken:?}");
}
