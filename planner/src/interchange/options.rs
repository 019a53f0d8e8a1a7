//! Options of a program, as its parser takes them.

use std::collections::BTreeMap;

use super::shell::Word;

/// The options that a program knows, each with how many values it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// The program.
    pub(super) program: &'static str,
    /// Lines of a name and `none`, `one`, `some`, `any` or a number.
    pub(super) table: &'static str,
}

/// Options that were given.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    all: BTreeMap<String, Vec<Word>>,
}

/// Why options cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// None that the program knows.
    #[error("{program} has no `{name}`{}", nearest.as_ref().map_or(String::new(), |it| format!("\nhint: `{it}`")))]
    Unknown {
        /// Which.
        name: String,
        /// Of which program.
        program: &'static str,
        /// The one that is spelt most like it, if any is.
        nearest: Option<String>,
    },
    /// It comes twice.
    #[error("`{name}` is given twice: {first}, then {second}\nhint: leave out one")]
    Twice {
        /// Which.
        name: String,
        /// What it is first.
        first: String,
        /// What it is then.
        second: String,
    },
    /// It has no value, or too many.
    #[error("`{name}` takes {takes}, but has {has}")]
    Values {
        /// Which.
        name: String,
        /// How many values it takes.
        takes: String,
        /// How many it has.
        has: usize,
    },
    /// A word that belongs to no option.
    #[error("`{word}` stands where an option is expected{}", after.as_ref().map_or(String::new(), |it| format!(", after `{it}`")))]
    Stray {
        /// The word.
        word: String,
        /// What stands before it.
        after: Option<String>,
    },
    /// It depends on what is not known.
    #[error(
        "{what} depends on {}, which the script does not set\nhint: `--set {}=VALUE`", ticked(unknown),
        unknown.first().map_or("NAME", String::as_str)
    )]
    Unresolved {
        /// The option, or the place of one.
        what: String,
        /// What it depends on.
        unknown: Vec<String>,
    },
    /// A value that is none of those it can have.
    #[error("`{name} {value}`: {works}")]
    Value {
        /// Which.
        name: String,
        /// The value.
        value: String,
        /// What would work.
        works: String,
    },
    /// Two that contradict each other.
    #[error("{one} and {other} contradict each other: {why}")]
    Contradiction {
        /// One.
        one: String,
        /// The other.
        other: String,
        /// What of them cannot be.
        why: String,
    },
    /// One without which nothing is known.
    #[error("`{name}` is missing\nhint: {works}")]
    Missing {
        /// Which.
        name: String,
        /// What would work.
        works: String,
    },
}

