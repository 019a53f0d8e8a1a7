//! Megatron's arguments, read.

use ir::cluster::Precision;
use ir::framework::{Framework, LossGradient, TensorOverlap, UpdatedParameters, WhenReduced};
use ir::graph::{
    ContextParallelKind, CudaGraphs, ExpertOverlap, Recompute, RecomputeModule, RecomputeModules,
    Switches, TokenDispatcher,
};
use ir::layout::{LayoutSpec, Offload, OffloadedActivations, ZeroStage};
use ir::plan::Optimizer;
use ir::schedule::ScheduleKind;

use super::super::argument::Argument;
use super::super::imported::{ImportError, Imported, StatedStages, StatedTraining};
use super::super::options::{Given, Known, OptionError, Others};
use super::super::shell::Word;
use super::super::source::{Source, agreed};
use super::super::target::Target;

/// The options of `megatron.training.arguments` in megatron-core 0.19.2.
const KNOWN: Known =
    Known { program: "Megatron-LM", table: include_str!("options.txt"), others: Others::Refused };

/// Options that say what the model is, and what `pretrain_gpt.py` has where they are not given.
const OF_MODEL: [&str; 21] = [
    "--num-layers",
    "--hidden-size",
    "--ffn-hidden-size",
    "--num-attention-heads",
    "--num-query-groups",
    "--kv-channels",
    "--num-experts",
    "--moe-router-topk",
    "--moe-ffn-hidden-size",
    "--moe-shared-expert-intermediate-size",
    "--vocab-size",
    "--normalization",
    "--q-lora-rank",
    "--kv-lora-rank",
    "--qk-head-dim",
    "--qk-pos-emb-head-dim",
    "--v-head-dim",
    "--window-size",
    "--moe-layer-freq",
    "--mtp-num-layers",
    "--rotary-base",
];

/// Reads the words after `pretrain_gpt.py`.
pub(in super::super) fn read(source: &Source<'_>) -> Result<Imported, ImportError> {
    let started = source.started()?;
    read_words(source, started.words.get(1..).unwrap_or_default(), Target::Megatron)
}

/// Reads words that are options of `pretrain_gpt.py`, or stand for such.
pub(in super::super) fn read_words(
    source: &Source<'_>,
    words: &[Word],
    target: Target,
) -> Result<Imported, ImportError> {
    let num_gpus = source.num_gpus();
    let given = KNOWN.read(words)?;
    contradictions(&given)?;
    let tensor_parallel = given.count("--tensor-model-parallel-size")?.unwrap_or(1);
    let pipeline_parallel = given.count("--pipeline-model-parallel-size")?.unwrap_or(1);
    let (stages, virtual_stages) = stages(&given, pipeline_parallel)?;
    let experts = given.count::<u32>("--num-experts")?;
    let zero_stage = zero_stage(&given)?;
    let layout = LayoutSpec {
        tensor_parallel,
        // Megatron itself switches it off where there is one rank.
        sequence_parallel: given.has("--sequence-parallel") && tensor_parallel > 1,
        context_parallel: given.count("--context-parallel-size")?.unwrap_or(1),
        context_parallel_kind: context_kind(&given)?,
        expert_parallel: given.count("--expert-model-parallel-size")?.unwrap_or(1),
        expert_tensor_parallel: match experts {
            Some(_) => given.count("--expert-tensor-parallel-size")?.unwrap_or(tensor_parallel),
            None => tensor_parallel,
        },
        pipeline_parallel,
        virtual_stages,
        data_parallel: 1,
        zero_shard: 1,
        zero_stage,
        micro_batch_size: agreed(
            given.count("--micro-batch-size")?,
            "--micro-batch-size",
            source.stated.micro_batch_size,
            "--micro-batch-size",
        )?
        .ok_or_else(|| OptionError::Missing {
            name: "--micro-batch-size".to_owned(),
            works: "Megatron has no default for it".to_owned(),
        })?,
        num_micro_batches: 1,
        recompute: recompute(&given)?,
        offload: offload(&given)?,
        schedule: if virtual_stages > 1 {
            ScheduleKind::Interleaved
        } else {
            ScheduleKind::OneFOneB
        },
        switches: switches(&given)?,
    };
    let groups = given.count("--num-distributed-optimizer-instances")?.unwrap_or(1);
    let dropout = [given.text("--hidden-dropout")?, given.text("--attention-dropout")?];
    Ok(Imported {
        source: target,
        framework: framework(&given, &layout, num_gpus)?,
        layout,
        num_gpus: source.started().ok().and_then(|it| it.num_gpus),
        training: training(source, &given)?,
        stages,
        shard_groups: groups,
        model: model(&given)?,
        multi_token_prediction: given.has("--mtp-num-layers")
            || source.stated.multi_token_prediction,
        // Megatron's default is a tenth.
        dropout: dropout.iter().any(|rate| rate.is_none_or(|it| it.parse() != Ok(0.0))),
    })
}

