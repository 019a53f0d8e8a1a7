//! Files that Hydra composes: the one that a command names, over those of its list `defaults`.

use std::collections::BTreeSet;

use super::wrapper::{Setting, value};
use crate::interchange::error::ImportError;
use crate::interchange::file::basename;
use crate::interchange::source::Source;
use crate::interchange::tree::Tree;

/// Key of the names of files that a file is composed over.
const DEFAULTS: &str = "defaults";

/// Name in that list of the file itself, which is the last of them unless it is in the list.
const SELF: &str = "_self_";

/// Key of the name of a file, as `--config-name` gives it.
const NAME: &str = "config_name";

/// File of a name that Hydra is given.
fn file_of(name: &str) -> String {
    format!("{}.yaml", basename(name).trim_end_matches(".yaml"))
}

/// Files of verl's own, whose values are defaults that are known; those that generate apart train alike.
const OWN: [&str; 9] = [
    "ppo_trainer.yaml",
    "ppo_megatron_trainer.yaml",
    "sft_trainer.yaml",
    "sft_trainer_engine.yaml",
    "_generated_ppo_trainer.yaml",
    "one_step_off_ppo_trainer.yaml",
    "one_step_off_ppo_megatron_trainer.yaml",
    "fully_async_ppo_trainer.yaml",
    "fully_async_ppo_megatron_trainer.yaml",
];

/// Returns whether a file is verl's own.
fn is_own(file: &str) -> bool {
    OWN.contains(&file)
}

/// Keys of the file that a command names, where it is there. Of verl's own files and those that are read the name has
/// no further effect, and is taken out.
pub(super) fn named(
    source: &Source<'_>,
    options: &mut Vec<Setting>,
) -> Result<Option<Tree>, ImportError> {
    let Some(file) = value(options, NAME).map(file_of) else { return Ok(None) };
    let is_there = source.files.contains_key(&file);
    if is_there || is_own(&file) {
        options.retain(|it| it.0 != NAME);
    }
    is_there.then(|| source.tree(&file)).transpose()
}

/// Files of a composition.
#[derive(Default)]
struct Composition {
    /// Files that are in it already, so that a circle ends.
    seen: BTreeSet<String>,
    /// Names of files that are not there.
    missing: Vec<Tree>,
}

/// Keys of a file over those of its defaults; of these the names of files that are not there are left.
pub(super) fn composed(source: &Source<'_>, tree: &Tree) -> Result<Tree, ImportError> {
    let mut files = Composition::default();
    let mut keys = files.keys_of(source, tree)?;
    if !files.missing.is_empty() {
        keys.push((DEFAULTS.to_owned(), Tree::List(files.missing)));
    }
    Ok(Tree::Keys(keys))
}

impl Composition {
    fn keys_of(
        &mut self,
        source: &Source<'_>,
        tree: &Tree,
    ) -> Result<Vec<(String, Tree)>, ImportError> {
        let mut own = tree.keys().to_vec();
        own.retain(|it| it.0 != DEFAULTS);
        let listed = tree.get(DEFAULTS).map_or(&[][..], Tree::items);
        // Groups of files, which verl has of its own, are no texts.
        let names: Vec<&str> = listed.iter().filter_map(Tree::text).collect();
        let last = (!names.contains(&SELF)).then_some(SELF);
        let mut all = Vec::new();
        for name in names.into_iter().chain(last) {
            let file = file_of(name);
            if name == SELF {
                merge(&mut all, &own);
            } else if source.files.contains_key(&file) {
                if self.seen.insert(file.clone()) {
                    merge(&mut all, &self.keys_of(source, &source.tree(&file)?)?);
                }
            } else if !is_own(&file) {
                self.missing.push(Tree::Value(name.to_owned()));
            }
        }
        Ok(all)
    }
}

/// Adds keys over those that are there.
fn merge(all: &mut Vec<(String, Tree)>, over: &[(String, Tree)]) {
    for (key, tree) in over {
        match (all.iter_mut().find(|it| it.0 == *key), tree) {
            (Some((_, Tree::Keys(inner))), Tree::Keys(over)) => merge(inner, over),
            (Some((_, known)), _) => known.clone_from(tree),
            (None, _) => all.push((key.clone(), tree.clone())),
        }
    }
}
