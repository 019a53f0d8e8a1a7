//! What a search is asked: a problem, and the files that it comes from.

use std::io::Write as _;

use anyhow::Context;
use ir::cluster::Cluster;
use ir::graph::{Adapters, Graph};
use planner::problem::{Choices, GivenStages, Problem};

use super::args::ProblemArgs;
use super::files::{ModelFile, read_cluster, read_model};

/// A problem with the files that it came from.
pub(crate) struct Input {
    pub(crate) file: ModelFile,
    pub(crate) cluster: Cluster,
    pub(crate) adapters: Option<Adapters>,
    pub(crate) graph: Graph,
    pub(crate) choices: Choices,
    pub(crate) problem: Problem,
}

/// Reads a problem's files. `stages` are those that are given by hand.
pub(crate) fn read(args: &ProblemArgs, stages: Option<&[u32]>) -> anyhow::Result<Input> {
    let file = read_model(&args.model)?;
    let cluster = read_cluster(&args.cluster)?;
    let adapters = args.adapters.adapters();
    let graph = file.model.training_graph(args.multi_token_prediction, adapters.as_ref())?;
    let choices = Choices {
        sequence_length: args.seq_len,
        global_batch_size: args.global_batch_size,
        precision: args.precision,
        optimizer: args.optimizer,
        fp32_gradients: args.fp32_gradients,
        bf16_moments: args.bf16_moments,
        framework: args.framework,
        data_parallel_method: args.data_parallel_method,
        gradient_compression: args.gradient_compression,
    };
    let training = choices.resolve(&file.model, graph.has_sequence(), &cluster.gpu, args.gpus);
    let stages = stages.map(|stages| GivenStages::new(&file.model, &graph, stages)).transpose();
    let stages = stages.context("`--stages`")?;
    let problem = Problem::new(graph.clone(), training, &cluster, args.gpus)?.with_stages(stages);
    Ok(Input { file, cluster, adapters, graph, choices, problem })
}

/// Says on stderr where a sequence is longer than the model was made for.
pub(crate) fn warn_of_long_sequence(input: &Input) {
    let length = input.problem.training.sequence_length;
    let longest = input.file.model.max_position_embeddings();
    if let Some(longest) = longest.filter(|longest| *longest < length) {
        // A closed stderr leaves nobody to tell.
        let _ = writeln!(
            std::io::stderr(),
            "warning: a sequence of {length} is longer than the {longest} positions that the model was \
             made for"
        );
    }
}

/// The command line, as it can be given again.
pub(crate) fn command() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:".contains(c);
    let words = std::env::args().skip(1).map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    std::iter::once("planner".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
