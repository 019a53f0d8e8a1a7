//! The architecture, checked: who may use whom, what pure crates never touch, how long a file may
//! be. `ARCHITECTURE.md` says why; the tables below are the law.

mod budgets;
mod circles;
mod imports;

use std::fs;
use std::path::{Path, PathBuf};

/// Which of our crates each crate may depend on. A new edge is a commit of its own, argued.
const CRATES_MAY_USE: &[(&str, &[&str])] = &[
    ("ir", &[]),
    ("models", &[]),
    ("command-line", &["ir"]),
    ("cost-models", &["ir"]),
    ("traces", &["ir"]),
    ("simulator", &["ir", "traces"]),
    ("planner/core", &["ir", "cost-models", "simulator", "traces"]),
    ("planner/tools", &["ir", "cost-models", "simulator", "traces", "planner-core"]),
    ("planner/evidence", &["ir", "cost-models", "simulator", "traces", "planner-core"]),
    (
        "planner",
        &[
            "ir",
            "models",
            "command-line",
            "cost-models",
            "simulator",
            "traces",
            "planner-core",
            "planner-tools",
            "planner-evidence",
        ],
    ),
    ("executor/kernels", &["ir"]),
    ("executor/communicators", &["ir", "traces", "executor-kernels"]),
    ("executor/runtime", &["ir", "traces", "executor-kernels", "executor-communicators"]),
    (
        "executor",
        &[
            "ir",
            "command-line",
            "traces",
            "executor-kernels",
            "executor-communicators",
            "executor-runtime",
        ],
    ),
    ("executor/stand-in", &[]),
];

/// Which modules each module of `ir` may use: only some of those above it, so there is no cycle.
const IR_MODULES_MAY_USE: &[(&str, &[&str])] = &[
    ("named_enum", &[]),
    ("units", &[]),
    ("collective", &[]),
    ("schedule", &[]),
    ("text", &[]),
    ("cluster", &["collective", "text", "units"]),
    ("graph", &["collective", "units"]),
    ("native", &["graph", "text"]),
    ("model", &["graph", "native", "text"]),
    ("layout", &["graph", "schedule"]),
    ("replication", &["graph", "layout", "schedule"]),
    ("optimizer", &["graph"]),
    ("documents", &[]),
    ("expert_load", &[]),
    ("framework", &["cluster", "graph", "layout", "optimizer", "schedule", "text"]),
    (
        "plan",
        &[
            "cluster",
            "documents",
            "expert_load",
            "framework",
            "graph",
            "layout",
            "optimizer",
            "replication",
            "text",
            "units",
        ],
    ),
];

/// Sources in which values come in and values go out, and what of them is not so.
const PURE: &[(&str, &[&str])] = &[
    ("ir/src", &["bin"]),
    ("models/src", &[]),
    ("cost-models/src", &["bin"]),
    ("traces/src", &[]),
    ("simulator/src", &["bin"]),
    ("planner/core/src", &[]),
    ("planner/tools/src", &[]),
    ("planner/evidence/src", &[]),
    ("planner/src", &["bin", "cli", "main.rs"]),
];

/// Words that a pure source never mentions, and why.
const NEVER_IN_PURE: &[(&str, &str)] = &[
    ("std::fs", "files are read and written by the commands"),
    ("std::io", "streams belong to the commands"),
    ("std::net", "the network belongs to the commands"),
    ("std::env", "options arrive as arguments"),
    ("std::process", "only a command starts or ends a process"),
    ("std::{", "`use std::..` names one module a line, so that this test can read it"),
    ("Instant", "pure code takes a deadline, it does not read a clock"),
    ("SystemTime", "pure code takes a deadline, it does not read a clock"),
    ("print!", "results are values; the commands print them"),
    ("println!", "results are values; the commands print them"),
    ("eprint!", "errors are values; the commands print them"),
    ("eprintln!", "errors are values; the commands print them"),
    ("HashMap", "its order differs from run to run: use BTreeMap"),
    ("HashSet", "its order differs from run to run: use BTreeSet"),
];

/// The longest that a file may be, its tests left out.
const MOST_LINES: usize = 600;

/// Documents whose paths must exist.
const DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

