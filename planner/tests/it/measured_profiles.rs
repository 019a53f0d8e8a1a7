//! Constants from what a profiler recorded: traces made from a machine that is known, with noise.

use std::collections::BTreeMap;
use std::io::Write as _;

use cost_models::block::{TermWork, terms};
use cost_models::{StridedGroup, constants};
use flate2::Compression;
use flate2::write::GzEncoder;
use ir::collective::Collective;
use ir::graph::{Kernel, Pass};
use ir::units::Bytes;
use planner_core::plan::{self, CheckedPlan};
use planner_core::step::ShapeKey;
use planner_evidence::calibration::calibrated;
use planner_evidence::validation::predict;
use planner_evidence::validation::setup::Setup;
use serde_json::{Value, json};

use crate::bad_input::Workplace;
use crate::cli::planner;

const PLAN: [&str; 10] = [
    "evaluate",
    "models/llama-3.1-8b",
    "--gpus",
    "8",
    "--layout",
    "tp2-sp-dp4-zero1-mbs1",
    "--seq-len",
    "4096",
    "--global-batch-size",
    "8",
];

/// A plan's file, and the plan.
fn plan_in(place: &Workplace) -> (String, CheckedPlan) {
    plan_of(place, PLAN[5])
}

fn plan_of(place: &Workplace, layout: &str) -> (String, CheckedPlan) {
    let path = place.path(&format!("{layout}.json"));
    let args = PLAN.map(|arg| if arg == PLAN[5] { layout } else { arg });
    let run = planner(&[&args[..], &["--quiet", "-o", &path]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    (path, plan::read(&text).unwrap())
}

fn setup(checked: &CheckedPlan) -> Setup {
    Setup {
        problem: checked.problem.clone(),
        cluster: checked.plan.cluster.clone(),
        layout: checked.found.layout,
        stage_ends: checked.found.stage_ends.clone(),
        is_layer: false,
    }
}

fn on_another(setup: &Setup, factors: &BTreeMap<&str, f64>) -> Setup {
    let mut setup = setup.clone();
    for constant in constants::all() {
        if let Some(factor) = factors.get(constant.name_on_machine().as_str()) {
            constant.scale(&mut setup.problem.hardware, *factor);
        }
    }
    setup
}

/// A trace as Kineto writes it, event by event.
struct Trace {
    events: Vec<Value>,
    now: f64,
    id: u64,
    noise: f64,
}

impl Trace {
    /// An operator of the host, and the kernel that it launches.
    fn call(&mut self, operator: &str, arguments: &Value, kernel: (&str, &Value), seconds: f64) {
        self.id += 1;
        let off = (self.id * 7919 % 13) as f64 / 6.0 - 1.0;
        let duration = seconds * 1e6 * (1.0 + self.noise * off);
        let with = |base: &Value, more: Value| {
            let mut all = base.as_object().cloned().unwrap_or_default();
            all.extend(more.as_object().cloned().unwrap());
            Value::from(all)
        };
        self.events.push(json!({
            "ph": "X", "cat": "cpu_op", "name": operator, "pid": 1, "tid": 1, "ts": self.now, "dur": 5.0,
            "args": with(arguments, json!({ "External id": self.id })),
        }));
        let (name, of_kernel) = kernel;
        self.events.push(json!({
            "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": self.now + 4.0, "dur": duration,
            "args": with(of_kernel, json!({ "External id": self.id, "device": 0, "stream": 7, "correlation": self.id })),
        }));
        self.now += duration + 1.0;
    }

    fn exchange(
        &mut self,
        kind: Collective,
        group: StridedGroup,
        what: &str,
        bytes: Bytes,
        seconds: f64,
    ) {
        let elements = bytes.get() / 2;
        let ranks: Vec<u32> = (0..group.size).map(|it| it * group.stride).collect();
        let name = match kind {
            Collective::AllGather => "_allgather_base",
            Collective::ReduceScatter => "_reduce_scatter_base",
            _ => "allreduce",
        };
        let each = elements / u64::from(group.size);
        let [sent, received] = match kind {
            Collective::AllGather => [each, elements],
            Collective::ReduceScatter => [elements, each],
            _ => [elements; 2],
        };
        let arguments = json!({
            "Collective name": name, "In msg nelems": sent, "Out msg nelems": received, "dtype": "BFloat16",
            "Group size": group.size, "Process Group Name": "1", "Process Group Description": what,
            "Process Group Ranks": format!("{ranks:?}"),
        });
        let kernel = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)";
        self.call("record_param_comms", &json!({}), (kernel, &arguments), seconds);
    }
}

/// What PyTorch's profiler would write of some steps of a machine.
fn trace(setup: &Setup, steps: u32, noise: f64, has_shapes: bool) -> String {
    let mut trace = Trace { events: Vec::new(), now: 1_468_837_789_533.645, id: 0, noise };
    let problem = &setup.problem;
    let key = ShapeKey::of(&setup.layout, &setup.problem);
    let counts = problem.graph.class_counts();
    let step_time = predict(setup).step_time_seconds * 1e6;
    for step in 0..steps {
        let start = trace.now;
        for (class, block) in problem.graph.classes() {
            let setting = key.setting(problem, class.0);
            let terms = terms(block, &setting, &key.groups(), &problem.hardware);
            for _ in 0..counts[class.0] * setup.layout.num_micro_batches {
                for term in &terms {
                    let seconds = term.time.get();
                    match &term.work {
                        TermWork::Kernel(kernel, _) => {
                            kernel_call(&mut trace, &kernel.kernel, term.pass, seconds, has_shapes);
                        }
                        TermWork::Exchange(exchange, whole) => {
                            let group = key.groups().along(exchange.axis);
                            trace.exchange(
                                exchange.collective,
                                group,
                                "mesh_tp",
                                exchange.bytes,
                                whole.get(),
                            );
                        }
                    }
                }
            }
        }
        let replicas = StridedGroup { size: 4, stride: 2 };
        let bytes = Bytes::new(1 << 30);
        let framework = &problem.hardware.framework;
        let seconds =
            problem.hardware.network.time(Collective::ReduceScatter, replicas, bytes).get()
                * framework.exchanges.over_replicas;
        trace.exchange(Collective::ReduceScatter, replicas, "mesh_fsdp", bytes, seconds);
        let name = format!("ProfilerStep#{step}");
        // Kernels of this trace are one after the other; a step's own time is that of its annotation.
        trace.events.push(json!({
            "ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": start,
            "dur": step_time, "args": { "External id": 1 },
        }));
        trace.now = start + step_time.max(trace.now - start) + 1.0;
    }
    json!({
        "schemaVersion": 1,
        "deviceProperties": [{ "id": 0, "name": "NVIDIA H100 80GB HBM3" }],
        "distributedInfo": { "backend": "nccl", "rank": 0, "world_size": 8 },
        "traceEvents": trace.events,
    })
    .to_string()
}

fn kernel_call(trace: &mut Trace, kernel: &Kernel, pass: Pass, seconds: f64, has_shapes: bool) {
    let none = json!({});
    let types = json!(["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]);
    match kernel {
        Kernel::MatMul { batch, m, n, k } => {
            let (name, dims) = match batch {
                1 => ("aten::mm", json!([[m, k], [k, n]])),
                _ => ("aten::bmm", json!([[batch, m, k], [batch, k, n]])),
            };
            let arguments = json!({ "Input Dims": dims, "Input type": types });
            let arguments = if has_shapes { arguments } else { none.clone() };
            trace.call(
                name,
                &arguments,
                ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTN", &none),
                seconds,
            );
        }
        Kernel::Attention(shape) => {
            let queries = json!([shape.batch, shape.queries, shape.heads, shape.head_dim]);
            let keys = json!([shape.batch, shape.context, shape.kv_heads, shape.head_dim]);
            let (name, kernel, dims) = if pass == Pass::Forward {
                let name = "flash_fwd_kernel<Flash_fwd_kernel_traits<128, cutlass::bfloat16_t>>";
                ("aten::_flash_attention_forward", name, json!([queries, keys, keys]))
            } else {
                let name = "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<cutlass::bfloat16_t>";
                ("aten::_flash_attention_backward", name, json!([queries, queries, keys, keys]))
            };
            let arguments = json!({ "Input Dims": dims, "Input type": types });
            let arguments = if has_shapes { arguments } else { none.clone() };
            trace.call(name, &arguments, (kernel, &none), seconds);
        }
        Kernel::Memory => {
            let kernel =
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>";
            trace.call("aten::native_layer_norm", &none, (kernel, &none), seconds);
        }
    }
}

/// Ratios of constants that a calibration found over those of the machine.
fn found(report: &Value, name: &str) -> f64 {
    let all = report["constants"].as_array().unwrap();
    let it = all.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"));
    it["value"].as_f64().unwrap() / it["before"].as_f64().unwrap()
}

/// Constants are found to within a few per cent, with shapes and, those that sums tell of, without.
#[test]
fn a_machines_constants_are_found_again() {
    let place = Workplace::new();
    let (path, checked) = plan_in(&place);
    let factors = BTreeMap::from([
        ("matmul", 0.84),
        ("attention_forward", 1.25),
        ("attention_backward", 0.8),
        ("kernels.elementwise_traffic", 1.3),
        ("exchanges.within_blocks", 1.35),
        ("exchanges.over_replicas", 1.5),
    ]);
    let setup = setup(&checked);
    let truth = on_another(&setup, &factors);
    let other = self::setup(&plan_of(&place, "tp4-sp-dp2-zero1-mbs2").1);
    for has_shapes in [true, false] {
        let trace = place.write("rank0.json", trace(&truth, 3, 0.04, has_shapes));
        let args = ["calibrate", "--from", &trace, "--plan", &path];
        let mine = place.path("mine.json");
        let chart = place.path("both.svg");
        let run =
            planner(&[&args[..], &["-o", &mine, "--chart", &chart, "--format", "json"]].concat());
        let report = run.json();
        for (name, expected) in &factors {
            let is = found(&report, name);
            let most = if *name == "kernels.elementwise_traffic" { 0.2 } else { 0.06 };
            assert!((is / expected).ln().abs() < most, "{name}: {is}, not {expected}; {report:#}");
        }
        // Of a layout that was not recorded.
        let calibration = serde_json::from_value(report["calibration"].clone()).unwrap();
        let seconds = |setup: &Setup| predict(setup).step_time_seconds;
        let [before, after] = [&other, &calibrated(&other, &calibration)]
            .map(|it| (seconds(it) / seconds(&on_another(&other, &factors))).ln().abs());
        assert!(after < 0.03 && after < 0.5 * before, "{before} before, {after} after");
        let drawn = std::fs::read_to_string(&chart).unwrap();
        assert!(drawn.contains("measured: a step of 1 rank"), "no title of the measured one");
        let run = planner(&args);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_eq!(run.stdout.contains("record_shapes=True"), !has_shapes, "{}", run.stdout);
        assert!(run.stdout.contains("products"), "{}", run.stdout);
        let search =
            ["search", "models/llama-3.1-8b", "--gpus", "8", "--quiet", "--framework", &mine];
        let run = planner(&search);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.stdout.contains("calibrated"), "{}", run.stdout);
    }
}

#[test]
fn traces_that_tell_nothing_are_refused() {
    let place = Workplace::new();
    let (plan, checked) = plan_in(&place);
    let whole = trace(&setup(&checked), 1, 0.0, true);
    let good = place.write("good.json", &whole);
    let check =
        |args: &str, words: &[&str]| place.fails(&format!("calibrate --from {args}"), words);
    check(&good, &["which plan ran", "--plan"]);
    check(&format!("{good} --plan {plan} --cluster h100"), &["--cluster", "the plan says"]);
    check(&format!("{good} --plan {good}"), &["good.json"]);
    check(&format!("{good} --plan {plan} --chart x.txt"), &["x.txt", ".svg"]);
    let with = |name: &str, text: &str, words: &[&str]| {
        let path = place.write(name, text);
        check(&format!("{path} --plan {plan}"), words);
    };
    let cut = &whole[..whole.len() / 2];
    with("cut.json", cut, &["cut off", &format!("byte {}", cut.len())]);
    with("odd.json", r#"{"traceEvents": [}"#, &["not a Chrome trace", "line 1"]);
    with("empty.json", "", &["empty"]);
    with("none.json", r#"{"traceEvents": []}"#, &["no event is of category", "none"]);
    let other = r#"{"traceEvents": [{"ph": "X", "cat": "blink", "name": "a", "ts": 1, "dur": 2}]}"#;
    with("other.json", other, &["not a trace of PyTorch's profiler", "`blink`"]);
    let host =
        r#"{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}]}"#;
    with("host.json", host, &["1 operators and no kernel", "ProfilerActivity.CUDA"]);
    let timeline = place.path("timeline.json");
    assert_eq!(planner(&["simulate", &plan, "-o", &timeline]).code, Some(0));
    check(&format!("{timeline} --plan {plan}"), &["a timeline of this program"]);
    let nothing =
        r#"{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]}"#;
    with("nothing.json", nothing, &["nothing in the profile", "steps are not marked"]);
    let (batch, others) = PLAN.split_last().unwrap();
    let more = place.path("more.json");
    let tenfold = format!("{batch}0");
    let args = [others, &[&tenfold, "--quiet", "-o", &more]].concat();
    assert_eq!(planner(&args).code, Some(0));
    check(&format!("{good} --plan {more}"), &["of another run", "a step took", "planner import"]);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(whole.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let path = place.write("packed.json.gz", &packed);
    let run = planner(&["calibrate", "--from", &path, "--plan", &plan]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let path = place.write("half.json.gz", &packed[..packed.len() / 2]);
    check(&format!("{path} --plan {plan}"), &["gzip is cut off"]);
}
