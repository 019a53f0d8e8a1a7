//! The program that runs on every rank, and the parts of launch scripts that start it.

use std::fmt::Write as _;

use super::super::argument::{Section, as_array, quoted};
use super::super::file::File;
use super::super::view::ExportView;

/// Name of the file with the names of the nodes.
pub(super) const HOSTFILE: &str = "hostfile";

/// Name, value and reason of an environment variable.
pub(in super::super) type Variable = [&'static str; 3];

/// Environment variable of PyTorch's allocator that reduces its waste; predictions assume that the waste is small.
///
/// # Source
///
/// NVIDIA-NeMo/RL issue 919, by an author of FSDP2: Qwen3-30B-A3B under FSDP2 fits 8 GPUs of 80 GB only with it.
pub(in super::super) const EXPANDABLE_SEGMENTS: Variable = [
    "PYTORCH_CUDA_ALLOC_CONF",
    "expandable_segments:True",
    "less of the allocator's memory lies idle",
];

/// Environment variable that gives kernels a single queue.
pub(in super::super) const ONE_QUEUE: Variable = [
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "1",
    "kernels start in the order they are launched in, so exchanges start first",
];

/// A program that is started on every rank, with its arguments.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Program {
    /// Name of the program, used in file names.
    pub(in super::super) name: &'static str,
    /// Words of the command before the arguments: a script or module for Python, or the executor's command.
    pub(in super::super) command: Vec<String>,
    /// Environment variables: name, value, reason.
    pub(in super::super) environment: Vec<Variable>,
    /// Arguments that the plan decides, by topic.
    pub(in super::super) sections: Vec<Section>,
    /// Arguments that the user decides, such as data, steps and learning rates.
    pub(in super::super) own: Vec<Section>,
    /// Words after all other arguments.
    pub(in super::super) last: Vec<String>,
    /// Process launcher on each node.
    pub(in super::super) starter: Starter,
    /// Files that the program reads, in the folder of the script.
    pub(in super::super) extra_files: Vec<File>,
}

impl Program {
    /// A word quoted for a shell; if it names a file next to the script, the path of that file.
    fn word(&self, word: &str) -> String {
        let is_extra_file = self.extra_files.iter().any(|file| file.name == word);
        if is_extra_file { format!("\"$HERE/{word}\"") } else { quoted(word) }
    }
}

/// Process launcher: the program that starts the ranks of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Starter {
    /// PyTorch's `torchrun`.
    #[default]
    Torchrun,
    /// `accelerate launch` with `accelerate.yaml`; the number of micro-batches is passed as a flag.
    Accelerate { num_micro_batches: u32 },
    /// None: MPI starts each rank as a process.
    Mpi,
}

impl Starter {
    /// Returns whether the ranks are started by `accelerate launch`, which reads a file in the script's folder.
    pub(super) const fn is_accelerate(self) -> bool {
        matches!(self, Self::Accelerate { .. })
    }

    /// Line that exports the script's folder, for starters that run a nested shell which reads it.
    pub(super) const fn export_here(self) -> &'static str {
        if self.is_accelerate() { "export HERE\n" } else { "" }
    }

    /// Shell words that start a node's ranks; they use `NUM_NODES`, `GPUS_PER_NODE`, `NODE_RANK`, `MASTER_ADDR` and
    /// `MASTER_PORT`.
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

/// Shell line that sets `HERE` to the folder of the running script.
pub(super) const HERE: &str = "HERE=$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" && pwd)";

/// Lines that `export` the variables of the program and of the network. They follow `here`, the line that sets `HERE`.
pub(super) fn exports(view: &ExportView<'_>, program: &Program, here: &str) -> String {
    let mut text = String::new();
    if !program.extra_files.is_empty() {
        let _ = writeln!(text, "# Where this script lies, and the files that it reads.\n{here}\n");
    }
    for [name, value, why] in program.environment.iter().chain(&network(view)) {
        let _ = writeln!(text, "# {why}\nexport {name}={value}");
    }
    text
}

/// Names of the variables that [`exports`] sets.
pub(super) fn names(view: &ExportView<'_>, program: &Program) -> Vec<&'static str> {
    program.environment.iter().chain(&network(view)).map(|[name, ..]| *name).collect()
}

/// NCCL's environment variables that a plan's ranks need.
fn network(view: &ExportView<'_>) -> Vec<Variable> {
    let [nodes, _] = view.nodes();
    let mut all = vec![[
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "1",
        "a rank that fails ends the others, instead of leaving them to wait",
    ]];
    if nodes > 1 {
        let why = "seconds, not a fraction of one, until a link that does not answer is given up";
        all.push(["NCCL_IB_TIMEOUT", "22", why]);
    }
    all
}

/// Arguments as shell arrays, `PLAN_ARGUMENTS` and `OWN_ARGUMENTS`; each is left out if empty.
pub(super) fn arrays(program: &Program) -> String {
    let mut text = String::new();
    let word = |word: &str| program.word(word);
    if !program.sections.is_empty() {
        text.push_str(&as_array("PLAN_ARGUMENTS", &program.sections, &word));
        text.push('\n');
    }
    if !program.own.is_empty() {
        text.push_str(
            "# Yours: the plan says nothing of data, steps and learning rates. What follows on the command line is\n\
             # added.\n",
        );
        text.push_str(&as_array("OWN_ARGUMENTS", &program.own, &word));
    }
    text
}

/// Command of a rank in a script, to follow the words of the process launcher.
pub(super) fn command(program: &Program) -> String {
    let mut words: Vec<String> = program.command.iter().map(|word| program.word(word)).collect();
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
