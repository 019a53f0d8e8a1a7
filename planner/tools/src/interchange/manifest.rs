//! Kubernetes jobs: the script that a manifest runs, and its number of GPUs.

use std::collections::BTreeMap;

use super::argument::quoted;
use super::detect::{LaunchScript, is_script};
use super::error::ImportError;
use super::file::{basename, has_ending};
use super::launch::{NUM_NODES, RANKS_PER_NODE};
use super::tree::Tree;

/// The script of a manifest, with its files and variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Text of the script. If the manifest contains it as a block (`|`), this is the whole manifest with everything
    /// else replaced by blanks, so that lines and columns are those of the manifest.
    pub text: String,
    /// True if the text is the blanked manifest.
    pub is_in_place: bool,
    /// Files of the manifest's `ConfigMap`s, by their names.
    pub files: BTreeMap<String, String>,
    /// Environment variables of the containers.
    pub variables: BTreeMap<String, String>,
}

/// The job of a manifest. Variables in the manifest that the user sets are replaced by their values, as `envsubst`
/// does, and so are those in a tool's own keys. `None` for other texts, and for keys without such a variable.
///
/// # Errors
///
/// [`ImportError`] where the manifest cannot be read, runs nothing, or runs several jobs.
pub fn job(text: &str, set: &[(String, String)]) -> Result<Option<Job>, ImportError> {
    if !is_manifest(text) {
        let replaced = if is_script(text) { text.to_owned() } else { of_keys(text, set) };
        return Ok((replaced != text).then(|| Job { text: replaced, ..Job::default() }));
    }
    let substituted = substituted(text, set);
    let is_template = substituted != text;
    let job = job_of(&substituted)?;
    Ok(Some(Job { is_in_place: job.is_in_place && !is_template, ..job }))
}

/// Keys with variables replaced by their values; Primus writes `${NAME:DEFAULT}`.
fn of_keys(text: &str, set: &[(String, String)]) -> String {
    let one = |text: String, (name, value): &(String, String)| {
        let start = format!("${{{name}:");
        let mut parts = text.split(&start);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |all, rest| match rest.split_once('}') {
            Some((_, rest)) => all + value + rest,
            None => all + &start + rest,
        })
    };
    substituted(&set.iter().fold(text.to_owned(), one), set)
}

/// A text with `$NAME` and `${NAME}` replaced by the values of variables.
fn substituted(text: &str, set: &[(String, String)]) -> String {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let one = |text: String, (name, value): &(String, String)| {
        let text = text.replace(&format!("${{{name}}}"), value);
        let named = format!("${name}");
        let mut parts = text.split(&named);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |all, rest| {
            let value = if rest.starts_with(is_of_name) { &named } else { value };
            all + value + rest
        })
    };
    set.iter().fold(text.to_owned(), one)
}

