//! The systems of parallel training, each with a command that plans it and one that runs it.

use serde::Serialize;

/// A system with its commands, as they are typed in the folder that has `models`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct System {
    /// What it is called, other names for it included.
    pub name: &'static str,
    /// What plans it.
    pub plan: String,
    /// What runs it.
    pub run: String,
}

/// How a system is planned: a model that a laptop runs, and what is asked for.
struct Row {
    name: &'static str,
    /// The plan's file, without its ending.
    plan: &'static str,
    model: &'static str,
    gpus: u32,
    layout: &'static str,
    options: &'static str,
    /// What the run is told beside the plan.
    run: &'static str,
}

/// A small transformer, laid out so.
const fn tiny(
    name: &'static str,
    plan: &'static str,
    (gpus, layout): (u32, &'static str),
    options: &'static str,
) -> Row {
    Row { name, plan, model: "tiny-llama", gpus, layout, options, run: "" }
}

const ROWS: &[Row] = &[
    tiny("training loop with gradient accumulation", "loop", (1, "tp1"), "--micro-batch-size 2"),
    tiny("mixed precision: bf16", "bf16", (1, "tp1"), "--precision bf16"),
    tiny("mixed precision: fp16 with loss scaling", "fp16", (1, "tp1"), "--precision fp16"),
    tiny(
        "parameter server (DataParallel)",
        "parameter-server",
        (4, "dp4"),
        "--data-parallel-method parameter-server",
    ),
    tiny("data parallelism (DDP)", "ddp", (2, "dp2"), "--zero 0"),
    Row {
        model: "toy-mlp",
        ..tiny("naive model parallelism", "naive", (2, "pp2"), "--schedule sequential")
    },
    Row {
        model: "lone-linear",
        ..tiny(
            "tensor parallelism: a lone linear layer, all-gathered",
            "lone-linear",
            (2, "tp2"),
            "",
        )
    },
    tiny("tensor parallelism (tensor slicing)", "tensor", (2, "tp2-nosp"), ""),
    tiny("sequence parallelism", "sequence", (2, "tp2-sp"), ""),
    tiny("pipeline parallelism: GPipe", "gpipe", (4, "pp4"), "--schedule gpipe"),
    tiny("pipeline parallelism: 1F1B", "1f1b", (4, "pp4"), "--schedule 1f1b"),
    tiny(
        "pipeline parallelism: interleaved 1F1B",
        "interleaved",
        (2, "pp2-vpp2"),
        "--schedule interleaved-1f1b",
    ),
    tiny("pipeline parallelism: zero bubble", "zero-bubble", (4, "pp4"), "--schedule zb-h1"),
    tiny("pipeline parallelism: stages by hand", "by-hand", (2, "pp2"), "--stages 4,2"),
    tiny("ZeRO-1 (optimizer parallelism)", "zero-1", (2, "dp2"), "--zero 1"),
    tiny("ZeRO-2", "zero-2", (2, "dp2"), "--zero 2"),
    tiny("ZeRO-3 (FSDP)", "zero-3", (2, "dp2"), "--zero 3"),
    tiny("hybrid shards (HSDP)", "hybrid", (4, "dp4-shard2"), "--zero 3"),
    tiny("FSDP within pipeline stages", "fsdp-pipeline", (4, "pp2-dp2"), "--zero 3"),
    tiny("3D parallelism", "3d", (8, "tp2-pp2-dp2"), ""),
    tiny("gradient checkpointing: full", "checkpointing", (1, "tp1"), "--recompute full"),
    tiny("gradient checkpointing: selective", "selective", (1, "tp1"), "--recompute selective"),
    tiny(
        "gradient checkpointing: first layers of each stage",
        "first-layers",
        (2, "pp2"),
        "--recompute full --recompute-layers 1",
    ),
    tiny("ZeRO-Offload: optimizer state", "offload", (2, "dp2"), "--zero 2 --offload optimizer"),
    tiny(
        "ZeRO-Offload: parameters and activations too",
        "offload-all",
        (2, "dp2"),
        "--zero 3 --recompute full --offload optimizer,parameters,activations",
    ),
    tiny("LoRA", "lora", (2, "dp2"), "--lora-rank 4 --lora-targets q_proj,v_proj"),
    tiny(
        "LoRA beside quantised weights (QLoRA)",
        "qlora",
        (2, "tp2"),
        "--lora-rank 4 --base-weights nf4",
    ),
    tiny("gradient compression: top-k", "top-k", (2, "dp2"), "--gradient-compression top-k:0.01"),
    tiny(
        "gradient compression: random-k",
        "random-k",
        (2, "dp2"),
        "--gradient-compression random-k:0.1",
    ),
    tiny("gradient compression: int8", "int8", (2, "dp2"), "--gradient-compression int8"),
    tiny("gradient compression: sign", "sign", (2, "dp2"), "--gradient-compression sign"),
    Row {
        run: " --straggler 1:2",
        ..tiny(
            "asynchronous training with bounded staleness",
            "asynchronous",
            (2, "dp2"),
            "--data-parallel-method asynchronous:4",
        )
    },
    tiny("asynchronous pipeline (PipeDream)", "pipedream", (2, "pp2"), "--schedule async-1f1b"),
    tiny(
        "decentralised training (ring averaging)",
        "ring-averaging",
        (4, "dp4"),
        "--data-parallel-method ring-averaging",
    ),
    Row { model: "tiny-mixtral", ..tiny("expert parallelism", "experts", (2, "ep2-dp2"), "") },
    Row {
        model: "tiny-mixtral",
        ..tiny("experts' own tensor parallelism", "folding", (4, "tp4-sp-etp2-ep2"), "")
    },
    tiny("context parallelism: ring", "ring", (2, "cp2"), ""),
    tiny("context parallelism: all-to-all over heads", "heads", (2, "cp2-a2a"), ""),
];

impl Row {
    fn system(&self) -> System {
        let Self { name, plan, model, gpus, layout, options, run } = self;
        // Schedules are named where a system is about them.
        let parts = [
            format!("planner evaluate models/{model}.json --gpus {gpus} --layout {layout}"),
            "--global-batch-size 8".to_owned(),
            (*options).to_owned(),
            format!("-o {plan}.json"),
        ];
        let filled: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let run = format!("planner run {plan}.json --steps 2{run}");
        System { name, plan: filled.join(" "), run }
    }
}

/// All systems.
pub fn systems() -> Vec<System> {
    let collectives = System {
        name: "collectives",
        plan: "planner collective all-reduce --ranks 4 -o all-reduce.svg".to_owned(),
        run: "executor collectives --ranks 4 --max-bytes 65536".to_owned(),
    };
    let vision = System {
        name: "models of the documents: ResNet-50 cut in two",
        plan: "planner evaluate models/resnet-50.json --gpus 2 --layout pp2 --schedule sequential \
               --global-batch-size 2 --micro-batch-size 2 -o resnet.json"
            .to_owned(),
        run: "planner run resnet.json --steps 1".to_owned(),
    };
    let rows = ROWS.iter().map(Row::system);
    rows.chain([collectives, vision]).collect()
}
