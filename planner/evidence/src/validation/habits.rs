//! Habits of a run that differ from its framework's.

use ir::framework::Framework;
use serde::de::Error as _;
use serde_json::{Map, Value};

/// A framework with some habits replaced by a merge patch of its file (RFC 7386); null stands for no patch.
///
/// # Errors
///
/// The result is not a valid framework.
pub(super) fn with_habits(framework: &Framework, habits: &Value) -> serde_json::Result<Framework> {
    if habits.is_null() {
        return Ok(framework.clone());
    }
    let mut file = serde_json::to_value(framework)?;
    merge(&mut file, habits);
    let framework: Framework = serde_json::from_value(file)?;
    framework.check().map_err(serde_json::Error::custom)?;
    Ok(framework)
}

/// Applies a merge patch: null removes a field, objects are merged, other values replace the old ones.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (name, value) in patch {
        if value.is_null() {
            target.as_object_mut().and_then(|fields| fields.remove(name));
        } else {
            merge(&mut target[name], value);
        }
    }
}
