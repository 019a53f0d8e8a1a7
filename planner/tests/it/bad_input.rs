//! Input of users that cannot be: one clear error, and nothing half-written.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Run, planner};

const MODEL: &str = r#"{"architecture": "llama", "num_hidden_layers": 4, "hidden_size": 1024,
    "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000}"#;

/// A folder with good files to put a bad one among.
pub(crate) struct Workplace(TempDir);

impl Workplace {
    pub(crate) fn new() -> Self {
        let workplace = Self(tempfile::tempdir().unwrap());
        workplace.write("model.json", MODEL);
        workplace
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        fs::write(self.0.path().join(name), text).unwrap();
        self.path(name)
    }

    /// Everything in the folder, with contents.
    fn listing(&self) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.display().to_string(), fs::read(&path).unwrap_or_default()))
            .collect();
        files.sort();
        files
    }

    /// Runs `args`, in which `{}` is the folder, and checks that there is one error with all of
    /// `words` in it.
    pub(crate) fn fails(&self, args: &str, words: &[&str]) {
        let before = self.listing();
        let folder = self.0.path().to_str().unwrap();
        let args: Vec<String> =
            args.split_whitespace().map(|word| word.replace("{}", folder)).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        check_error(&planner(&args), &args, words);
        assert_eq!(self.listing(), before, "{args:?} left something behind");
    }

    /// A model that is not accepted by any command that reads one.
    fn model_fails(&self, text: impl AsRef<[u8]>, words: &[&str]) {
        self.write("bad.json", text);
        let words = [&["bad.json"], words].concat();
        self.fails("search {}/bad.json --gpus 8 -o {}/plan.json", &words);
        self.fails("inspect {}/bad.json", &words);
        self.fails("evaluate {}/bad.json --gpus 8 --layout tp8", &words);
    }

    fn cluster_fails(&self, cluster: &Value, words: &[&str]) {
        self.write("cluster.json", serde_json::to_string_pretty(cluster).unwrap());
        let words = [&["cluster.json"], words].concat();
        self.fails("search {}/model.json --gpus 8 --cluster {}/cluster.json", &words);
    }
}

/// The run failed with one error, with all of `words` in it.
pub(crate) fn check_error(run: &Run, args: &[&str], words: &[&str]) {
    let Run { code, stdout, stderr } = run;
    assert_eq!(*code, Some(2), "{args:?}: {run:?}");
    assert_eq!(stdout, "", "{args:?}");
    let errors = stderr.lines().filter(|line| line.starts_with("error: ")).count();
    assert!(stderr.starts_with("error: ") && errors == 1, "{args:?}: {stderr}");
    for word in ["panicked", "RUST_BACKTRACE", "unwrap", "os error 17"] {
        assert!(!stderr.contains(word), "{args:?}: {stderr}");
    }
    for word in words {
        assert!(stderr.contains(word), "{args:?} does not say `{word}`: {stderr}");
    }
    let longest = stderr.lines().map(str::len).max().unwrap_or(0);
    assert!(longest < 1200, "{args:?}: {stderr}");
}

/// `MODEL` with a field changed, or left out.
fn model_with(field: &str, value: impl Into<Option<Value>>) -> String {
    let mut model: Value = serde_json::from_str(MODEL).unwrap();
    let object = model.as_object_mut().unwrap();
    match value.into() {
        Some(value) => object.insert(field.to_owned(), value),
        None => object.remove(field),
    };
    model.to_string()
}

