//! What is started on every rank, and the parts of scripts that start it.

use std::fmt::Write as _;

use super::super::argument::{Section, as_array, quoted};
use super::super::setting::Setting;

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
}

/// Lines of comment.
pub(super) fn comment(lines: &[String]) -> String {
    lines.iter().flat_map(|line| ["# ", line, "\n"]).collect()
}

/// `export` lines, those of the program and those of the network.
pub(super) fn exports(setting: &Setting<'_>, program: &Program) -> String {
    let mut text = String::new();
    for (name, value, why) in program.environment.iter().chain(&network(setting)) {
        let _ = writeln!(text, "# {why}\nexport {name}={value}");
    }
    text
}

/// NCCL's variables that matter for a plan.
fn network(setting: &Setting<'_>) -> Vec<(&'static str, String, String)> {
    let [nodes, _] = setting.nodes();
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

/// The arguments as arrays of a shell.
pub(super) fn arrays(program: &Program) -> String {
    let own = as_array("OWN_ARGUMENTS", &program.own);
    format!(
        "{}\n# Yours: the plan says nothing of data, steps and learning rates. What follows on the command line is\n\
         # added.\n{own}",
        as_array("PLAN_ARGUMENTS", &program.sections)
    )
}

/// The command of a rank in a script, after what starts it.
pub(super) fn command(program: &Program) -> String {
    let words: Vec<String> = program.command.iter().map(|word| quoted(word)).collect();
    format!("{} \"${{PLAN_ARGUMENTS[@]}}\" \"${{OWN_ARGUMENTS[@]}}\" \"$@\"", words.join(" "))
}
