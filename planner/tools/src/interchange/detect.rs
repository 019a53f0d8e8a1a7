//! Detection of the tool that settings belong to, and parsing of launch scripts.

use std::collections::BTreeMap;

use ir::text::{Typeset, typeset};

use super::error::{ImportError, OTHER};
use super::file::basename;
use super::imported::Stated;
use super::others::{of_keys, of_program, of_python as other_python, trains_nothing};
use super::ranks::{
    check_spread, check_start, is_torchrun, on_nodes_of_mason, option_text, ranks,
    ranks_by_variables, ranks_per_node,
};
use super::shell::{self, Command, Script, Way, Word, is_program};
use super::source::{Form, LaunchedProgram, Source, WHOLE, first_line, is_toml, notation, tree_of};
use super::target::Target;
use super::tool::Tool;
use super::tools::{FILES_OF_KEYS, fork_words, of_python, tool, tools};
use super::tree::Tree;

/// Files that settings name, by their names.
type Files = BTreeMap<String, String>;

/// A launch script with the commands that it leads to.
#[derive(Clone, Debug, Default)]
pub struct LaunchScript {
    script: Script,
    /// Commands on the other ways through branches whose condition is unknown.
    others: Vec<Command>,
    /// Variables whose value the script itself decides.
    variables: BTreeMap<String, String>,
    /// Keys of a file, with their values.
    keys: Vec<(String, Vec<String>)>,
}

/// A command that starts training.
struct Launch {
    target: Target,
    /// Words before the program: the launcher and its options.
    before: Vec<Word>,
    /// The program and the words after it.
    words: Vec<Word>,
}

impl LaunchScript {
    /// Parses a script. `set` has the values of variables that the script does not set, `files` the scripts that it
    /// runs, by name. A file of keys or of Python has no commands.
    ///
    /// # Errors
    ///
    /// [`ImportError`] where it cannot be parsed.
    pub fn read(
        text: &str,
        set: &BTreeMap<String, String>,
        files: &BTreeMap<String, String>,
    ) -> Result<Self, ImportError> {
        if of_python(text).is_some() {
            return Ok(Self::default());
        }
        if !is_script(text) {
            let keys = Tree::read(text, notation("", text)).map(|tree| tree.values());
            return Ok(Self { keys: keys.unwrap_or_default(), ..Self::default() });
        }
        let script = shell::read(text, set, files, &Way::first())?;
        let others = Way::others(&script).into_iter();
        let others = others.filter_map(|(_, way)| shell::read(text, set, files, &way).ok());
        let others = others.flat_map(|it| it.commands).collect();
        let strictly = shell::read(text, set, files, &Way::None);
        let variables = strictly.map_or_else(|_| script.variables.clone(), |it| it.variables);
        Ok(Self { script, others, variables, keys: Vec::new() })
    }

    /// Parses a script together with the files that it names and that `read` provides. A script that cannot be parsed
    /// names none.
    ///
    /// # Errors
    ///
    /// The errors of `read`.
    pub fn read_with_files<E>(
        text: &str,
        set: &BTreeMap<String, String>,
        files: &mut BTreeMap<String, String>,
        read: impl Fn(&str) -> Result<Option<String>, E>,
    ) -> Result<Self, E> {
        loop {
            let script = Self::read(text, set, files).unwrap_or_default();
            let before = files.len();
            script.add_named_files(files, &read)?;
            // A script that is run and was found in this round may name further files.
            if files.len() == before || script.script.runs.is_empty() {
                return Ok(script);
            }
        }
    }

    /// Commands on all ways through the branches.
    fn all_commands(&self) -> impl Iterator<Item = &Command> {
        self.script.commands.iter().chain(&self.others)
    }

    /// Returns whether the script writes a file itself.
    pub(crate) fn writes(&self, name: &str) -> bool {
        self.script.written.contains_key(name)
    }

