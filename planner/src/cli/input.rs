//! Input of a search: a problem, and the files from which it was read.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use cost_models::frameworks;
use cost_models::kernels::Device;
use ir::cluster::{Cluster, Gpu};
use ir::documents::Documents;
use ir::framework::{Framework, IDEAL, JobFacts, KernelChoice};
use ir::graph::{Adapters, Recompute};
use ir::layout::{PartialLayout, multiples_around};
use ir::model::{Description, GraphOptions, Model};
use ir::plan::{Plan, Training};
use ir::replication::DataParallelMethod;
use ir::text::is_fit_to_print;
use ir::units::Bytes;
use planner_core::problem::{
    Choices, GivenStages, LARGEST_BATCH, ON_GPUS, Problem, ProblemError, attention_kernel,
    default_framework, usual_load, usual_precision_with, with_usual_modules,
};
use planner_tools::interchange::lacked_by_tools;
use planner_tools::topology::{Topology, slower_within};

use super::files::{
    LARGEST_FILE, counted_nodes, read_as, read_cluster, read_document_lengths, read_expert_load,
    read_framework,
};
use super::idle::refuse_idle;
use super::models::{ModelFile, read_model_as};
use super::setting::TrainingArgs;
use super::tables::count;
use command_line::terminal::tell;

/// A problem, with the files from which it was read.
pub(crate) struct Input {
    pub(crate) file: ModelFile,
    pub(crate) cluster: Cluster,
    pub(crate) adapters: Option<Adapters>,
    pub(crate) choices: Choices,
    /// The framework that was named or chosen by default.
    pub(crate) framework: Framework,
    /// Reason why the usual framework was not chosen, if none was named.
    pub(crate) why_not_first: Option<String>,
    /// Features of the named layout that the framework does not support, though its step is predicted.
    pub(crate) lacks: Vec<String>,
    pub(crate) problem: Problem,
    /// The problem on all nodes, if nodes of several kinds were narrowed to those with the fastest step.
    pub(crate) all_nodes: Option<Problem>,
    /// The problem on all nodes without the user's decisions.
    pub(crate) open: Problem,
}

impl Input {
    /// The problem with all nodes to choose from.
    pub(crate) fn on_all_nodes(&self) -> &Problem {
        self.all_nodes.as_ref().unwrap_or(&self.problem)
    }
}

/// Decisions of the user that are part of the problem.
#[derive(Clone, Copy, Default)]
pub(crate) struct Constraints<'a> {
    /// Layers of each stage.
    pub(crate) stages: Option<&'a [u32]>,
    /// Constraints on the layout.
    pub(crate) layout: PartialLayout,
    /// True if a named layout is evaluated even though the framework may not support it.
    pub(crate) is_named: bool,
}

