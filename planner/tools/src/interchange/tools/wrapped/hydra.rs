//! Files that Hydra composes: the file that a command names overrides those in its list `defaults`.

use std::collections::BTreeSet;

use super::wrapper::{Setting, value};
use crate::interchange::error::ImportError;
use crate::interchange::file::basename;
use crate::interchange::source::Source;
use crate::interchange::tree::Tree;

/// Key of the list of files that a file overrides.
const DEFAULTS: &str = "defaults";

/// Name in that list for the file itself, which comes last unless the list contains this name.
const SELF: &str = "_self_";

/// Keys of a file's name: that which `--config-name` sets, and EasyR1's, which composes no files.
const NAMES: [&str; 2] = ["config_name", "config"];

/// Name of the file for a name that Hydra is given.
fn file_of(name: &str) -> String {
    format!("{}.yaml", basename(name).trim_end_matches(".yaml"))
}

/// verl's own files, whose values are known defaults; those that generate on separate GPUs train in the same way.
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

/// Keys of the file that a command names, if the file is given. The name is removed from `options` if the file is given
/// or is one of verl's own, since it has no further effect then.
pub(super) fn named(
    source: &Source<'_>,
    options: &mut Vec<Setting>,
) -> Result<Option<Tree>, ImportError> {
    let name = NAMES.iter().find_map(|it| value(options, it));
    let Some(file) = name.map(file_of) else { return Ok(None) };
    let is_there = source.files.contains_key(&file);
    if is_there || is_own(&file) {
        options.retain(|it| !NAMES.contains(&it.0.as_str()));
    }
    is_there.then(|| source.tree(&file)).transpose()
}

/// Files of a composition.
#[derive(Default)]
struct Composition {
    /// Files that are in the composition already, so that circular references end.
    seen: BTreeSet<String>,
    /// Names of files that are not given.
    missing: Vec<Tree>,
}

/// Keys of a file, which override those of its defaults. The names of files that are not given stay in the list
/// `defaults`.
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
        // Entries for verl's own groups of files are not texts.
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

/// Adds keys, which override existing ones.
fn merge(all: &mut Vec<(String, Tree)>, over: &[(String, Tree)]) {
    for (key, tree) in over {
        match (all.iter_mut().find(|it| it.0 == *key), tree) {
            (Some((_, Tree::Keys(inner))), Tree::Keys(over)) => merge(inner, over),
            (Some((_, known)), _) => known.clone_from(tree),
            (None, _) => all.push((key.clone(), tree.clone())),
        }
    }
}
