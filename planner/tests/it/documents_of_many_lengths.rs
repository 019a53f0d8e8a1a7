//! Sequences that are made of documents of many lengths.

use serde_json::Value;

use crate::bad_input::Workplace;
use crate::cli::{evaluated, planner, run};

fn number(plan: &Value, name: &str) -> f64 {
    plan[name].as_f64().unwrap()
}

/// Documents as long as the sequence are what no documents are; those of half its length have half its pairs, and take
/// less time; more pairs take more.
#[test]
fn equal_lengths_are_none() {
    let place = Workplace::new();
    let of = |further: &str| {
        evaluated(&format!(
            "models/llama-3.1-8b --gpus 8 --cluster b200 --framework megatron-core --layout tp2-sp-dp4-mbs1 --zero 1 --seq-len 32768 \
             --recompute none --headroom 0 {further}"
        ))
    };
    let lengths = |length: u64| {
        let text = format!("{length}\n").repeat(100);
        format!("--document-lengths {}", place.write(&format!("{length}.txt"), text))
    };
    let whole = of("");
    for packing in ["first-fit", "balanced", "none"] {
        let same = of(&format!("{} --packing {packing}", lengths(32768)));
        for name in ["step_time_seconds", "peak_memory_bytes", "tokens_per_second_per_gpu", "mfu"] {
            let [one, other] = [&same, &whole].map(|it| number(it, name).to_bits());
            assert_eq!(one, other, "{packing} {name}");
        }
    }
    let times = [1024, 4096, 16384].map(|it| number(&of(&lengths(it)), "step_time_seconds"));
    assert!(times.is_sorted() && times[2] < number(&whole, "step_time_seconds"), "{times:?}");
    // As many tokens in the same memory, whatever their documents are.
    let short = of(&lengths(1024));
    assert_eq!(short["peak_memory_bytes"], whole["peak_memory_bytes"]);
}

/// torchtune's table of Llama 3.2 3B on one A100 (README): packing Alpaca's instructions, of some hundred tokens, takes
/// tokens a second from 2,091 to 7,075, and memory to 60.0 GiB. Its loss takes logits in 16 bits, chunk by chunk.
#[test]
fn packing_gains_what_torchtune_measured() {
    let place = Workplace::new();
    let mut framework = cost_models::frameworks::preset("fsdp2").unwrap();
    framework.kernels.loss.gradient = ir::graph::LossGradient::Uncast;
    let framework = place.write("torchtune.json", serde_json::to_string(&framework).unwrap());
    let of = |packing: &str| {
        evaluated(&format!(
            "models/llama-3.2-3b --gpus 1 --cluster a100 --framework {framework} --compile none --no-master-weights --bf16-moments \
             --layout dp1-mbs4 --global-batch-size 4 --seq-len 2048 --recompute none --headroom 0 --document-lengths \
             lognormal:110,0.6 --packing {packing}"
        ))
    };
    let (apart, packed) = (of("none"), of("first-fit"));
    let rate = |plan: &Value| number(plan, "tokens_per_second_per_gpu");
    let gain = rate(&packed) / rate(&apart) / (7075.0 / 2091.0);
    assert!((0.85..1.15).contains(&gain), "{gain}");
    let memory = number(&packed, "peak_memory_bytes") / f64::from(1 << 30) / 60.0;
    assert!((0.9..1.1).contains(&memory), "{memory}");
}

/// All replicas wait for the one with most attention: lengths that differ more cost more, and balancing them gains.
#[test]
fn replicas_wait_for_the_longest() {
    let of = |further: &str| {
        evaluated(&format!(
            "models/llama-2-7b --gpus 64 --cluster h200 --framework megatron-core --layout tp4-sp-cp4-dp4-mbs1 --seq-len 131072 \
             --global-batch-size 8 --zero 1 --recompute none --headroom 0 --document-lengths {further}"
        ))
    };
    let [plain, balanced] =
        ["first-fit", "balanced"].map(|it| of(&format!("lognormal:4000,2.2 --packing {it}")));
    assert!(number(&plain, "step_time_seconds") > number(&balanced, "step_time_seconds") * 1.05);
    for plan in [&plain, &balanced] {
        let quantiles = &plan["step_time_quantiles_seconds"];
        let [p10, p50, p90] = ["p10", "p50", "p90"].map(|it| number(quantiles, it));
        assert!(p10 <= p50 && p50 <= p90, "{quantiles}");
    }
    let alike = of("lognormal:4000,0.1");
    assert!(number(&alike, "step_time_seconds") < number(&balanced, "step_time_seconds"));
}