/// Reads the files of a problem and builds it.
pub(crate) fn read(
    model: &Path,
    gpus: u32,
    args: &TrainingArgs,
    constraints: &Constraints<'_>,
) -> anyhow::Result<Input> {
    let file = read_model_as(model, args.read_as.as_deref())?;
    let cluster = with_gpus_per_node(read_cluster(&args.cluster)?, args.gpus_per_node)?;
    // A group of equal nodes is an ordinary cluster, which may have any number of nodes.
    if let Some(nodes) = counted_nodes(&args.cluster).filter(|_| !cluster.has_unlike_gpus()) {
        let all = nodes.saturating_mul(cluster.gpus_per_node);
        ensure!(all == gpus, ProblemError::GpusOfGroups { num_gpus: gpus, all });
    }
    let cluster = with_topology(cluster, args.topology.as_deref(), gpus)?;
    let adapters = args.adapters.adapters();
    let named = args.framework.as_deref().map(read_framework).transpose()?;
    let attention = named.as_ref().map(attention_kernel).unwrap_or_default();
    let options = GraphOptions { attention, ..args.parts.options() };
    let graph = file.model.training_graph(options, adapters.as_ref())?;
    let choices = Choices {
        sequence_length: args.seq_len,
        global_batch_size: args.global_batch_size,
        precision: args.precision,
        optimizer: args.optimizer,
        fp32_gradients: args.fp32_gradients,
        bf16_moments: args.bf16_moments,
        no_master_weights: args.no_master_weights,
        data_parallel_method: args.data_parallel_method,
        gradient_compression: args.gradient_compression,
    };
    let resolved = choices.resolve(&file.model, graph.has_sequence(), &cluster, gpus);
    let usual = named.as_ref().and_then(|named| usual_precision_with(&cluster, named));
    let precision = args.precision.or(usual).unwrap_or(resolved.precision);
    let training = Training { precision, ..resolved };
    if args.global_batch_size.is_some() && graph.has_sequence() {
        refuse_batch_of_tokens(&training, gpus)?;
    }
    refuse_idle(args, &constraints.layout, (&file.model, &graph), &training)?;
    let ranks = constraints.layout.pipeline_parallel.one().filter(|ranks| *ranks > 0);
    let stages =
        constraints.stages.map(|stages| GivenStages::new(&file.model, &graph, stages, ranks));
    let stages = stages.transpose().context("`--stages`")?;
    let facts = JobFacts::of(&graph);
    let (framework, why_not_first) = named.map_or_else(
        || {
            let is_transformer = matches!(file.model.description, Description::Transformer(_));
            let gpus = (cluster.gpu.architecture, cluster.has_unlike_gpus());
            let (loss, layout) = (args.loss, &constraints.layout);
            default_framework(gpus, is_transformer, &training, loss, layout, facts)
        },
        |named| (named, None),
    );
    let framework = with_options(framework, args, &cluster.gpu)?;
    let training = training.with_gradients_of(&framework.abilities, facts);
    let choices = Choices { fp32_gradients: training.fp32_gradients, ..choices };
    let usual = Training {
        data_parallel_method: DataParallelMethod::default(),
        gradient_compression: None,
        ..training
    };
    let open_graph = with_usual_modules(graph.clone(), &framework, facts);
    let graph = match constraints.layout.recompute.one().and_then(Recompute::modules) {
        Some(modules) => graph.recomputing(modules).context("`--recompute`")?,
        None if constraints.layout.recompute.is_any() => open_graph.clone(),
        None => graph,
    };
    let documents = args.document_lengths.as_deref().map(|text| {
        let lengths = read_document_lengths(text, training.sequence_length)?;
        anyhow::Ok(Documents { lengths, packing: args.packing.unwrap_or_default() })
    });
    let documents = documents.transpose()?;
    let load =
        args.expert_load.as_deref().map_or_else(|| Ok(usual_load(&graph)), read_expert_load)?;
    let open = Problem::new(open_graph, usual, &cluster, framework.clone(), gpus)?;
    let mut open = leave_free(open, args.headroom)?
        .with_expert_load(load.clone())?
        .with_documents(documents.clone())?;
    let problem = Problem::new(graph, training, &cluster, framework.clone(), gpus)?;
    let mut problem =
        leave_free(problem, args.headroom)?.with_stages(stages).with_expert_load(load)?;
    problem = problem.with_documents(documents)?;
    let lacks =
        if constraints.is_named { problem.unsupported(&constraints.layout) } else { Vec::new() };
    if !lacks.is_empty() {
        open.hardware.framework.abilities = training.granted(framework.abilities.clone());
        problem = problem.granting(&constraints.layout);
    }
    Ok(Input {
        file,
        cluster,
        adapters,
        choices,
        framework,
        why_not_first,
        lacks,
        problem,
        all_nodes: None,
        open,
    })
}

/// The cluster with the facts that a topology file states about its network.
fn with_topology(cluster: Cluster, file: Option<&Path>, gpus: u32) -> anyhow::Result<Cluster> {
    let Some(path) = file else { return Ok(cluster) };
    if cluster.has_unlike_gpus() {
        bail!(
            "`--topology` describes nodes of one kind\nhint: `levels` of a cluster file join groups of several"
        );
    }
    if !path.exists() {
        bail!(
            "`--topology`: there is no file `{}`\nhint: Slurm's `topology.conf`, an NCCL topology or the output of \
             `nvidia-smi topo -m`; `--cluster` takes the name of GPUs or of a node",
            path.display()
        );
    }
    let cluster = read_as(path, LARGEST_FILE, &[], |text| {
        Ok(Topology::read(text)?.of_job(cluster.clone(), gpus)?)
    })?;
    if let Some(unlikely) = slower_within(&cluster) {
        tell(&format!("warning: {unlikely}"));
    }
    Ok(cluster)
}

/// The cluster with the number of GPUs that the job has on each node.
fn with_gpus_per_node(cluster: Cluster, gpus: Option<u32>) -> anyhow::Result<Cluster> {
    let Some(gpus) = gpus else { return Ok(cluster) };
    if cluster.has_unlike_gpus() {
        bail!(
            "`--gpus-per-node` needs nodes of one kind\nhint: a cluster file describes each of `groups`"
        );
    }
    let all = cluster.gpus_per_node;
    anyhow::ensure!(
        gpus <= all,
        "`--gpus-per-node {gpus}`: a node of {} has {all}\nhint: up to {all}; a cluster file describes other nodes",
        cluster.name
    );
    Ok(cluster.with_gpus_per_node(gpus))
}

