//! Predictions held against measured runs: which rows are mapped, and how errors are counted.

use std::fs;

use ir::framework::{AttentionLibrary, GradientAccumulation, Launches, UpdateBuffers};
use ir::graph::RecomputeModule;
use planner_evidence::validation::accuracy::Accuracy;
use planner_evidence::validation::intervals::coverage;
use planner_evidence::validation::run::MemoryKind;
use planner_evidence::validation::{
    ComparedRow, FileError, Quantity, compare, compare_kernels, predict, read_rows, setup::Setup,
    validate,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use traces::reference::REFERENCE;

use super::cli::planner;

/// A run of Llama 2's 7B kind on 16 A100, with changes.
fn run(changes: &Value) -> Value {
    let mut run = json!({
        "id": "a", "gpu": "A100-SXM4-80GB", "gpus_per_node": 8, "n_gpus": 16,
        "n_layers": 32, "hidden": 4096, "n_heads": 32, "ffn_hidden": 11008, "gated_mlp": true,
        "vocab": 32000, "seq_len": 4096, "tp": 2, "pp": 2, "dp": 4, "micro_batch_size": 1,
        "global_batch_size": 64, "recompute": "none", "precision": "bf16", "schedule": "1F1B",
        "distributed_optimizer": true, "zero_stage": 1, "step_time_s": 10.0, "peak_mem_gib": 40.0,
    });
    for (field, value) in changes.as_object().unwrap() {
        run[field] = value.clone();
    }
    run
}

/// The comparison of one row.
fn compared(changes: &Value, quantity: Quantity) -> Option<ComparedRow> {
    let text = json!([run(changes)]).to_string();
    let rows = read_rows("runs.json", &text).unwrap();
    compare("runs.json", quantity, &validate("runs.json", &rows, None))
        .map(|mut it| it.rows.remove(0))
}

fn check_unsupported(changes: &Value, reason: &str) {
    match compared(changes, Quantity::StepTimeSeconds).unwrap() {
        ComparedRow::Unsupported { unsupported, .. } => {
            assert!(unsupported.contains(reason), "{unsupported}, which has no `{reason}`");
        }
        row @ ComparedRow::Predicted { .. } => panic!("{changes}: {row:?}"),
    }
}

#[test]
fn a_complete_row_is_mapped() {
    let rows = read_rows("runs.json", &json!([run(&json!({}))]).to_string()).unwrap();
    let Setup { problem, layout, stage_ends, .. } = Setup::of(&rows[0]).unwrap();
    assert_eq!(problem.parameters().total, 6_738_415_616, "Llama 2's 7B");
    let layout = (layout.tensor_parallel, layout.data_parallel, layout.num_micro_batches);
    assert_eq!(layout, (2, 4, 16));
    // The embedding with the first 16 layers, the head with the last.
    assert_eq!(stage_ends, [17, 34]);
    for quantity in [Quantity::StepTimeSeconds, Quantity::PeakMemoryBytes] {
        let ComparedRow::Predicted { measured, predicted, .. } =
            compared(&json!({}), quantity).unwrap()
        else {
            panic!("it is predicted");
        };
        assert!(predicted > 0.2 * measured && predicted < 5.0 * measured, "{predicted}");
    }
}

/// What a recipe computes again and what it offloads, as sources state them.
#[test]
fn modules_and_offloads_of_recipes_are_mapped() {
    let layout = |more: &Value| {
        let rows = read_rows("runs.json", &json!([run(more)]).to_string()).unwrap();
        Setup::of(&rows[0]).unwrap().layout
    };
    for detail in [r#"["layernorm", "mlp"]"#, r#"{"modules": ["layernorm", "mlp"]}"#] {
        let more = json!({"recompute": "selective", "recompute_detail": detail});
        let modules = layout(&more).recompute.modules().map(|it| it.iter().collect::<Vec<_>>());
        assert_eq!(
            modules,
            Some(vec![RecomputeModule::SeparateNorms, RecomputeModule::FeedForward])
        );
    }
    assert_eq!(layout(&json!({})).offload.to_string(), "none");
    let flags = json!({"extra": {"recipe_flags": {"cpu_offloading_num_layers": 4}}});
    assert_eq!(layout(&flags).offload.to_string(), "activations:4");
}

#[test]
fn a_row_that_cannot_be_represented_says_why() {
    check_unsupported(&json!({"n_layers": null}), "`n_layers` is missing");
    check_unsupported(&json!({"hidden": "wide"}), "`hidden` is \"wide\"");
    check_unsupported(&json!({"vocab": 0}), "`vocab` is 0");
    check_unsupported(&json!({"dp": 8}), "are 32 ranks, not 16");
    check_unsupported(&json!({"tp": 0}), "`tp` is 0");
    check_unsupported(&json!({"global_batch_size": 63}), "no number of micro-batches");
    check_unsupported(&json!({"gpu": "A900"}), "GPU `A900`");
    check_unsupported(&json!({"gpu": null}), "GPU ``");
    check_unsupported(&json!({"precision": "int3"}), "precision `int3`");
    check_unsupported(&json!({"precision": "NVFP4"}), "has no `fp4`");
    check_unsupported(&json!({"schedule": "spiral"}), "schedule `spiral`");
    check_unsupported(&json!({"recompute": "partial-full"}), "recompute `partial-full`");
    check_unsupported(&json!({"zero_stage": 4}), "ZeRO stage 4");
    check_unsupported(&json!({"tp": 3, "dp": 1, "n_gpus": 6}), "its layout: ");
    check_unsupported(&json!({"step_time_s": 0.0}), "`step_time_s` is 0");
    check_unsupported(&json!({"step_time_s": "fast"}), "`step_time_s` is \"fast\"");
    // What a source does not state is not compared.
    assert_eq!(compared(&json!({"step_time_s": null}), Quantity::StepTimeSeconds), None);
}

#[test]
fn a_row_that_contradicts_itself_says_by_what() {
    let more = json!({"n_microbatches": 8});
    check_unsupported(
        &more,
        "`n_microbatches` is 8, but a batch of 64 on 4 replicas with 1 at a time makes 16",
    );
    check_unsupported(
        &json!({"n_params": 1e9}),
        "`n_params` is 1.000 B, but its dimensions make 6.738 B",
    );
    // 64 sequences of 4096 in 10 s on 16 GPUs.
    let slower = json!({"tokens_per_s_per_gpu": 1400.0});
    check_unsupported(
        &slower,
        "`tokens_per_s_per_gpu` is 1400, but its step of 10 s makes 1638.4000",
    );
    check_unsupported(&json!({"samples_per_s": 7.2}), "`samples_per_s` is 7.2");
    let alike = json!({
        "n_microbatches": 16, "n_params": 6.6e9, "tokens_per_s_per_gpu": 1600.0, "samples_per_s": 6.3,
    });
    let row = compared(&alike, Quantity::StepTimeSeconds).unwrap();
    assert!(matches!(row, ComparedRow::Predicted { .. }), "{row:?}");
    // Of too much memory, the time may be right all the same.
    let full = json!({"peak_mem_gib": 100.0});
    let row = compared(&full, Quantity::StepTimeSeconds).unwrap();
    assert!(matches!(row, ComparedRow::Predicted { .. }), "{row:?}");
    match compared(&full, Quantity::PeakMemoryBytes).unwrap() {
        ComparedRow::Unsupported { unsupported, .. } => {
            assert!(unsupported.contains("100.00 GiB were in use on a GPU of 8"), "{unsupported}");
        }
        row @ ComparedRow::Predicted { .. } => panic!("{row:?}"),
    }
}

/// Of two rows with one name nobody knows which is meant.
#[test]
fn names_of_rows_are_their_own() {
    let rows = json!([
        run(&json!({})),
        run(&json!({"id": "b"})),
        run(&json!({"id": "b", "n_layers": 16}))
    ]);
    let rows = read_rows("runs.json", &rows.to_string()).unwrap();
    let validated = validate("runs.json", &rows, None);
    let is_predicted: Vec<bool> = validated.iter().map(|run| run.predicted.is_ok()).collect();
    assert_eq!(is_predicted, [true, false, false]);
}

/// One bad row does not hide the others.
#[test]
fn all_rows_are_counted() {
    let rows = json!([run(&json!({})), run(&json!({"id": "b", "dp": 8})), 7, {"id": "c", "step_time_s": 1}]);
    let rows = read_rows("runs.json", &rows.to_string()).unwrap();
    let comparison =
        compare("runs.json", Quantity::StepTimeSeconds, &validate("runs.json", &rows, None))
            .unwrap();
    assert_eq!((comparison.rows.len(), comparison.accuracy.count), (4, 1));
    let ids = comparison.rows.iter().map(|row| match row {
        ComparedRow::Predicted { id, .. } | ComparedRow::Unsupported { id, .. } => id.as_str(),
    });
    assert_eq!(ids.collect::<Vec<_>>(), ["a", "b", "2", "c"]);
}

#[test]
fn files_that_hold_no_runs_are_refused() {
    let refused = |name: &str, text: &str| read_rows(name, text).unwrap_err();
    assert!(matches!(refused("a.json", "{"), FileError::Json { .. }));
    assert_eq!(refused("a.json", "{}"), FileError::NotRuns);
    assert_eq!(refused("a.json", "[1, 2]"), FileError::NotRuns);
    assert_eq!(refused("a.json", "[]"), FileError::NotRuns);
    let other = refused("a.csv", "x,y\n1,2").to_string();
    assert!(other.starts_with("it begins with `x,y`, not with"), "{other}");
    let parted = refused("a.csv", "# GPUs;hidden size\n1;2").to_string();
    assert!(parted.contains("by commas, not by semicolons"), "{parted}");
    let moved =
        read_rows("a.csv", &format!("{VTRAIN}8,16,1,1024,16,24,2048,1,8,1,12345,6\n")).unwrap();
    let moved = moved[0].step_time_seconds.clone().unwrap_err().to_string();
    assert!(moved.contains("12 cells in 11 columns"), "{moved}");
}

const VTRAIN: &str = "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,\
sequence length,tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n";

#[test]
fn rows_of_a_table_are_named_by_their_line() {
    let text =
        format!("{VTRAIN}8,32,4,1024,16,24,1024,2,2,2,219.75\n\n8,32,4,1024,16,24,1024,2,2,2,?\n");
    let rows = read_rows("single.csv", &text).unwrap();
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["2", "4"]);
    assert_eq!(rows[0].step_time_seconds, Ok(Some(0.21975)));
    let comparison =
        compare("single.csv", Quantity::StepTimeSeconds, &validate("runs.json", &rows, None))
            .unwrap();
    assert_eq!((comparison.rows.len(), comparison.accuracy.count), (2, 1));
}

