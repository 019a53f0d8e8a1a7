//! Options by the names that other tools give them.

use super::folded;

/// Options of this program, each with what others call it, folded.
const ALSO: &[(&str, &[&str])] = &[
    (
        "--tp",
        &[
            "tensorparallel",
            "tensorparallelsize",
            "tensorparalleldegree",
            "tensormodelparallelsize",
            "tpsize",
            "tpdegree",
            "tensorslicing",
            "tensor",
            "modelparallelsize",
            "mp",
            "mpsize",
            "t",
        ],
    ),
    (
        "--pp",
        &[
            "pipelineparallel",
            "pipelineparallelsize",
            "pipelineparalleldegree",
            "pipelinemodelparallelsize",
            "ppsize",
            "ppdegree",
            "pipeline",
            "pipelines",
            "numstages",
            "pipelinestages",
            "p",
        ],
    ),
    (
        "--dp",
        &[
            "dataparallel",
            "dataparallelsize",
            "dataparalleldegree",
            "dataparallelreplicatedegree",
            "dpsize",
            "dpdegree",
            "replicas",
            "numreplicas",
            "d",
        ],
    ),
    (
        "--cp",
        &[
            "contextparallel",
            "contextparallelsize",
            "contextparalleldegree",
            "cpsize",
            "cpdegree",
            "sequenceparallelsize",
            "spsize",
        ],
    ),
    (
        "--ep",
        &[
            "expertparallel",
            "expertparallelsize",
            "expertparalleldegree",
            "expertmodelparallelsize",
            "epsize",
            "epdegree",
            "moeexpertparallel",
        ],
    ),
    ("--etp", &["expertparalleltensor", "experttensorparallel", "experttensorparallelsize"]),
    (
        "--virtual-stages",
        &[
            "virtualpipelinemodelparallelsize",
            "virtualpipeline",
            "vp",
            "vppsize",
            "numvirtualstages",
            "chunk",
            "chunks",
        ],
    ),
    (
        "--gpus",
        &[
            "numgpus",
            "ngpus",
            "gpu",
            "numberofgpus",
            "worldsize",
            "nprocpernode",
            "nproc",
            "numdevices",
            "devices",
            "numprocesses",
            "np",
            "n",
            "g",
            "gpucount",
            "gpuspernode",
            "nnodes",
            "nodes",
            "numnodes",
            "ranks",
        ],
    ),
    (
        "--cluster",
        &[
            "gputype",
            "gpuname",
            "hardware",
            "device",
            "accelerator",
            "system",
            "machine",
            "hw",
            "instance",
            "topology",
            "interconnect",
            "network",
            "fabric",
            "c",
        ],
    ),
    (
        "--seq-len",
        &[
            "seqlength",
            "seq",
            "sequence",
            "sequencelength",
            "seqlen",
            "maxseqlength",
            "maxsequencelength",
            "maxlength",
            "maxmodellen",
            "ctx",
            "ctxlen",
            "ctxsize",
            "ncontext",
            "maxmodellength",
            "contextlength",
            "context",
            "blocksize",
            "sl",
            "s",
        ],
    ),
    (
        "--global-batch-size",
        &[
            "globalbatch",
            "batch",
            "batchsize",
            "gbs",
            "gb",
            "bs",
            "trainbatchsize",
            "b",
            "totalbatchsize",
            "tokensperbatch",
        ],
    ),
    (
        "--micro-batch-size",
        &[
            "microbatch",
            "microbatchsize",
            "mbs",
            "mb",
            "trainmicrobatchsizepergpu",
            "perdevicetrainbatchsize",
            "localbatchsize",
            "perdevicebatchsize",
        ],
    ),
    (
        "--precision",
        &[
            "dtype",
            "bf16",
            "fp16",
            "fp8",
            "fp32",
            "datatype",
            "mixedprecision",
            "amp",
            "torchdtype",
            "paramdtype",
            "half",
        ],
    ),
    (
        "--zero",
        &[
            "zerostage",
            "stage",
            "fsdp",
            "deepspeedstage",
            "zerooptimizationstage",
            "usedistributedoptimizer",
            "distributedoptimizer",
            "sharding",
            "zero1",
            "zero2",
            "zero3",
            "fullyshard",
        ],
    ),
    ("--zero-shard", &["dataparallelsharddegree", "hsdp", "sharddegree", "fsdpsize"]),
    (
        "--recompute",
        &[
            "recomputegranularity",
            "activationcheckpointing",
            "gradientcheckpointing",
            "activationrecompute",
            "checkpointactivations",
            "recomputeactivations",
            "ac",
            "actckpt",
        ],
    ),
    ("--recompute-layers", &["recomputenumlayer"]),
    ("--schedule", &["pipelineschedule", "ppschedule", "pipelineparallelschedule"]),
    (
        "--offload",
        &["cpuoffload", "offloadoptimizer", "offloadparam", "zerooffload", "optimizercpuoffload"],
    ),
    ("--optimizer", &["optim", "opt"]),
    ("--framework", &["backend", "engine", "library", "trainer", "runtime", "tool"]),
    ("--output", &["out", "outputfile", "outfile", "save", "plan", "write", "file"]),
    ("--format", &["json", "outputformat", "fmt"]),
    ("--top", &["topk", "k", "numresults", "limit", "num"]),
    ("--time-limit", &["timeout", "maxtime", "limittime"]),
    ("--threads", &["numthreads", "jobs", "j", "workers", "numworkers", "cores"]),
    ("--quiet", &["silent"]),
    ("--headroom", &["memorymargin", "reservedmemory", "margin"]),
    ("--tokens", &["numtokens", "trainingtokens", "totaltokens", "traintokens"]),
    ("--price", &["cost", "priceperhour", "gpuprice", "gpuhour", "costperhour"]),
    ("--why-not", &["why", "whynot"]),
    ("--without", &["no", "disable", "exclude"]),
    ("--lora-rank", &["lora", "lorar", "r"]),
    ("--model", &["modelname", "modelnameorpath", "config", "hfmodel", "m"]),
    (
        "--stages",
        &["numpipelinestages", "pipelinesize", "numranks", "ranks", "devices", "gpus", "pp", "p"],
    ),
    (
        "--micro-batches",
        &["nummicrobatches", "microbatches", "gradientaccumulationsteps", "gas", "m"],
    ),
    ("--width", &["columns", "cols", "size", "figsize", "w", "resolution", "height"]),
    ("--forward", &["fwd", "forwardtime", "f"]),
    ("--ranks", &["gpus", "numgpus", "gpu", "worldsize", "n", "np", "devices", "nranks"]),
    ("--from", &["input", "csv", "schedulefile"]),
    ("--over", &["vary", "sweep", "across"]),
];