fn contradictions(given: &Given) -> Result<(), OptionError> {
    let layers = "both say how many stages a rank has";
    let virtual_stages = "--num-virtual-stages-per-pipeline-rank";
    for (one, other, why) in [
        ("--bf16", "--fp16", "weights have one number format"),
        ("--fp8-format", "--fp4-format", "products have one number format"),
        ("--num-layers-per-virtual-pipeline-stage", virtual_stages, layers),
        ("--num-layers-per-virtual-pipeline-stage", "--pipeline-model-parallel-layout", layers),
        (virtual_stages, "--pipeline-model-parallel-layout", layers),
        ("--use-megatron-fsdp", "--use-torch-fsdp2", "parameters are sharded in one way"),
        (
            "--grad-reduce-in-bf16",
            "--accumulate-allreduce-grads-in-fp32",
            "gradients have one number format",
        ),
        ("--train-iters", "--train-samples", "both say how long training is"),
        ("--swiglu", "--squared-relu", "layers have one activation function"),
        ("--recompute-activations", "--recompute-granularity", "both say what is computed again"),
    ] {
        given.not_both(one, other, why)?;
    }
    let needs = [
        (
            "--overlap-param-gather",
            "--overlap-grad-reduce",
            "parameters are gathered beside what gradients are reduced beside",
        ),
        (
            "--tp-comm-overlap",
            "--sequence-parallel",
            "exchanges of a cut sequence are what is overlapped",
        ),
        ("--cp-comm-type", "--context-parallel-size", "there is nothing to exchange"),
        ("--recompute-modules", "--recompute-granularity", "modules are of selective recompute"),
    ];
    for (one, other, why) in needs {
        if given.has(one) && !given.has(other) {
            return Err(OptionError::Contradiction {
                one: format!("`{one}`"),
                other: format!("no `{other}`"),
                why: why.to_owned(),
            });
        }
    }
    Ok(())
}

/// Which layers each stage has, and how many stages each rank.
fn stages(given: &Given, pipeline: u32) -> Result<(StatedStages, u32), OptionError> {
    if let Some(text) = given.text("--pipeline-model-parallel-layout")? {
        let wrong = |works: &str| OptionError::Value {
            name: "--pipeline-model-parallel-layout".to_owned(),
            value: text.to_owned(),
            works: works.to_owned(),
        };
        let counts = blocks_of(text).ok_or_else(|| {
            wrong("stages of `E`, `t`, `m` and `L` with `|` between them are expected, as in `Et*8|t*8L`")
        })?;
        let stages = counts.len() as u32;
        if !stages.is_multiple_of(pipeline) {
            return Err(wrong(&format!("{stages} stages do not divide over {pipeline} ranks")));
        }
        return Ok((StatedStages::Blocks(counts), stages / pipeline));
    }
    let [first, last] =
        ["--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"];
    let virtual_stages = given.count("--num-virtual-stages-per-pipeline-rank")?;
    let layers: Option<u32> = given.count("--num-layers")?;
    let accounts =
        ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"]
            .map(|name| given.has(name));
    let per_stage: Option<u32> = given.count("--num-layers-per-virtual-pipeline-stage")?;
    let virtual_stages: u32 = match (virtual_stages, per_stage, layers) {
        (Some(stages), _, _) => stages,
        (None, Some(each), Some(layers)) => {
            let counted = layers + accounts.map(u32::from).iter().sum::<u32>();
            let of_rank = counted / pipeline;
            if !counted.is_multiple_of(pipeline) || !of_rank.is_multiple_of(each) {
                return Err(OptionError::Value {
                    name: "--num-layers-per-virtual-pipeline-stage".to_owned(),
                    value: each.to_string(),
                    works: format!("{counted} layers on {pipeline} ranks do not divide so"),
                });
            }
            of_rank / each
        }
        _ => 1,
    };
    if pipeline == 1 {
        return Ok((StatedStages::Even, 1));
    }
    let [of_first, of_last]: [Option<u32>; 2] = [given.count(first)?, given.count(last)?];
    let Some(layers) = layers else { return Ok((StatedStages::Even, virtual_stages)) };
    if of_first.is_some() || of_last.is_some() {
        let left = layers.checked_sub(of_first.unwrap_or(0) + of_last.unwrap_or(0));
        let ranks = pipeline - u32::from(of_first.is_some()) - u32::from(of_last.is_some());
        let each = left.filter(|left| ranks == 0 || left.is_multiple_of(ranks));
        let each = each.map(|left| left.checked_div(ranks).unwrap_or(0));
        let of_rank = |rank: u32| match (rank, of_first, of_last) {
            (0, Some(first), _) => Some(first),
            (rank, _, Some(last)) if rank + 1 == pipeline => Some(last),
            _ => each,
        };
        return listed(pipeline, virtual_stages, of_rank, [false; 2], first);
    }
    if accounts != [false; 2] {
        let counted = layers + accounts.map(u32::from).iter().sum::<u32>();
        let each = counted.is_multiple_of(pipeline).then_some(counted / pipeline);
        return listed(
            pipeline,
            virtual_stages,
            |_| each,
            accounts,
            "--account-for-embedding-in-pipeline-split",
        );
    }
    Ok((StatedStages::Even, virtual_stages))
}