    /// Paths of files that the settings name and that are read with them.
    pub fn named_files(&self) -> Vec<String> {
        let endings = [".json", ".yaml", ".yml", ".toml", ".py", ".csv", ".conf"];
        let is_file = |text: &&String| endings.iter().any(|ending| text.ends_with(ending));
        let mut names: Vec<String> = self.values().filter(is_file).cloned().collect();
        names.extend(self.script.runs.iter().cloned());
        // Hydra's files are named without a file ending.
        let defaults = self.keys.iter().filter(|it| it.0 == "defaults").flat_map(|it| &it.1);
        names.extend(defaults.filter(|it| !it.is_empty()).map(|it| format!("{it}.yaml")));
        for Command { words, .. } in self.all_commands() {
            if let Some(name) = option_text(words, "--config-name") {
                let folder = option_text(words, "--config-path").unwrap_or(".");
                names.push(format!("{folder}/{}.yaml", name.trim_end_matches(".yaml")));
            }
            for (place, word) in words.iter().enumerate() {
                let text = word.text.rsplit('=').next().unwrap_or_default();
                if endings.iter().any(|ending| text.ends_with(ending)) {
                    names.push(text.to_owned());
                }
                // The file of torchtitan's `--module` is named without an ending; DeepSpeed's `pipeline.py` is named by
                // no word.
                let (option, inline) = match word.text.split_once('=') {
                    Some((option, value)) => (option, Some(value)),
                    None => (word.text.as_str(), None),
                };
                let value = inline.or_else(|| words.get(place + 1).map(|it| it.text.as_str()));
                match option {
                    "--module" => {
                        names.extend(value.map(|it| format!("{}.py", it.replace('.', "/"))));
                    }
                    "--deepspeed_config" => names.push("pipeline.py".to_owned()),
                    // torchtune names the configurations that it ships without an ending.
                    "--config" => {
                        let shipped = value.filter(|it| !basename(it).contains('.'));
                        names.extend(shipped.map(|it| format!("{it}.yaml")));
                    }
                    _ => {}
                }
            }
        }
        names
    }

    /// Texts that may name the model, the likeliest first: the last parts of values, then pairs of consecutive values,
    /// such as torchtitan's `name` and `flavor`.
    pub fn model_names(&self) -> Vec<String> {
        let words = self.all_commands().flat_map(|it| &it.words);
        let words = words.map(|word| word.text.rsplit('=').next().unwrap_or_default().to_owned());
        let of_keys: Vec<&String> = self.values().collect();
        let values: Vec<String> = self.values().cloned().chain(words).collect();
        let pairs = of_keys.windows(2).flat_map(|pair| {
            [[0, 1], [1, 0]].map(|[one, other]| format!("{}-{}", pair[one], pair[other]))
        });
        let parts = values.iter().map(|it| last(it, '/')).collect::<Vec<_>>().into_iter();
        let modules = values.iter().map(|it| of_module(it));
        parts.chain(pairs).chain(modules).filter(|it| it.len() > 1).collect()
    }

    /// Texts that name the trained model: values of the keys and options for it.
    pub fn trained_models(&self) -> Vec<String> {
        let is_one = |key: &str| {
            let key = key.trim_start_matches("--").replace('-', "_");
            MODEL_KEYS.contains(&key.as_str())
        };
        let of_keys = self.keys.iter().filter(|it| is_one(&it.0)).flat_map(|it| it.1.clone());
        let words = self.script.commands.iter().flat_map(|Command { words, .. }| {
            words.iter().enumerate().map(move |(place, word)| (word, words.get(place + 1)))
        });
        let of_words = words.filter_map(|(word, next)| match word.text.split_once('=') {
            Some((key, value)) => is_one(key).then(|| value.to_owned()),
            None => next.filter(|_| is_one(&word.text)).map(|it| it.text.clone()),
        });
        of_keys.chain(of_words).flat_map(|it| [last(&it, '/'), of_module(&it)]).collect()
    }