/// Each row, or why not; those that are compared, by kind and size.
#[test]
fn tables_of_kernels_are_read_by_their_columns() {
    let products = "dtype,m,n,k,latency_ms\nbfloat16,4096,4096,4096,0.2\nfp8,16,16,16,0.002\n\
                    int4,1,1,1,1\nbfloat16,0,1,1,1\nbfloat16,1,1,1,0\n";
    let comparison = compare_kernels("gemm_h100.csv", products).unwrap().unwrap();
    assert_eq!((comparison.rows.len(), comparison.accuracy.count), (5, 2));
    let groups: Vec<&str> = comparison.groups.keys().map(String::as_str).collect();
    assert_eq!(groups, ["bfloat16, from 10 us", "fp8, below 10 us"]);
    let reasons = comparison.rows.iter().filter_map(|row| match row {
        ComparedRow::Unsupported { id, unsupported } => Some((id.as_str(), unsupported.as_str())),
        ComparedRow::Predicted { .. } => None,
    });
    let expected = [("4", "products of `int4`"), ("5", "`m` is `0`"), ("6", "`latency_ms` is `0`")];
    assert_eq!(reasons.collect::<Vec<_>>(), expected);
    // 137 GFLOP take 0.14 ms at the data sheet's rate.
    let ComparedRow::Predicted { measured, predicted, .. } = &comparison.rows[0] else { panic!() };
    assert!((measured - 2e-4).abs() < 1e-12 && (1.39e-4..3e-4).contains(predicted), "{predicted}");

    let attention = "batch_size,seq_len,num_heads,num_key_value_heads,head_dim,attn_dtype,latency_ms\n\
                     1,4096,32,8,128,bfloat16,0.5\n";
    let comparison = compare_kernels("attention_forward_h100.csv", attention).unwrap().unwrap();
    assert_eq!(comparison.accuracy.count, 1);
    let collectives = "collective,num_ranks,message_bytes,latency_ms\nall_reduce,8,1048576,0.03\n\
                       all_dance,8,512,0.1\n";
    let comparison = compare_kernels("nccl_gb200.csv", collectives).unwrap().unwrap();
    assert_eq!((comparison.rows.len(), comparison.accuracy.count), (2, 1));

    let unknown = compare_kernels("gemm_x900.csv", products).unwrap_err();
    assert_eq!(unknown, FileError::UnknownGpu("x900".to_owned()));
    let other = compare_kernels("gemm_h100.csv", "a,b\n").unwrap_err();
    assert!(other.to_string().contains("known are `dtype,m,n,k,latency_ms`"), "{other}");
}