fn job_of(text: &str) -> Result<Job, ImportError> {
    let documents = Tree::documents(text).map_err(|what| {
        let is_template = text.contains("{{");
        let works = if is_template { "what `helm template` makes of it" } else { WHOLE };
        ImportError::unknown(what, works)
    })?;
    let mut jobs: Vec<Workload<'_>> = Vec::new();
    let mut files = BTreeMap::new();
    for document in documents.iter().flat_map(listed) {
        if kind(document) == "ConfigMap" {
            let data = document.get("data").map_or(&[][..], Tree::keys).iter();
            files.extend(data.filter_map(|(name, it)| Some((name.clone(), it.text()?.to_owned()))));
            continue;
        }
        let mut pods = Vec::new();
        add_pods(document, 1, &mut pods)?;
        match jobs.iter_mut().find(|it| it.is_runtime && is_of_runtime(document)) {
            // A job of Kubeflow's trainer and the runtime that it uses count as one.
            Some(job) => {
                job.pods.splice(0..0, pods);
                job.trees.insert(0, document);
            }
            None => jobs.push(Workload {
                trees: vec![document],
                pods,
                is_runtime: is_of_runtime(document),
            }),
        }
    }
    let started = |pod: &Pod<'_>| ContainerScript::of(pod.container, &files);
    let is_training =
        |job: &&Workload<'_>| job.pods.iter().filter_map(started).any(|it| it.arguments.is_some());
    let training: Vec<&Workload<'_>> = jobs.iter().filter(is_training).collect();
    if training.len() > 1 {
        return Err(ImportError::unknown(
            format!("the manifest has {} jobs that start training", training.len()),
            "a file with one of them",
        ));
    }
    let all = training.first().copied().into_iter().chain(&jobs);
    let mut found = all.filter_map(|job| {
        let mut all = job.pods.iter().filter_map(started);
        Some((
            job,
            all.find(|it| it.arguments.is_some()).or_else(|| job.pods.iter().find_map(started))?,
        ))
    });
    let Some((job, script)) = found.next() else {
        let mut pods = jobs.iter().flat_map(|it| &it.pods);
        return Err(match pods.find_map(|it| script_of_image(it.container)) {
            Some(script) => ImportError::unknown(
                format!(
                    "a container of the manifest runs `{script}`, which the manifest does not have"
                ),
                "import that script, with `--set` for the variables of the container that it needs",
            ),
            None => ImportError::unknown(
                "no container of the manifest has a command that starts Python".to_owned(),
                "a manifest with the script in a `ConfigMap`, or in the `command` of a container or of a trainer",
            ),
        });
    };
    let ContainerScript { text: script, mut variables, arguments } = script;
    let mut others = job.pods.iter().filter_map(started).filter_map(|it| it.arguments);
    if let Some(own) = arguments
        && let Some(other) = others.find(|other| *other != own)
    {
        let none = "nothing".to_owned();
        let differ = (0..own.len().max(other.len())).find_map(|place| {
            let [one, other] = [&own, &other].map(|all| all.get(place).unwrap_or(&none));
            (one != other).then_some([one, other])
        });
        let [one, other] = differ.unwrap_or([&none, &none]);
        return Err(ImportError::unknown(
            format!(
                "containers of one job start training with other arguments: `{one}`, `{other}`"
            ),
            "the same arguments for all",
        ));
    }
    // Kubeflow's operator sets these variables, which `torchrun` reads where no option is given.
    if let Some([nodes, each]) = job.nodes(&started)? {
        variables.entry(NUM_NODES.to_owned()).or_insert(nodes.to_string());
        variables.entry(RANKS_PER_NODE.to_owned()).or_insert(each.to_string());
    }
    let masked = masked(text, &script);
    let is_in_place = masked.is_some();
    Ok(Job { text: masked.unwrap_or(script), is_in_place, files, variables })
}

const WHOLE: &str = "the whole manifest, as `kubectl apply` takes it";

/// Returns whether a text is a manifest, in YAML or in JSON.
fn is_manifest(text: &str) -> bool {
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    let is_json = text.trim_start().starts_with('{');
    !text.starts_with("#!") && has("apiVersion:") && has("kind:")
        || is_json && text.contains("\"apiVersion\"") && text.contains("\"kind\"")
}

fn kind(document: &Tree) -> &str {
    document.get("kind").and_then(Tree::text).unwrap_or_default()
}

/// Items of a `List`, or the document itself.
fn listed(document: &Tree) -> &[Tree] {
    match document.get("items") {
        Some(Tree::List(items)) if kind(document) == "List" => items,
        _ => std::slice::from_ref(document),
    }
}

/// Returns whether a document is a runtime of Kubeflow's trainer, or a job that uses one.
fn is_of_runtime(document: &Tree) -> bool {
    ["TrainingRuntime", "ClusterTrainingRuntime", "TrainJob"].contains(&kind(document))
}

/// A job with its pods.
struct Workload<'a> {
    /// YAML documents of the job; if several state a value, the first counts.
    trees: Vec<&'a Tree>,
    pods: Vec<Pod<'a>>,
    is_runtime: bool,
}