    fn values(&self) -> impl Iterator<Item = &String> {
        self.keys.iter().flat_map(|it| &it.1)
    }

    /// Reads with `read` the files that the settings name, and the files that those files name.
    ///
    /// # Errors
    ///
    /// The errors of `read`.
    pub fn add_named_files<E>(
        &self,
        files: &mut BTreeMap<String, String>,
        read: impl Fn(&str) -> Result<Option<String>, E>,
    ) -> Result<(), E> {
        let mut names = self.named_files();
        while let Some(path) = names.pop() {
            let name = basename(&path).to_owned();
            if files.contains_key(&name) {
                continue;
            }
            let written = self.script.written.get(&name).cloned();
            let Some(text) = written.map_or_else(|| read(&path), |it| Ok(Some(it)))? else {
                continue;
            };
            if !is_script(&text) {
                let none = BTreeMap::new();
                names.extend(Self::read(&text, &none, &none).unwrap_or_default().named_files());
            }
            files.insert(name, text);
        }
        Ok(())
    }

    /// Lines of the commands that start known training programs; `files` are those that the script names. Settings are
    /// read from the first of these commands.
    pub fn launches(&self, files: &BTreeMap<String, String>) -> Vec<usize> {
        self.started(files).into_iter().map(|it| it.0.line).collect()
    }

    /// Commands that start known training programs. A launcher that starts programs of any kind may start data
    /// preparation, so it counts only if no other command starts training.
    fn started(&self, files: &Files) -> Vec<(&Command, Launch)> {
        let all = self.script.commands.iter();
        let mut all: Vec<(&Command, Launch)> =
            all.filter_map(|it| Some((it, Launch::of(it, files)?))).collect();
        let trains = |it: &(&Command, Launch)| !tool(it.1.target).starts_any;
        if all.iter().any(trains) {
            all.retain(trains);
        }
        all
    }

    /// Variables at the end of the script whose value is one known word.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// Arguments of the first known training program.
    pub(super) fn arguments(&self) -> Option<Vec<String>> {
        let (_, launch) = self.started(&Files::new()).into_iter().next()?;
        Some(launch.words.into_iter().skip(1).map(|word| word.text).collect())
    }