/// Against numbers computed by hand, and numpy's.
#[test]
fn errors_are_shares_of_what_was_measured() {
    let pairs = [[1.0, 1.1], [2.0, 1.8], [4.0, 4.0], [8.0, 6.0], [16.0, 20.0]];
    let accuracy = Accuracy::of(&pairs);
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found}");
    assert_eq!(accuracy.count, 5);
    close(accuracy.mape, 0.14);
    close(accuracy.median_ape, 0.1);
    close(accuracy.worst_ape, 0.25);
    close(accuracy.bias, 0.0);
    close(accuracy.spearman.unwrap(), 1.0);
    // numpy.corrcoef of the ranks [1, 2.5, 2.5, 4, 5] and [2, 1, 4.5, 4.5, 3]
    let tied = [[1.0, 2.0], [2.0, 1.0], [2.0, 4.0], [3.0, 4.0], [5.0, 3.0]];
    close(Accuracy::of(&tied).spearman.unwrap(), 15.0 / 38.0);
    assert_eq!(Accuracy::of(&[]).count, 0);
    assert_eq!(Accuracy::of(&[[1.0, 1.0], [2.0, 2.0]]).spearman, None);
}

proptest! {
    #[test]
    fn accuracy_does_not_depend_on_the_order_or_the_unit(
        pairs in proptest::collection::vec((0.1..100.0_f64, 0.1..100.0_f64), 3..20), scale in 0.01..100.0_f64,
    ) {
        let as_they_are: Vec<[f64; 2]> = pairs.iter().map(|(a, b)| [*a, *b]).collect();
        let reversed: Vec<[f64; 2]> = as_they_are.iter().rev().map(|[a, b]| [a * scale, b * scale]).collect();
        let (one, other) = (Accuracy::of(&as_they_are), Accuracy::of(&reversed));
        prop_assert!((one.mape - other.mape).abs() < 1e-9);
        prop_assert!((one.bias - other.bias).abs() < 1e-9);
        prop_assert!((one.spearman.unwrap() - other.spearman.unwrap()).abs() < 1e-9);
        prop_assert!(one.median_ape <= one.worst_ape && one.bias.abs() <= one.mape + 1e-12);
    }
}