/// Blocks of stages where each rank has so many layers, embedding and head among these where they count as some.
fn listed(
    pipeline: u32,
    virtual_stages: u32,
    of_rank: impl Fn(u32) -> Option<u32>,
    counts: [bool; 2],
    name: &str,
) -> Result<(StatedStages, u32), OptionError> {
    let all = pipeline * virtual_stages;
    let of_stage = |stage: u32| {
        let own = of_rank(stage % pipeline)?;
        let ends = [stage == 0, stage + 1 == all];
        let beside = ends.iter().zip(counts).filter(|(is_end, counts)| **is_end && !counts).count();
        own.is_multiple_of(virtual_stages).then(|| own / virtual_stages + beside as u32)
    };
    let blocks: Option<Vec<u32>> = (0..all).map(of_stage).collect();
    let blocks = blocks.ok_or_else(|| OptionError::Value {
        name: name.to_owned(),
        value: String::new(),
        works: format!("the layers that are left do not divide over {pipeline} ranks of {virtual_stages} stages"),
    })?;
    Ok((StatedStages::Blocks(blocks), virtual_stages))
}

/// Blocks of each stage in the letters of a layout: `(..)*n` and `x*n` repeat.
fn blocks_of(text: &str) -> Option<Vec<u32>> {
    let text: String = text.chars().filter(|c| !c.is_whitespace() && *c != ',').collect();
    let mut plain = String::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (unit, after) = match rest.strip_prefix('(') {
            Some(inner) => inner.split_once(')')?,
            None => rest.split_at(rest.chars().next()?.len_utf8()),
        };
        let (times, after) = match after.strip_prefix('*') {
            Some(after) => {
                let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
                (after[..end].parse::<usize>().ok().filter(|it| *it <= 4096)?, &after[end..])
            }
            None => (1, after),
        };
        // Units within brackets may repeat letters themselves.
        let unit = if unit.contains('*') { repeated(unit)? } else { unit.to_owned() };
        plain.push_str(&unit.repeat(times));
        rest = after;
        if plain.len() > 1 << 20 {
            return None;
        }
    }
    let is_known = plain.chars().all(|c| "EtmL|".contains(c));
    let stages: Vec<u32> = plain.split('|').map(|stage| stage.len() as u32).collect();
    (is_known && plain.starts_with('E') && plain.ends_with('L')).then_some(stages)
}

/// Letters with `x*n` written out.
fn repeated(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut chars = text.chars().peekable();
    while let Some(letter) = chars.next() {
        let mut times = 1;
        if chars.next_if_eq(&'*').is_some() {
            let mut digits = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            times = digits.parse().ok().filter(|it| *it <= 4096)?;
        }
        plain.extend(std::iter::repeat_n(letter, times));
    }
    Some(plain)
}

