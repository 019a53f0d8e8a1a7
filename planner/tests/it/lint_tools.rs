//! Settings of the tools other than Megatron-LM, judged in their own words.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cost_models::clusters;
use ir::cluster::Cluster;
use ir::model::Model;
use planner_tools::interchange::{Import, Stated};
use planner_tools::lint::{LintReport, Severity, lint};
use rayon::prelude::*;
use tempfile::TempDir;

use crate::cli::{planner, root};
use crate::lint::{NO_VARIABLES, unfixed, words};

/// A tool that is given a plan.
struct Tool {
    name: &'static str,
    /// The framework whose best plan it is given.
    framework: &'static str,
    model: &'static str,
    sequence: &'static str,
    /// Axes that the plan does without.
    without: &'static str,
    /// The file with the settings.
    file: &'static str,
}

impl Tool {
    const fn new(name: &'static str, framework: &'static str, file: &'static str) -> Self {
        let (model, sequence, without) = ("models/llama-3.1-8b", "4096", "pp,tp");
        Self { name, framework, model, sequence, without, file }
    }
}

const TOOLS: [Tool; 6] = [
    Tool::new("torchtitan", "torchtitan", "torchtitan.sh"),
    Tool::new("deepspeed", "deepspeed", "ds_config.json"),
    Tool::new("accelerate", "fsdp2", "accelerate.yaml"),
    // Its arguments alone say nothing of sharding, so it is a model that needs none.
    Tool {
        model: "models/gpt2-xl",
        sequence: "1024",
        ..Tool::new("trainer", "fsdp2", "training_arguments.json")
    },
    Tool {
        model: "models/llama-2-7b",
        without: "pp",
        ..Tool::new("nanotron", "nanotron", "nanotron.yaml")
    },
    Tool::new("megatron-bridge", "megatron-core", "planned.py"),
];

/// Settings of a tool, with what lies next to them.
struct Settings {
    text: String,
    files: BTreeMap<String, String>,
    model: Model,
    model_text: String,
    sequence_length: u64,
    /// True if it leaves the batch to a script.
    is_without_batch: bool,
    cluster: Cluster,
}

impl Settings {
    /// An export of the best plan for a tool.
    fn of(tool: &Tool) -> Self {
        let Tool { name, framework, model, sequence, without, file } = *tool;
        let folder = TempDir::new().unwrap();
        let [plan, job] = ["plan.json", "job"].map(|name| folder.path().join(name));
        let [plan, job_path] = [&plan, &job].map(|path| path.to_str().unwrap());
        let batch = ["--seq-len", sequence, "--global-batch-size", "64", "--without", without];
        let search =
            ["search", model, "--gpus", "8", "--framework", framework, "--quiet", "-o", plan];
        let export = ["export", plan, "--to", name, "-o", job_path];
        for args in [[&search[..], &batch].concat(), export.to_vec()] {
            let run = planner(&args);
            assert_eq!(run.code, Some(0), "{args:?}: {run:?}");
        }
        let text = fs::read_to_string(root().join(model).join("config.json")).unwrap();
        Self::read(&job, file, text, sequence.parse().unwrap())
    }

    fn read(job: &Path, file: &str, model_text: String, sequence_length: u64) -> Self {
        let names = fs::read_dir(job).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        };
        let files: BTreeMap<String, String> = names.map(read).collect();
        Self {
            text: files[file].clone(),
            files,
            model: Model::from_json(&model_text, "model").unwrap(),
            model_text,
            sequence_length,
            is_without_batch: file == "accelerate.yaml",
            cluster: clusters::preset("h100").unwrap(),
        }
    }

    fn lint(&self, text: &str) -> LintReport {
        // What the tools' files leave to a script.
        let sequence_length = Some(self.sequence_length);
        let stated = Stated { num_gpus: Some(8), sequence_length, ..Stated::default() };
        let micro_batch_size = self.is_without_batch.then_some(1);
        let import = Import {
            text,
            set: &NO_VARIABLES,
            model: &self.model,
            model_text: &self.model_text,
            cluster: &self.cluster,
            from: None,
            files: &self.files,
            stated: Stated { micro_batch_size, ..stated },
            command: String::new(),
        };
        lint(&import, 2).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }
}