    /// Settings of the first training program. With `from`, any Python program counts as one of that tool.
    fn form(
        &self,
        from: Option<Target>,
        set: &BTreeMap<String, String>,
        files: &Files,
    ) -> Result<(Target, Form), ImportError> {
        let commands = &self.script.commands;
        let found = self.started(files).into_iter().next();
        let mut all = commands.iter();
        let any = || all.find_map(|command| Some((command, Launch::any(command, from?)?)));
        let mut all = commands.iter();
        let by_options = || all.find_map(|command| Some((command, Launch::of_fork(command)?)));
        let found = found.or_else(any).or_else(by_options);
        if let Some((command, Launch { target, before, words })) = found {
            check_start(&before, set)?;
            // A program that starts ranks gives each a GPU of its own.
            let is_started =
                is_torchrun(&before) || before.iter().any(|it| it.text == "accelerate");
            if tool(target).spreads_layers && !is_started {
                check_spread(&self.script, command)?;
            }
            let starts_ranks = tool(target).starts_ranks;
            let of_variables = || ranks_by_variables(&self.script, command, starts_ranks);
            let of_launcher = || {
                let started = command.words.get(..=before.len()).unwrap_or(&before);
                ranks(&self.script, started, set).or_else(of_variables)
            };
            // If Ray starts the ranks, the launcher starts only the driver.
            let is_by_ray = tool(target).is_by_ray && !is_torchrun(&before);
            let num_gpus = if is_by_ray { None } else { of_launcher() };
            let ranks_per_node = ranks_per_node(&self.script, &before, set);
            let (target, words) = with_keys(&words, files)?.unwrap_or((target, words));
            let words = on_nodes_of_mason(&before, words);
            let started = LaunchedProgram { before, words, num_gpus, ranks_per_node };
            return Ok((from.unwrap_or(target), Form::Program(started)));
        }
        let all: Vec<Word> = commands.iter().flat_map(|it| it.words.clone()).collect();
        if all.first().is_some_and(|it| it.text.starts_with("--") && it.text != "--") {
            let has = |start: &&str| all.iter().any(|word| word.text.starts_with(start));
            let tool = tools().find(|tool| tool.own_options.iter().any(has));
            let target = from.or(tool.map(|it| it.target)).unwrap_or(Target::MEGATRON);
            let num_gpus = ranks(&self.script, &[], set);
            // An empty word takes the program's place.
            let words = std::iter::once(Word::known("")).chain(all).collect();
            return Ok((
                target,
                Form::Program(LaunchedProgram { words, num_gpus, ..LaunchedProgram::default() }),
            ));
        }
        let nothing = "nothing starts a program that is known";
        let typeset = all.iter().find_map(|word| Some((word, typeset(&word.text)?)));
        if let Some((word, Typeset { what, plain })) = typeset {
            let what = format!("{nothing}; of `{}`: {what}", word.text);
            return Err(nothing_starts(what, format!("`{plain}`")));
        }
        let mut programs: Vec<String> = Vec::new();
        for (_, word) in commands.iter().filter_map(program) {
            let name = format!("`{}`", word.text);
            programs.extend((!programs.contains(&name)).then_some(name));
        }
        let whose = commands.iter().find_map(|it| {
            let program = program(it).map_or_else(|| it.words.first(), |it| Some(it.1));
            let launcher = it.words.first().and_then(|it| Some((it, of_program(&it.text)?)));
            launcher.or_else(|| program.and_then(|it| Some((it, of_program(&it.text)?))))
        });
        if let Some((program, tool)) = whose {
            let what =
                format!("`{}` is a program of {tool}, whose settings are not read", program.text);
            return Err(ImportError::of_other(what));
        }
        let is_other = |it: &Target| !it.shares_framework(Target::MEGATRON);
        let others = Target::imported().filter(is_other).map(|it| format!("`{}`", it.name()));
        if programs.is_empty() {
            return Err(nothing_starts(nothing, ANY));
        }
        if commands.iter().filter(|it| program(it).is_some()).all(is_idle) {
            let what = format!("{} trains nothing, by its name", programs.join(" or "));
            return Err(nothing_starts(what, "`--from TOOL` reads its options as a training's"));
        }
        Err(nothing_starts(
            format!("{} is no program that is known", programs.join(" or ")),
            format!(
                "`--from megatron` reads its options as Megatron-LM's; `--from` also takes {}",
                others.collect::<Vec<_>>().join(", ")
            ),
        ))
    }
}

/// Keys and options that say which model is trained.
const MODEL_KEYS: [&str; 9] = [
    "model",
    "model_name",
    "model_name_or_path",
    "model_id_or_path",
    "base_model",
    "hf_checkpoint",
    "actor_rollout_ref.model.path",
    "model._component_",
    "model.path",
];

/// Last part of a text.
fn last(text: &str, separator: char) -> String {
    text.rsplit(separator).next().unwrap_or_default().to_owned()
}

/// Last component of a module's path, such as torchtune's `lora_llama3_1_8b`.
fn of_module(text: &str) -> String {
    let starts = ["qlora_", "lora_"].iter();
    starts.fold(last(text, '.'), |text, start| text.strip_prefix(start).unwrap_or(&text).to_owned())
}

/// Error of a script in which nothing starts training.
fn nothing_starts(what: impl Into<String>, works: impl Into<String>) -> ImportError {
    ImportError::NothingStarts { what: what.into(), works: works.into() }
}

impl Launch {
    /// Training program of a known tool in a command.
    fn of(command: &Command, files: &Files) -> Option<Self> {
        let words = &command.words;
        if command.starts_nothing() || is_idle(command) {
            return None;
        }
        (0..words.len()).find_map(|place| {
            tools().find_map(|tool| {
                let start = (tool.starts)(words, place, files)?;
                Some(Self::at(words, start, tool.target))
            })
        })
    }

