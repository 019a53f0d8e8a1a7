//! Number of candidates a second that one core evaluates or soundly prunes.
//!
//! Criterion's elements are candidates, so its `Kelem/s` are thousands of candidates a second. The
//! counts themselves go to stderr: of a search, how many were evaluated and how many left out.

use std::hint::black_box;

use cost_models::{clusters, frameworks};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ir::model::{GraphOptions, Model};
use planner_core::problem::{Choices, Problem};
use planner_core::search::{Go, Request, search};

const GPT3_175B: &str = include_str!("../../../models/gpt3-175b.json");
const LLAMA_70B: &str = include_str!("../../../models/llama-3.1-70b/config.json");
const LLAMA_405B: &str = include_str!("../../../models/llama-3.1-405b/config.json");

/// Searches of seconds: few samples are enough.
const SAMPLES: usize = 10;

/// As the command shows by default.
const TOP: usize = 5;

/// The problem of the command line with all defaults, on H100s.
fn problem(name: &str, text: &str, num_gpus: u32) -> Problem {
    let model = Model::from_json(text, name).expect("the model ships");
    let cluster = clusters::preset("h100").expect("a preset");
    let graph = model
        .training_graph(GraphOptions::default(), None)
        .expect("a model that was read has a graph");
    let choices = Choices::default();
    let training = choices.resolve(&model, graph.has_sequence(), &cluster, num_gpus);
    let framework = frameworks::preset("megatron-core").expect("it ships");
    Problem::new(graph, training, &cluster, framework, num_gpus).expect("a problem within range")
}

#[expect(clippy::print_stderr, reason = "the counts behind the throughput")]
fn benches(criterion: &mut Criterion) {
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool of one thread");
    let request = Request { top: TOP, ..Request::default() };
    let mut group = criterion.benchmark_group("search");
    group.sample_size(SAMPLES);
    for (name, text, num_gpus) in [
        ("gpt3-175b", GPT3_175B, 64),
        ("llama-3.1-70b", LLAMA_70B, 64),
        ("llama-3.1-405b", LLAMA_405B, 16_384),
    ] {
        let problem = problem(name, text, num_gpus);
        let run = || one.install(|| search(black_box(&problem), &request, &mut |_| Go::On));
        let outcome = run();
        eprintln!(
            "search/{name}/{num_gpus}-gpus: {} candidates: {} evaluated, {} left out by bounds",
            outcome.counts.candidates,
            outcome.counts.evaluated(),
            outcome.counts.pruned()
        );
        group.throughput(Throughput::Elements(outcome.counts.candidates));
        group.bench_function(BenchmarkId::new(name, format!("{num_gpus}-gpus")), |bencher| {
            bencher.iter(run);
        });
    }
    group.finish();
}

criterion_group!(searches, benches);
criterion_main!(searches);