impl Workload<'_> {
    /// Numbers of nodes and of ranks per node, if the job states them.
    fn nodes(
        &self,
        started: &dyn Fn(&Pod<'_>) -> Option<ContainerScript>,
    ) -> Result<Option<[u64; 2]>, ImportError> {
        let of_job = |path: &[&str]| -> Result<Option<u64>, ImportError> {
            for tree in &self.trees {
                let (name, above) = path.split_last().unwrap_or((&"", &[]));
                let above = above.iter().try_fold(*tree, |tree, key| tree.get(key));
                if let Some(count) = above.map(|it| count(it, name)).transpose()?.flatten() {
                    return Ok(Some(count));
                }
            }
            Ok(None)
        };
        let trains = |pod: &&Pod<'_>| started(pod).is_some_and(|it| it.arguments.is_some());
        let on_gpus = self.pods.iter().filter(|it| it.gpus > 0);
        // If MPI starts the ranks, the pods with GPUs have no training command of their own.
        let training: Vec<&Pod<'_>> = on_gpus.clone().filter(trains).collect();
        let training = if training.is_empty() { on_gpus.collect() } else { training };
        let mut nodes = training.iter().map(|it| it.replicas).fold(0, u64::saturating_add);
        for path in [&["spec", "trainer", "numNodes"][..], &["spec", "mlPolicy", "numNodes"]] {
            if let Some(count) = of_job(path)? {
                nodes = count;
                break;
            }
        }
        let mut each = training.iter().map(|it| it.gpus).max().unwrap_or_default();
        for path in [
            &["spec", "nprocPerNode"][..],
            &["spec", "slotsPerWorker"],
            &["spec", "trainer", "numProcPerNode"],
            &["spec", "mlPolicy", "torch", "numProcPerNode"],
        ] {
            // `auto` and `gpu` stand for the number of GPUs.
            if let Ok(Some(count)) = of_job(path) {
                each = count;
                break;
            }
        }
        Ok((nodes > 0 && each > 0).then_some([nodes, each]))
    }
}

/// A container and its number of replicas.
struct Pod<'a> {
    container: &'a Tree,
    replicas: u64,
    gpus: u64,
}

/// Integer value of a key, if the key is present.
fn count(tree: &Tree, name: &str) -> Result<Option<u64>, ImportError> {
    match tree.get(name) {
        None | Some(Tree::Null) => Ok(None),
        Some(value) => value.number().map(Some).ok_or_else(|| {
            let found = value.text().map_or_else(|| "no number".to_owned(), |it| format!("`{it}`"));
            let variable = value.text().and_then(|it| it.strip_prefix('$'));
            let variable = variable.map(|it| it.trim_matches(['{', '}']));
            let works = variable
                .map(|it| format!("`--set {it}=4`, or the manifest as `envsubst` makes it"));
            let works = works.unwrap_or_else(|| "a whole number".to_owned());
            ImportError::unknown(format!("`{name}` is {found}"), works)
        }),
    }
}

/// Endings of the resource names of accelerators.
const ACCELERATORS: [&str; 6] =
    ["/gpu", "/gaudi", "/tpu", "/neuron", "/neuroncore", "/neurondevice"];

/// Number of accelerators in the limits of resources.
fn accelerators(resources: Option<&Tree>) -> u64 {
    let limits = resources.and_then(|it| it.get("limits"));
    let mut limits = limits.map_or(&[][..], Tree::keys).iter();
    let count = limits.find_map(|(name, count)| {
        ACCELERATORS.iter().any(|it| name.ends_with(it)).then(|| count.number()).flatten()
    });
    count.unwrap_or_default()
}