/// A plan keeps its documents, and what reads it predicts what was planned.
#[test]
fn plans_keep_their_documents() {
    let place = Workplace::new();
    let (lengths, plan) = (place.write("lengths.txt", "100\n7\n100\n"), place.path("plan.json"));
    let args = format!(
        "search models/llama-3.2-1b --gpus 2 --document-lengths {lengths} --packing balanced -o {plan} --seq-len 1024"
    );
    let said = run(&args);
    let says = "documents of a file, 69 tokens on average, packing balanced";
    assert!(said.stdout.contains(says), "{said:?}");
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    let lengths = serde_json::json!({"counted": [[7, 1], [100, 2]]});
    let documents = serde_json::json!({"lengths": lengths, "packing": "balanced"});
    assert_eq!(written["documents"], documents);
    for lengths in [
        serde_json::json!({"counted": []}),
        serde_json::json!({"counted": [[0, 1]]}),
        serde_json::json!({"counted": [[100, 0]]}),
        serde_json::json!({"counted": [[100, 1], [7, 1]]}),
        serde_json::json!({"log-normal": {"mean": -5.0, "sigma": 1.0}}),
        serde_json::json!({"log-normal": {"mean": 100.0, "sigma": 1e300}}),
    ] {
        let mut edited = written.clone();
        edited["documents"]["lengths"] = lengths;
        place.write("edited.json", edited.to_string());
        place.fails("explain {}/edited.json", &["the lengths of documents"]);
    }
    let explained = planner(&["explain", &plan]);
    assert_eq!((explained.code, explained.stderr.as_str()), (Some(0), ""));
    assert!(explained.stdout.contains("documents: "), "{explained:?}");
}

#[test]
fn lengths_that_are_none_are_refused() {
    let place = Workplace::new();
    let search = "search models/llama-3.1-8b --gpus 8 --seq-len 4096 --document-lengths";
    for (text, words) in [
        ("", &["no lengths", "in each line"][..]),
        ("12\nlong\n", &["line 2: `long` is not a number of tokens"]),
        ("12\n0\n", &["line 2: `0` is not a number of tokens", "from 1"]),
        ("12\n5000\n", &["line 2: a document of 5000 tokens", "have 4096", "`--seq-len 5000`"]),
    ] {
        place.write("lengths.txt", text);
        place.fails(&format!("{search} {{}}/lengths.txt"), words);
    }
    for text in ["lognormal", "lognormal:600", "lognormal:0,1", "lognormal:6,-1", "{}/none.txt"] {
        let words = ["`--document-lengths`", "`lognormal:MEAN,SIGMA`"];
        place.fails(&format!("{search} {text}"), &words);
    }
    let long = format!("{search} lognormal:5000,1");
    place.fails(&long, &["documents of 5000 tokens", "`--seq-len`"]);
    place.fails(
        "search models/resnet-50.json --gpus 8 --document-lengths lognormal:600,1",
        &["`--document-lengths`", "no sequence"],
    );
    place.fails("search models/llama-3.1-8b --gpus 8 --packing none", &["--document-lengths"]);
}

/// Without packing a micro-batch is padded to its longest document, and a run ends with the first that does not fit: one
/// long document among two thousand needs the memory that all long ones do.
#[test]
fn the_longest_document_has_to_fit() {
    let place = Workplace::new();
    let rare = place.write("rare.txt", "64\n".repeat(1999) + "4000\n");
    let long = place.write("long.txt", "4000\n");
    let of = |lengths: &str| {
        evaluated(&format!(
            "models/llama-3.1-8b --gpus 8 --framework megatron-core --layout tp4-sp-dp2-mbs4 --zero 1 --seq-len 4096 --recompute \
             none --headroom 0 --document-lengths {lengths} --packing none"
        ))
    };
    let [rare, long] = [&rare, &long].map(|it| of(it));
    assert_eq!(rare["peak_memory_bytes"], long["peak_memory_bytes"]);
    assert!(number(&rare, "step_time_seconds") < 0.5 * number(&long, "step_time_seconds"));
}