/// The command: files of a folder in order, what is none of them by name, an error where there are none.
#[test]
fn the_command_says_what_it_compared_and_what_it_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let named = path.to_str().unwrap();
    let missing = planner(&["validate", &format!("{named}/missing")]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("there is no folder"), "{}", missing.stderr);
    let empty = planner(&["validate", named]);
    assert_eq!(empty.code, Some(2));
    assert!(empty.stderr.contains("has no measurements"), "{}", empty.stderr);

    for inner in ["runs", "kernels"] {
        fs::create_dir(path.join(inner)).unwrap();
    }
    fs::write(path.join("runs/runs_a.json"), json!([run(&json!({}))]).to_string()).unwrap();
    fs::write(path.join("runs/notes.txt"), "hello").unwrap();
    let table = "collective,num_ranks,message_bytes,latency_ms\nall_reduce,8,1048576,0.03\n";
    fs::write(path.join("kernels/nccl_h100.csv"), table).unwrap();
    let report = planner(&["validate", named, "--format", "json"]);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    let report = report.json();
    let files = report["files"].as_array().unwrap();
    let kinds =
        files.iter().map(|it| (it["file"].as_str().unwrap(), it["quantity"].as_str().unwrap()));
    let expected = [
        ("nccl_h100.csv", "latency_seconds"),
        ("runs_a.json", "step_time_seconds"),
        ("runs_a.json", "peak_memory_bytes"),
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    for file in files {
        assert_eq!(file["count"], 1);
        let row = &file["rows"][0];
        let error = row["predicted"].as_f64().unwrap() / row["measured"].as_f64().unwrap() - 1.0;
        assert!((file["mape"].as_f64().unwrap() - error.abs()).abs() < 1e-12);
        assert!((file["bias"].as_f64().unwrap() - error).abs() < 1e-12);
    }
    assert_eq!(report["skipped"][0]["file"], "notes.txt");
    let text = planner(&["validate", named]);
    assert!(text.stdout.lines().all(|line| line.chars().count() <= 120), "{}", text.stdout);
    let picture = path.join("accuracy.svg");
    let drawn = planner(&["validate", named, "--output", picture.to_str().unwrap()]);
    assert_eq!(drawn.code, Some(0), "{}", drawn.stderr);
    let picture = fs::read_to_string(picture).unwrap();
    for word in ["time of a step (s)", "memory of a GPU (GiB)", "time of a kernel (s)", "runs_a"] {
        assert!(picture.contains(word), "no `{word}`");
    }
    let trace = planner(&["validate", named, "--output", "accuracy.json"]);
    let words = "accuracy is drawn as .svg, .png or .pdf";
    assert!(trace.stderr.contains(words), "{}", trace.stderr);
    for word in ["furthest off:", "skipped `notes.txt`", "nccl_h100.csv", "compute "] {
        assert!(text.stdout.contains(word), "no `{word}` in {}", text.stdout);
    }
}