/// The framework with the options that it leaves to its users.
fn with_options(
    mut framework: Framework,
    args: &TrainingArgs,
    gpu: &Gpu,
) -> anyhow::Result<Framework> {
    let name = framework.name.clone();
    if let Some(compile) = args.compile {
        framework = framework.with_compile(compile).with_context(|| {
            let works = frameworks_that(|it| it.abilities.compile.contains(&compile));
            format!("`--compile {compile}`: {name} does not let users choose what is compiled\nhint: {works}")
        })?;
    }
    if let Some(loss) = args.loss {
        framework = framework.with_loss(loss).with_context(|| {
            let works = frameworks_that(|it| it.clone().with_loss(loss).is_some());
            format!("`--loss {loss}`: {name} is not known to have such a loss\nhint: {works}")
        })?;
    }
    if let Some(choice) = args.kernels {
        if choice == KernelChoice::Tuned && !Device::gains_by_tuning(gpu) {
            let amd = "`--cluster mi300x`, `--cluster mi325x`, `--cluster mi355x`";
            bail!(
                "`--kernels tuned`: no step with such kernels was measured on GPUs like {}\nhint: {amd}",
                gpu.name
            );
        }
        framework.kernels.choice = choice;
    }
    Ok(framework)
}

/// Options that choose frameworks with a given ability.
fn frameworks_that(has: impl Fn(&Framework) -> bool) -> String {
    let works =
        frameworks::names().filter(|name| frameworks::preset(name).is_some_and(|it| has(&it)));
    works.map(|name| format!("`--framework {name}`")).collect::<Vec<_>>().join(", ")
}

/// Sets the headroom of a problem: `headroom` in GiB, or the default.
pub(crate) fn leave_free(problem: Problem, headroom: Option<f64>) -> anyhow::Result<Problem> {
    let memory = problem.least_memory();
    let Some(gib) = headroom else {
        let usual = problem.usual_headroom();
        return Ok(problem.with_headroom(usual));
    };
    let free = Bytes::from_f64(gib * f64::from(1u32 << 30));
    anyhow::ensure!(
        free < memory,
        "`--headroom` {gib} GiB leaves nothing of the {memory} of a GPU\nhint: less than {:.1}",
        memory.as_gib()
    );
    Ok(problem.with_headroom(free))
}

/// Warns on stderr of likely mistakes in a model's description.
pub(crate) fn warn_of_model(path: &Path, model: &Model) {
    for warning in &model.warnings {
        tell(&format!("warning: `{}`: {warning}", path.display()));
    }
}

/// Warns on stderr if the sequence is longer than the model's position embeddings.
pub(crate) fn warn_of_long_sequence(model: &Model, training: &Training) {
    let length = training.sequence_length;
    let longest = model.max_position_embeddings();
    if let Some(longest) = longest.filter(|longest| *longest < length) {
        tell(&format!(
            "warning: a sequence of {length} is longer than the {longest} positions that the model was \
             made for"
        ));
    }
}

/// Warns on stderr if a framework is not known to run on this hardware, and names frameworks that are.
pub(crate) fn warn_of_hardware(framework: &Framework, cluster: &Cluster) {
    let gpus: Vec<&Gpu> = cluster.gpus().collect();
    if gpus.iter().any(|gpu| gpu.architecture.platform() != gpus[0].architecture.platform()) {
        let names: Vec<&str> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
        tell(&format!(
            "warning: no maker's collectives (NCCL, RCCL and others) connect GPUs of different makers: {}\n\
             hint: a job for each; the plan holds only where the framework has collectives for all, such as FlagCX",
            names.join(", "),
        ));
    }
    let Some(gpu) = gpus.into_iter().find(|gpu| !framework.runs_on(gpu.architecture.platform()))
    else {
        return;
    };
    let platform = gpu.architecture.platform();
    let known = frameworks::names().filter_map(frameworks::preset);
    let others = known.filter(|it| it.runs_on.contains(&platform)).take(MOST_NAMED);
    let mut others: Vec<String> = others.map(|it| format!("`--framework {}`", it.name)).collect();
    if others.is_empty() {
        others = vec![format!("`--framework {IDEAL}`: the layouts and habits of none")];
    }
    let its: Vec<&str> = framework.runs_on.iter().map(|it| it.describe()).collect();
    tell(&format!(
        "warning: {} runs on {}, not on {} ({})\nhint: {}",
        framework.name,
        its.join(", "),
        platform.describe(),
        gpu.name,
        others.join(", "),
    ));
}

