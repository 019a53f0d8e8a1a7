//! Options of Slurm's batch jobs, and the variables that Slurm sets from them.

use std::collections::BTreeMap;
use std::str::FromStr;

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

/// Variables that Slurm sets, each with the options that give its value.
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

/// Number in a value such as `8`, `gpu:8` or `gpu:h100:8`; GPUs may be listed with other resources, as in
/// `gpu:8,lscratch:100`.
pub(in super::super) fn count<T: FromStr>(value: &str) -> Option<T> {
    let of_gpus = value.split(',').find(|it| it.starts_with("gpu:"));
    of_gpus.unwrap_or(value).rsplit(':').next()?.parse().ok()
}

/// Variables that Slurm sets for a job with these options, as far as the options determine them.
pub(super) fn variables(directives: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let number = |names: &[&str]| {
        names.iter().find_map(|name| directives.get(*name)).and_then(|it| count::<u64>(it))
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