/// Every table of the reference is read, and nearly all of its runs are mapped; what is not says why.
#[test]
fn the_reference_is_mapped() {
    let (mut mapped, mut all) = (0, 0);
    for (name, _, text) in REFERENCE {
        let rows = read_rows(name, text).unwrap();
        assert!(!rows.is_empty(), "{name}");
        all += rows.len();
        mapped += rows.iter().filter(|row| Setup::of(row).is_ok()).count();
    }
    assert!(mapped * 100 >= all * 95, "{mapped} of {all}");
}

/// A row with a rank of adapters trains these alone: it takes less time and memory.
#[test]
fn rows_with_adapters_train_these_alone() {
    let predicted = |more: &Value| {
        let row = run(more);
        let rows = read_rows("runs.json", &json!([row]).to_string()).unwrap();
        let [it] = &validate("runs.json", &rows, None)[..] else { panic!("one row") };
        let it = it.predicted.as_ref().unwrap();
        (it.step_time_seconds, it.memory.total().as_f64())
    };
    let (all, adapters) = (predicted(&json!({})), predicted(&json!({"lora_rank": 8})));
    assert!(adapters.0 < all.0 && adapters.1 < 0.7 * all.1, "{all:?} {adapters:?}");
}

/// A row whose sequences are packed documents has less attention; a text that says no lengths, or no load of experts,
/// is named.
#[test]
fn rows_with_documents_have_less_attention() {
    let time = |more: &Value| {
        let rows = read_rows("runs.json", &json!([run(more)]).to_string()).unwrap();
        let [it] = &validate("runs.json", &rows, None)[..] else { panic!("one row") };
        it.predicted.as_ref().map(|it| it.step_time_seconds).map_err(ToString::to_string)
    };
    let whole = time(&json!({})).unwrap();
    let packed = time(&json!({ "document_lengths": "lognormal:100,0.4" })).unwrap();
    assert!(packed < whole, "{packed} s of documents, {whole} s of whole sequences");
    let refused = time(&json!({ "document_lengths": "short ones" })).unwrap_err();
    assert!(refused.contains("`document_lengths`"), "{refused}");
    let refused = time(&json!({ "expert_load": "uneven" })).unwrap_err();
    assert!(refused.contains("`expert_load`"), "{refused}");
}

/// A table that is fast to predict stays as near as its limit says; `.ci/run` holds all of them to theirs.
#[test]
fn sharded_runs_stay_within_their_limit() {
    let name = "runs_mosaic_llm_foundry.json";
    let (.., text) = REFERENCE.iter().find(|(other, ..)| *other == name).unwrap();
    let validated = validate(name, &read_rows(name, text).unwrap(), None);
    let compared = compare(name, Quantity::StepTimeSeconds, &validated).unwrap();
    assert_eq!(compared.accuracy.count, 99);
    assert!(compared.accuracy.mape < 0.06, "{:?}", compared.accuracy);
    assert!(compared.accuracy.spearman.unwrap() > 0.95, "{:?}", compared.accuracy);
}