fn ticked(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// How unlike a known name may be to be taken for a misspelt one: a share of its letters.
const LIKENESS: f64 = 0.7;

impl Known {
    fn takes(&self, name: &str) -> Option<&'static str> {
        let mut lines = self.table.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(known, _)| *known == name).map(|(_, takes)| takes)
    }

    /// The name that is spelt most like another.
    fn nearest(&self, name: &str) -> Option<String> {
        let names = self.table.lines().filter_map(|line| line.split(' ').next());
        let like =
            |known: &str| strsim::normalized_damerau_levenshtein(&name.replace('_', "-"), known);
        let scored = names.map(|known| (like(known), known));
        let best = scored.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)));
        best.filter(|(likeness, _)| *likeness >= LIKENESS).map(|(_, known)| known.to_owned())
    }

    /// Reads the words after a program.
    pub(super) fn read(&self, words: &[Word]) -> Result<Given, OptionError> {
        let mut given = Given::default();
        let mut at = 0;
        let mut before = None;
        while at < words.len() {
            let word = &words[at];
            at += 1;
            let (name, inline) = match word.text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value)),
                _ => (word.text.as_str(), None),
            };
            if !name.starts_with("--") {
                let unknown: Vec<String> = word.unknown.iter().cloned().collect();
                if name.is_empty() && !unknown.is_empty() {
                    let what = match &before {
                        Some(before) => format!("what follows `{before}`"),
                        None => "the first option".to_owned(),
                    };
                    return Err(OptionError::Unresolved { what, unknown });
                }
                return Err(OptionError::Stray { word: name.to_owned(), after: before });
            }
            let Some(takes) = self.takes(name) else {
                let (name, program) = (name.to_owned(), self.program);
                let nearest = self.nearest(&name);
                return Err(OptionError::Unknown { name, program, nearest });
            };
            let is_value = |word: &&Word| !word.text.starts_with("--");
            let following = words[at..].iter().take_while(is_value);
            let values: Vec<Word> = match (inline, takes) {
                (Some(value), _) => {
                    vec![Word { text: value.to_owned(), unknown: word.unknown.clone() }]
                }
                (None, "none") => Vec::new(),
                (None, "one") => following.take(1).cloned().collect(),
                (None, number) => {
                    let most = number.parse().unwrap_or(usize::MAX);
                    following.take(most).cloned().collect()
                }
            };
            if inline.is_none() {
                at += values.len();
            }
            let has = values.len();
            let fits = match takes {
                "none" => has == 0,
                "one" => has == 1,
                "some" => has > 0,
                "any" => true,
                number => number.parse() == Ok(has),
            };
            if !fits {
                let takes = match takes {
                    "none" => "no value".to_owned(),
                    "one" => "a value".to_owned(),
                    "some" => "one value or more".to_owned(),
                    number => format!("{number} values"),
                };
                return Err(OptionError::Values { name: name.to_owned(), takes, has });
            }
            if let Some(first) = given.all.insert(name.to_owned(), values.clone()) {
                let (first, second) = (shown(&first), shown(&values));
                return Err(OptionError::Twice { name: name.to_owned(), first, second });
            }
            before = Some(name.to_owned());
        }
        Ok(given)
    }
}

fn shown(values: &[Word]) -> String {
    let texts: Vec<&str> = values.iter().map(|word| word.text.as_str()).collect();
    if texts.is_empty() { "as a switch".to_owned() } else { format!("`{}`", texts.join(" ")) }
}

impl Given {
    /// Whether an option is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// The values of an option, all of them known.
    pub(super) fn values(&self, name: &str) -> Result<Option<Vec<&str>>, OptionError> {
        let Some(words) = self.all.get(name) else { return Ok(None) };
        let unknown: Vec<String> = words.iter().flat_map(|it| it.unknown.iter().cloned()).collect();
        if !unknown.is_empty() {
            return Err(OptionError::Unresolved { what: format!("`{name}`"), unknown });
        }
        Ok(Some(words.iter().map(|word| word.text.as_str()).collect()))
    }

    /// The value of an option.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, OptionError> {
        Ok(self.values(name)?.and_then(|values| values.into_iter().next()))
    }

    /// A count: a whole number, at least 1.
    pub(super) fn count<T: std::str::FromStr + PartialOrd + From<u8>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, OptionError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let count = text.parse().ok().filter(|count| *count >= T::from(1));
        let works = "a whole number, at least 1, is expected".to_owned();
        let error = || OptionError::Value { name: name.to_owned(), value: text.to_owned(), works };
        count.map(Some).ok_or_else(error)
    }

    /// The value of an option as one of several.
    pub(super) fn one_of<T: Copy>(
        &self,
        name: &str,
        known: &[(&str, T)],
    ) -> Result<Option<T>, OptionError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let found = known.iter().find(|(known, _)| *known == text).map(|(_, it)| *it);
        let names: Vec<&str> = known.iter().map(|(known, _)| *known).collect();
        let works = format!("one of {} is expected", names.join(", "));
        let error = || OptionError::Value { name: name.to_owned(), value: text.to_owned(), works };
        found.map(Some).ok_or_else(error)
    }

    /// Refuses two that may not be given together.
    pub(super) fn not_both(&self, one: &str, other: &str, why: &str) -> Result<(), OptionError> {
        if self.has(one) && self.has(other) {
            return Err(OptionError::Contradiction {
                one: format!("`{one}`"),
                other: format!("`{other}`"),
                why: why.to_owned(),
            });
        }
        Ok(())
    }
}
