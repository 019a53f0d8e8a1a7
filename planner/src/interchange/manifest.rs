//! Jobs of Kubernetes: the script that a manifest runs, and on how many GPUs.

use std::collections::BTreeMap;
use std::path::Path;

use super::argument::quoted;
use super::file::basename;
use super::imported::ImportError;
use super::tree::Tree;

/// What a manifest runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// The script. Where the manifest has it as a block (`|`), it stands as it does there, with blanks for all else, so that
    /// lines and places are those of the manifest.
    pub text: String,
    /// Whether it does.
    pub is_in_place: bool,
    /// Files that the manifest mounts, by their names.
    pub files: BTreeMap<String, String>,
    /// Variables that its containers have.
    pub variables: BTreeMap<String, String>,
}

/// The job that a manifest is; nothing where a text is none.
///
/// # Errors
///
/// [`ImportError`] where the manifest cannot be read, or runs nothing.
pub fn job(text: &str) -> Result<Option<Job>, ImportError> {
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    if !(has("apiVersion:") && has("kind:")) {
        return Ok(None);
    }
    let documents = Tree::documents(text).map_err(|what| ImportError::Unknown {
        what,
        works: "the whole manifest, as `kubectl apply` takes it".to_owned(),
    })?;
    let of_kind =
        |tree: &&Tree| tree.get("kind").and_then(Tree::text).is_some_and(|it| it == "ConfigMap");
    let maps = documents.iter().filter(of_kind).filter_map(|it| it.get("data"));
    let files: BTreeMap<String, String> = maps
        .flat_map(Tree::keys)
        .filter_map(|(name, tree)| Some((name.clone(), tree.text()?.to_owned())))
        .collect();
    let mut pods = Vec::new();
    for document in documents.iter().filter(|it| !of_kind(it)) {
        add_pods(document, 1, &mut pods);
    }
    let started = pods.iter().find_map(|pod| Some((pod, script(pod.container, &files)?)));
    let Some((pod, script)) = started else {
        return Err(ImportError::Unknown {
            what: "no container of the manifest has a command that starts Python".to_owned(),
            works: "a manifest with the script in a `ConfigMap` or in a container's `command`"
                .to_owned(),
        });
    };
    let mut variables = variables(pod.container);
    // What Kubeflow's operator sets where `torchrun` is not told.
    let nodes: u64 = pods.iter().filter(|it| it.gpus > 0).map(|it| it.replicas).sum();
    let of_job = |name| documents.iter().find_map(|it| it.get("spec")?.get(name)?.number());
    let largest = pods.iter().map(|it| it.gpus).max().unwrap_or_default();
    let each = of_job("nprocPerNode").or(of_job("slotsPerWorker")).unwrap_or(largest);
    if nodes > 0 && each > 0 {
        variables.entry(NUM_NODES.to_owned()).or_insert(nodes.to_string());
        variables.entry(RANKS_PER_NODE.to_owned()).or_insert(each.to_string());
    }
    let masked = masked(text, &script);
    let is_in_place = masked.is_some();
    Ok(Some(Job { text: masked.unwrap_or(script), is_in_place, files, variables }))
}

/// The variable by which `torchrun` knows the nodes where no option says.
pub(super) const NUM_NODES: &str = "PET_NNODES";

/// The same of a node's ranks.
pub(super) const RANKS_PER_NODE: &str = "PET_NPROC_PER_NODE";

/// Containers that run alike.
struct Pod<'a> {
    container: &'a Tree,
    replicas: u64,
    gpus: u64,
}

/// All containers below a key, with how many there are of each.
fn add_pods<'a>(tree: &'a Tree, replicas: u64, pods: &mut Vec<Pod<'a>>) {
    let count = |name| tree.get(name).and_then(Tree::number);
    let replicas = replicas.saturating_mul(
        count("replicas").or(count("parallelism")).or(count("numNodes")).unwrap_or(1),
    );
    for (name, below) in tree.keys() {
        match (name.as_str(), below) {
            ("containers", Tree::List(all)) => pods.extend(all.iter().map(|container| {
                let limits = container.get("resources").and_then(|it| it.get("limits"));
                let mut limits = limits.into_iter().flat_map(Tree::keys);
                let gpus = limits.find_map(|(name, count)| {
                    name.ends_with("/gpu").then(|| count.number()).flatten()
                });
                Pod { container, replicas, gpus: gpus.unwrap_or_default() }
            })),
            (_, Tree::List(all)) => all.iter().for_each(|it| add_pods(it, replicas, pods)),
            _ => add_pods(below, replicas, pods),
        }
    }
}

fn variables(container: &Tree) -> BTreeMap<String, String> {
    let all = match container.get("env") {
        Some(Tree::List(all)) => all.as_slice(),
        _ => &[],
    };
    let of = |tree: &Tree| {
        Some((tree.get("name")?.text()?.to_owned(), tree.get("value")?.text()?.to_owned()))
    };
    all.iter().filter_map(of).collect()
}