/// Largest number of frameworks in a hint.
const MOST_NAMED: usize = 4;

/// Warns on stderr if no tool of the framework can represent a plan's model, and names frameworks whose tools can.
pub(crate) fn warn_of_tools(input: &Input, plan: &Plan) {
    let Input { file, framework, problem, .. } = input;
    let lacked = |name: &str| lacked_by_tools(name, plan, &file.model, &problem.graph);
    let lacks = lacked(&framework.name);
    if lacks.is_empty() {
        return;
    }
    let others = ON_GPUS.into_iter().filter(|name| lacked(name).is_empty());
    let others: Vec<String> = others.map(|name| format!("`--framework {name}`")).collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!("{} plans for tools that can; ", others.join(" or "))
    };
    tell(&format!(
        "warning: `planner export` cannot express this model for {}: {}\nhint: {others}`planner run` trains models whose operators the \
         executor has",
        framework.name,
        lacks.join("; "),
    ));
}

/// Number of tokens in a step that no published run exceeds.
const MOST_USUAL_TOKENS: u64 = 1 << 28;

/// Refuses a batch that was given in tokens instead of sequences.
fn refuse_batch_of_tokens(training: &Training, num_gpus: u32) -> anyhow::Result<()> {
    /// Number of sequences per GPU in a step below which any batch is accepted.
    const MOST_FOR_A_GPU: u64 = 16;

    let (batch, length) = (training.global_batch_size, training.sequence_length);
    let tokens = batch.saturating_mul(length);
    let is_usual = tokens < MOST_USUAL_TOKENS || batch <= length;
    if is_usual || batch < MOST_FOR_A_GPU * u64::from(num_gpus) || batch > LARGEST_BATCH {
        return Ok(());
    }
    let sequences = (batch + length / 2) / length;
    anyhow::bail!(
        "`--global-batch-size` {batch} is counted in sequences: with {length} tokens in each a step has {}, more than any \
         published run\nhint: `--global-batch-size {sequences}`, if {} tokens in a step are meant",
        count(tokens as f64),
        count(batch as f64),
    )
}

/// Warns on stderr if the GPUs do not fill whole nodes, since launchers start equally many ranks on each node. The
/// warning names numbers of GPUs that fill nodes and that the fixed degrees divide.
pub(crate) fn warn_of_nodes(num_gpus: u32, cluster: &Cluster, fixed: &PartialLayout) {
    let node = cluster.gpus_per_node.max(1);
    if num_gpus <= node || num_gpus.is_multiple_of(node) {
        return;
    }
    let degrees = [
        fixed.tensor_parallel,
        fixed.context_parallel,
        fixed.pipeline_parallel,
        fixed.data_parallel,
    ];
    let product = degrees.iter().map(|it| u64::from(it.unwrap_or(1))).fold(1, u64::saturating_mul);
    // If all degrees are fixed, no other number of GPUs works.
    let is_open = degrees.iter().any(|it| it.one().is_none());
    let mut multiples = (1..=u64::from(node)).map(|nodes| product.saturating_mul(nodes));
    let unit = multiples.find(|it| it % u64::from(node) == 0);
    let hint = unit.filter(|_| is_open).map_or_else(String::new, |unit| {
        let gpus = multiples_around(num_gpus.into(), unit).replace(" or ", "` or `--gpus ");
        format!("\nhint: `--gpus {gpus}`")
    });
    tell(&format!(
        "warning: {num_gpus} GPUs do not fill nodes of {node}, on each of which a launcher starts as many ranks{hint}"
    ));
}

/// The command line, quoted for a shell.
pub(crate) fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(&word));
    std::iter::once("planner".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Quotes an argument for a shell: a plain argument is not quoted, any other is put into single quotes. Bash's `$'..'`
/// escapes are used if the argument is not UTF-8 or has unprintable characters.
fn quoted(word: &OsStr) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./=,:".contains(byte);
    let bytes = word.as_encoded_bytes();
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return word.to_string_lossy().into_owned();
    }
    match word.to_str() {
        Some(text) if is_fit_to_print(text) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => {
            let is_shown = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
            let escaped = bytes.iter().map(|byte| match *byte {
                quote @ (b'\'' | b'\\') => format!("\\{}", char::from(quote)),
                byte if is_shown(byte) => char::from(byte).to_string(),
                byte => format!("\\x{byte:02x}"),
            });
            format!("$'{}'", escaped.collect::<String>())
        }
    }
}