/// The best plan that a tool runs is neither refused nor warned of in its settings.
#[test]
fn exports_of_the_best_plans_raise_no_alarm() {
    let alarms: Vec<String> = TOOLS
        .par_iter()
        .filter_map(|tool| {
            let settings = Settings::of(tool);
            let report = settings.lint(&settings.text);
            let is_quiet = report.count(Severity::Warning) == 0 && report.prediction.is_some();
            (!is_quiet).then(|| format!("{}{}", tool.name, words(&report, Severity::Note)))
        })
        .collect();
    assert!(alarms.is_empty(), "{}", alarms.join("\n"));
}

/// Faults: the tool, what of its settings is replaced with what, the rule that finds it, and what its fix says.
const FAULTS: [(&str, &str, &str, &str, &str); 32] = [
    ("torchtitan", "shard_degree 8", "shard_degree 3", "nodes-do-not-divide", "shard_degree -1"),
    (
        "torchtitan",
        "tensor_parallel_degree 1",
        "tensor_parallel_degree 3",
        "nodes-do-not-divide",
        "tensor_parallel_degree",
    ),
    (
        "torchtitan",
        "global_batch_size 64",
        "global_batch_size 60",
        "batch-does-not-divide",
        "--training.global_batch_size 64",
    ),
    (
        "torchtitan",
        "param bfloat16",
        "param float32",
        "fp32-where-bf16",
        "--training.mixed_precision_param bfloat16",
    ),
    (
        "torchtitan",
        "tensor_parallel_degree",
        "tensor_parallel_degre",
        "unknown-option",
        "tensor_parallel_degree`",
    ),
    (
        "deepspeed",
        "steps\": 8",
        "steps\": 7",
        "batch-does-not-divide",
        "`gradient_accumulation_steps 8`",
    ),
    ("deepspeed", "\"stage\"", "\"stag\"", "unknown-option", "zero_optimization.stage"),
    ("deepspeed", "\"bf16\"", "\"fp16\"", "fp16-where-bf16", "`bf16.enabled true`"),
    (
        "deepspeed",
        "\"overlap_comm\": true",
        "\"overlap_comm\": false",
        "overlap-off",
        "`zero_optimization.overlap_comm true`",
    ),
    (
        "deepspeed",
        "\"stage\": 2",
        "\"stage\": 3",
        "sharding-not-needed",
        "`zero_optimization.stage",
    ),
    (
        "accelerate",
        "dp_shard_size: 8",
        "dp_shard_size: 3",
        "nodes-do-not-divide",
        "parallelism_config_dp_shard_size 8`",
    ),
    (
        "accelerate",
        "mixed_precision: bf16",
        "mixed_precision: fp16",
        "fp16-where-bf16",
        "`mixed_precision bf16`",
    ),
    (
        "accelerate",
        "checkpointing: false",
        "checkpointing: true",
        "recompute-not-needed",
        "fsdp_activation_checkpointing false`",
    ),
    (
        "accelerate",
        "offload_params: false",
        "offload_params: true",
        "layout-impossible",
        "fsdp_offload_params false`",
    ),
    ("accelerate", "type: FSDP", "type: FSPD", "option-value", "`distributed_type FSDP`"),
    ("accelerate", "version: 2", "version: 3", "option-value", "`fsdp_config.fsdp_version 2`"),
    (
        "accelerate",
        "tp_size: 1",
        "tp_size: 3",
        "nodes-do-not-divide",
        "`parallelism_config.parallelism_config_tp_size 1`",
    ),
    (
        "accelerate",
        "num_processes: 8",
        "num_processes: 4",
        "nodes-do-not-divide",
        "`num_processes 8`",
    ),
    ("accelerate", "fsdp_version", "fsdp_verison", "unknown-option", "fsdp_version"),
    (
        "trainer",
        "\"bf16\": true,\n  \"fp16\": false",
        "\"bf16\": false,\n  \"fp16\": true",
        "fp16-where-bf16",
        "`bf16 true`",
    ),
    (
        "trainer",
        "gradient_checkpointing\": false",
        "gradient_checkpointing\": true",
        "recompute-not-needed",
        "`gradient_checkpointing false`",
    ),
    (
        "trainer",
        "gradient_checkpointing",
        "gradient_chekpointing",
        "unknown-option",
        "`gradient_checkpointing`",
    ),
    ("trainer", "torch_fused", "torch_fuse", "option-value", "`optim adamw_torch_fused`"),
    ("nanotron", "  dp: 4", "  dp: 3", "nodes-do-not-divide", "`parallelism.dp 4`"),
    (
        "nanotron",
        "zero_stage: 1",
        "zero_stage: 0",
        "distributed-optimizer-unused",
        "`optimizer.zero_stage 1`",
    ),
    (
        "nanotron",
        "micro_batch_size:",
        "micro_batch_sise:",
        "unknown-option",
        "tokens.micro_batch_size",
    ),
    (
        "megatron-bridge",
        "train.global_batch_size",
        "train.globl_batch_size",
        "unknown-option",
        "`train.global_batch_size` in the place",
    ),
    (
        "megatron-bridge",
        "tensor_model_parallel_size = 1",
        "tensor_model_parallel_size = 3",
        "nodes-do-not-divide",
        "`model.tensor_model_parallel_size ",
    ),
    (
        "megatron-bridge",
        "global_batch_size = 64",
        "global_batch_size = 60",
        "batch-does-not-divide",
        "`train.global_batch_size 56`",
    ),
    (
        "megatron-bridge",
        "mixed_precision.bf16 = True",
        "mixed_precision.fp16 = True",
        "fp16-where-bf16",
        "`mixed_precision.bf16 True`",
    ),
    (
        "megatron-bridge",
        "config.ddp.overlap_grad_reduce = True ",
        "config.ddp.overlap_grad_reduce = False ",
        "options-contradict",
        "`ddp.overlap_grad_reduce True`",
    ),
    (
        "megatron-bridge",
        "model.hidden_size = 4096",
        "model.hidden_size = 4000",
        "model-differs",
        "`model.hidden_size 4096`",
    ),
];