#[test]
fn files_that_are_not_there_or_not_text() {
    let place = Workplace::new();
    fs::create_dir(place.path("folder")).unwrap();
    place.fails("search {}/nothing.json --gpus 8", &["nothing.json", "No such file"]);
    place.fails("inspect {}/nothing.json", &["nothing.json", "No such file"]);
    place.fails("search {}/folder --gpus 8", &["folder", "no `config.json`"]);
    place.fails("explain {}/nothing.json", &["nothing.json", "No such file"]);
    place.fails("explain {}/folder", &["folder", "directory"]);
    place.fails("search {}/model.json --gpus 8 --cluster {}/folder", &["folder", "directory"]);
    if cfg!(unix) {
        place.fails("inspect /dev/zero", &["/dev/zero", "more than"]);
    }
    for (text, words) in [
        (&b""[..], &["empty"][..]),
        (b" \n\t ", &["empty"]),
        (b"\xff\xfe{\0}\0", &["bad.json", "UTF-16", "save it in UTF-8"]),
        (b"{\"architecture\": \"gpt\xc3\"}", &["bad.json", "utf-8"]),
    ] {
        place.model_fails(text, words);
    }
    for text in [&b""[..], b"\xff\xfe"] {
        place.write("bad.json", text);
        place.fails("explain {}/bad.json", &["bad.json"]);
        place.fails("search {}/model.json --gpus 8 --cluster {}/bad.json", &["bad.json"]);
    }
}

#[cfg(unix)]
#[test]
fn files_that_may_not_be_read() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = Workplace::new();
    let path = place.write("secret.json", MODEL);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser may read all.
    if fs::read(&path).is_err() {
        check_error(&planner(&["inspect", &path]), &[], &["secret.json", "Permission denied"]);
    }
}

#[test]
fn broken_json_is_pointed_at() {
    let place = Workplace::new();
    for (text, line, column) in [
        ("{\n  \"architecture\": \"gpt\",,\n}", 2, 25),
        ("{\"architecture\": \"gpt\"", 1, 22),
        ("{\"architecture\": gpt}", 1, 18),
        ("nonsense", 1, 2),
        ("{\"architecture\": \"gpt\"} {}", 1, 25),
    ] {
        place.model_fails(text, &[&format!("line {line}"), &format!("column {column}")]);
    }
    for text in ["{\n \"name\": \"mine\",\n \"gpu\": [,]}", "{\"version\": 1,\n\n ]"] {
        place.write("bad.json", text);
        place.fails("explain {}/bad.json", &["bad.json", "line 3, column"]);
        place.fails(
            "search {}/model.json --gpus 8 --cluster {}/bad.json",
            &["bad.json", "line", "column"],
        );
    }
    let deep = "[".repeat(100_000);
    place.model_fails(&deep, &["recursion limit"]);
    for text in ["[]", "3", "null", "\"gpt\"", "{}", "{\"model_type\": 7}"] {
        place.model_fails(text, &[]);
    }
}