/// What to type for options that carry their value in their name, or mean something else here; folded.
const INSTEAD: &[(&[&str], &str, &str)] = &[
    (&["zero3", "fsdp", "fsdp2", "fullyshard"], "--zero", "`--zero 3`"),
    (&["zero2"], "--zero", "`--zero 2`"),
    (&["zero1", "usedistributedoptimizer", "distributedoptimizer"], "--zero", "`--zero 1`"),
    (&["ddp", "zero0"], "--zero", "`--zero 0`"),
    (&["bf16", "bfloat16"], "--precision", "`--precision bf16`"),
    (&["fp16", "half", "float16"], "--precision", "`--precision fp16`"),
    (&["fp8", "usefp8"], "--precision", "`--precision fp8`"),
    (&["fp4", "usefp4"], "--precision", "`--precision fp4`"),
    (&["fp32", "float32"], "--precision", "`--precision fp32`"),
    (
        &[
            "gradientaccumulationsteps",
            "gas",
            "nummicrobatches",
            "microbatches",
            "accumulategradbatches",
        ],
        "--global-batch-size",
        "`--global-batch-size B`, from which the number of micro-batches follows",
    ),
    (
        &["backward", "bwd", "backwardtime"],
        "--input-grad",
        "`--input-grad T` and `--weight-grad T`, the two halves of a backward",
    ),
    (&["dark", "darkmode", "darktheme"], "--theme", "`--theme dark`"),
    (&["light"], "--theme", "`--theme light`"),
    // Exports have launchers; what charts and others write is told by the file's ending.
    (&["target", "format", "tool", "framework", "backend", "engine"], "--launcher", "`--to TOOL`"),
    (
        &["format", "type", "svg", "png", "pdf", "html"],
        "--output",
        "`-o FILE`, whose ending says its form",
    ),
    (
        &["seqlens", "sequencelengths", "batches", "batchsizes", "numsgpus", "bandwidths"],
        "--over",
        "`--over gpus=8,16,32`, or seq-len, batch, bandwidth or memory",
    ),
    (&["lora", "peft", "adapter", "adapters"], "--lora-rank", "`--lora-rank R`"),
    (
        &["qlora", "loadin4bit", "bnb4bit", "quantization", "quantize"],
        "--base-weights",
        "`--lora-rank R --base-weights nf4`",
    ),
    (&["loadin8bit", "bnb8bit"], "--base-weights", "`--lora-rank R --base-weights int8`"),
    (
        &["sp", "seqparallel", "sequenceparallelism", "enablesequenceparallel"],
        "--sequence-parallel",
        "`--sequence-parallel true`",
    ),
    (
        &["ulysses", "ulyssessize", "ulyssesdegree", "ulyssessequenceparallelsize"],
        "--context-parallel-kind",
        "`--cp N --context-parallel-kind all_to_all`",
    ),
    (&["ringattention", "ring"], "--context-parallel-kind", "`--cp N`, which is a ring by default"),
    (
        &["cpcommtype"],
        "--context-parallel-kind",
        "`--context-parallel-kind ring` (p2p) or all_to_all (a2a)",
    ),
    (&["nopp", "nopipeline", "nopipelines"], "--without", "`--without pp`"),
    (&["notp", "notensorparallel"], "--without", "`--without tp`"),
    (
        &["nosp", "nocp", "noep", "novpp", "nozero", "norecompute"],
        "--without",
        "`--without cp`, or another axis: tp, sp, ep, pp, vpp, zero, recompute",
    ),
    (
        &["interleave", "interleaved", "interleaving"],
        "--schedule",
        "`--schedule interleaved-1f1b`, with `--virtual-stages V`",
    ),
    (
        &["numlayerspervirtualpipelinestage", "numlayerspervirtualstage", "layersperstage"],
        "--virtual-stages",
        "`--virtual-stages V`, the stages of each rank: layers over pipeline ranks and layers of a stage",
    ),
    (
        &["shardingstrategy", "fsdpshardingstrategy", "dataparallelshardingstrategy"],
        "--zero",
        "`--zero 3`, or 0 to 2",
    ),
    (
        &["recomputemethod"],
        "--recompute-layers",
        "`--recompute full --recompute-layers N` (block), without the latter for all (uniform)",
    ),
    (
        &[
            "nvlink",
            "infiniband",
            "bandwidth",
            "peakflops",
            "peaktflops",
            "latency",
            "nic",
            "gpumemorybandwidth",
            "membandwidth",
        ],
        "--cluster",
        "`--cluster NAME|FILE`, whose file has links, memory and peaks",
    ),
    (
        &["cpuoffload", "zerooffload"],
        "--offload",
        "`--offload optimizer`, or parameters or activations",
    ),
    (
        &["steps", "numsteps", "iterations", "trainiters", "maxsteps", "epochs", "numtrainepochs"],
        "--tokens",
        "`--tokens N`, of the whole training",
    ),
    (&["json"], "--format", "`--format json`"),
    (&["csv"], "--columns", "`--format csv`"),
    (&["csv", "yaml", "yml", "markdown"], "--format", "`--format json`, for programs"),
    (&["table", "text"], "--format", "`--format table`"),
    (
        &["nodes", "nnodes", "numnodes", "gpuspernode", "nprocpernode", "numnode"],
        "--gpus",
        "`--gpus N`, which counts the GPUs of all nodes; how many a node has is the cluster's",
    ),
    (
        &[
            "activationcheckpointing",
            "gradientcheckpointing",
            "recomputeactivations",
            "checkpointactivations",
        ],
        "--recompute",
        "`--recompute full`, or selective",
    ),
    (
        &[
            "maxmemory",
            "memory",
            "memorylimit",
            "gpumemory",
            "maxmemorypergpu",
            "memorybudget",
            "memlimit",
            "maxmem",
            "mem",
            "vram",
        ],
        "--headroom",
        "`--headroom GIB`, what stays free of the memory that the cluster's GPUs have",
    ),
    (
        &["tokensperbatch", "numtokenspertrainstep", "globalbatchtokens"],
        "--global-batch-size",
        "`--global-batch-size B`, in sequences",
    ),
];

