//! Option changes for Megatron-Bridge, whose Python has Megatron-LM's arguments as settings.

use crate::interchange::bridge_settings;
use crate::lint::finding::OptionChange;
use crate::lint::keys::Notation;

/// Changes of Megatron's options as changes of settings in Python; `None` if an option has no setting.
pub(super) fn of_megatron(changes: Vec<OptionChange>) -> Option<Vec<OptionChange>> {
    let mut all = Vec::new();
    for change in changes {
        let values: Option<Vec<String>> = match &change {
            OptionChange::Set { value, .. } => {
                let words = value.iter().flat_map(|it| it.split_whitespace());
                Some(words.map(str::to_owned).collect())
            }
            OptionChange::Remove { .. } => None,
            OptionChange::Rename { .. } => return None,
        };
        let settings = bridge_settings(change.option(), values.as_deref());
        // An option without a setting is not there to be removed.
        if settings.is_empty() && values.is_some() {
            return None;
        }
        let set = |(path, value): (String, String)| OptionChange::set(&path, Some(value));
        all.extend(settings.into_iter().map(set));
    }
    Some(all)
}

/// Changes as they apply to a text, which may be Python with settings instead of Megatron's options.
pub(in crate::lint) fn of_text(text: &str, changes: Vec<OptionChange>) -> Vec<OptionChange> {
    let is_of_megatron = |it: &OptionChange| it.option().starts_with("--");
    if Notation::of(text) == Some(Notation::Python) && changes.iter().all(is_of_megatron) {
        return of_megatron(changes.clone()).unwrap_or(changes);
    }
    changes
}

/// Name of an option in a text.
pub(in crate::lint) fn name_in(text: &str, option: &str) -> String {
    let is_python = Notation::of(text) == Some(Notation::Python);
    let path = is_python.then(|| paths(&[option]).into_iter().next()).flatten();
    path.unwrap_or_else(|| option.to_owned())
}

/// Paths of the settings that equal options of Megatron-LM.
pub(super) fn paths(options: &[&str]) -> Vec<String> {
    let paths = options.iter().flat_map(|flag| bridge_settings(flag, None));
    paths.map(|(path, _)| path).collect()
}