/// Every planted fault is found by its rule, and what is offered in the tool's words puts it right.
#[test]
fn planted_faults_are_found_and_fixed_in_the_words_of_each_tool() {
    let of_tool = TOOLS.par_iter().map(|tool| (tool.name, Settings::of(tool)));
    let all: BTreeMap<&str, Settings> = of_tool.collect();
    let failures: Vec<String> = FAULTS
        .par_iter()
        .filter_map(|(tool, from, to, rule, expected)| {
            let settings = &all[tool];
            let text = &settings.text;
            let failure = |what: &str, report: &LintReport| {
                Some(format!("{tool}, {from} => {to}: {what}{}", words(report, Severity::Note)))
            };
            assert!(text.contains(from), "no `{from}` in\n{text}");
            let text = text.replacen(from, to, 1);
            let report = settings.lint(&text);
            let Some(finding) = report.findings.iter().find(|it| it.rule.id() == *rule) else {
                return failure("not found", &report);
            };
            let Some(fix) = &finding.fix else { return failure("no fix", &report) };
            if !fix.text.contains(expected) {
                return failure("another fix", &report);
            }
            let (what, after) = unfixed(&text, rule, fix, &report, |text| settings.lint(text))?;
            failure(&what, &after)
        })
        .collect();
    assert!(failures.is_empty(), "{} of {}\n{}", failures.len(), FAULTS.len(), failures.join("\n"));
}

/// A file that the settings name and that cannot be read is told of, and not left out.
#[test]
fn a_file_beside_that_cannot_be_read_is_told_of() {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("train.sh");
    fs::write(&script, "deepspeed train.py --deepspeed_config ds_config.json\n").unwrap();
    fs::write(folder.path().join("ds_config.json"), [0xff, 0xfe, 0x00]).unwrap();
    let script = script.to_str().unwrap();
    let run = planner(&["lint", script, "--model", "models/gpt2", "--gpus", "8"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("ds_config.json"), "{run:?}");
}
