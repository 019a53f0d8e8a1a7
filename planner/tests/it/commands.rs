//! Whole runs of the command that go well: exit code, stdout and stderr.

use std::fs;

use insta::assert_snapshot;
use ir::plan::Plan;
use serde_json::Value;

use crate::cli::{Run, planner, root};

const EIGHT: [&str; 4] = ["models/llama-3.1-8b", "--gpus", "8", "--quiet"];

/// Numbers that a better fit of the cost model moves are left out of a snapshot, and so is the time
/// that a run takes.
fn check(run: &Run, snapshot: impl FnOnce(&str)) {
    let filters = [
        // The rows of a table of plans.
        (r"(?m)^ +\d+  tp\d.*$", "  [plan]"),
        (r"(?m)^ +layout .* schedule .*$", "  layout .. schedule .."),
        (r"(?m)^(time|mfu|memory|rests on): .*$", "$1: [shares]"),
        (
            r"(?m)^expect: .* to .*, 80 % interval from \d+ measured ",
            "expect: [t] to [t], 80 % interval from [n] measured ",
        ),
        (
            r"(?m)^ +[\d.]+ \w+ to .*, 80 % interval from \d+ measured ",
            "        [m] to [m], 80 % interval from [n] measured ",
        ),
        (r"(?m)^the best layout takes .*$", "the best layout takes [t]: [layout]"),
        (
            r"(?m)^[\d,]+ layouts in \d+ ms: [\d,]+ played through, [\d,]+ too large$",
            "[n] layouts in [t] ms: [n] played through, [n] too large",
        ),
        (
            r"(?m)^left out by bounds: [\d,]+ on time, [\d,]+ on memory$",
            "left out by bounds: [n] on time, [n] on memory",
        ),
        (r"\d+\.\d+ (GiB|MiB|KiB)", "[x] $1"),
        (r"(?m)^ +\[x\] (GiB|MiB|KiB)", "  [x] $1"),
        (r"(?m)^( +)[\d,]+ (beyond|with|that)", "  [n] $2"),
        (r"closest: [^:]*: needs", "closest: [layout]: needs"),
        (r"least without: \d+ GPUs", "least without: [n] GPUs"),
    ];
    let mut settings = insta::Settings::clone_current();
    for (pattern, replacement) in filters {
        settings.add_filter(pattern, replacement);
    }
    settings.bind(|| snapshot(&run.transcript()));
}

fn with<'a>(words: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [words, more].concat()
}