#[test]
fn crates_use_only_what_they_may() {
    let mut broken = Vec::new();
    for member in members() {
        let Some((_, allowed)) = CRATES_MAY_USE.iter().find(|(name, _)| *name == member) else {
            broken.push(format!("Cargo.toml: `{member}` has no row in `CRATES_MAY_USE`"));
            continue;
        };
        let manifest = format!("{member}/Cargo.toml");
        for used in dependencies(&read(&manifest)) {
            let is_ours = CRATES_MAY_USE.iter().any(|(name, _)| name.replace('/', "-") == used);
            if is_ours && !allowed.contains(&used.as_str()) {
                broken.push(format!("{manifest}: `{member}` may use {allowed:?}, not `{used}`"));
            }
            if used.starts_with("burn") && !is_executor(&member) {
                broken.push(format!("{manifest}: only the executor's crates may use `{used}`"));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn the_tables_have_no_cycle() {
    for row in IR_MODULES_MAY_USE {
        let above =
            IR_MODULES_MAY_USE.iter().map_while(|(name, _)| (*name != row.0).then_some(name));
        let above: Vec<&&str> = above.collect();
        for used in row.1 {
            assert!(above.contains(&used), "`{}` may use `{used}`, which is not above it", row.0);
        }
    }
}

#[test]
fn modules_of_ir_use_only_what_they_may() {
    let mut broken = Vec::new();
    for file in sources("ir/src") {
        let path = file.strip_prefix("ir/src/").expect("a source of ir");
        let module = path.split('/').next().unwrap_or(path).trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let Some((_, allowed)) = IR_MODULES_MAY_USE.iter().find(|(name, _)| *name == module) else {
            broken.push(format!("{file}: module `{module}` has no row in `IR_MODULES_MAY_USE`"));
            continue;
        };
        for (line, text) in code(&read(&file)) {
            if text.ends_with("crate::{") {
                broken.push(format!(
                    "{file}:{line}: name one module a line, so that this test can read it"
                ));
            }
            for used in paths_after("crate::", text) {
                if used != module && !allowed.contains(&used) {
                    broken.push(format!(
                        "{file}:{line}: `{module}` may use {allowed:?}, not `{used}`"
                    ));
                }
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn pure_code_has_no_files_clocks_streams_or_unordered_maps() {
    let mut broken = Vec::new();
    for (folder, exceptions) in PURE {
        for file in sources(folder) {
            let within = &file[folder.len() + 1..];
            if exceptions.iter().any(|exception| within.split('/').next() == Some(exception)) {
                continue;
            }
            for (line, text) in code(&read(&file)) {
                for (word, reason) in NEVER_IN_PURE.iter().filter(|(word, _)| mentions(text, word))
                {
                    broken.push(format!("{file}:{line}: `{word}`: {reason}"));
                }
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn files_are_short() {
    let mut broken = Vec::new();
    for file in members().iter().flat_map(|member| sources(&format!("{member}/src"))) {
        let lines = without_tests(&read(&file)).lines().count();
        if lines > MOST_LINES {
            broken.push(format!("{file}: {lines} lines, but at most {MOST_LINES}: split it"));
        }
    }
    assert_none(&broken);
}

/// A crate that is packaged has what it is built from: a path in a source that climbs more folders than it is deep
/// leads out of its crate.
#[test]
fn nothing_is_built_from_outside_a_crate() {
    let mut broken = Vec::new();
    for member in members() {
        for file in sources(&format!("{member}/src")) {
            let depth = file[member.len() + 1..].matches('/').count();
            for (line, text) in code(&read(&file)) {
                let climbs = text.rsplit('"').filter(|it| it.starts_with("../"));
                if climbs.map(|it| it.matches("../").count()).any(|it| it > depth) {
                    broken.push(format!("{file}:{line}: `{}` is outside the crate", text.trim()));
                }
            }
        }
    }
    assert_none(&broken);
}

/// Files are mapped, and libraries of other languages called and stood in for, in the executor's crates alone, each
/// time with the reason next to it.
#[test]
fn unsafe_code_is_denied_everywhere_but_where_it_says_why() {
    let root = read("Cargo.toml");
    let mut broken = Vec::new();
    let denies = |line: &str| line.starts_with(r#"unsafe_code = "deny""#);
    if !section(&root, "workspace.lints.rust").any(denies) {
        broken.push("Cargo.toml: `workspace.lints.rust` must deny `unsafe_code`".to_owned());
    }
    for member in members() {
        for file in sources(&format!("{member}/src")) {
            let text = read(&file);
            let allows = text.lines().any(|line| line.contains("unsafe_code"));
            if allows && !(is_executor(&member) && text.contains("// SAFETY:")) {
                broken.push(format!("{file}: unsafe code belongs in executor, with its proof"));
            }
        }
    }
    for member in members() {
        let manifest = format!("{member}/Cargo.toml");
        if !section(&read(&manifest), "lints").any(|line| line == "workspace = true") {
            broken.push(format!("{manifest}: `lints` must have `workspace = true`"));
        }
    }
    assert_none(&broken);
}

#[test]
fn documents_name_what_exists() {
    let mut broken = Vec::new();
    let members = members();
    for document in DOCUMENTS {
        let text = read(document);
        for member in &members {
            if *document != "CONTRIBUTING.md" && !text.contains(&format!("`{member}/")) {
                broken.push(format!("{document}: does not name `{member}/`"));
            }
        }
        for word in text.split('`').skip(1).step_by(2) {
            let ours = |member: &String| word.starts_with(&format!("{member}/"));
            let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
            if plain && members.iter().any(ours) && !root().join(word).exists() {
                broken.push(format!("{document}: names `{word}`, which does not exist"));
            }
        }
    }
    assert_none(&broken);
}

/// The readers above find what they look for.
#[test]
fn violations_are_found() {
    let manifest = "[dependencies]\nir.workspace = true\nburn-cuda = { version = \"1\" }\n\n\
                    [dev-dependencies]\nproptest = \"1\"\n\n[dependencies.traces]\npath = \"..\"\n";
    assert_eq!(dependencies(manifest), ["ir", "burn-cuda", "traces"]);
    assert_eq!(
        paths_after("crate::", "use crate::{graph::Op, units}; crate::plan::x"),
        ["graph", "units", "plan"]
    );
    assert!(mentions("let t = Instant::now();", "Instant"));
    assert!(!mentions("struct Instantiated;", "Instant"));
    assert!(!mentions("println!()", "print!"));
    let source =
        "use a;\n// std::fs\nlet x = 1; // HashMap\n#[cfg(test)]\nmod tests {\nuse b;\n}\n";
    assert_eq!(code(source), [(1, "use a;"), (3, "let x = 1;")]);
}

#[track_caller]
fn assert_none(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The crates of the workspace.
fn members() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let (_, list) = manifest.split_once("\nmembers = [").expect("a workspace has `members`");
    let (list, _) = list.split_once(']').expect("a list ends");
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether a crate is one of the executor's, which call libraries of other languages.
fn is_executor(member: &str) -> bool {
    member.split('/').next() == Some("executor")
}

/// The Rust files below `folder`, by path from the workspace; tests left out.
fn sources(folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root().join(folder)) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    let paths = names.iter().filter(|name| *name != "tests" && *name != "tests.rs");
    paths
        .map(|name| format!("{folder}/{name}"))
        .flat_map(|path| match Path::new(&path).extension() {
            Some(extension) if extension == "rs" => vec![path],
            _ => sources(&path),
        })
        .collect()
}

/// The lines of a table of a manifest.
fn section<'a>(manifest: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let heading = format!("[{name}]");
    let lines = manifest.lines().map(str::trim).skip_while(move |line| *line != heading).skip(1);
    lines.take_while(|line| !line.starts_with('['))
}

/// What a crate is built with: its dependencies, those of its build script, those of some targets;
/// not those of its tests.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut listing = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(heading) = line.strip_prefix('[') {
            let heading = heading.trim_end_matches(']');
            let (table, name) = match heading.rsplit_once("dependencies.") {
                Some((before, name)) => (format!("{before}dependencies"), Some(name)),
                None => (heading.to_owned(), None),
            };
            let built = table.ends_with("dependencies") && !table.ends_with("dev-dependencies");
            let built = built && !table.starts_with("workspace");
            names.extend(name.filter(|_| built).map(str::to_owned));
            listing = built && name.is_none();
        } else if listing && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            names.extend((!name.is_empty()).then(|| name.to_owned()));
        }
    }
    names
}

/// A source up to its inline tests.
fn without_tests(source: &str) -> &str {
    source.split_once("#[cfg(test)]\nmod tests {").map_or(source, |(before, _)| before)
}

/// The lines of a source with their numbers, without tests and comments.
fn code(source: &str) -> Vec<(usize, &str)> {
    (1..)
        .zip(without_tests(source).lines())
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(number, line)| (number, line.split_once(" // ").map_or(line, |(code, _)| code)))
        .collect()
}

/// Whether `text` has `word` where no longer identifier does.
fn mentions(text: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(start, _)| {
        let (before, after) = (&text[..start], &text[start + word.len()..]);
        let after = after.chars().next().filter(|_| word.ends_with(char::is_alphanumeric));
        !is_part(before.chars().next_back()) && !is_part(after)
    })
}

/// The first segments of all paths that start with `prefix`, grouped ones too.
fn paths_after<'a>(prefix: &str, text: &'a str) -> Vec<&'a str> {
    let first = |path: &'a str| {
        let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
        &path[..end]
    };
    text.match_indices(prefix)
        .flat_map(|(start, _)| {
            let path = &text[start + prefix.len()..];
            match path.strip_prefix('{') {
                Some(group) => {
                    let group = group.split_once('}').map_or(group, |(group, _)| group);
                    group.split(',').map(|path| first(path.trim())).collect()
                }
                None => vec![first(path)],
            }
        })
        .filter(|name| !name.is_empty())
        .collect()
}