/// Adds all containers below a key, with the number of replicas of each.
fn add_pods<'a>(tree: &'a Tree, replicas: u64, pods: &mut Vec<Pod<'a>>) -> Result<(), ImportError> {
    let mut replicas = replicas;
    for name in ["replicas", "parallelism"] {
        replicas = replicas.saturating_mul(count(tree, name)?.unwrap_or(1));
    }
    // A `LeaderWorkerSet`: a leader, if it has its own template, and workers.
    let is_group = tree.get("workerTemplate").is_some();
    let group = if is_group { count(tree, "size")? } else { None };
    let has_leader = tree.get("leaderTemplate").is_some();
    for (name, below) in tree.keys() {
        match (name.as_str(), below) {
            ("containers", Tree::List(all)) => pods.extend(all.iter().map(|container| {
                let gpus = accelerators(container.get("resources"));
                Pod { container, replicas, gpus }
            })),
            ("trainer", trainer) if trainer.get("command").is_some() => pods.push(Pod {
                container: trainer,
                replicas: count(trainer, "numNodes")?.unwrap_or(1),
                gpus: accelerators(trainer.get("resourcesPerNode")),
            }),
            ("workerTemplate", below) => {
                let workers = group.unwrap_or(1).saturating_sub(u64::from(has_leader));
                add_pods(below, replicas.saturating_mul(workers), pods)?;
            }
            (_, Tree::List(all)) => {
                all.iter().try_for_each(|it| add_pods(it, replicas, pods))?;
            }
            _ => add_pods(below, replicas, pods)?,
        }
    }
    Ok(())
}

/// Script that a container runs, with the container's variables.
struct ContainerScript {
    text: String,
    variables: BTreeMap<String, String>,
    /// Arguments of the training program, if a known one is started.
    arguments: Option<Vec<String>>,
}

impl ContainerScript {
    /// The script that a container passes to a shell, else the container's command as a script; `None` if it starts no
    /// Python.
    fn of(container: &Tree, files: &BTreeMap<String, String>) -> Option<Self> {
        let variables = variables(container, files);
        let text = script(container, files, &variables)?;
        let parsed = LaunchScript::read(&text, &variables, files).ok();
        let arguments = parsed.and_then(|it| it.arguments());
        Some(Self { text, variables, arguments })
    }
}

fn variables(container: &Tree, files: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for tree in container.get("env").map_or(&[][..], Tree::items) {
        let of = |key: &str| tree.get(key).and_then(Tree::text);
        let reference = tree.get("valueFrom").and_then(|it| it.get("configMapKeyRef")?.get("key"));
        let of_map = reference.and_then(|it| files.get(it.text()?)).map(String::as_str);
        if let (Some(name), Some(value)) = (of("name"), of("value").or(of_map)) {
            // A value may refer to variables above it.
            let value = expanded(value, &variables);
            variables.insert(name.to_owned(), value);
        }
    }
    variables
}

/// Limit of the bytes that one variable may add: if each variable names another one twice, the size doubles with each.
const MOST_BYTES: usize = 1 << 16;

/// A text with the variables in Kubernetes's form `$(NAME)` replaced by their values.
fn expanded(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = text.to_owned();
    for (name, value) in variables {
        let named = format!("$({name})");
        let added = expanded.matches(&named).count().saturating_mul(value.len());
        if added <= MOST_BYTES {
            expanded = expanded.replace(&named, value);
        }
    }
    expanded
}

/// Words of a container's command.
fn words(container: &Tree) -> Vec<&str> {
    let words = ["command", "args"].into_iter().filter_map(|name| container.get(name));
    let listed = words.flat_map(|tree| match tree {
        Tree::List(all) => all.as_slice(),
        other => std::slice::from_ref(other),
    });
    listed.filter_map(Tree::text).collect()
}

/// Path of the script in the container's image that the container runs.
fn script_of_image(container: &Tree) -> Option<&str> {
    words(container).into_iter().find(|it| has_ending(it, "sh") && !it.contains(' '))
}