/// What options of others are about that no option here is: which ones, folded, an option of the commands that it is said
/// of, and a sentence.
const BESIDE: &[(&[&str], &str, &str)] = &[
    (
        &["gpumemoryutilization", "memfraction", "memoryfraction", "memutilization"],
        "--headroom",
        "it is no share here: `--headroom GIB` is what stays free of a GPU, 8 of 80 where 0.9 is used",
    ),
    (
        &["fp8format", "fp8recipe", "fp8margin", "fp8amaxhistorylen", "fp8paramgather"],
        "--precision",
        "`--precision fp8` is all that is said of it: how numbers are scaled is the framework's",
    ),
    (
        &["compile", "torchcompile", "usecompile", "jit", "fusion", "kernels", "fused"],
        "--framework",
        "what is compiled or fused is the framework's: `planner list frameworks` has those that ship",
    ),
    (
        &[
            "overlapgradreduce",
            "overlapparamgather",
            "tpcommoverlap",
            "overlapp2pcommunication",
            "overlapcomm",
            "overlap",
            "asynctp",
            "commoverlap",
            "bucketsize",
            "reducebucketsize",
        ],
        "--framework",
        "what runs side by side is the framework's; `planner import` reads the flags of a script that has its own",
    ),
    (
        &["gres", "cpuspertask", "partition", "account", "sbatch", "slurm", "launcher", "mpi"],
        "--seq-len",
        "jobs are what `planner export PLAN --to TOOL --launcher slurm` writes",
    ),
    (
        &["lr", "learningrate", "warmup", "lrwarmup", "weightdecay", "seed", "dataset", "data"],
        "--why-not",
        "a plan says nothing of data and learning rates: these are the run's",
    ),
    (
        &[
            "vocabsize",
            "hiddensize",
            "dmodel",
            "dim",
            "numlayers",
            "nlayer",
            "nlayers",
            "layers",
            "numhiddenlayers",
            "numattentionheads",
            "nhead",
            "heads",
            "numheads",
            "numkvheads",
            "numkeyvalueheads",
            "numquerygroups",
            "ffnhiddensize",
            "intermediatesize",
            "headdim",
            "numexperts",
            "numparameters",
            "modelsize",
            "params",
        ],
        "--seq-len",
        "sizes are the model's: MODEL can be a `config.json` of your own",
    ),
    (
        &["flashattention", "useflashattn", "flashattn", "attention", "attentionbackend", "sdpa"],
        "--framework",
        "kernels are those of the framework, and the frameworks that ship call fused attention",
    ),
    (
        &["strategy", "parallelism", "parallel", "parallelization", "plan"],
        "--why-not",
        "the search finds the layout; degrees that you pin are `--tp 8 --pp 4`, sharding is `--zero 3`",
    ),
    (
        &["algorithm", "algo", "kind", "method"],
        "--ring",
        "`--ring` draws the steps of a ring; without it, who holds what before and after",
    ),
    (
        &["size", "bytes", "message", "messagesize"],
        "--ring",
        "the picture is of who holds what; how long a collective takes is the cluster's to say",
    ),
    (
        &[
            "datapath",
            "data",
            "dataset",
            "traindata",
            "tokenizer",
            "lr",
            "learningrate",
            "trainiters",
        ],
        "--launcher",
        "a plan says nothing of data, steps and learning rates: what is written has a place for yours",
    ),
    (
        &["force", "overwrite", "f", "y", "yes"],
        "--output",
        "files that are there are written over, where that is allowed",
    ),
    (&["fix", "autofix", "apply"], "--fail-on", "each finding says what to write instead"),
    (&["title", "name", "label"], "--theme", "pictures are named by their plan"),
    (
        &["inference", "serve", "serving", "generate", "prefill", "decode", "kvcache"],
        "--seq-len",
        "what is planned is training",
    ),
    (
        &["mfu", "hfu", "tflops", "flops", "throughput", "showmemory", "breakdown"],
        "--seq-len",
        "results have it; `planner explain` on a plan written with `-o` says where it goes",
    ),
    (
        &["verbose", "v", "vv", "debug", "details"],
        "--seq-len",
        "`planner explain` on a plan written with `-o` says all there is to say",
    ),
];

