//! Number of ranks that a script starts, from the options of its launcher.

use std::collections::BTreeMap;

use ir::text::{Typeset, typeset};

use super::error::ImportError;
use super::file::basename;
use super::launch::{NUM_NODES, RANKS_PER_NODE};
use super::shell::{Command, Script, Word, count};

/// Refuses launcher options with typographic characters, or that start more nodes or ranks than the job has.
pub(super) fn check_start(
    before: &[Word],
    set: &BTreeMap<String, String>,
) -> Result<(), ImportError> {
    let typeset = before.iter().find_map(|word| Some((word, typeset(&word.text)?)));
    if let Some((word, Typeset { what, plain })) = typeset {
        let what = format!("of `{}`: {what}", word.text);
        return Err(ImportError::unknown(what, format!("`{plain}`")));
    }
    let has = |name: &str| set.get(name)?.parse::<u64>().ok();
    let (Some(nodes), Some(each)) = (has(NUM_NODES), has(RANKS_PER_NODE)) else { return Ok(()) };
    let is_mpi = before.iter().any(|it| ["mpirun", "mpiexec"].contains(&basename(&it.text)));
    let starts_others = is_torchrun(before);
    let counted = [
        (&["--nnodes"][..], true, nodes, "nodes"),
        (&["--nproc-per-node", "--nproc_per_node"], true, each, "GPUs on each node"),
        (
            &["--np", "-np", "-n", "--n"],
            is_mpi && !starts_others,
            nodes.saturating_mul(each),
            "GPUs",
        ),
    ];
    for (names, is_read, has, what) in counted {
        let asked = option(before, names).filter(|asked| is_read && u64::from(*asked) > has);
        if let Some(asked) = asked {
            return Err(ImportError::unknown(
                format!("`{}` is {asked}, but the job has {has} {what}", names[0]),
                format!("{has}, or as many {what} as are asked for"),
            ));
        }
    }
    Ok(())
}

/// Returns whether an option sets the number of nodes, even if its value is unknown.
fn names_nodes(before: &[Word]) -> bool {
    before.iter().any(|it| ["--nnodes", "--num_nodes"].iter().any(|name| it.text.starts_with(name)))
}

/// Integer value of the first of some options that is given: `-N 4`, `--nodes=4`, `-N4`.
fn option(before: &[Word], names: &[&str]) -> Option<u32> {
    let value = before.iter().enumerate().find_map(|(place, word)| {
        let joined = |name: &&str| {
            let rest = word.text.strip_prefix(*name)?;
            let is_short = !name.starts_with("--") && name.len() == 2;
            match rest.strip_prefix('=') {
                Some(value) => Some(value),
                None if rest.is_empty() => Some(before.get(place + 1)?.text.as_str()),
                None => {
                    (is_short && rest.starts_with(|c: char| c.is_ascii_digit())).then_some(rest)
                }
            }
        };
        names.iter().find_map(joined)
    })?;
    count(value)
}

/// Number of ranks on each node, if the launcher or the job says.
pub(super) fn ranks_per_node(
    script: &Script,
    before: &[Word],
    set: &BTreeMap<String, String>,
) -> Option<u32> {
    let directive = |name: &str| script.directives.get(name).and_then(|it| count(it));
    let of_job = ["--gpus-per-node", "--gres"].iter().find_map(|it| directive(it));
    launched_per_node(before, set).or(of_job)
}

/// Number of ranks that the launcher starts on each node, if it says.
fn launched_per_node(before: &[Word], set: &BTreeMap<String, String>) -> Option<u32> {
    let given = option(before, &["--nproc-per-node", "--nproc_per_node"]);
    let given = given.or_else(|| option(before, &["--num_gpus"]));
    given.or_else(|| set.get(RANKS_PER_NODE)?.parse().ok())
}

/// Programs and modules of PyTorch that start ranks.
const TORCHRUN: [&str; 3] = ["torchrun", "torch.distributed.run", "torch.distributed.launch"];

/// Programs that start their ranks themselves, even if the job starts them as a single task.
const STARTERS: [&str; 4] = ["swift", "megatron", "llamafactory-cli", "lmf"];

/// Returns whether PyTorch starts the ranks of a program.
pub(super) fn is_torchrun(before: &[Word]) -> bool {
    before.iter().any(|it| TORCHRUN.contains(&basename(&it.text)))
}

/// Number of GPUs in a list such as `host1:0,1@host2:2`, if it names them all.
fn slots_of(list: &str) -> Option<u32> {
    let of_host = |host: &str| Some(host.split_once(':')?.1.split(',').count() as u32);
    list.split('@').map(of_host).sum()
}

