//! The plans that are chosen for a dozen problems, so that a change of answer shows in the commit that makes
//! it. They move with every better fit; what they must not do is move unseen.

use std::fmt::Write as _;

use insta::assert_snapshot;

use crate::cli::planner;

/// Problems as people ask for them.
const PROBLEMS: [&str; 12] = [
    "models/llama-3.1-8b --gpus 8",
    "models/llama-3.1-8b --gpus 64 --cluster a100",
    "models/llama-3.1-70b --gpus 64",
    "models/llama-3.1-70b --gpus 32 --cluster h200 --seq-len 4096",
    "models/mixtral-8x7b --gpus 32",
    "models/qwen3-30b-a3b --gpus 16 --seq-len 4096",
    "models/gpt-oss-120b --gpus 64 --cluster gb200-nvl72 --global-batch-size 1280 --seq-len 4096",
    "models/gpt3-175b.json --gpus 128 --cluster a100 --global-batch-size 1024 --seq-len 2048",
    "models/gpt2 --gpus 1 --cluster rtx-4090",
    "models/llama-2-7b --gpus 8 --cluster v100 --precision fp16 --seq-len 2048",
    "models/resnet-50.json --gpus 8",
    "models/llama-3.1-405b --gpus 512 --seq-len 4096 --zero 1",
];

#[test]
fn plans_do_not_change_unseen() {
    let mut text = String::new();
    for problem in PROBLEMS {
        let args = ["search", "--quiet", "--format", "json"].into_iter();
        let args: Vec<&str> = args.chain(problem.split(' ')).collect();
        let report = planner(&args).json();
        let plan = &report["plans"][0];
        let layout = &plan["layout"];
        let degree = |name: &str| layout[name].as_u64().expect("a degree");
        let word = |name: &str| layout[name].as_str().expect("a word").to_owned();
        writeln!(
            text,
            "{problem}\n  tp{}{} cp{} ep{} pp{} vpp{} dp{} zero{}/{} {}x{} {} {}: {:.4} s",
            degree("tensor_parallel"),
            if layout["sequence_parallel"] == true { " sp" } else { "" },
            degree("context_parallel"),
            degree("expert_parallel"),
            degree("pipeline_parallel"),
            degree("virtual_stages"),
            degree("data_parallel"),
            degree("zero_stage"),
            degree("zero_shard"),
            degree("num_micro_batches"),
            degree("micro_batch_size"),
            word("schedule"),
            word("recompute"),
            plan["step_time_seconds"].as_f64().expect("a time"),
        )
        .expect("a text grows");
    }
    assert_snapshot!(text, @r"
    models/llama-3.1-8b --gpus 8
      tp1 cp1 ep1 pp1 vpp1 dp8 zero3/8 8x1 1f1b none: 6.2106 s
    models/llama-3.1-8b --gpus 64 --cluster a100
      tp1 cp1 ep1 pp1 vpp1 dp64 zero2/64 8x1 1f1b none: 17.6460 s
    models/llama-3.1-70b --gpus 64
      tp4 sp cp1 ep1 pp4 vpp1 dp4 zero1/4 128x1 1f1b none: 56.6338 s
    models/llama-3.1-70b --gpus 32 --cluster h200 --seq-len 4096
      tp4 sp cp1 ep1 pp2 vpp4 dp4 zero1/4 64x2 interleaved-1f1b none: 50.7659 s
    models/mixtral-8x7b --gpus 32
      tp2 sp cp1 ep1 pp4 vpp4 dp4 zero1/4 64x1 interleaved-1f1b separate_norms+expert_activations: 11.4420 s
    models/qwen3-30b-a3b --gpus 16 --seq-len 4096
      tp1 cp1 ep4 pp4 vpp1 dp4 zero1/4 32x2 1f1b separate_norms+expert_activations: 5.8335 s
    models/gpt-oss-120b --gpus 64 --cluster gb200-nvl72 --global-batch-size 1280 --seq-len 4096
      tp1 cp1 ep4 pp2 vpp6 dp32 zero1/32 20x2 interleaved-1f1b none: 4.5932 s
    models/gpt3-175b.json --gpus 128 --cluster a100 --global-batch-size 1024 --seq-len 2048
      tp8 sp cp1 ep1 pp4 vpp3 dp4 zero1/4 128x2 interleaved-1f1b none: 90.0054 s
    models/gpt2 --gpus 1 --cluster rtx-4090
      tp1 cp1 ep1 pp1 vpp1 dp1 zero0/1 32x16 1f1b none: 5.7326 s
    models/llama-2-7b --gpus 8 --cluster v100 --precision fp16 --seq-len 2048
      tp4 sp cp1 ep1 pp1 vpp1 dp2 zero1/2 32x4 1f1b none: 42.3427 s
    models/resnet-50.json --gpus 8
      tp1 cp1 ep1 pp1 vpp1 dp8 zero3/8 1x32 1f1b none: 0.0565 s
    models/llama-3.1-405b --gpus 512 --seq-len 4096 --zero 1
      tp8 sp cp1 ep1 pp16 vpp4 dp4 zero1/4 256x1 interleaved-1f1b none: 38.1125 s
    ");
}
