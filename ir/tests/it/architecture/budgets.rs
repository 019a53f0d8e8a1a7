//! The size of the house. Budgets shrink freely; one grows only by a commit of its own, which says what capability the
//! lines buy.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{assert_none, code, members, mentions, read, root, sources, without_tests};

/// Lines of source of each crate, without tests, in whole hundreds; scripts and styles of its pages count.
const LINES: &[(&str, usize)] = &[
    ("command-line", 900),
    ("cost-models", 5_100),
    ("executor", 7_400),
    ("executor/communicators", 4_700),
    ("executor/kernels", 12_800),
    ("executor/runtime", 13_400),
    ("executor/stand-in", 9_000),
    ("ir", 30_000),
    ("models", 100),
    ("planner", 13_000),
    ("planner/core", 17_000),
    ("planner/evidence", 5_200),
    ("planner/tools", 22_100),
    ("simulator", 3_100),
    ("traces", 7_700),
];

/// Number of lines below a budget from which it is to be lowered.
const SLACK: usize = 200;

/// Files of source that name a field of a layout or of the training.
const FILES_THAT_NAME: &[(&str, usize)] = &[
    ("expert_tensor_parallel", 34),
    ("sequence_length", 60),
    ("token_dispatcher", 20),
    ("zero_shard", 24),
];

#[test]
fn crates_keep_within_their_budgets() {
    let mut broken = Vec::new();
    for member in members() {
        let folder = format!("{member}/src");
        let scripts = scripts(&folder).into_iter().map(|file| read(&file).lines().count());
        let of_rust = |file: &String| without_tests(&read(file)).lines().count();
        let lines = sources(&folder).iter().map(of_rust).chain(scripts).sum::<usize>();
        let budget = LINES.iter().find(|(name, _)| *name == member).map_or(0, |(_, lines)| *lines);
        if lines > budget {
            broken.push(format!("{folder}: {lines} lines, but its budget is {budget}"));
        } else if lines + SLACK < budget {
            broken.push(format!("{folder}: {lines} lines: lower its budget of {budget}"));
        }
    }
    assert_none(&broken);
}

#[test]
fn fields_are_named_in_few_files() {
    let files: Vec<String> =
        members().iter().flat_map(|it| sources(&format!("{it}/src"))).collect();
    let texts: Vec<String> = files.iter().map(|file| read(file)).collect();
    let mut broken = Vec::new();
    for (field, budget) in FILES_THAT_NAME {
        let names = |text: &&String| code(text).iter().any(|(_, line)| mentions(line, field));
        let count = texts.iter().filter(names).count();
        if count > *budget {
            broken.push(format!("`{field}` is named in {count} files, but its budget is {budget}"));
        }
    }
    assert_none(&broken);
}

#[test]
fn names_of_public_types_are_unambiguous() {
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in members().iter().flat_map(|it| sources(&format!("{it}/src"))) {
        for (line, text) in code(&read(&file)) {
            let declared = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
            // Those that a macro declares are indented.
            let text = text.trim_start();
            let Some(rest) = declared.iter().find_map(|it| text.strip_prefix(it)) else { continue };
            let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or(rest);
            // A macro's own argument is none.
            if name.is_empty() {
                continue;
            }
            types.entry(name.to_owned()).or_default().push(format!("{file}:{line}"));
        }
    }
    let mut broken = Vec::new();
    for (name, places) in types.iter().filter(|(_, places)| places.len() > 1) {
        broken.push(format!("`{name}` is {}", places.join(" and ")));
    }
    assert_none(&broken);
}

/// Scripts, styles and templates of pages below `folder`.
fn scripts(folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root().join(folder)) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let paths = names.map(|name| format!("{folder}/{name}"));
    let is_of_page = |path: &str| {
        let extension = Path::new(path).extension().and_then(|it| it.to_str());
        extension.is_some_and(|it| ["css", "html", "js"].contains(&it))
    };
    paths.flat_map(|path| if is_of_page(&path) { vec![path] } else { scripts(&path) }).collect()
}