/// Intervals of steps whose ratios are uniform in every source contain their share of another's, and widen with them.
#[test]
fn intervals_contain_their_share() {
    let rows: Vec<Value> = (0..200)
        .map(|index| {
            let spread = f64::from(index * 37 % 200);
            run(&json!({
                "id": index.to_string(), "step_time_s": 5.0 + 0.01 * spread,
                "peak_mem_gib": 20.0 + 0.01 * spread, "mem_kind": "reserved",
            }))
        })
        .collect();
    let rows = read_rows("runs.json", &Value::from(rows).to_string()).unwrap();
    let validated = validate("runs.json", &rows, None);
    let predicted = validated[0].predicted.as_ref().unwrap();
    let memory = MemoryKind::Reserved.of(&predicted.memory).as_f64() / f64::from(1 << 30);
    for (quantity, predicted) in [
        (Quantity::StepTimeSeconds, predicted.step_time_seconds),
        (Quantity::PeakMemoryBytes, memory),
    ] {
        let of = |source: usize| validated.iter().map(move |run| (source.to_string(), run.clone()));
        let runs: Vec<_> = (0..40).flat_map(of).collect();
        let coverage = coverage(quantity, runs.iter());
        assert_eq!((coverage.sources, coverage.rows, coverage.share), (40, 8000, 0.8));
        assert!((coverage.contained - 0.8).abs() < 0.05, "{coverage:?}");
        // Four fifths of the two seconds or GiB, over a prediction that all share.
        let width = coverage.half_width * predicted;
        assert!((width - 0.8).abs() < 0.05, "{coverage:?}");
        // All sources have the same rows, so the mean of the sources is the share of one.
        let rows = compare("runs.json", quantity, &validated).unwrap().rows;
        let is_in = |row: &&ComparedRow| match row {
            ComparedRow::Predicted { measured, interval: Some([low, high]), .. } => {
                (low..=high).contains(&measured)
            }
            _ => false,
        };
        let share = rows.iter().filter(is_in).count() as f64 / rows.len() as f64;
        assert!((coverage.contained_as_shipped - share).abs() < 1e-9, "{coverage:?}");
    }
}

#[test]
fn runs_without_memory_are_told_from_those_that_fit() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("runs")).unwrap();
    let small = run(&json!({ "extra": { "oom": true }, "id": "small" }));
    let large = run(&json!({
        "extra": { "oom": true }, "id": "large", "micro_batch_size": 16, "hidden": 16384,
        "ffn_hidden": 65536, "n_heads": 128,
    }));
    let text = json!([small, large]).to_string();
    fs::write(folder.path().join("runs/runs_a.json"), text).unwrap();
    let named = folder.path().to_str().unwrap();
    let told = planner(&["validate", named]).stdout;
    assert!(told.contains("1 of 2 runs that ran out of memory are predicted not to fit"), "{told}");
    assert!(told.contains("  small (runs_a.json): "), "{told}");
    let report: Value =
        serde_json::from_str(&planner(&["validate", named, "--format", "json"]).stdout).unwrap();
    assert_eq!(report["out_of_memory"][0]["is_predicted"], false);
    assert_eq!(report["out_of_memory"][1]["is_predicted"], true);
}

#[test]
fn errors_above_a_limit_are_told() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("runs")).unwrap();
    fs::write(folder.path().join("runs/runs_a.json"), json!([run(&json!({}))]).to_string())
        .unwrap();
    let limits = folder.path().join("limits.json");
    let [named, limited] = [folder.path(), &limits].map(|path| path.to_str().unwrap());
    let check = |text: &Value| {
        fs::write(&limits, text.to_string()).unwrap();
        planner(&["validate", named, "--at-most", limited])
    };
    let passed = check(&json!({ "runs_a.json": { "step_time_seconds": 10.0 } }));
    assert_eq!(passed.code, Some(0), "{}", passed.stderr);
    let failed =
        check(&json!({ "runs_a.json": { "step_time_seconds": 0.0001 }, "b": { "x": 1.0 } }));
    assert_eq!(failed.code, Some(2));
    assert!(failed.stderr.contains("runs_a.json, step_time_seconds: "), "{}", failed.stderr);
    assert!(failed.stderr.contains("b, x: not compared"), "{}", failed.stderr);
}