/// The keys of `object` are at least these.
fn check_keys(object: &Value, keys: &[&str]) {
    let object = object.as_object().expect("an object");
    for key in keys {
        assert!(object.contains_key(*key), "no `{key}` among {:?}", object.keys());
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn count(value: &Value) -> u64 {
    value.as_u64().expect("a count")
}

/// The plans of a search's JSON have the form that DESIGN.md, section 8, gives.
fn check_report(report: &Value, num_gpus: u64) {
    check_keys(report, &["model", "num_gpus", "plans", "search"]);
    check_keys(&report["model"], &["name", "num_parameters"]);
    let counts = ["candidates", "evaluated", "pruned"];
    check_keys(&report["search"], &["elapsed_seconds", "stop_reason"]);
    let [candidates, evaluated, pruned] = counts.map(|name| count(&report["search"][name]));
    assert_eq!(candidates, evaluated + pruned);
    assert_eq!(count(&report["num_gpus"]), num_gpus);
    for plan in report["plans"].as_array().expect("a list") {
        check_keys(plan, &["layout", "breakdown"]);
        for quantity in
            ["step_time_seconds", "tokens_per_second_per_gpu", "mfu", "peak_memory_bytes"]
        {
            assert!(number(&plan[quantity]) > 0.0, "{quantity}");
        }
        let expectation = &plan["expectation"];
        let of = |name: &str| number(&expectation[name]);
        assert!(of("low_seconds") < of("high_seconds"));
        assert!((of("share") - 0.8).abs() < 1e-9);
        let basis = of("interpolated") + of("extrapolated") + of("data_sheet");
        assert!((basis - 1.0).abs() < 1e-9, "{basis}");
        let layout = &plan["layout"];
        let degrees = ["tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel"];
        assert_eq!(degrees.map(|degree| count(&layout[degree])).iter().product::<u64>(), num_gpus);
        for name in ["expert_parallel", "virtual_stages", "micro_batch_size", "num_micro_batches"] {
            assert!(count(&layout[name]) >= 1, "{name}");
        }
        assert!(layout["sequence_parallel"].is_boolean());
        assert!((0.0..=3.0).contains(&number(&layout["zero_stage"])));
        assert!(layout["schedule"].is_string() && layout["recompute"].is_string());
        let parts = plan["breakdown"].as_object().expect("an object");
        let sum: f64 = parts.values().map(number).sum();
        assert!((sum / number(&plan["step_time_seconds"]) - 1.0).abs() < 1e-9);
    }
}

#[test]
fn a_search_prints_a_table() {
    let run = planner(&with(&["search"], &with(&EIGHT, &["--top", "2"])));
    check(&run, |text| {
        assert_snapshot!(text, @r#"
    exit 0
    --- stdout
    llama-3.1-8b: 8.03 B parameters
    8 x H100-SXM5-80GB, cluster h100
    sequence 8192 (default), batch 64 (default) = 524.29 k tokens; bf16 (default), AdamW (default)
    framework megatron-core (default)

         layout          ZeRO  micro  recompute  step s  tok/s/GPU     MFU   GiB  fastest
      [plan]
      [plan]

    time: [shares]
    mfu: [shares]
    memory: [shares]
      [x] GiB stay free by default (`--headroom`)
    expect: [t] to [t], 80 % interval from [n] measured steps of 49 sources left out of the fit
            [m] to [m], 80 % interval from [n] measured peaks of 31 sources
            (others measured this framework on such GPUs; `planner calibrate` narrows it)
    rests on: [shares]

    [n] layouts in [t] ms: [n] played through, [n] too large
    left out by bounds: [n] on time, [n] on memory
    again: planner search models/llama-3.1-8b --gpus 8 --quiet --top 2
    --- stderr
    "#);
    });
}

#[test]
fn a_search_prints_json() {
    let run = planner(&with(&["search"], &with(&EIGHT, &["--top", "3", "--format", "json"])));
    let report = run.json();
    check_report(&report, 8);
    assert_eq!(report["model"]["name"], "llama-3.1-8b");
    assert_eq!(report["model"]["num_parameters"], 8_030_261_248_u64);
    assert_eq!(report["plans"].as_array().map(Vec::len), Some(3));
    assert_eq!(report["search"]["stop_reason"], "exhausted");
    assert_eq!(run.stderr, "");
}

const NAMED: [&str; 6] =
    ["evaluate", "models/llama-3.1-70b", "--gpus", "64", "--layout", "tp8-pp4-dp2"];

#[test]
fn a_named_layout_is_evaluated() {
    check(&planner(&NAMED), |text| {
        assert_snapshot!(text, @r#"
    exit 0
    --- stdout
    llama-3.1-70b: 70.55 B parameters
    64 x H100-SXM5-80GB, cluster h100
    sequence 8192 (default), batch 512 (default) = 4.19 M tokens; bf16 (default), AdamW (default)
    framework megatron-core (default)

      layout .. schedule ..
      [plan]

    time: [shares]
    mfu: [shares]
    memory: [shares]
      [x] GiB stay free by default (`--headroom`)
    expect: [t] to [t], 80 % interval from [n] measured steps of 49 sources left out of the fit
            [m] to [m], 80 % interval from [n] measured peaks of 31 sources
            (others measured this framework on such GPUs; `planner calibrate` narrows it)
    rests on: [shares]
    the best layout takes [t]: [layout]
    again: planner evaluate models/llama-3.1-70b --gpus 64 --layout tp8-pp4-dp2
    --- stderr
    "#);
    });
    let report = planner(&with(&NAMED, &["--format", "json"])).json();
    check_report(&report, 64);
    let layout = &report["plans"][0]["layout"];
    assert_eq!(layout["tensor_parallel"], 8);
    assert_eq!(layout["pipeline_parallel"], 4);
    assert_eq!(layout["data_parallel"], 2);
    assert_eq!(report["plans"].as_array().map(Vec::len), Some(1));
}

#[test]
fn an_evaluation_keeps_what_is_named() {
    let named = [
        "--zero",
        "1",
        "--micro-batch-size",
        "2",
        "--virtual-stages",
        "2",
        "--schedule",
        "interleaved-1f1b",
        "--recompute",
        "full",
        "--format",
        "json",
    ];
    let report = planner(&with(&NAMED, &named)).json();
    let layout = &report["plans"][0]["layout"];
    assert_eq!(layout["zero_stage"], 1);
    assert_eq!(layout["micro_batch_size"], 2);
    assert_eq!(layout["virtual_stages"], 2);
    assert_eq!(layout["schedule"], "interleaved-1f1b");
    assert_eq!(layout["recompute"], "full");
}

/// What is named by flags alone, by the layout alone, or by both, is the same.
#[test]
fn flags_and_layout_say_the_same() {
    let evaluate = |layout: &str, more: &[&str]| {
        let args =
            ["evaluate", "models/llama-3.1-8b", "--gpus", "16", "--format", "json", "--layout"];
        planner(&[&args[..], &[layout], more].concat()).json()["plans"].clone()
    };
    let plans = evaluate("tp2-sp-pp2-dp4-zero1-mbs1", &[]);
    assert_eq!(plans, evaluate("tp2-sp-pp2", &["--zero", "1", "--micro-batch-size", "1"]));
    assert_eq!(
        plans,
        evaluate(
            "pp2-tp2-dp4-zero1",
            &["--sequence-parallel", "true", "--tp", "2", "--micro-batch-size", "1"]
        )
    );
}

#[test]
fn a_model_is_inspected() {
    let run = planner(&["inspect", "models/llama-3.1-70b"]);
    check(&run, |text| {
        assert_snapshot!(text, @r#"
    exit 0
    --- stdout
    llama-3.1-70b (LlamaForCausalLM)

      parameters                                      70,553,706,496
        of embeddings                                  1,050,673,152
        of routed experts                                          0
        active for a token                            70,553,706,496
      layers                                                      80
      forward FLOPs per token, full attention               160.48 B
      forward FLOPs per token, masked pairs left out        149.74 B
        at a sequence of                                       8,192

      block      count  parameters each  operators  mixing
      embedding      1    1,050,673,152          1
      layer         80      855,654,400         15  64 heads, 8 KV
      head           1    1,050,681,344          3
    --- stderr
    "#);
    });
    let inspection = planner(&["inspect", "models/llama-3.1-70b", "--format", "json"]).json();
    check_keys(
        &inspection,
        &[
            "name",
            "num_parameters",
            "num_embedding_parameters",
            "num_active_parameters",
            "num_layers",
            "forward_flops_per_token",
        ],
    );
    assert_eq!(inspection["num_parameters"], 70_553_706_496_u64);
    assert_eq!(inspection["num_layers"], 80);
}

#[test]
fn every_shipped_model_is_inspected() {
    for entry in fs::read_dir(root().join("models")).unwrap() {
        let path = entry.unwrap().path();
        let named = path.file_name().and_then(|name| name.to_str()).unwrap();
        if ["README.md", "Cargo.toml", "src"].contains(&named) || named.ends_with(".schema.json") {
            continue;
        }
        let inspection = planner(&["inspect", path.to_str().unwrap(), "--format", "json"]).json();
        let [total, embedding, active] =
            ["num_parameters", "num_embedding_parameters", "num_active_parameters"]
                .map(|count| number(&inspection[count]));
        assert!(total >= active && total > embedding && active > 0.0, "{inspection}");
        assert!(number(&inspection["forward_flops_per_token"]) > 0.0);
    }
}

/// A model without a sequence is counted by the image.
#[test]
fn images_are_counted_one_by_one() {
    let args = ["search", "models/vit-large-patch16-224", "--gpus", "8", "--top", "1"];
    let found = planner(&with(&args, &["--global-batch-size", "64"]));
    assert_eq!(found.code, Some(0), "{found:?}");
}

#[test]
fn schedules_are_listed() {
    let run = planner(&["list", "schedules"]);
    check(&run, |text| {
        assert_snapshot!(text, @r#"
    exit 0
    --- stdout
      schedule          what it does
      sequential        one micro-batch at a time: no two stages ever work together
      gpipe             all forwards, then all backwards; keeps every micro-batch
      1f1b              one forward, one backward; keeps as many micro-batches as stages
      interleaved-1f1b  1F1B over several stages a rank; bubble over v, more messages
      looped-bfs        all micro-batches through a stage of each rank, then the next
      zb-h1             weight gradients fill the drain; memory of 1F1B
      zb-h2             weight gradients fill warm-up and drain; twice the memory of 1F1B
      interleaved-zb    zb-h1 over several stages a rank
      zbv               no bubble at equal costs in the memory of 1F1B; two stages a rank
      v-half            two stages a rank, half the memory of 1F1B, little bubble
      v-min             two stages a rank, a third of the memory of 1F1B
      dualpipe          both directions at once, overlapped; two copies of the parameters
      dualpipev         dualpipe folded in half: one copy, two stages a rank
      async-1f1b        1F1B without a flush; updates each micro-batch, stashes weights
    --- stderr
    "#);
    });
}

#[test]
fn clusters_and_models_are_listed() {
    for (what, some) in [
        ("clusters", &["h100", "a100-40gb", "gb200-nvl72", "rtx-4090", "mi300x"][..]),
        ("models", &["llama-3.1-70b", "deepseek-v3", "gpt3-175b", "resnet-50"]),
        ("architectures", &["llama", "deepseek_v3", "gpt_oss", "t5", "vit"]),
        ("schedules", &["gpipe", "1f1b", "zb-h1"]),
    ] {
        let table = planner(&["list", what]);
        assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""));
        for name in some {
            let listed =
                table.stdout.lines().any(|line| line.split_whitespace().next() == Some(name));
            assert!(listed, "{name} is not among the {what}:\n{}", table.stdout);
        }
        let all = planner(&["list", what, "--format", "json"]).json();
        assert_eq!(all.as_array().map(Vec::len), Some(table.stdout.lines().count() - 1), "{what}");
    }
}

#[test]
fn a_plan_is_written_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let path = path.to_str().unwrap();
    let run = planner(&with(&["search"], &with(&EIGHT, &["--top", "3", "-o", path])));
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.ends_with(&format!("wrote {path}; see `planner explain {path}`\n")));
    let text = fs::read_to_string(path).unwrap();
    let plan: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!((plan.num_gpus, plan.runners_up.len()), (8, 2));
    assert!(plan.provenance.command.starts_with("planner search models/llama-3.1-8b --gpus 8"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");

    let run = planner(&["explain", path]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    for heading in [
        "llama-3.1-8b on 8 x H100-SXM5-80GB\n",
        "time of a step",
        "bound by",
        "memory of pipeline rank",
        "layers of each stage",
        "kernels and collectives of a micro-batch",
        "runners-up, and what they lose (a gain below 3 % cannot be told apart):",
        "made by: planner search",
    ] {
        assert!(run.stdout.contains(heading), "no `{heading}` in\n{}", run.stdout);
    }
    assert!(!run.stdout.contains("note: planner"), "the prediction is made again:\n{}", run.stdout);
    let explanation = planner(&["explain", path, "--format", "json"]).json();
    check_keys(&explanation, &["plan", "kernels", "runners_up"]);
    assert_eq!(explanation["plan"], serde_json::from_str::<Value>(&text).unwrap());

    // A plan in the place of another takes it whole.
    let again = planner(&with(&["search"], &with(&EIGHT, &["--top", "3", "-o", path])));
    assert_eq!(again.code, Some(0));
    assert_eq!(fs::read_to_string(path).unwrap(), text);
}

/// A file in the place of a device would end it.
#[cfg(unix)]
#[test]
fn a_plan_may_go_to_a_device() {
    use std::os::unix::fs::FileTypeExt as _;

    let run = planner(&with(&["search"], &with(&EIGHT, &["-o", "/dev/null"])));
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}

#[test]
fn where_nothing_fits_it_is_said_why() {
    let args = ["search", "models/llama-3.1-70b", "--gpus", "7", "--quiet"];
    check(&planner(&args), |text| {
        assert_snapshot!(text, @r#"
    exit 1
    --- stdout
    llama-3.1-70b: 70.55 B parameters
    7 x H100-SXM5-80GB, cluster h100
    sequence 8192 (default), batch 56 (default) = 458.75 k tokens; bf16 (default), AdamW (default)
    framework megatron-core (default)

    no layout fits:
      [n] beyond the memory of a GPU
      [n] with heads or inner widths undivided
      [n] with the sequence undivided
    closest: [layout]: needs [x] GiB of [x] GiB, [x] GiB too much
      [x] GiB  parameters
      [x] GiB  gradients
      [x] GiB  optimizer state
      [x] GiB  activations
      [x] GiB  recomputed block
      [x] GiB  workspace
      [x] MiB  message buffers
      [x] GiB  allocator slack
      [x] GiB  device context
    hint: `--offload optimizer` fits on these 7 GPUs
    least without: [n] GPUs would do

    [n] layouts in [t] ms: [n] played through, [n] too large
    left out by bounds: [n] on time, [n] on memory
    again: planner search models/llama-3.1-70b --gpus 7 --quiet
    --- stderr
    "#);
    });
    // Numbers end below each other, however long they are.
    let run = planner(&args);
    let reasons = run.stdout.lines().skip_while(|line| *line != "no layout fits:").skip(1);
    let reasons = reasons.take_while(|line| line.starts_with("  "));
    let starts: Vec<_> = reasons.map(|line| line.find(|c: char| c.is_alphabetic())).collect();
    assert_eq!(starts, [Some(12); 3]);
    let run = planner(&with(&args, &["--format", "json"]));
    assert_eq!((run.code, run.stderr.as_str()), (Some(1), ""));
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    check_report(&report, 7);
    assert_eq!(report["plans"].as_array().map(Vec::len), Some(0));
    let infeasible = &report["infeasible"];
    let tried = &report["search"]["candidates"];
    assert_eq!(&infeasible["rejected"]["memory"], tried);
    assert!(number(&infeasible["missing_bytes"]) > 0.0);
    check_keys(&infeasible["closest"], &["layout", "peak_memory_bytes", "memory"]);
    let least = count(&infeasible["least_gpus"]);
    assert!(least > 7);

    let enough = format!("{least}");
    let run = planner(&["search", "models/llama-3.1-70b", "--gpus", &enough, "--quiet"]);
    assert_eq!(run.code, Some(0), "{least} GPUs are said to do: {run:?}");
}

#[test]
fn a_named_layout_that_does_not_fit_is_still_evaluated() {
    let args =
        ["evaluate", "models/llama-3.1-70b", "--gpus", "8", "--layout", "dp8", "--format", "json"];
    let run = planner(&args);
    assert_eq!(run.code, Some(1));
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    check_report(&report, 8);
    assert_eq!(report["plans"][0]["fits"], false);
}

/// Before more GPUs, options that free memory are tried; and the default batch is one that any number of GPUs can run.
#[test]
fn what_would_fit_is_tried_first() {
    let run = planner(&["search", "llama-3.1-8b", "--gpus", "1"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let hint = run.stdout.lines().find_map(|line| line.strip_prefix("hint: `")).unwrap();
    let options: Vec<&str> = hint.split('`').next().unwrap().split(' ').collect();
    let again = planner(&[&["search", "llama-3.1-8b", "--gpus", "1"], &options[..]].concat());
    assert_eq!(again.code, Some(0), "{hint} {again:?}");
    for gpus in ["99991", "9999", "24", "1023"] {
        let run = planner(&["search", "llama-3.1-8b", "--gpus", gpus, "--quiet", "--top", "1"]);
        assert_eq!(run.code, Some(0), "{gpus} {run:?}");
    }
}