fn zero_stage(given: &Given) -> Result<ZeroStage, OptionError> {
    if given.has("--use-torch-fsdp2") {
        let stays = given.has("--torch-fsdp2-no-reshard-after-forward");
        return Ok(if stays { ZeroStage::Gradients } else { ZeroStage::Parameters });
    }
    if !given.has("--use-megatron-fsdp") {
        let shards = given.has("--use-distributed-optimizer");
        return Ok(if shards { ZeroStage::OptimizerState } else { ZeroStage::None });
    }
    let strategies = [
        ("no_shard", ZeroStage::None),
        ("optim", ZeroStage::OptimizerState),
        ("optim_grads", ZeroStage::Gradients),
        ("optim_grads_params", ZeroStage::Parameters),
    ];
    let strategy = given.one_of("--data-parallel-sharding-strategy", &strategies)?;
    Ok(strategy.unwrap_or(ZeroStage::Parameters))
}

fn context_kind(given: &Given) -> Result<ContextParallelKind, OptionError> {
    let kinds = [
        ("p2p", ContextParallelKind::Ring),
        ("all_gather", ContextParallelKind::Ring),
        ("a2a", ContextParallelKind::AllToAll),
    ];
    Ok(given.one_of("--cp-comm-type", &kinds)?.unwrap_or_default())
}

fn recompute(given: &Given) -> Result<Recompute, OptionError> {
    let attention = RecomputeModules::new([RecomputeModule::Attention]);
    let granularities = [("full", true), ("selective", false)];
    let is_full = given.one_of("--recompute-granularity", &granularities)?;
    let is_full = is_full.or(given.has("--recompute-activations").then_some(false));
    match is_full {
        None => Ok(Recompute::None),
        Some(true) => {
            let methods = [("uniform", false), ("block", true)];
            let is_block = given.one_of("--recompute-method", &methods)?;
            let layers = given.count("--recompute-num-layers")?;
            match (is_block, layers) {
                (Some(true), Some(layers)) => Ok(Recompute::FirstLayers(layers)),
                (Some(_), _) => Ok(Recompute::Full),
                (None, _) => Err(OptionError::Missing {
                    name: "--recompute-method".to_owned(),
                    works: "full recompute takes `uniform` or `block`".to_owned(),
                }),
            }
        }
        Some(false) => {
            let Some(names) = given.values("--recompute-modules")? else {
                return Ok(attention.map_or(Recompute::None, Recompute::Modules));
            };
            let module = |name: &&str| {
                let of = |it: &RecomputeModule| it.names().1.unwrap_or(it.names().0) == *name;
                let known = RecomputeModule::ALL
                    .into_iter()
                    .filter(|it| *it != RecomputeModule::Activations);
                known.into_iter().find(of).ok_or_else(|| OptionError::Value {
                    name: "--recompute-modules".to_owned(),
                    value: (*name).to_owned(),
                    works: "core_attn, moe_act, layernorm, mla_up_proj, mlp, moe and shared_experts are known".to_owned(),
                })
            };
            let modules: Vec<RecomputeModule> =
                names.iter().map(module).collect::<Result<_, _>>()?;
            Ok(RecomputeModules::new(modules).map_or(Recompute::None, Recompute::Modules))
        }
    }
}

fn offload(given: &Given) -> Result<Offload, OptionError> {
    let layers =
        given.count::<u32>("--cpu-offloading-num-layers")?.and_then(std::num::NonZeroU32::new);
    let activations = layers.map_or(OffloadedActivations::None, OffloadedActivations::Blocks);
    Ok(Offload { optimizer: given.has("--optimizer-cpu-offload"), activations, ..Offload::NONE })
}