    /// Python program of a command, taken as one of the tool that the user names.
    fn any(command: &Command, target: Target) -> Option<Self> {
        Some(Self::at(&command.words, program(command)?.0, target))
    }

    /// Python program of a command, recognised by Megatron's options: forks of Megatron have them in programs of other
    /// names.
    fn of_fork(command: &Command) -> Option<Self> {
        if is_idle(command) {
            return None;
        }
        let words = fork_words(&command.words, program(command)?.0)?;
        let place = command.words.len() - words.len();
        Some(Self { words, ..Self::at(&command.words, place, Target::MEGATRON) })
    }

    fn at(words: &[Word], place: usize, target: Target) -> Self {
        Self { target, before: words[..place].to_vec(), words: words[place..].to_vec() }
    }
}

/// If a program's options name a file of keys: the words with the file's keys before the other options, and the tool of
/// the file. Otherwise `None`.
fn with_keys(words: &[Word], files: &Files) -> Result<Option<(Target, Vec<Word>)>, ImportError> {
    let is_file = |word: &Word| FILES_OF_KEYS.contains(&word.name());
    let Some(place) = words.iter().position(is_file) else { return Ok(None) };
    let inline = words[place].text.split_once('=').map(|it| it.1);
    let after = place + if inline.is_some() { 1 } else { 2 };
    let path = inline.or_else(|| words.get(place + 1).map(|it| it.text.as_str()));
    let tree = tree_of(files, path.unwrap_or_default())?;
    let mut all = words[..1].to_vec();
    for (key, values) in tree.values() {
        all.push(Word::known(&format!("--{key}")));
        all.extend(values.iter().map(|it| Word::known(it)));
    }
    all.extend(words[1..place].iter().chain(words.get(after..).unwrap_or_default()).cloned());
    Ok(Some((of_tree(&tree)?, all)))
}

/// Returns whether a command starts a program that trains nothing.
fn is_idle(command: &Command) -> bool {
    program(command).is_some_and(|(_, word)| trains_nothing(&word.text, &command.words))
}

/// Index and word of the Python program that a command starts: a file, or the module after `-m`.
fn program(command: &Command) -> Option<(usize, &Word)> {
    let words = Some(&command.words).filter(|_| !command.starts_nothing())?;
    let place = (0..words.len()).find(|place| is_program(words, *place))?;
    Some((place, words.get(place)?))
}

/// Settings with their tool: the one that the user names, else the one that their words or keys belong to.
pub(super) fn source<'a>(
    text: &str,
    from: Option<Target>,
    set: &BTreeMap<String, String>,
    files: &'a Files,
    stated: Stated,
    way: &Way,
) -> Result<Source<'a>, ImportError> {
    if text.trim().is_empty() {
        let what = "the file is empty, so nothing starts a program that is known";
        return Err(ImportError::unknown(what, ANY));
    }
    let python = of_python(text).filter(|_| !text.starts_with("#!"));
    // A shell script may contain Python that it writes to a file.
    let of_shell = text.lines().next().is_some_and(|it| it.starts_with("#!") && it.contains("sh"));
    let other = other_python(text).filter(|_| python.is_none() && from.is_none() && !of_shell);
    if let Some(tool) = other {
        return Err(ImportError::unknown(
            format!("this is Python of {tool}, which is not run"),
            "the options that it sets, as the tool's own options or keys have them, or `planner evaluate`",
        ));
    }
    let (target, form) = if let Some(target) = python {
        (from.unwrap_or(target), Form::Python(text.to_owned()))
    } else if is_script(text) {
        let script = shell::read(text, set, files, way)?;
        LaunchScript { script, ..LaunchScript::default() }.form(from, set, files)?
    } else {
        let tree = Tree::read(text, notation("", text));
        let tree = tree.map_err(|what| ImportError::unknown(what, WHOLE))?;
        let found = of_tree(&tree);
        let target = match from {
            // A tool that wraps the one that the user names, or an older version of that one, has its own keys.
            Some(from) => {
                let wraps = |it: &Target| !tool(*it).is_written && it.shares_framework(from);
                found.ok().filter(wraps).unwrap_or(from)
            }
            None => found?,
        };
        (target, Form::Tree(tree))
    };
    Ok(Source {
        target,
        form,
        files,
        stated,
        num_layers: None,
        has_experts: false,
        is_all_mixture: false,
        has_no_dropout: false,
    })
}