/// The script that a container runs, given to a shell or as words; none where it starts no Python.
fn script(container: &Tree, files: &BTreeMap<String, String>) -> Option<String> {
    let words = ["command", "args"].into_iter().filter_map(|name| container.get(name));
    let words: Vec<&str> = words
        .flat_map(|tree| match tree {
            Tree::List(all) => all.as_slice(),
            other => std::slice::from_ref(other),
        })
        .filter_map(Tree::text)
        .collect();
    let shell = words.iter().position(|it| ["bash", "sh"].contains(&basename(it)));
    if let Some(place) = shell {
        let is_inline =
            words.get(place + 1).is_some_and(|it| it.starts_with('-') && it.ends_with('c'));
        if is_inline {
            return words.get(place + 2).map(|it| (*it).to_owned());
        }
        return words[place + 1..].iter().find_map(|it| files.get(basename(it))).cloned();
    }
    let is_python = |word: &&str| {
        let is_file = Path::new(word).extension().is_some_and(|ending| ending == "py");
        is_file || ["torchrun", "python", "python3", "accelerate"].contains(&basename(word))
    };
    words.iter().any(is_python).then(|| {
        // `$(NAME)` is a variable of the container to Kubernetes.
        let word = |word: &&str| match word.strip_prefix("$(").and_then(|it| it.strip_suffix(')')) {
            Some(name) => format!("${{{name}}}"),
            None => quoted(word),
        };
        words.iter().map(word).collect::<Vec<_>>().join(" ")
    })
}

/// A text with blanks for all but a script that it has as a block, which is found by its lines.
fn masked(text: &str, script: &str) -> Option<String> {
    let wanted: Vec<&str> = script.trim_end().lines().collect();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let indent_at = |from: usize| -> Option<usize> {
        let first = lines[from].trim_end_matches(['\r', '\n']);
        let indent = first.len().checked_sub(wanted.first()?.len())?;
        let is_alike = |(line, wanted): (&&str, &&str)| {
            let line = line.trim_end_matches(['\r', '\n']);
            let is_empty = wanted.is_empty() && line.trim().is_empty();
            is_empty || line.get(indent..).is_some_and(|it| it == *wanted)
        };
        let block = lines.get(from..from + wanted.len())?;
        let is_block = first[..indent].trim().is_empty() && block.iter().zip(&wanted).all(is_alike);
        is_block.then_some(indent)
    };
    let (from, indent) = (0..lines.len()).find_map(|from| Some((from, indent_at(from)?)))?;
    let blank = |line: &str| {
        let end = line.trim_end_matches(['\r', '\n']).len();
        format!("{}{}", " ".repeat(end), &line[end..])
    };
    let masked = lines.iter().enumerate().map(|(place, line)| {
        let is_script = (from..from + wanted.len()).contains(&place);
        let kept = if is_script { indent.min(line.len()) } else { line.len() };
        if is_script && !line.trim().is_empty() {
            format!("{}{}", " ".repeat(kept), &line[kept..])
        } else {
            blank(line)
        }
    });
    Some(masked.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Job {
        job(text).unwrap().expect("a manifest")
    }

    #[test]
    fn a_script_stands_where_the_manifest_has_it() {
        let text = "apiVersion: v1\nkind: ConfigMap\ndata:\n  run.sh: |\n    set -eu\n\n    torchrun x.py\n  a.json: '{}'\n---\n\
                    apiVersion: batch/v1\nkind: Job\nspec:\n  parallelism: 4\n  template:\n    spec:\n      containers:\n      \
                    - command: [bash, /plan/run.sh]\n        resources: {limits: {nvidia.com/gpu: 8}}\n";
        let Job { text: script, is_in_place, files, variables } = read(text);
        assert!(is_in_place);
        assert_eq!(script.len(), text.len());
        assert_eq!(script.find("torchrun"), text.find("torchrun"));
        assert_eq!(
            script.split_whitespace().collect::<Vec<_>>().join(" "),
            "set -eu torchrun x.py"
        );
        assert_eq!(files["a.json"], "{}");
        assert_eq!([NUM_NODES, RANKS_PER_NODE].map(|name| variables[name].as_str()), ["4", "8"]);
    }

    #[test]
    fn words_of_a_container_are_a_script() {
        let text = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n  nprocPerNode: \"4\"\n  pytorchReplicaSpecs:\n    \
                    Master: &pod\n      replicas: 1\n      template: {spec: {containers: [{command: [torchrun, x.py, --a, \
                    $(A), b c], env: [{name: A, value: '7'}], resources: {limits: {nvidia.com/gpu: '4'}}}]}}\n    Worker:\n      \
                    replicas: 3\n      template: {spec: {containers: [{command: [torchrun, x.py], resources: {limits: \
                    {amd.com/gpu: 4}}}]}}\n";
        let Job { text, is_in_place, variables, .. } = read(text);
        assert!(!is_in_place);
        assert_eq!(text, "torchrun x.py --a ${A} 'b c'");
        assert_eq!([NUM_NODES, RANKS_PER_NODE].map(|name| variables[name].as_str()), ["4", "4"]);
        assert_eq!(variables["A"], "7");
    }

    #[test]
    fn what_is_no_job_is_said() {
        assert!(job("#!/bin/bash\nkind: x").unwrap().is_none());
        let error = |text: &str| job(text).unwrap_err().to_string();
        assert!(
            error("apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n").starts_with("no container")
        );
        assert!(error("apiVersion: v1\nkind: [\n").starts_with("it is no YAML"));
    }
}
