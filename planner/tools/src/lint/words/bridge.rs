//! Megatron-Bridge's settings, which are Megatron-LM's arguments in Python.

use crate::interchange::{HowGiven, bridge_settings};
use crate::lint::finding::OptionChange;
use crate::lint::keys::Notation;

/// The same changes of what an export's Python sets; none where it has no such setting.
pub(super) fn of_megatron(changes: Vec<OptionChange>) -> Option<Vec<OptionChange>> {
    let mut all = Vec::new();
    for change in changes {
        let (flag, value) = match &change {
            OptionChange::Set { option, value } => {
                (option, value.as_deref().map_or(HowGiven::Switch, HowGiven::Value))
            }
            OptionChange::Remove { option } => (option, HowGiven::LeftOut),
            OptionChange::Rename { .. } => return None,
        };
        let settings = bridge_settings(flag, value);
        // What it cannot be told need not be left out.
        if settings.is_empty() && value != HowGiven::LeftOut {
            return None;
        }
        let set = |(path, value): (String, String)| OptionChange::set(&path, Some(value));
        all.extend(settings.into_iter().map(set));
    }
    Some(all)
}

/// Changes as they are made in a text, which may be Python that has Megatron's options by other names.
pub(in crate::lint) fn of_text(text: &str, changes: Vec<OptionChange>) -> Vec<OptionChange> {
    let is_of_megatron = |it: &OptionChange| it.option().starts_with("--");
    if Notation::of(text) == Some(Notation::Python) && changes.iter().all(is_of_megatron) {
        return of_megatron(changes.clone()).unwrap_or(changes);
    }
    changes
}

/// An option as it is named in a text.
pub(in crate::lint) fn name_in(text: &str, option: &str) -> String {
    let is_python = Notation::of(text) == Some(Notation::Python);
    let path = is_python.then(|| paths(&[option]).into_iter().next()).flatten();
    path.unwrap_or_else(|| option.to_owned())
}

/// Where it has what Megatron has under these options.
pub(super) fn paths(options: &[&str]) -> Vec<String> {
    let paths = options.iter().flat_map(|flag| bridge_settings(flag, HowGiven::LeftOut));
    paths.map(|(path, _)| path).collect()
}
