//! Settings that are not part of a plan.

/// A setting that may change a step's time or memory, but is not part of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Name of the option or key.
    pub option: String,
    /// Effect of the option, or the reason why it is not read.
    pub why: String,
    /// True if the prediction would need less memory with it.
    pub saves_memory: bool,
    /// True if no table has the option.
    pub is_unknown: bool,
}

impl Unread {
    /// A setting that does not save memory.
    pub(super) fn new(option: &str, why: impl Into<String>) -> Self {
        Self { option: option.to_owned(), why: why.into(), saves_memory: false, is_unknown: false }
    }
}

/// Word after `unplanned` in a line of a table: the option saves memory that the prediction counts.
pub(super) const SAVES_MEMORY: &str = "saves-memory";

/// Settings that are not part of a plan, in words, grouped by reason.
pub fn by_reason(all: &[Unread]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for Unread { option, why, .. } in all {
        let name = format!("`{option}`");
        match reasons.iter_mut().find(|it| it.0 == why) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    reasons.into_iter().map(|(why, names)| format!("{} ({why})", names.join(", "))).collect()
}
