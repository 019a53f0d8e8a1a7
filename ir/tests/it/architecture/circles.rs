//! No files of a crate import each other in a circle: a file can be read after those that it takes
//! from, and by itself.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Imports, imports};
use super::{assert_none, members, read, sources, without_tests};

#[test]
fn files_import_each_other_in_no_circle() {
    let mut broken = Vec::new();
    for member in members() {
        let folder = format!("{member}/src");
        let within = |file: &String| file[folder.len() + 1..].to_owned();
        let files = sources(&folder);
        let texts = files.iter().map(|file| (within(file), without_tests(&read(file)).to_owned()));
        let imports = imports(&texts.collect::<Vec<_>>());
        broken.extend(circles(&imports).iter().map(|circle| described(&folder, circle, &imports)));
    }
    assert_none(&broken);
}

/// The reader finds a circle through a module that only hands on, and not where none is.
#[test]
fn made_up_circles_are_found() {
    let check = |sources: &[(&str, &str)], expected: &[&[&str]]| {
        let own = |(file, text): &(&str, &str)| ((*file).to_owned(), (*text).to_owned());
        let imports = imports(&sources.iter().map(own).collect::<Vec<_>>());
        assert_eq!(circles(&imports), expected, "{imports:#?}");
    };
    let root = ("lib.rs", "pub mod house;\nmod roof;\n");
    let house = ("house/mod.rs", "mod door;\nmod wall;\npub use door::{Door, Handle as Grip};\n");
    let circle: &[&[&str]] = &[&["house/door.rs", "roof.rs"]];

    // Through a name that is handed on, in a list and in the midst of code.
    let door = ("house/door.rs", "use crate::roof::Roof;\npub struct Door;\npub struct Handle;");
    let roof = ("roof.rs", "use crate::{\n    house::{Door as Gate},\n};\npub struct Roof(Gate);");
    check(&[root, house, door, roof], circle);
    let roof = ("roof.rs", "pub struct Roof;\nimpl Roof { fn x() { crate::house::Grip::new() } }");
    check(&[root, house, door, roof], circle);
    let roof = ("roof.rs", "use super::house;\nfn x() -> Roof { house::Door::roof() }");
    check(&[root, house, door, roof], circle);

    // What is commented out or quoted is not taken, and what is handed on is not used.
    let roof = ("roof.rs", "// crate::house::Door\nconst X: &str = \"crate::house::Door\\\"\";");
    check(&[root, house, door, roof], &[]);

    // A child that takes from a parent that takes from the child.
    let house = ("house/mod.rs", "mod door;\nuse door::Door;\npub struct House(Door);\n");
    let door = ("house/door.rs", "pub struct Door;\nfn house(_: super::House) {}");
    check(&[root, house, door], &[&["house/door.rs", "house/mod.rs"]]);
}

/// The files that import each other, each lot by name.
fn circles(imports: &Imports) -> Vec<Vec<&str>> {
    let mut taken: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in imports.keys() {
        taken.entry(from).or_default().insert(to);
    }
    let reached = |from| {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(file) = next.pop() {
            let more = taken.get(file).into_iter().flatten().copied();
            next.extend(more.filter(|file| reached.insert(*file)));
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        taken.keys().map(|file| (*file, reached(*file))).collect();
    let circle = |file: &&str| {
        let back = |other: &&str| reached.get(other).is_some_and(|files| files.contains(file));
        reached[file].iter().copied().filter(back).collect::<Vec<_>>()
    };
    let circles: BTreeSet<Vec<&str>> = taken.keys().map(circle).collect();
    circles.into_iter().filter(|circle| !circle.is_empty()).collect()
}

/// A circle in words, with what ties it.
fn described(folder: &str, circle: &[&str], imports: &Imports) -> String {
    let is_within = |file: &String| circle.contains(&file.as_str());
    let ties = imports.iter().filter(|((from, to), _)| is_within(from) && is_within(to));
    let ties = ties.map(|((from, to), names)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("  {folder}/{from} takes {} from {folder}/{to}", names.join(", "))
    });
    let files = circle.join(", ");
    format!(
        "{folder}: {files} import each other in a circle:\n{}",
        ties.collect::<Vec<_>>().join("\n")
    )
}
