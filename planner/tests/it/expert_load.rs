//! Tokens that routers spread unevenly over experts.

use std::fmt::Write as _;

use serde_json::Value;

use crate::bad_input::Workplace;
use crate::cli::{evaluated, planner, run};

/// 250B parameters, 16B of them active: 4 of 128 experts, the shape of marin-community/marin#7668.
const GRUG: &str = r#"{"model_type": "qwen2_moe", "hidden_size": 5120, "intermediate_size": 5120, "num_hidden_layers": 48,
    "num_attention_heads": 40, "num_key_value_heads": 10, "vocab_size": 128256, "num_experts": 128,
    "num_experts_per_tok": 4, "moe_intermediate_size": 2560, "shared_expert_intermediate_size": 5120,
    "max_position_embeddings": 4096}"#;

const GRUG_RUN: &str = "--gpus 64 --cluster gb200 --framework megatron-core --layout ep64-dp64-mbs1 --zero 1 --recompute \
                        none --token-dispatcher hybrid-ep --seq-len 4096 --global-batch-size 1024";

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap()
}

fn seconds(plan: &Value) -> f64 {
    number(plan, "step_time_seconds")
}

fn bytes(plan: &Value) -> f64 {
    number(plan, "peak_memory_bytes")
}

/// 64 GB200 took 8.34 to 8.70 s a step while the router was forced to be balanced, and 18.39 s with a router of its own
/// (marin-community/marin#7668). The spread that is the default is from another run (mlc-ai/pith-train#79).
#[test]
fn a_router_of_its_own_costs_what_a_run_measured() {
    let place = Workplace::new();
    let model = place.write("grug.json", GRUG);
    for (load, measured) in [("--expert-load balanced", 8.5), ("", 18.39)] {
        let ratio = seconds(&evaluated(&format!("{model} {GRUG_RUN} {load}"))) / measured;
        assert!((0.75..1.25).contains(&ratio), "{load}: {ratio}");
    }
}

/// Qwen3-30B-A3B on eight B200: 20.3, 19.7 and 19.4 thousand tokens a second (mlc-ai/pith-train#79).
#[test]
fn layouts_of_experts_are_in_the_measured_order() {
    let of = |layout: &str| {
        seconds(&evaluated(&format!(
            "models/qwen3-30b-a3b --gpus 8 --cluster b200 --framework megatron-core --layout {layout} --seq-len 8192 \
             --global-batch-size 1024 --micro-batch-size 1"
        )))
    };
    let times = ["ep4-dp8", "pp2-ep4-dp4", "ep8-dp8"].map(of);
    assert!(times.is_sorted(), "{times:?}");
}

/// Laws of loads: no spread is the even one, and so are equal counts; more spread takes longer, and no less memory; a
/// rank that has all experts waits for none.
#[test]
fn more_spread_takes_longer() {
    let place = Workplace::new();
    let of = |layout: &str, load: &str| {
        evaluated(&format!(
            "models/mixtral-8x7b --gpus 8 --cluster b200 --framework megatron-core --layout {layout}-mbs1 --zero 1 --schedule 1f1b \
             --recompute full --headroom 0 --expert-load {load}"
        ))
    };
    let even = of("ep8-dp8", "balanced");
    let of_even =
        ["p10", "p90"].map(|it| number(&even["step_time_quantiles_seconds"], it).to_bits());
    assert_eq!(of_even, [seconds(&even).to_bits(); 2]);
    assert_eq!(seconds(&of("ep8-dp8", "lognormal:0")).to_bits(), seconds(&even).to_bits());
    let counts = place.write("counts.txt", "7 7 7 7 7 7 7 7\n");
    assert_eq!(seconds(&of("ep8-dp8", &counts)).to_bits(), seconds(&even).to_bits());
    let mut before = even.clone();
    for sigma in ["0.2", "0.5", "0.9", "1.5"] {
        let now = of("ep8-dp8", &format!("lognormal:{sigma}"));
        assert!(seconds(&now) > seconds(&before) && bytes(&now) >= bytes(&before), "{sigma}");
        for (name, of) in [
            ("step_time_quantiles_seconds", seconds(&now)),
            ("peak_memory_quantiles_bytes", bytes(&now)),
        ] {
            let [p10, p50, p90] = ["p10", "p50", "p90"].map(|it| number(&now[name], it));
            assert!(p10 <= p50 && p50 <= p90 && p10 <= of && of <= p90, "{sigma}: {name}");
        }
        before = now;
    }
    let whole = ["balanced", "lognormal:1.5"].map(|load| seconds(&of("tp8-sp-ep1-etp8-dp1", load)));
    assert_eq!(whole[0].to_bits(), whole[1].to_bits());
}

