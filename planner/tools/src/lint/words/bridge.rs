//! Option changes for Megatron-Bridge, whose Python has Megatron-LM's arguments as settings.

use crate::interchange::bridge_settings;
use crate::lint::finding::{Edit, OptionChange};

/// Changes of Megatron's options as changes of settings in Python; `None` if an option has no setting.
pub(in crate::lint) fn of_megatron(changes: Vec<OptionChange>) -> Option<Vec<OptionChange>> {
    let mut all = Vec::new();
    for change in changes {
        let values: Option<Vec<String>> = match &change.edit {
            Edit::Set { value, .. } => {
                let words = value.iter().flat_map(|it| it.split_whitespace());
                Some(words.map(str::to_owned).collect())
            }
            Edit::Remove { .. } => None,
            Edit::Rename { .. } => return None,
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

/// Paths of the settings that equal options of Megatron-LM.
pub(in crate::lint) fn paths(options: &[&str]) -> Vec<String> {
    let paths = options.iter().flat_map(|flag| bridge_settings(flag, None));
    paths.map(|(path, _)| path).collect()
}
