//! What is started on every rank, and the parts of scripts that start it.

use std::fmt::Write as _;

use super::super::argument::{Section, as_array, quoted};
use super::super::file::File;
use super::super::view::ExportView;

/// A program with its arguments, to be started on every rank.
#[derive(Clone, Debug)]
pub(in super::super) struct Program {
    /// What it is called in the names of files.
    pub(in super::super) name: &'static str,
    /// The words of a command that is given to Python, before the arguments.
    pub(in super::super) command: Vec<String>,
    /// Environment variables, each with its reason.
    pub(in super::super) environment: Vec<(&'static str, String, String)>,
    /// Arguments of the plan, by topic.
    pub(in super::super) sections: Vec<Section>,
    /// Arguments that are the user's own, which the plan says nothing of.
    pub(in super::super) own: Vec<Section>,
    /// Words that come after all others.
    pub(in super::super) last: Vec<String>,
    /// What starts it on the GPUs of a node.
    pub(in super::super) starter: Starter,
    /// Files that lie beside the script and that it reads.
    pub(in super::super) beside: Vec<File>,
}

/// What starts a program on the GPUs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Starter {
    /// PyTorch's `torchrun`.
    Torchrun,
    /// `accelerate launch` with a configuration that lies beside, which has no place for the micro-batches of a step.
    Accelerate { num_micro_batches: u32 },
    /// Nothing: each rank is a process that MPI starts.
    Mpi,
}

impl Starter {
    /// Whether it reads a configuration that lies beside.
    pub(super) const fn is_accelerate(self) -> bool {
        matches!(self, Self::Accelerate { .. })
    }

    /// The words of a shell that start a node's ranks, where `NUM_NODES`, `GPUS_PER_NODE`, `NODE_RANK`, `MASTER_ADDR`
    /// and `MASTER_PORT` are set.
    pub(super) fn words(self) -> String {
        match self {
            Self::Torchrun => {
                "torchrun --nnodes \"$NUM_NODES\" --nproc-per-node \"$GPUS_PER_NODE\" --node-rank \"$NODE_RANK\" \\\n    \
                 --master-addr \"$MASTER_ADDR\" --master-port \"$MASTER_PORT\""
                    .to_owned()
            }
            Self::Accelerate { num_micro_batches } => format!(
                "accelerate launch --config_file \"$HERE/accelerate.yaml\" --machine_rank \"$NODE_RANK\" \\\n    \
                 --main_process_ip \"$MASTER_ADDR\" --main_process_port \"$MASTER_PORT\" \\\n    \
                 --gradient_accumulation_steps {num_micro_batches}"
            ),
            Self::Mpi => String::new(),
        }
    }
}

/// Lines of comment.
pub(super) fn comment(lines: &[String]) -> String {
    lines.iter().flat_map(|line| ["# ", line, "\n"]).collect()
}

/// How a script that is run where it lies finds its folder.
pub(super) const HERE: &str = "HERE=$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" && pwd)";

/// `export` lines, those of the program and those of the network; `here` finds the script's folder.
pub(super) fn exports(view: &ExportView<'_>, program: &Program, here: &str) -> String {
    let mut text = String::new();
    if !program.beside.is_empty() {
        let _ = writeln!(text, "# Where this script lies, and the files that it reads.\n{here}\n");
    }
    for (name, value, why) in program.environment.iter().chain(&network(view)) {
        let _ = writeln!(text, "# {why}\nexport {name}={value}");
    }
    text
}

/// Names of the variables that [`exports`] sets.
pub(super) fn names(view: &ExportView<'_>, program: &Program) -> Vec<&'static str> {
    program.environment.iter().chain(&network(view)).map(|(name, ..)| *name).collect()
}

/// NCCL's variables that matter for a plan.
fn network(view: &ExportView<'_>) -> Vec<(&'static str, String, String)> {
    let [nodes, _] = view.nodes();
    let mut all = vec![(
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "1".to_owned(),
        "a rank that fails ends the others, instead of leaving them to wait".to_owned(),
    )];
    if nodes > 1 {
        all.push((
            "NCCL_IB_TIMEOUT",
            "22".to_owned(),
            "seconds, not a fraction of one, until a link that does not answer is given up"
                .to_owned(),
        ));
    }
    all
}

/// The arguments as arrays of a shell; none where there are no arguments.
pub(super) fn arrays(program: &Program) -> String {
    let mut text = String::new();
    if !program.sections.is_empty() {
        text.push_str(&as_array("PLAN_ARGUMENTS", &program.sections));
        text.push('\n');
    }
    if !program.own.is_empty() {
        text.push_str(
            "# Yours: the plan says nothing of data, steps and learning rates. What follows on the command line is\n\
             # added.\n",
        );
        text.push_str(&as_array("OWN_ARGUMENTS", &program.own));
    }
    text
}

/// The command of a rank in a script, after what starts it.
pub(super) fn command(program: &Program) -> String {
    let is_here = |word: &str| program.beside.iter().any(|file| file.name == word);
    let of_word = |word: &String| {
        if is_here(word) { format!("\"$HERE/{word}\"") } else { quoted(word) }
    };
    let mut words: Vec<String> = program.command.iter().map(of_word).collect();
    if !program.sections.is_empty() {
        words.push("\"${PLAN_ARGUMENTS[@]}\"".to_owned());
    }
    if !program.own.is_empty() {
        words.push("\"${OWN_ARGUMENTS[@]}\"".to_owned());
    }
    words.push("\"$@\"".to_owned());
    words.extend(program.last.iter().map(|word| quoted(word)));
    words.join(" ")
}