/// Forms of settings that can be read, for hints.
const ANY: &str = "a script that runs Megatron-LM's `pretrain_gpt.py`, `torchtitan.train`, `accelerate launch`, a \
    Trainer, or a program with `--deepspeed_config`; their arguments alone; a manifest of Kubernetes that \
    runs them; DeepSpeed's JSON, accelerate's YAML, the Trainer's arguments in a file; settings of axolotl, LLaMA-Factory, \
    ms-swift, verl, slime, Primus, FlagScale, NeMo, torchtune; `--from` says which it is";

/// Returns whether a text is a script or a list of arguments: neither JSON nor YAML with a key in its first line.
pub(crate) fn is_script(text: &str) -> bool {
    if text.starts_with("#!") {
        return true;
    }
    let first = first_line(text);
    let is_key = |word: &str| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "_-.\"'".contains(c);
        !word.is_empty() && !word.starts_with('-') && word.chars().all(is_letter)
    };
    let key = first.split_once(':').filter(|(_, rest)| rest.is_empty() || rest.starts_with(' '));
    if ["[[ ", "[ -", "[ !", "[ \"", "[ $"].iter().any(|it| first.starts_with(it)) {
        return true;
    }
    !(is_toml(text)
        || first.starts_with(['{', '['])
        || first == "---"
        || key.is_some_and(|(key, _)| is_key(key)))
}

/// Tool of a file of keys that settings name.
pub(crate) fn tool_of_file(name: &str, text: &str) -> Option<&'static Tool> {
    let tree = Tree::read(text, notation(name, text)).ok()?;
    of_tree(&tree).ok().map(tool)
}

/// Returns whether a text has the form, and the keys if it has keys, of settings of a tool that can be read.
pub fn is_read(text: &str) -> bool {
    of_python(text).is_some()
        || is_script(text)
        || Tree::read(text, notation("", text)).is_ok_and(|tree| of_tree(&tree).is_ok())
}

/// Tool to which the keys of a file belong.
fn of_tree(tree: &Tree) -> Result<Target, ImportError> {
    if tree.has("layout") && tree.has_any(&["breakdown", "prediction"]) {
        let what = "this is a plan already";
        return Err(ImportError::unknown(what, "`planner explain` reads it"));
    }
    if let Some(tool) = tools().find(|tool| !tool.is_written && (tool.has_keys)(tree)) {
        return Ok(tool.target);
    }
    if let Some(tool) = of_keys(tree) {
        return Err(ImportError::unknown(
            format!("these are the settings of {tool}, which are not read"),
            OTHER,
        ));
    }
    let trains = ["optim", "distributed", "data", "train", "trainer", "training"];
    if tree.has_any(&["num_hidden_layers", "model_type", "architectures"]) && !tree.has_any(&trains)
    {
        let what = "this is a model, not how it is trained";
        return Err(ImportError::unknown(what, "give it as `--model`"));
    }
    // Later tools have more keys of their own; the key that identifies DeepSpeed also occurs in files of other tools.
    let tool = tools().rfind(|tool| (tool.has_keys)(tree));
    let unknown = || ImportError::unknown("these are the keys of no tool that is known", ANY);
    tool.map(|it| it.target).ok_or_else(unknown)
}
