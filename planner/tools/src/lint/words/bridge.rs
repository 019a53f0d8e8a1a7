//! Option changes for Megatron-Bridge, whose Python sets Megatron-LM's arguments under other names.

use crate::interchange::bridge_settings;
use crate::lint::finding::{Edit, OptionChange};

/// A change of a Megatron-LM option as changes of settings in Python; `None` if the option has no setting.
pub(in crate::lint) fn of_megatron(change: &OptionChange) -> Option<Vec<OptionChange>> {
    let values: Option<Vec<String>> = match &change.edit {
        Edit::Set { value, .. } => {
            let words = value.iter().flat_map(|it| it.split_whitespace());
            Some(words.map(str::to_owned).collect())
        }
        Edit::Remove { .. } => None,
        Edit::Rename { .. } => return None,
    };
    let settings = bridge_settings(change.option(), values.as_deref());
    // There is nothing to remove for an option without a setting.
    if settings.is_empty() && values.is_some() {
        return None;
    }
    let set = |(path, value): (String, String)| OptionChange::set(&path, Some(value));
    Some(settings.into_iter().map(set).collect())
}