/// One expert of eight that gets half of all tokens, where each goes to two: its rank has four times its share, whether
/// experts are counted in a row or each in a row of its own. Shares above one half are none: no token goes to an expert
/// twice.
#[test]
fn counts_say_what_the_busiest_rank_has() {
    let place = Workplace::new();
    let says = |text: &str| {
        let counts = place.write("counts.txt", text);
        let args = format!(
            "evaluate models/mixtral-8x7b --gpus 8 --cluster b200 --framework megatron-core --layout ep8-dp8 --expert-load {counts}"
        );
        run(&args).stdout
    };
    for text in ["7,1,1,1,1,1,1,1", "70\n10\n10\n10\n10\n10\n10\n10\n", "900 1 1 1 1 1 1 1"] {
        let text = says(text);
        assert!(text.contains("the busiest rank has 4.00 times its share of tokens"), "{text}");
    }
    let mut layers = String::new();
    for layer in 0..32 {
        writeln!(layers, "{}", if layer % 2 == 0 { "2 2 2 2 2 2 2 2" } else { "9 3 3 3 3 3 3 3" })
            .unwrap();
    }
    // Half of the layers even, half with 9 of 30 on one rank: 2.4 times its share.
    assert!(says(&layers).contains("has 1.70 times its share"), "{}", says(&layers));
}

/// Layers of which one half has most tokens on the first rank, the other half on the second: a pipeline rank with one
/// of the halves needs as much as if all layers had them on one rank; without pipeline, the halves even out.
#[test]
fn a_pipeline_rank_has_the_tokens_of_its_own_layers() {
    let place = Workplace::new();
    let counts = |name: &str, second_half: &str| {
        let rows = ["9 3 3 3 3 3 3 3", second_half].map(|row| format!("{row}\n").repeat(16));
        place.write(name, rows.concat())
    };
    let one = counts("one.txt", "9 3 3 3 3 3 3 3");
    let halves = counts("halves.txt", "3 9 3 3 3 3 3 3");
    let of = |layout: &str, load: &str| {
        bytes(&evaluated(&format!(
            "models/mixtral-8x7b --gpus 16 --cluster b200 --framework megatron-core --layout {layout}-ep8-mbs1 --headroom 0 \
             --schedule 1f1b --recompute none --expert-load {load}"
        )))
    };
    assert_eq!(of("pp2-dp8", &one).to_bits(), of("pp2-dp8", &halves).to_bits());
    assert!(of("dp16", &one) > of("dp16", &halves));
}

/// A plan keeps its load: what `explain` and `compare` read is what was planned.
#[test]
fn plans_keep_their_load() {
    let place = Workplace::new();
    let plan = place.path("plan.json");
    let args = format!(
        "search models/mixtral-8x7b --gpus 8 --cluster b200 --ep 4,8 --expert-load lognormal:0.5 -o {plan}"
    );
    run(&args);
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    assert_eq!(written["expert_load"], serde_json::json!({"log-normal": 0.5}));
    for (load, says) in [
        (serde_json::json!({"counts": []}), "no counts"),
        (serde_json::json!({"counts": [[1, 2, 3, 4, 5, 6, 7, 8], [1]]}), "line 2 has 1 counts"),
        (
            serde_json::json!({"counts": [[0, 0, 0, 0, 0, 0, 0, 0]]}),
            "row 1: 0 experts have tokens, but each token goes to 2",
        ),
        (serde_json::json!({"counts": [[9, 0, 0, 0, 0, 0, 0, 0]]}), "row 1: 1 experts have tokens"),
        (serde_json::json!({"log-normal": 1e300}), "a number from 0 to 5"),
        (serde_json::json!({"log-normal": -1.0}), "a number from 0 to 5"),
    ] {
        let mut edited = written.clone();
        edited["expert_load"] = load;
        place.write("edited.json", edited.to_string());
        place.fails("explain {}/edited.json", &["the load of experts", says]);
    }
    let explained = planner(&["explain", &plan]);
    assert_eq!((explained.code, explained.stderr.as_str()), (Some(0), ""));
    assert!(explained.stdout.contains("experts: the busiest rank has"), "{explained:?}");
}

#[test]
fn loads_that_are_none_are_refused() {
    let place = Workplace::new();
    for (text, words) in [
        ("", &["no counts", "a row for each layer"][..]),
        ("1 2 3", &["counts for 3 experts", "the model has 8 in 32"]),
        ("1 1 1 1 1 1 1 one", &["line 1: `one` is not a count"]),
        ("1 1 1 1 1 1 1 -1", &["`-1` is not a count"]),
        ("1 1 1 1 1 1 1 0.5", &["`0.5` is not a count", "whole numbers"]),
        ("1 1 1 1 1 1 1 1\n1 1", &["line 2 has 2 counts, the first has 8"]),
        ("0 0 0 0 0 0 0 0", &["no token goes to any expert"]),
    ] {
        place.write("counts.txt", text);
        place.fails("search models/mixtral-8x7b --gpus 8 --expert-load {}/counts.txt", words);
    }
    let many = "1 1 1 1 1 1 1 1\n".repeat(33);
    place.write("counts.txt", many);
    let search = "search models/mixtral-8x7b --gpus 8 --expert-load";
    place.fails(&format!("{search} {{}}/counts.txt"), &["in 33 layers", "8 in 32"]);
    for load in ["lognormal", "lognormal:-1", "lognormal:9", "lognormal:x", "even", "{}/none.txt"] {
        place.fails(&format!("{search} {load}"), &["`--expert-load`", "`lognormal:SIGMA`"]);
    }
    place.fails(
        "search models/llama-3.1-8b --gpus 8 --expert-load lognormal:0.5",
        &["`--expert-load`", "no experts"],
    );
}