/// A source's words change what its framework does.
#[test]
fn what_a_source_says_of_overlap_counts() {
    let seconds = |changes: &Value| match compared(changes, Quantity::StepTimeSeconds).unwrap() {
        ComparedRow::Predicted { predicted, .. } => predicted,
        ComparedRow::Unsupported { unsupported, .. } => panic!("{unsupported}"),
    };
    let title = json!({ "source_title": "Megatron-Bridge", "tp": 8, "pp": 1, "dp": 2 });
    let mut without = title.clone();
    without["overlap"] = "no grad-reduce/param-gather/TP overlap; sync p2p".into();
    assert!(seconds(&without) > 1.02 * seconds(&title));
    let mut graphs = title.clone();
    graphs["extra"] = json!({ "recipe_flags": { "cuda_graph_impl": "full_iteration" } });
    assert!(seconds(&graphs) <= seconds(&title));
}

/// nanotron gives a rank layers until its share of all weights, the head's among them, is exceeded.
#[test]
fn nanotron_deals_layers_out_by_their_weights() {
    let nanotron = json!({
        "source_title": "nanotron / Ultrascale Playbook best-configuration heatmap",
        "n_layers": 16, "hidden": 2048, "n_heads": 32, "ffn_hidden": 8192, "vocab": 131_072,
    });
    let ends = |changes: &Value| {
        let rows = read_rows("runs.json", &json!([run(changes)]).to_string()).unwrap();
        Setup::of(&rows[0]).unwrap().stage_ends
    };
    // The head weighs as much as four layers: twenty in all, and the tenth does not exceed ten.
    assert_eq!(ends(&nanotron), [12, 18]);
    let mut small = nanotron.clone();
    small["vocab"] = json!(32_768);
    assert_eq!(ends(&small), [10, 18], "seventeen in all: the ninth exceeds");
    let mut megatron = nanotron;
    megatron["source_title"] = json!("Megatron-LM");
    assert_eq!(ends(&megatron), [9, 18]);
}

/// Pipeline ranks that share the vocabulary wait for what they exchange for it, as they do for messages.
#[test]
fn ranks_that_share_a_vocabulary_wait_for_each_other() {
    let [alone, shared] = ["baseline", "vocab-1"].map(|method| {
        let changes = json!({ "source_title": "VocabularyParallelism", "pp": 4, "dp": 4, "tp": 1,
            "extra": { "vocab_method": method } });
        match compared(&changes, Quantity::StepTimeSeconds).unwrap() {
            ComparedRow::Predicted { terms, .. } => terms["pipeline messages"],
            ComparedRow::Unsupported { unsupported, .. } => panic!("{unsupported}"),
        }
    });
    assert!(shared > 1.5 * alone, "{alone} s of messages, {shared} s with a shared vocabulary");
}

/// When frameworks learnt what is known from their code's history: their runs of before lack it.
#[test]
fn frameworks_are_those_of_their_time() {
    let hardware = |changes: Value| {
        let rows = read_rows("runs.json", &json!([run(&changes)]).to_string()).unwrap();
        Setup::of(&rows[0]).unwrap().problem.hardware
    };
    let framework = |title: &str| {
        hardware(json!({ "source_title": title, "extra": { "date": "02-28" } })).framework
    };
    let first = framework("Using Megatron-LM (SC21, arXiv 2104.04473)");
    let later = framework("Zero Bubble Pipeline Parallelism (ICLR 2024, arXiv 2401.10241)");
    assert_eq!(first.gradients.accumulation, GradientAccumulation::Separate);
    assert_eq!(later.gradients.accumulation, GradientAccumulation::Fused);
    let blocked = framework("BigScience BLOOM 176B prequel throughput study");
    let before = framework("BigScience experiments/tr8-104B.md");
    assert_eq!(
        [blocked.host.launches, before.host.launches],
        [Launches::Blocking, Launches::Ahead]
    );
    let title = "Balancing Pipeline Parallelism with Vocabulary Parallelism (arXiv 2411.05288)";
    let [older, newer] = ["Table 5", "Table 6"]
        .map(|table| hardware(json!({ "source_title": title, "source_locator": table })));
    assert_eq!(older.framework.kernels.attention, AttentionLibrary::FlashAttention1);
    let [older, newer] = [older, newer].map(|it| it.device.training.attention_backward);
    assert!(older < newer, "kernels are the older ones too: {older} and {newer}");
}