/// An option as it is looked up: of `--parallelism.tensor_parallel_degree`, what stands last; of Slurm's letters, which
/// are capital, what they are short for.
fn own(flag: &str) -> String {
    match flag {
        "-N" => "nodes".to_owned(),
        _ => folded(flag.rsplit('.').next().unwrap_or(flag)),
    }
}

/// What there is to know of an option that nothing here corresponds to, of a command that has what `has` says.
pub fn beside(flag: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let given = own(flag);
    let known = BESIDE.iter().filter(|(also, ..)| also.contains(&given.as_str()));
    known.map(|(_, ours, text)| (*ours, *text)).find(|(ours, _)| has(ours)).map(|(_, text)| text)
}

/// What to type for an option that is not known, of a command that has what `has` says: in words.
pub fn instead(flag: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    let given = own(flag);
    let known = INSTEAD.iter().filter(|(also, ..)| also.contains(&given.as_str()));
    let whole = known.map(|(_, ours, text)| (*ours, *text)).find(|(ours, _)| has(ours));
    whole
        .map(|(_, text)| text.to_owned())
        .or_else(|| self::flag(flag, has).map(|ours| format!("`{ours}`")))
}

/// The option of this program that others call `flag`, of those that `has` says are there: the first.
pub fn flag(flag: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let given = own(flag);
    let ours = ALSO.iter().filter(|(_, also)| also.contains(&given.as_str()));
    ours.map(|(ours, _)| *ours).find(|ours| has(ours))
}