#[test]
fn models_that_cannot_be() {
    let place = Workplace::new();
    for field in ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"] {
        place.model_fails(model_with(field, None), &[field, "missing", "llama"]);
        place.model_fails(model_with(field, json!(0)), &[field, "from 1 to", "0"]);
        place.model_fails(model_with(field, json!(-4)), &[field, "from 1 to", "-4"]);
        for wrong in [json!("4"), json!(4.5), json!([4]), json!({}), json!(true), json!(null)] {
            place.model_fails(model_with(field, wrong.clone()), &[field, &wrong.to_string()]);
        }
    }
    place.model_fails(
        model_with("num_hidden_layers", json!(1_000_000_000_000_u64)),
        &["num_hidden_layers", "100000", "1000000000000"],
    );
    place.model_fails(
        model_with("hidden_size", json!(1_000_000_000_000_u64 * 16)),
        &["hidden_size", "16000000000000"],
    );
    place.model_fails(model_with("hidden_size", json!(1e300)), &["hidden_size"]);
    place.model_fails(
        model_with("num_attention_heads", json!(12)),
        &["1024", "not a multiple", "12", "hint: `num_attention_heads` 8"],
    );
    place.model_fails(model_with("num_key_value_heads", json!(3)), &["16", "3", "hint:"]);
    place.model_fails(model_with("num_experts", json!(8)), &["num_experts_per_tok", "missing"]);
    place.model_fails(model_with("torch_dtype", json!("int3")), &["torch_dtype", "known"]);
    place.model_fails(model_with("architecture", json!("rwkv")), &["rwkv", "known are"]);
    place.model_fails(r#"{"model_type": "xlnet"}"#, &["xlnet", "known are", "`llama`"]);
    place.model_fails(r#"{"vocab_size": 7}"#, &["model_type", "architecture", "hint:"]);
    // Deep, but within what a model may have.
    place.write("deep.json", model_with("num_hidden_layers", json!(99_999)));
    place.fails("search {}/deep.json --gpus 8", &["100001 blocks", "4096"]);
}

/// A family without a graph is counted, part by part, and refused by name by all that plan.
#[test]
fn families_without_a_graph_are_counted_alone() {
    let place = Workplace::new();
    let config = json!({
        "model_type": "moonshine", "hidden_size": 64, "encoder_num_hidden_layers": 2,
        "decoder_num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 100,
    });
    let path = place.write("moonshine.json", config.to_string());
    let counted = planner(&["inspect", &path, "--format", "json"]).json();
    let parts = json!([
        { "name": "encoder", "num_parameters": 156_608 },
        { "name": "decoder", "num_parameters": 122_176 },
    ]);
    assert_eq!(counted["parts_not_planned"], parts);
    assert_eq!(counted["num_parameters"], 278_784);
    let told = planner(&["inspect", &path]);
    assert!(told.stdout.contains("278,784"), "{told:?}");
    for command in [["search", "--gpus", "8"], ["sweep", "--over", "gpus=8,16"]] {
        let [command, option, value] = command;
        let run = planner(&[command, &path, option, value]);
        check_error(
            &run,
            &[],
            &[
                "`moonshine` is counted, but not planned",
                "hint: `planner inspect` counts it: 278784",
            ],
        );
    }
    place.write(
        "moonshine.json",
        r#"{"model_type": "moonshine", "architectures": ["MoonshineModel"]}"#,
    );
    let run = planner(&["inspect", &path]);
    check_error(&run, &[], &["`MoonshineModel`", "`MoonshineForConditionalGeneration`"]);
}

/// A configuration of a family that is not known is read as one of another where one asks for it; what it has besides
/// is said, and the family that has most of it is offered.
#[test]
fn unknown_families_are_read_as_others() {
    let place = Workplace::new();
    let config = json!({
        "architectures": ["PlumForCausalLM"], "model_type": "plum", "hidden_size": 1024, "num_hidden_layers": 4,
        "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 4096, "vocab_size": 32000,
        "rms_norm_eps": 1e-5, "rope_theta": 5e5, "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
        "max_position_embeddings": 8192, "tie_word_embeddings": false, "use_cache": true, "bos_token_id": 1,
        "plum_ring_size": 7,
    });
    place.model_fails(
        config.to_string(),
        &[
            "architecture `plum` is not known",
            "hint: `--as llama` reads all of it but `plum_ring_size`",
        ],
    );
    let path = place.write("plum.json", config.to_string());
    let plan = place.path("plan.json");
    let run = planner(&["search", &path, "--gpus", "8", "--as", "llama", "-o", &plan]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(
        run.stderr.contains("read as `llama`, and planned without `plum_ring_size`"),
        "{run:?}"
    );
    assert_eq!(planner(&["explain", &plan]).code, Some(0));
    let run = planner(&["inspect", &path, "--as", "lama"]);
    check_error(&run, &[], &["architecture `lama` is not known", "hint: `llama` is the nearest"]);
}

#[test]
fn numbers_of_gpus_that_cannot_be() {
    let place = Workplace::new();
    place.fails("search {}/model.json", &["--gpus"]);
    for (gpus, words) in [
        ("0", &["--gpus", "'0'", "at least 1"][..]),
        ("-1", &["--gpus", "'-1'", "at least 1"]),
        ("eight", &["--gpus", "'eight'", "whole number"]),
        ("8.5", &["--gpus", "'8.5'", "whole number"]),
        ("99999999999999999999999", &["--gpus", "whole number"]),
        ("1000000000", &["1000000000", "at most 1048576"]),
        ("1048573 --global-batch-size 64", &["1048573 GPUs", "batch"]),
    ] {
        place.fails(&format!("search {{}}/model.json --gpus {gpus}"), words);
        place.fails(&format!("evaluate {{}}/model.json --layout tp1 --gpus {gpus}"), &[]);
    }
    // Seven is a number like others.
    let run = planner(&["search", &place.path("model.json"), "--gpus", "7", "--quiet"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
}

#[test]
fn batches_and_sequences_that_cannot_be() {
    let place = Workplace::new();
    for flag in ["--global-batch-size", "--seq-len"] {
        for value in ["0", "-1", "1.5", "many"] {
            place.fails(&format!("search {{}}/model.json --gpus 8 {flag} {value}"), &[flag]);
        }
        place.fails(
            &format!("search {{}}/model.json --gpus 8 {flag} 1000000000000"),
            &["1000000000000", "between 1 and 268435456"],
        );
    }
    place.fails("inspect {}/model.json --seq-len 0", &["--seq-len"]);
    place.fails(
        "search {}/model.json --gpus 8 --seq-len 268435456 --global-batch-size 268435456",
        &["elements", "2^60", "hint: a shorter sequence"],
    );
    place.fails(
        "search {}/model.json --gpus 8 --global-batch-size 1 --dp 2",
        &["global batch size 1", "`data_parallel` 2", "hint:"],
    );
    place.fails(
        "search {}/model.json --gpus 8 --global-batch-size 7 --dp 8",
        &["global batch size 7", "`data_parallel` 8"],
    );
    place.fails("search {}/model.json --gpus 8 --seq-len 1001 --cp 2", &["1001", "4 parts"]);
    place.fails("search {}/model.json --gpus 8 --precision int4", &["int4", "bf16"]);
    place.fails("search {}/model.json --gpus 8 --cluster v100 --precision fp8", &["fp8", "fp16"]);
    place.fails("search {}/model.json --gpus 8 --cluster h100 --precision fp4", &["fp4", "fp8"]);
}

#[test]
fn clusters_that_cannot_be() {
    let place = Workplace::new();
    place.fails(
        "search {}/model.json --gpus 8 --cluster h1000",
        &["`h1000`", "hint:", "`h100`", "list clusters"],
    );
    let all = planner(&["list", "clusters", "--format", "json"]).json();
    let good = all.as_array().unwrap().iter().find(|cluster| cluster["name"] == "h100").unwrap();
    let change = |pointer: &str, value: Value| {
        let mut cluster = good.clone();
        *cluster.pointer_mut(pointer).unwrap() = value;
        cluster
    };
    let bandwidth = "/levels/0/bandwidth_bytes_per_second";
    for value in [json!(0), json!(-1), json!(0.0), json!(1e300), json!(1e-300)] {
        place.cluster_fails(
            &change(bandwidth, value),
            &["levels[0].bandwidth_bytes_per_second", "such as"],
        );
    }
    for value in [json!(0), json!(-1), json!(0.5), json!(1e30)] {
        place.cluster_fails(&change("/gpu/memory_bytes", value), &["gpu.memory_bytes", "such as"]);
    }
    for pointer in ["/gpu/memory_bandwidth_bytes_per_second", "/gpu/peak_flops_per_second/bf16"] {
        let field = pointer[1..].replace('/', ".");
        place.cluster_fails(&change(pointer, json!(0)), &[&field, "such as"]);
    }
    place.cluster_fails(&change("/levels/0/latency_seconds", json!(-1)), &["latency_seconds"]);
    // Counted in something larger, or slower than anyone waits for.
    for (pointer, value, words) in [
        ("/gpu/memory_bytes", 80.0, "80 GiB"),
        ("/gpu/peak_flops_per_second/bf16", 989.0, "989 TFLOP/s"),
        (bandwidth, 450.0, "450 GB/s"),
        ("/levels/0/latency_seconds", 5.0, "5 us"),
    ] {
        place.cluster_fails(&change(pointer, json!(value)), &[words]);
    }
    place.write("cluster.json", change("/gpu/peak_flops_per_second/bf16", json!(1e6)).to_string());
    place.fails(
        "search {}/model.json --gpus 8 --global-batch-size 1024 --cluster {}/cluster.json",
        &["years even at the peak of 8 GPUs", "peak_flops_per_second"],
    );
    place.cluster_fails(&change("/gpus_per_node", json!(0)), &["gpus_per_node", "at least 1"]);
    place.cluster_fails(&change("/levels", json!([])), &["levels", "empty"]);
    place.cluster_fails(&change("/gpu/architecture", json!("fermi")), &["fermi", "`hopper`"]);
    place.cluster_fails(&change("/gpu/memory_bytes", json!("80 GB")), &["line", "column"]);
    let rates = ["/gpu/kernel_rates", "/levels/0/collective_rates"];
    for (pointer, field) in rates.into_iter().zip(["kernel_rates", "levels[0].collective_rates"]) {
        let words = [field, "`h1000`", "a100, b200", "hint: leave it out"];
        place.cluster_fails(&change(pointer, json!("h1000")), &words);
    }
    place.cluster_fails(&change("/levels/0/ranks", json!(null)), &["levels[0]", "ranks"]);
    place.cluster_fails(&change("/gpu/peak_flops_per_second", json!({})), &["peak_flops"]);
    let mut unknown = good.clone();
    unknown["gpu"]["colour"] = json!("green");
    place.cluster_fails(&unknown, &["colour", "may have", "line"]);
    for field in ["gpu", "levels", "gpus_per_node", "name"] {
        let mut missing = good.clone();
        missing.as_object_mut().unwrap().remove(field);
        place.cluster_fails(&missing, &["is missing", field]);
    }
}

#[test]
fn layouts_that_cannot_be() {
    let place = Workplace::new();
    for (layout, words) in [
        ("tp", &["`tp`", "tpN"][..]),
        ("tp8-xp2", &["`xp2`", "tpN"]),
        ("tp2-tp4", &["`tp2` and `tp4`", "contradict"]),
        ("zero4", &["`zero4`"]),
        ("tp0", &["tensor_parallel", "at least 1"]),
        ("cp0", &["context_parallel", "at least 1"]),
        ("ep0", &["expert_parallel", "at least 1"]),
        ("etp0", &["expert_tensor_parallel", "at least 1"]),
        ("pp0", &["pipeline_parallel", "at least 1"]),
        ("dp0", &["data_parallel", "at least 1"]),
        ("vpp0", &["virtual_stages", "at least 1"]),
        ("mbs0", &["micro_batch_size", "at least 1"]),
        ("shard0", &["zero_shard", "at least 1"]),
        ("tp8-pp4-dp2", &["tp8-pp4-dp2", "64 GPUs", "there are 8"]),
        ("tp4-dp1", &["4 GPUs", "there are 8", "hint: `data_parallel` 2"]),
        ("tp3", &["16 attention heads", "2 divides them"]),
        ("cp3", &["number of GPUs 8", "degrees whose product is 2"]),
        ("pp8", &["8 stages", "6 blocks"]),
        ("sp", &["sequence_parallel", "tensor_parallel"]),
        ("ep2", &["expert_parallel", "hint: use 1"]),
        ("tp2-etp4", &["`tensor_parallel` 2", "`expert_tensor_parallel` 4", "hint: 2 divides it"]),
        ("tp2-sp-etp1", &["expert_tensor_parallel", "model with experts"]),
        ("tp8-vpp2", &["`vpp2`", "`--layout tp8-vpp2` has one rank"]),
    ] {
        place.fails(&format!("evaluate {{}}/model.json --gpus 8 --layout {layout}"), words);
    }
    place.write(
        "mixture.json",
        MODEL.replace(
            r#""architecture": "llama""#,
            r#""model_type": "mixtral", "num_local_experts": 8, "intermediate_size": 1028"#,
        ),
    );
    for (layout, words) in [
        ("tp8-sp-etp3", &["`tensor_parallel` 8", "`expert_tensor_parallel` 3", "hint: 2"][..]),
        (
            "tp8-nosp-etp2",
            &[
                "`expert_tensor_parallel` 2",
                "`tensor_parallel` 8",
                "`sequence_parallel`",
                "or use 8",
            ],
        ),
        ("tp8-nosp", &["intermediate size of experts 1028", "`tensor_parallel` 8", "hint: 4"]),
        ("tp16-sp-etp8", &["of experts 1028", "`expert_tensor_parallel` 8", "hint: 4"]),
        ("tp4-sp-etp2-ep8", &["over `expert_tensor_parallel`, 4", "`expert_parallel` 8"]),
        ("tp4-sp-etp2-ep3", &["8 experts", "`expert_parallel` 3", "hint: 2"]),
    ] {
        let gpus = if layout.starts_with("tp16") { 16 } else { 8 };
        let args = format!("evaluate {{}}/mixture.json --gpus {gpus} --layout {layout}");
        place.fails(&args, words);
    }
    for (flags, words) in [
        ("--layout tp8 --tp 4", &["`tp8` of `--layout`", "`--tp 4`"][..]),
        (
            "--layout tp2-sp --sequence-parallel false",
            &["`sp` of `--layout`", "`--sequence-parallel false`"],
        ),
        ("--layout pp2-dp4 --schedule zb-h2 --virtual-stages 2", &["zb-h2", "virtual_stages"]),
        ("--layout tp8 --schedule wavefront", &["wavefront", "1f1b"]),
        ("--layout tp8 --zero 4", &["4", "0, 1, 2 or 3"]),
        ("--layout tp8 --zero -1", &["-1", "0, 1, 2 or 3"]),
        ("--layout dp8 --zero-shard 3", &["8", "3"]),
    ] {
        place.fails(&format!("evaluate {{}}/model.json --gpus 8 {flags}"), words);
    }
    let degrees =
        ["tp", "cp", "ep", "pp", "dp", "virtual-stages", "micro-batch-size", "zero-shard"];
    for flag in degrees {
        for value in ["0", "-2", "x"] {
            let args = format!("search {{}}/model.json --gpus 8 --{flag} {value}");
            place.fails(&args, &[&format!("--{flag}"), value, "at least 1"]);
        }
    }
    place.fails("search {}/model.json --gpus 8 --tp 16", &["8", "16"]);
    place.fails("search {}/model.json --gpus 8 --tp 2 --dp 8", &["16", "8"]);
    place.fails("search {}/model.json --gpus 8 --top 0", &["--top", "between 1 and 1000"]);
    place.fails("search {}/model.json --gpus 8 --top 1001", &["--top", "between 1 and 1000"]);
    for threads in ["0", "-1", "1000000", "all"] {
        let args = format!("search {{}}/model.json --gpus 8 --threads {threads}");
        place.fails(&args, &["--threads", threads, "between 1 and"]);
    }
    place.fails("search {}/model.json --gpus 8 --format yaml", &["yaml", "json"]);
    place.fails("search {}/model.json --gpus 8 --frobnicate", &["--frobnicate"]);
    place.fails("list planets", &["planets", "clusters"]);
    place.fails("completions tcsh", &["tcsh", "bash"]);
    place.fails("divine", &["divine"]);
}

#[test]
fn places_that_cannot_be_written() {
    let place = Workplace::new();
    fs::create_dir(place.path("folder")).unwrap();
    place.fails(
        "search {}/model.json --gpus 8 -o {}/nowhere/plan.json",
        &["nowhere/plan.json", "no folder"],
    );
    place.fails("search {}/model.json --gpus 8 -o {}/folder", &["folder", "hint:"]);
    place.fails(
        "search {}/model.json --gpus 8 -o {}/model.json/plan.json",
        &["model.json/plan.json", "is a file, not a folder"],
    );
    // Where nothing fits there is no plan, and what was there stays.
    let old = place.write("plan.json", "old");
    let model = "models/llama-3.1-8b";
    let run = planner(&["search", model, "--gpus", "1", "--quiet", "-o", &old]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(!run.stdout.contains("wrote"), "{}", run.stdout);
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
}

#[test]
fn work_beyond_all_bounds_is_refused_before_it_begins() {
    let place = Workplace::new();
    let bounds = &["1000000000", "between 1 and 64"];
    place.fails("collective all-reduce --ring --ranks 1000000000 -o {}/ring.svg", bounds);
    place.fails("collective all-to-all --ranks 1000000000 -o {}/all.png", bounds);
    place.fails(
        "search {}/model.json --gpus 4 --pp 4 --seq-len 128 --micro-batch-size 1 --global-batch-size 1000000",
        &["4 stages x 1000000 micro-batches", "524288 forwards"],
    );
    let many = "--virtual-stages 1000000 --micro-batches 1";
    place.fails(&format!("schedule interleaved-1f1b --stages 2 {many}"), &["2000000", "4096"]);
    place.fails(&format!("schedule auto --stages 2 {many}"), &["1000000", "4096"]);
    place.fails(
        "schedule auto --stages 64 --micro-batches 100000",
        &["64 stages x 100000 micro-batches", "524288"],
    );
}

/// What is said to fit does; of rings, whose steps are one below the other, half as many.
#[test]
fn the_ranks_that_a_hint_names_are_drawn() {
    let place = Workplace::new();
    for name in ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"] {
        for ring in ["", "--ring"] {
            if !ring.is_empty() && matches!(name, "all-to-all" | "broadcast") {
                continue;
            }
            let output = place.path("drawn.svg");
            let ranks = if ring.is_empty() { "64" } else { "32" };
            let args = ["collective", name, "--ranks", ranks, "-o", &output, ring];
            let args = if ring.is_empty() { &args[..6] } else { &args };
            let run = planner(args);
            assert_eq!(run.code, Some(0), "{args:?}: {run:?}");
        }
    }
}

/// The hint on an unknown architecture is one that works, and a count is no negative number.
#[test]
fn configurations_with_what_cannot_be() {
    let place = Workplace::new();
    let text = json!({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512});
    let mut language = text.clone();
    language["model_type"] = "mllama_other".into();
    let config = json!({"model_type": "vision", "text_config": language});
    let path = place.write("a.json", config.to_string());
    let run = planner(&["search", &path, "--gpus", "8"]);
    let says = ["architecture `mllama_other` is not known", "hint: `--as llama` reads all of it"];
    check_error(&run, &[], &says);
    assert_eq!(planner(&["inspect", &path, "--as", "llama"]).code, Some(0));
    let mut config = text;
    config["model_type"] = "llama".into();
    config["sliding_window"] = (-4).into();
    let run = planner(&["inspect", &place.write("b.json", config.to_string())]);
    check_error(&run, &[], &["field `sliding_window` of `llama` must be from 0"]);
    let run = planner(&["inspect", &place.write("c.json", "{\"model_type\": \"lla\n")]);
    check_error(&run, &[], &["the file ends here, though a text in quotes has no end"]);
}
