//! Settings that are no part of a plan.

/// A setting that may change a step's time or memory, but is not part of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Name of the option or key.
    pub option: String,
    /// Effect of the option, or the reason why it is not read.
    pub why: String,
    /// True if the prediction would need less memory with it.
    pub saves_memory: bool,
    /// True if no table has it.
    pub is_unknown: bool,
}

impl Unread {
    /// A setting that does not save memory.
    pub(super) fn new(option: &str, why: impl Into<String>) -> Self {
        Self { option: option.to_owned(), why: why.into(), saves_memory: false, is_unknown: false }
    }
}

/// A line of a table for what may change a step but is no part of a plan.
#[derive(Clone, Debug)]
pub(super) struct Unplanned<'a> {
    /// Name of the option; one that ends with `*` stands for all with this prefix.
    pub(super) name: &'a str,
    /// Effect of the option.
    pub(super) why: &'a str,
    /// True if it saves memory.
    pub(super) saves_memory: bool,
    /// Values with which it changes nothing.
    pub(super) unless: Vec<&'a str>,
}

/// Word of such a line after `unplanned`: what it does saves memory that the prediction has.
const SAVES_MEMORY: &str = "saves-memory";

impl<'a> Unplanned<'a> {
    /// The line's name, the words after `unplanned`, and the reason.
    pub(super) fn new<'w: 'a>(
        name: &'a str,
        words: impl Iterator<Item = &'w str> + Clone,
        why: &'a str,
    ) -> Self {
        let saves_memory = words.clone().any(|it| it == SAVES_MEMORY);
        let unless = words.filter_map(|it| it.strip_suffix('=')).collect();
        Self { name, why, saves_memory, unless }
    }
}

/// Settings that are no part of a plan, in words, those of one reason together.
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