/// Sources state the memory of one rank or another.
#[test]
fn memory_is_that_of_the_rank_that_was_asked() {
    let changes = json!({
        "pp": 4, "tp": 1, "dp": 4, "vocab": 256_000, "n_layers": 8, "global_batch_size": 4,
        "micro_batch_size": 1,
    });
    let memory = |kind: &str| {
        let mut changes = changes.clone();
        changes["mem_kind"] = json!(kind);
        match compared(&changes, Quantity::PeakMemoryBytes).unwrap() {
            ComparedRow::Predicted { predicted, .. } => predicted,
            ComparedRow::Unsupported { unsupported, .. } => panic!("{unsupported}"),
        }
    };
    let fullest = memory("torch max allocated, max over ranks");
    let ends = memory("max allocated, max of first/last stage");
    let first = memory("max allocated; first pipeline stage");
    // With one micro-batch in flight everywhere, logits make the last rank the fullest.
    assert!((fullest - ends).abs() < 1.0, "{fullest} and {ends}");
    assert!(first < 0.9 * ends, "{first} and {ends}");
}

/// InternEvo's update has 12 bytes for each parameter that a rank updates, and freed 6 before; the allocator keeps them
/// in addition to what forward and backward had, which alone decides nothing: it gives them back where they are in the
/// way.
#[test]
fn buffers_of_the_update_are_kept_while_there_is_room() {
    let memory = |layers: u32, pp: u32, has_buffers: bool| {
        let changes = json!({
            "tp": 1, "pp": pp, "dp": 4 / pp, "n_gpus": 4, "n_layers": layers, "global_batch_size": 8,
            "zero_stage": if pp == 1 { 3 } else { 1 }, "extra": {"framework": "InternEvo"},
        });
        let rows = read_rows("runs.json", &json!([run(&changes)]).to_string()).unwrap();
        let mut setup = Setup::of(&rows[0]).unwrap();
        let of_framework = &mut setup.problem.hardware.framework.memory;
        assert!(of_framework.update_buffers.held > 0.0);
        if !has_buffers {
            of_framework.update_buffers = UpdateBuffers::default();
        }
        (predict(&setup).memory, setup.problem.hardware.memory)
    };
    // Sharded parameters join nothing that is freed before.
    for (pp, each) in [(4, 18.0), (1, 12.0)] {
        let [with, without] = [true, false].map(|has_buffers| memory(16, pp, has_buffers).0);
        let updated = without.optimizer_bytes.as_f64() / 12.0;
        let more = with.total().as_f64() - without.total().as_f64();
        let slack = 1.04;
        assert!((more / (updated * each * slack) - 1.0).abs() < 0.01, "{more} for {updated}");
    }
    let (with, capacity) = memory(48, 4, true);
    assert_eq!(with.total(), capacity, "what is cached fills what is left, and no more");
}

/// Sources count both of the stages that a rank has under DualPipe, the same on two ranks.
#[test]
fn stages_that_are_on_two_ranks_count_once() {
    let setup = |changes: Value| {
        let rows = read_rows("runs.json", &json!([run(&changes)]).to_string()).unwrap();
        Setup::of(&rows[0]).unwrap()
    };
    for stages in [1, 2] {
        let changes = json!({ "schedule": "DualPipe", "pp": 4, "dp": 2, "vpp": stages,
            "source_title": "Insights into DeepSeek-V3" });
        let found = setup(changes);
        assert_eq!(found.layout.virtual_stages, 1);
        // What that source's authors say of it.
        let framework = &found.problem.hardware.framework;
        assert!(found.layout.switches.token_dispatcher.sends_tokens_once());
        assert_eq!(framework.experts.most_domains, Some(4));
    }
    let interleaved = setup(json!({ "schedule": "interleaved 1F1B", "pp": 2, "vpp": 2 }));
    assert_eq!(interleaved.layout.virtual_stages, 2);
}