fn script(
    container: &Tree,
    files: &BTreeMap<String, String>,
    variables: &BTreeMap<String, String>,
) -> Option<String> {
    let words = words(container);
    if let Some(place) = words.iter().position(|it| ["bash", "sh"].contains(&basename(it))) {
        let rest = &words[place + 1..];
        // `-c`, also as the last letter of a combined option such as `-lc`.
        let is_inline =
            |it: &&str| it.starts_with('-') && !it.starts_with("--") && it.ends_with('c');
        return match rest.iter().position(is_inline) {
            Some(option) => {
                rest[option + 1..].iter().find(|it| **it != "--").map(|it| (*it).to_owned())
            }
            None => rest.iter().find_map(|it| files.get(basename(it))).cloned(),
        };
    }
    let is_python = |word: &&str| {
        has_ending(word, "py")
            || ["torchrun", "python", "python3", "accelerate"].contains(&basename(word))
    };
    words.iter().any(is_python).then(|| {
        let word = |word: &&str| {
            let word = expanded(word, variables);
            let open = word.strip_prefix("$(").and_then(|it| it.strip_suffix(')'));
            open.map_or_else(|| quoted(&word), |name| format!("${{{name}}}"))
        };
        words.iter().map(word).collect::<Vec<_>>().join(" ")
    })
}

/// The text with everything replaced by blanks except the lines of the script, if the text contains it as a block.
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
    let mut places = (0..lines.len()).filter_map(|from| Some((from, indent_at(from)?)));
    let (from, indent) = places.next()?;
    // If several blocks are equal, it is unknown which one runs.
    if places.next().is_some() {
        return None;
    }
    let masked = lines.iter().enumerate().map(|(place, line)| {
        let is_script = (from..from + wanted.len()).contains(&place) && !line.trim().is_empty();
        let blanks = if is_script { indent } else { line.trim_end_matches(['\r', '\n']).len() };
        format!("{}{}", " ".repeat(blanks), &line[blanks..])
    });
    Some(masked.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Job {
        job(text, &[]).unwrap().expect("a manifest")
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
        assert_eq!(text, "torchrun x.py --a 7 'b c'");
        assert_eq!([NUM_NODES, RANKS_PER_NODE].map(|name| variables[name].as_str()), ["4", "4"]);
        assert_eq!(variables["A"], "7");
    }

    #[test]
    fn variables_of_a_template_are_those_of_the_user() {
        let text = "apiVersion: batch/v1\nkind: Job\nspec: {parallelism: $NODES, containers: [{command: [torchrun, x.py, \
                    --a, \"$NODES_A\"], resources: {limits: {nvidia.com/gpu: \"${GPUS}\"}}}]}\n";
        let message = job(text, &[]).unwrap_err().to_string();
        assert!(message.contains("`--set NODES=4`"), "{message}");
        let set = [("NODES", "2"), ("GPUS", "8")].map(|it| (it.0.to_owned(), it.1.to_owned()));
        let Job { variables, is_in_place, .. } = job(text, &set).unwrap().expect("a manifest");
        assert_eq!([NUM_NODES, RANKS_PER_NODE].map(|name| variables[name].as_str()), ["2", "8"]);
        assert!(!is_in_place);
        let text =
            "apiVersion: v1\nkind: Pod\nspec: {containers: [{command: [bash, /scripts/run.sh]}]}\n";
        assert!(job(text, &[]).unwrap_err().to_string().contains("`/scripts/run.sh`"));
    }

    #[test]
    fn what_is_no_job_is_said() {
        assert!(job("#!/bin/bash\nkind: x", &[]).unwrap().is_none());
        let error = |text: &str| job(text, &[]).unwrap_err().to_string();
        assert!(
            error("apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n").starts_with("no container")
        );
        let doubled =
            |place: u32| format!("{{name: A{}, value: $(A{place})$(A{place})}}", place + 1);
        let doubled: Vec<String> = (0..100).map(doubled).collect();
        let text = format!(
            "apiVersion: v1\nkind: Pod\nspec: {{containers: [{{command: [torchrun, x.py], env: [{{name: A0, value: xx}}, {}]}}]}}\n",
            doubled.join(", ")
        );
        assert!(read(&text).variables.values().all(|value| value.len() <= 2 * MOST_BYTES));
        let large = "{replicas: 18446744073709551615, containers: [{command: [torchrun, x.py], resources: {limits: {a/gpu: 8}}}]}";
        read(&format!("apiVersion: v1\nkind: Job\nspec: [{large}, {large}]\n"));
        assert!(error("apiVersion: v1\nkind: [\n").starts_with("it is no YAML"));
    }
}
