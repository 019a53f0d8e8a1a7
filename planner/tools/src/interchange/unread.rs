//! Settings that are no part of a plan.

/// A setting that may change a step's time or memory, but is not part of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Name of the option or key.
    pub option: String,
    /// What it does, or why it is not read.
    pub why: String,
}

/// Settings that are no part of a plan, in words, those of one reason together.
pub fn by_reason(all: &[Unread]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for Unread { option, why } in all {
        let name = format!("`{option}`");
        match reasons.iter_mut().find(|it| it.0 == why) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    reasons.into_iter().map(|(why, names)| format!("{} ({why})", names.join(", "))).collect()
}
