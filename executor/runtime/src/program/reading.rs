//! Plans, read from text.

use ir::plan::{PLAN_VERSION, Plan};
use ir::text::json;

use super::error::ProgramError;

/// Reads a plan.
///
/// # Errors
///
/// [`ProgramError`] where the text is no plan of this version.
pub fn read_plan(text: &str) -> Result<Plan, ProgramError> {
    let json = |error: serde_json::Error| ProgramError::Json {
        line: error.line(),
        column: error.column(),
        // The error's own hint is joined to its line.
        problem: json::problem(text, &error).replace("\nhint: ", "; "),
    };
    let value: serde_json::Value = serde_json::from_str(text).map_err(json)?;
    if let Some((found, instead)) = something_else(&value) {
        return Err(ProgramError::NotAPlan { found, instead });
    }
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if let Some(version) = version.filter(|version| *version != u64::from(PLAN_VERSION)) {
        let command = value.pointer("/provenance/command").and_then(serde_json::Value::as_str);
        let command = command.unwrap_or("planner search").to_owned();
        return Err(ProgramError::Version { version, command });
    }
    serde_json::from_str(text).map_err(json)
}

/// Names the kind of a file that was probably mistaken for a plan, with a hint.
fn something_else(value: &serde_json::Value) -> Option<(&'static str, &'static str)> {
    let has = |key| value.get(key).is_some();
    let model = "`planner search MODEL --gpus N -o plan.json` plans it";
    if has("traceEvents") {
        Some(("a timeline", "run the plan that it is of; `planner chart` draws the timeline"))
    } else if has("model_type") || has("architectures") || has("architecture") || has("nodes") {
        Some(("a model", model))
    } else if has("levels") && has("gpu") {
        Some((
            "a cluster",
            "`planner search MODEL --gpus N --cluster FILE -o plan.json` plans for it",
        ))
    } else {
        None
    }
}