/// Number of ranks that a script starts, if it says; `before` has the launcher and the name of the program that it
/// starts.
pub(super) fn ranks(
    script: &Script,
    before: &[Word],
    set: &BTreeMap<String, String>,
) -> Option<u32> {
    let option = |names: &[&str]| option(before, names);
    let variable = |name: &str| set.get(name)?.parse::<u32>().ok();
    let starts = |names: &[&str]| before.iter().any(|it| names.contains(&basename(&it.text)));
    let is_torchrun = is_torchrun(before);
    let is_starter = before.last().is_some_and(|it| STARTERS.contains(&basename(&it.text)));
    let starts_others = is_torchrun || is_starter || starts(&["accelerate", "deepspeed"]);
    // MPI or Slurm starts each rank as a process, unless it starts another launcher.
    if starts(&["mpirun", "mpiexec", "aprun"])
        && !starts_others
        && let Some(ranks) = option(&["--np", "-np", "-n", "--n"])
    {
        return Some(ranks);
    }
    if starts(&["deepspeed"])
        && let Some(slots) = option_text(before, "--include")
    {
        return slots_of(slots);
    }
    let directive = |names: &[&str]| {
        names.iter().find_map(|name| script.directives.get(*name)).and_then(|it| count(it))
    };
    let of_slurm = |names: &[&str]| if starts(&["srun"]) { option(names) } else { None };
    if !starts_others && let Some(ranks) = of_slurm(&["--ntasks", "-n"]) {
        return Some(ranks);
    }
    let slurm_nodes = of_slurm(&["--nodes", "-N"]).or_else(|| directive(&["--nodes", "-N"]));
    let nodes = option(&["--nnodes", "--num_nodes"]).or(variable(NUM_NODES));
    let each = launched_per_node(before, set);
    let is_standalone = before.iter().any(|it| it.text == "--standalone");
    // `torchrun` starts one node if no number of nodes is given.
    // So does `deepspeed` without a list of hosts.
    let has_hosts =
        ["--hostfile", "-H"].iter().any(|name| before.iter().any(|it| it.text == *name));
    let is_local = is_torchrun || starts(&["deepspeed"]) && !has_hosts;
    let is_one = is_standalone || (is_local && slurm_nodes.is_none() && !names_nodes(before));
    if let (Some(nodes), Some(each)) = (nodes.or(is_one.then_some(1)).or(slurm_nodes), each) {
        return nodes.checked_mul(each);
    }
    let of_node = of_slurm(&["--ntasks-per-node"]).filter(|_| !starts_others);
    let of_node = of_node
        .or_else(|| directive(&["--gpus-per-node", "--gres"]))
        .or_else(|| directive(&["--ntasks-per-node"]).filter(|_| !starts_others))
        .or_else(|| of_slurm(&["--gpus-per-node", "--gres"]));
    slurm_nodes?.checked_mul(of_node?)
}

/// The words of `accelerate launch`, with the ranks of all nodes where AI2's `mason.py` starts it on each of several.
///
/// # Source
///
/// allenai/open-instruct, `make_internal_command` of `mason.py`.
pub(super) fn on_nodes_of_mason(before: &[Word], mut words: Vec<Word>) -> Vec<Word> {
    let is_mason = before.iter().any(|it| basename(&it.text) == "mason.py");
    let nodes = option(before, &["--num_nodes"]).filter(|_| is_mason).unwrap_or(1);
    if let Some(place) = words.iter().position(|it| it.text == "--num_processes")
        && let Some(number) = words.get_mut(place + 1)
        && let Some(each) = count::<u32>(&number.text)
    {
        number.text = each.saturating_mul(nodes).to_string();
    }
    words
}

/// Programs that start a rank on each GPU that they see.
const ON_ALL_VISIBLE: [&str; 3] = ["llamafactory-cli", "lmf", "deepspeed"];

/// Number of ranks that a command starts, from environment variables: `NPROC_PER_NODE` and `NNODES` for a program that
/// reads them, else the number of visible GPUs.
pub(super) fn ranks_by_variables(
    script: &Script,
    command: &Command,
    starts_ranks: bool,
) -> Option<u32> {
    let value = |name: &str| command.variables.get(name).or_else(|| script.variables.get(name));
    let each = value("NPROC_PER_NODE").filter(|_| starts_ranks);
    if let Some(each) = each {
        let nodes = value("NNODES").map_or(Some(1), |it| it.parse().ok());
        return each.parse::<u32>().ok()?.checked_mul(nodes?);
    }
    let count = num_visible(&value)?;
    let starts_all = command.words.iter().any(|it| ON_ALL_VISIBLE.contains(&basename(&it.text)))
        || option_text(&command.words, "--nproc").is_some_and(|it| ["gpu", "auto"].contains(&it));
    (count == 1 || count > 1 && starts_all).then_some(count)
}

/// Number of GPUs that environment variables make visible to a command.
fn num_visible<'a>(value: &dyn Fn(&str) -> Option<&'a String>) -> Option<u32> {
    let names = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];
    let visible = names.iter().find_map(|it| value(it))?;
    let is_device = |it: &str| it.trim().parse::<u32>().is_ok();
    Some(visible.split(',').filter(|it| is_device(it)).count() as u32)
}

/// Refuses ranks that each see several GPUs and spread the model's layers over them.
pub(super) fn check_spread(script: &Script, command: &Command) -> Result<(), ImportError> {
    let value = |name: &str| command.variables.get(name).or_else(|| script.variables.get(name));
    let ranks: u32 = value("NPROC_PER_NODE").and_then(|it| it.parse().ok()).unwrap_or(1);
    let visible = num_visible(&value).unwrap_or(1);
    if visible < ranks.saturating_mul(2) {
        return Ok(());
    }
    let each = visible / ranks.max(1);
    Err(ImportError::unknown(
        format!(
            "each of the {ranks} ranks spreads its layers over {each} GPUs (`device_map`), which no plan has"
        ),
        format!("`NPROC_PER_NODE={visible}`"),
    ))
}

/// Value of the first option with a prefix.
pub(super) fn option_text<'a>(words: &'a [Word], start: &str) -> Option<&'a str> {
    let place = words.iter().position(|it| it.text.starts_with(start))?;
    let inline = words[place].text.split_once('=').map(|it| it.1);
    inline.or_else(|| Some(words.get(place + 1)?.text.as_str()))
}
