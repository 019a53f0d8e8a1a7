//! Options of Slurm's batch jobs, and the variables that it sets by them.

use std::collections::BTreeMap;

/// Options of `#SBATCH` lines, such as `--nodes=8`.
pub(super) fn directives(text: &str) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for line in text.lines() {
        let Some(option) = line.strip_prefix("#SBATCH ") else { continue };
        let option = option.split('#').next().unwrap_or_default();
        let mut name = String::new();
        for word in option.split_whitespace() {
            match word.split_once('=') {
                _ if !word.starts_with('-') => {
                    all.entry(name.clone()).and_modify(|it| word.clone_into(it));
                }
                Some((name, value)) => drop(all.insert(name.to_owned(), value.to_owned())),
                // A short option with its number, `-N4`.
                None if word.get(2..3).is_some_and(|it| it.chars().all(|c| c.is_ascii_digit())) => {
                    let (name, value) = word.split_at(2);
                    all.insert(name.to_owned(), value.to_owned());
                }
                None => {
                    word.clone_into(&mut name);
                    all.insert(name.clone(), String::new());
                }
            }
        }
    }
    all
}

/// Variables that Slurm sets, each with the options of which one has its value.
///
/// # Source
///
/// The manual of `sbatch`, section "Output environment variables".
const VARIABLES: [(&str, [&str; 2]); 8] = [
    ("SLURM_NNODES", ["--nodes", "-N"]),
    ("SLURM_JOB_NUM_NODES", ["--nodes", "-N"]),
    ("SLURM_NTASKS", ["--ntasks", "-n"]),
    ("SLURM_NPROCS", ["--ntasks", "-n"]),
    ("SLURM_NTASKS_PER_NODE", ["--ntasks-per-node", ""]),
    ("SLURM_CPUS_PER_TASK", ["--cpus-per-task", "-c"]),
    ("SLURM_GPUS_PER_NODE", ["--gpus-per-node", "--gres"]),
    ("SLURM_GPUS_ON_NODE", ["--gpus-per-node", "--gres"]),
];

/// Variables that Slurm sets for a job of these options, as far as the options have their values.
pub(super) fn variables(directives: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    // Of `gpu:h100:8`, the last is the number.
    let count = |value: &str| value.rsplit(':').next()?.parse::<u64>().ok();
    let number = |names: &[&str]| {
        names.iter().find_map(|name| directives.get(*name)).and_then(|it| count(it))
    };
    let of_nodes = || number(&["--nodes", "-N"])?.checked_mul(number(&["--ntasks-per-node"])?);
    let value = |name: &str, options: &[&str]| {
        let is_tasks = ["SLURM_NTASKS", "SLURM_NPROCS"].contains(&name);
        number(options).or_else(|| of_nodes().filter(|_| is_tasks))
    };
    let all = VARIABLES.iter();
    all.filter_map(|(name, options)| Some(((*name).to_owned(), value(name, options)?.to_string())))
        .collect()
}