fn switches(given: &Given) -> Result<Switches, OptionError> {
    let is_hybrid = [("deepep", false), ("hybridep", true)];
    let is_hybrid = given.one_of("--moe-flex-dispatcher-backend", &is_hybrid)?.unwrap_or(false);
    let flex = if is_hybrid { TokenDispatcher::HybridEp } else { TokenDispatcher::DeepEp };
    let kinds = [
        ("alltoall", TokenDispatcher::AllToAll),
        ("allgather", TokenDispatcher::AllGather),
        ("flex", flex),
    ];
    // Megatron's own default gathers; a model without experts has none.
    let usual = if given.has("--num-experts") {
        TokenDispatcher::AllGather
    } else {
        TokenDispatcher::AllToAll
    };
    let graphs = [
        ("none", CudaGraphs::None),
        ("local", CudaGraphs::Layers),
        ("transformer_engine", CudaGraphs::Layers),
        ("full_iteration", CudaGraphs::Iteration),
    ];
    Ok(Switches {
        token_dispatcher: given.one_of("--moe-token-dispatcher-type", &kinds)?.unwrap_or(usual),
        expert_overlap: if given.has("--overlap-moe-expert-parallel-comm") {
            ExpertOverlap::MicroBatch
        } else {
            ExpertOverlap::None
        },
        cuda_graphs: given.one_of("--cuda-graph-impl", &graphs)?.unwrap_or_default(),
    })
}

fn training(source: &Source<'_>, given: &Given) -> Result<StatedTraining, ImportError> {
    let sixteen = if given.has("--bf16") {
        Precision::Bf16
    } else if given.has("--fp16") {
        Precision::Fp16
    } else {
        Precision::Fp32
    };
    let precision = match (given.has("--fp8-format"), given.has("--fp4-format")) {
        (true, _) => Precision::Fp8,
        (_, true) => Precision::Fp4,
        _ => sixteen,
    };
    let is_momentum = given.text("--sgd-momentum")?.is_none_or(|it| it.parse() != Ok(0.0));
    let descent = if is_momentum { Optimizer::Momentum } else { Optimizer::Sgd };
    let optimizers = [("adam", Optimizer::AdamW), ("sgd", descent)];
    let formats = [("fp32", false), ("bf16", true)];
    // Megatron adds up in fp32 where weights are in bf16, unless it is told otherwise.
    let reduces_in_16 = given.has("--grad-reduce-in-bf16");
    let adds_in_32 = given.has("--accumulate-allreduce-grads-in-fp32");
    Ok(StatedTraining {
        sequence_length: agreed(
            given.count("--seq-length")?,
            "--seq-length",
            source.stated.sequence_length,
            "--seq-len",
        )?,
        global_batch_size: agreed(
            given.count("--global-batch-size")?,
            "--global-batch-size",
            source.stated.global_batch_size,
            "--global-batch-size",
        )?,
        num_micro_batches: None,
        precision,
        optimizer: given.one_of("--optimizer", &optimizers)?.unwrap_or_default(),
        fp32_gradients: adds_in_32 || sixteen == Precision::Bf16 && !reduces_in_16,
        bf16_moments: given.has("--use-precision-aware-optimizer")
            && given.one_of("--exp-avg-dtype", &formats)?.unwrap_or(false),
        no_master_weights: false,
    })
}

/// Megatron-Core, with what the options switch on and off of its habits.
fn framework(
    given: &Given,
    layout: &LayoutSpec,
    num_gpus: Option<u32>,
) -> Result<Framework, OptionError> {
    let mut framework = Target::Megatron.framework();
    let others = layout.tensor_parallel * layout.pipeline_parallel;
    let has_replicas = num_gpus.is_none_or(|gpus| gpus > others);
    if has_replicas && !given.has("--overlap-grad-reduce") {
        framework.gradients.reduced = WhenReduced::AfterBackward;
    }
    let gathers = has_replicas && layout.zero_stage != ZeroStage::None;
    if gathers && !given.has("--overlap-param-gather") {
        framework.parameters.gathered = UpdatedParameters::BeforeForward;
    }
    if layout.sequence_parallel && !given.has("--tp-comm-overlap") {
        framework.tensor_parallel.overlap = TensorOverlap::Gradients;
    }
    if !given.has("--cross-entropy-loss-fusion") {
        framework.kernels.loss.gradient = LossGradient::Apart;
    }
    let multiple = given.count::<u32>("--make-vocab-size-divisible-by")?.unwrap_or(128);
    framework.tensor_parallel.vocabulary_multiple = multiple;
    Ok(framework)
}

/// What is said of the model.
fn model(given: &Given) -> Result<Vec<Argument>, OptionError> {
    let mut all = Vec::new();
    for name in OF_MODEL {
        if let Some(values) = given.values(name)? {
            all.push(Argument::values(name, values, ""));
        }
    }
    Ok(all)
}
