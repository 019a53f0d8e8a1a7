//! Options of a program, parsed as the program parses them.

use std::collections::BTreeMap;

use ir::text::typeset;

use super::shell::Word;
use super::unread::Unread;

/// Options of a program, each with its number of values; or keys of its file, with dots between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vocabulary {
    /// Name of the program.
    program: &'static str,
    /// Lines of a name and `none`, `one`, `some`, `any` or a number of values; a name that ends with `*` stands for all
    /// with this prefix.
    pub(super) table: &'static str,
    /// True if names that are not in the table may well be options of the user's own script, so that only those that are
    /// almost the same as a known one count as misspelt. Else they are options of another version or of a fork, unless
    /// they look like a known one.
    takes_own: bool,
}

/// Content of a key of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    /// Null, as if the key were absent.
    Null,
    /// An empty object.
    NoKeys,
    /// Values: one, or the items of a list.
    Values(Vec<String>),
}

impl Leaf {
    /// One value.
    pub(super) fn value(value: impl Into<String>) -> Self {
        Self::Values(vec![value.into()])
    }
}

/// Options that were given, with their values.
#[derive(Clone, Debug, Default)]
pub(super) struct ParsedOptions {
    all: BTreeMap<String, Vec<Word>>,
    /// Names that the vocabulary does not have and that look like no misspelt ones.
    others: Vec<String>,
}

fn typeset_note(word: &str) -> String {
    typeset(word).map_or_else(String::new, |it| format!(": {}", it.what))
}

/// Error of options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// An option that the program does not know.
    #[error(
        "{program} has no `{name}`{}{}", typeset_note(name),
        nearest.as_ref().map_or(String::new(), |it| format!("\nhint: `{it}`"))
    )]
    Unknown {
        /// Name of the option.
        name: String,
        /// Name of the program.
        program: &'static str,
        /// Known option of the most similar spelling, if one is similar enough.
        nearest: Option<String>,
    },
    /// An option that is given twice.
    #[error("`{name}` is given twice: {first}, then {second}\nhint: leave out one")]
    Twice {
        /// Name of the option.
        name: String,
        /// First value.
        first: String,
        /// Second value.
        second: String,
    },
    /// An option with no value or with too many.
    #[error("`{name}` takes {takes}, but has {has}")]
    Values {
        /// Name of the option.
        name: String,
        /// Number of values that it takes, in words.
        takes: String,
        /// Number of values given.
        has: usize,
    },
    /// A word that belongs to no option.
    #[error(
        "`{word}` stands where an option is expected{}{}{}",
        after.as_ref().map_or(String::new(), |it| format!(", after `{it}`")), typeset_note(word),
        typeset(word).map_or_else(String::new, |it| format!("\nhint: `{}`", it.plain))
    )]
    Stray {
        /// The word.
        word: String,
        /// Option before it.
        after: Option<String>,
    },
    /// A value that depends on unknown variables.
    #[error(
        "{what} depends on {}, which the script does not set, or in a branch alone\nhint: {}",
        ticked(unknown),
        settable(unknown)
    )]
    Unresolved {
        /// The option, or its position if its name is unknown.
        what: String,
        /// Unknown variables.
        unknown: Vec<String>,
    },
    /// Keys instead of a value, or a value instead of keys.
    #[error("{program} has {takes}, but `{name}` is {has}")]
    Kind {
        /// Name of the key.
        name: String,
        /// Name of the program.
        program: &'static str,
        /// Kind of the content given.
        has: &'static str,
        /// Content that the program expects.
        takes: String,
    },
    /// `auto`, which the program that reads the file fills in.
    #[error(
        "`{name}` is `auto`, which is filled in by what reads the file\nhint: write its value, or import the script \
         whose arguments have it"
    )]
    Auto {
        /// Name of the key.
        name: String,
    },
    /// A value that the option does not accept.
    #[error("`{name} {value}`: {works}")]
    Value {
        /// Name of the option.
        name: String,
        /// The value.
        value: String,
        /// Values that it accepts.
        works: String,
    },
    /// Two options that contradict each other.
    #[error("{one} and {other} contradict each other: {why}")]
    Contradiction {
        /// First option.
        one: String,
        /// Second option.
        other: String,
        /// Reason for the contradiction.
        why: String,
    },
    /// A required option that is not given.
    #[error("`{name}` is missing\nhint: {works}")]
    Missing {
        /// Name of the option.
        name: String,
        /// Hint: a value that works, or where to set it.
        works: String,
    },
}

impl OptionError {
    pub(super) fn value(
        name: impl Into<String>,
        value: impl Into<String>,
        works: impl Into<String>,
    ) -> Self {
        Self::Value { name: name.into(), value: value.into(), works: works.into() }
    }

    pub(super) fn missing(name: impl Into<String>, works: impl Into<String>) -> Self {
        Self::Missing { name: name.into(), works: works.into() }
    }
}

/// Hint on how unknown values can be said.
fn settable(unknown: &[String]) -> String {
    match unknown.first() {
        // A command, which is not run.
        Some(command) if command.starts_with(['$', '`']) => {
            format!("write its value in the place of `{}`", command.replace('`', ""))
        }
        name => format!("`--set {}=VALUE`", name.map_or("NAME", String::as_str)),
    }
}

fn ticked(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Least similarity of a name and a known option for a hint: normalized Damerau-Levenshtein, from 0 to 1.
const LIKENESS: f64 = 0.7;

/// Least similarity at which a name that may be the user's own counts as a misspelt option.
const OWN_LIKENESS: f64 = 0.9;

/// Least letters of a name that counts as misspelt if one letter differs; shorter names may be the user's own.
const SHORT: usize = 6;

/// Value that is filled in when the program reads the file.
const AUTO: &str = "auto";

impl Vocabulary {
    /// Options of a program that has no others in this version.
    pub(super) const fn whole(program: &'static str, table: &'static str) -> Self {
        Self { program, table, takes_own: false }
    }

    /// Options of a program to which the user's script may add its own.
    pub(super) const fn with_own(program: &'static str, table: &'static str) -> Self {
        Self { program, table, takes_own: true }
    }

    /// Name of the program.
    pub(super) const fn program(&self) -> &'static str {
        self.program
    }

    fn lines(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let lines = self.table.lines().filter(|line| !line.starts_with('['));
        lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?)).filter(|(_, takes)| *takes != "word")
        })
    }

    pub(super) fn takes(&self, name: &str) -> Option<&'static str> {
        // Keys of a file may be options of a command line too.
        let are_keys = self.table.lines().all(|line| !line.starts_with("--"));
        let name = if are_keys { name.trim_start_matches("--") } else { name };
        let is_it = |known: &str| match known.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => known == name,
        };
        self.lines().find(|(known, _)| is_it(known)).map(|(_, takes)| takes)
    }

    /// Returns whether an unknown name is an option of the user's own script, of a fork or of another version, not a
    /// misspelt known one.
    fn is_other(&self, name: &str) -> bool {
        if !self.takes_own {
            return typeset(name).is_none() && self.nearest(name).is_none();
        }
        let is_misspelt = |(likeness, known): (f64, &str)| {
            let is_a_letter_off = strsim::damerau_levenshtein(name, known) <= 1;
            likeness >= OWN_LIKENESS || is_a_letter_off && name.len() >= SHORT
        };
        !self.likest(name).is_some_and(is_misspelt)
    }

    fn unknown(&self, name: &str) -> OptionError {
        let nearest = typeset(name).map(|it| it.plain).or_else(|| self.nearest(name));
        OptionError::Unknown { name: name.to_owned(), program: self.program, nearest }
    }

    /// Reads the keys of a file, each with its path and content.
    pub(super) fn of_leaves(
        &self,
        leaves: &[(String, Leaf)],
    ) -> Result<ParsedOptions, OptionError> {
        let mut given = ParsedOptions::default();
        for (name, leaf) in leaves {
            let within = self.lines().find(|(known, _)| {
                known.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'))
            });
            let Some(takes) = self.takes(name) else {
                let (program, name) = (self.program, name.clone());
                match (within, leaf) {
                    // A section that is present but empty counts as given.
                    (Some(_), Leaf::NoKeys) => drop(given.all.insert(name, Vec::new())),
                    (Some(_), Leaf::Null) => {}
                    (Some((known, _)), Leaf::Values(_)) => {
                        let takes = format!("`{known}`");
                        return Err(OptionError::Kind { name, program, has: "a value", takes });
                    }
                    (None, Leaf::Null) => {}
                    (None, _) if self.is_above(&name).is_none() && self.is_other(&name) => {
                        given.others.push(name);
                    }
                    (None, _) => {
                        return Err(match self.is_above(&name) {
                            Some(known) => OptionError::Kind {
                                name: known.to_owned(),
                                program,
                                has: "keys with values",
                                takes: format!("a value for `{known}`"),
                            },
                            None => self.unknown(&name),
                        });
                    }
                }
                continue;
            };
            let values = match leaf {
                Leaf::Null => continue,
                Leaf::NoKeys => Vec::new(),
                Leaf::Values(values) => values.clone(),
            };
            let has = values.len();
            if takes == "one" && has != 1 {
                let takes = "a value".to_owned();
                return Err(OptionError::Values { name: name.clone(), takes, has });
            }
            let word = |text: &String| {
                let unknown = (text == AUTO).then(|| AUTO.to_owned()).into_iter().collect();
                Word { text: text.clone(), unknown }
            };
            let words: Vec<Word> = values.iter().map(word).collect();
            if let Some(first) = given.all.insert(name.clone(), words.clone()) {
                let (first, second) = (shown(&first), shown(&words));
                return Err(OptionError::Twice { name: name.clone(), first, second });
            }
        }
        Ok(given)
    }

    /// Known key that has a value, but keys below it in this name.
    fn is_above(&self, name: &str) -> Option<&'static str> {
        let is_it = |known: &str| name.strip_prefix(known).is_some_and(|it| it.starts_with('.'));
        self.lines().map(|(known, _)| known).find(|known| is_it(known))
    }

    /// Known option of the most similar spelling, if it is similar enough.
    fn nearest(&self, name: &str) -> Option<String> {
        let best = self.likest(name);
        best.filter(|(likeness, _)| *likeness >= LIKENESS).map(|(_, known)| known.to_owned())
    }

    fn likest(&self, name: &str) -> Option<(f64, &'static str)> {
        let plain = |name: &str| name.replace('_', "-");
        let like =
            |known: &str| strsim::normalized_damerau_levenshtein(&plain(name), &plain(known));
        let scored = self.lines().map(|(known, _)| (like(known), known));
        scored.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))
    }

    /// Reads the words after a program, all of which must be options and their values.
    pub(super) fn read(&self, words: &[Word]) -> Result<ParsedOptions, OptionError> {
        let (given, read) = self.read_options(words)?;
        match words.get(read) {
            None => Ok(given),
            Some(word) => {
                let before = words[..read].iter().rev().find(|it| it.text.starts_with("--"));
                let before = before.map(|it| it.text.split('=').next().unwrap_or("").to_owned());
                let unknown: Vec<String> = word.unknown.iter().cloned().collect();
                if word.text.is_empty() && !unknown.is_empty() {
                    let what = match &before {
                        Some(before) => format!("what follows `{before}`"),
                        None => "the first option".to_owned(),
                    };
                    return Err(OptionError::Unresolved { what, unknown });
                }
                Err(OptionError::Stray { word: word.text.clone(), after: before })
            }
        }
    }

    /// Reads options up to the first word that is none; returns the index of that word.
    pub(super) fn read_options(
        &self,
        words: &[Word],
    ) -> Result<(ParsedOptions, usize), OptionError> {
        let mut given = ParsedOptions::default();
        let mut at = 0;
        while at < words.len() {
            let word = &words[at];
            let (name, inline) = match word.text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value)),
                _ => (word.text.as_str(), None),
            };
            if !name.starts_with("--") {
                break;
            }
            at += 1;
            let Some(takes) = self.takes(name) else {
                if !self.is_other(name) {
                    return Err(self.unknown(name));
                }
                given.others.push(name.to_owned());
                at += words[at..].iter().take_while(|it| !it.text.starts_with("--")).count();
                continue;
            };
            let (least, most) = match takes {
                "none" => (0, 0),
                "one" => (1, 1),
                "some" => (1, usize::MAX),
                "any" => (0, usize::MAX),
                number => number.parse().map_or((0, usize::MAX), |number| (number, number)),
            };
            let is_value = |word: &&Word| !word.text.starts_with("--");
            let values: Vec<Word> = match inline {
                Some(value) => {
                    vec![Word { text: value.to_owned(), unknown: word.unknown.clone() }]
                }
                None => words[at..].iter().take_while(is_value).take(most).cloned().collect(),
            };
            let has = values.len();
            at += if inline.is_none() { has } else { 0 };
            if has < least || has > most {
                let takes = match (least, most) {
                    (_, 0) => "no value".to_owned(),
                    (_, 1) => "a value".to_owned(),
                    (_, usize::MAX) => "one value or more".to_owned(),
                    _ => format!("{least} values"),
                };
                return Err(OptionError::Values { name: name.to_owned(), takes, has });
            }
            if let Some(first) = given.all.insert(name.to_owned(), values.clone()) {
                let (first, second) = (shown(&first), shown(&values));
                return Err(OptionError::Twice { name: name.to_owned(), first, second });
            }
        }
        Ok((given, at))
    }
}

fn shown(values: &[Word]) -> String {
    let texts: Vec<&str> = values.iter().map(|word| word.text.as_str()).collect();
    if texts.is_empty() { "as a switch".to_owned() } else { format!("`{}`", texts.join(" ")) }
}

impl ParsedOptions {
    /// Returns whether an option is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Names that no table has, and those of the given names that are there and not switched off.
    pub(super) fn unread<'a>(
        &'a self,
        unplanned: impl Iterator<Item = (&'a str, &'a str)>,
        program: &str,
    ) -> Vec<Unread> {
        const OFF: [&str; 8] = ["false", "False", "none", "None", "no", "NO", "0", ""];
        let is_off =
            |words: &Vec<Word>| words.first().is_some_and(|it| OFF.contains(&it.text.as_str()));
        let mut all = Vec::new();
        for (known, why) in unplanned {
            let is_it = |name: &str| match known.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == known,
            };
            let given = self.all.iter().filter(|(name, words)| is_it(name) && !is_off(words));
            all.extend(given.map(|(name, _)| Unread { option: name.clone(), why: why.to_owned() }));
        }
        let why = format!("no option of {program} that is known");
        let others = self.others.iter();
        all.extend(others.map(|name| Unread { option: name.clone(), why: why.clone() }));
        all
    }

    /// Returns whether any option with a prefix is given.
    pub(super) fn has_within(&self, start: &str) -> bool {
        self.all.keys().any(|name| name.starts_with(start))
    }

    /// Options of both; where both give one, the value of `self` counts.
    #[must_use]
    pub(super) fn over(mut self, other: Self) -> Self {
        for (name, words) in other.all {
            self.all.entry(name).or_insert(words);
        }
        self.others.extend(other.others);
        self
    }

    /// Options with every `auto` replaced by the value in `other`.
    #[must_use]
    pub(super) fn filled(mut self, other: &Self) -> Self {
        for (name, words) in &mut self.all {
            if words.iter().any(|it| it.unknown.contains(AUTO))
                && let Some(filled) = other.all.get(name)
            {
                words.clone_from(filled);
            }
        }
        // An option that is filled with no value, by `without`, counts as not given.
        self.all.retain(|name, words| !words.is_empty() || !other.all.contains_key(name));
        self
    }

    /// Adds an option without a value, which `filled` then removes.
    #[must_use]
    pub(super) fn without(mut self, name: &str) -> Self {
        self.all.insert(name.to_owned(), Vec::new());
        self
    }

    /// Value of an option even if parts are unknown; for paths, of which only the file name matters.
    pub(super) fn text_if_known(&self, name: &str) -> Option<&str> {
        self.all.get(name)?.first().map(|word| word.text.as_str())
    }

    /// Adds an option, or replaces its value.
    #[must_use]
    pub(super) fn with(mut self, name: &str, text: &str) -> Self {
        self.all.insert(name.to_owned(), vec![Word::known(text)]);
        self
    }

    /// Adds an option with its words, or replaces them.
    #[must_use]
    pub(super) fn with_words(mut self, name: &str, words: Vec<Word>) -> Self {
        self.all.insert(name.to_owned(), words);
        self
    }

    /// Options under other names.
    #[must_use]
    pub(super) fn renamed(self, name: impl Fn(&str) -> String) -> Self {
        let all = self.all.into_iter().map(|(old, words)| (name(&old), words)).collect();
        Self { all, ..self }
    }

    /// Boolean value of an option; a switch without a value is true.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, OptionError> {
        if self.all.get(name).is_some_and(Vec::is_empty) {
            return Ok(Some(true));
        }
        let known = [("true", true), ("false", false), ("True", true), ("False", false)];
        self.one_of(name, &known)
    }

    /// Returns whether a flag is given and on.
    pub(super) fn is_on(&self, name: &str) -> Result<bool, OptionError> {
        Ok(self.flag(name)?.unwrap_or(false))
    }

    /// Values of an option; an error if one is unknown or `auto`.
    pub(super) fn values(&self, name: &str) -> Result<Option<Vec<&str>>, OptionError> {
        let Some(words) = self.all.get(name) else { return Ok(None) };
        let unknown: Vec<String> = words.iter().flat_map(|it| it.unknown.iter().cloned()).collect();
        if words.iter().any(|it| it.text == AUTO && it.unknown.contains(AUTO)) {
            return Err(OptionError::Auto { name: name.to_owned() });
        }
        if !unknown.is_empty() {
            return Err(OptionError::Unresolved { what: format!("`{name}`"), unknown });
        }
        Ok(Some(words.iter().map(|word| word.text.as_str()).collect()))
    }

    /// First value of an option.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, OptionError> {
        Ok(self.values(name)?.and_then(|values| values.into_iter().next()))
    }

    /// Value of an option as a count: an integer of at least 1.
    pub(super) fn count<T: std::str::FromStr + PartialOrd + From<u8>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, OptionError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let count = text.parse().ok().filter(|count| *count >= T::from(1));
        let works = "a whole number, at least 1, is expected".to_owned();
        let error = || OptionError::value(name, text, works);
        count.map(Some).ok_or_else(error)
    }

    /// Value of an option, mapped by a list of known values.
    pub(super) fn one_of<T: Copy>(
        &self,
        name: &str,
        known: &[(&str, T)],
    ) -> Result<Option<T>, OptionError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let found = known.iter().find(|(known, _)| *known == text).map(|(_, it)| *it);
        let names: Vec<&str> = known.iter().map(|(known, _)| *known).collect();
        let works = format!("one of {} is expected", names.join(", "));
        let error = || OptionError::value(name, text, works);
        found.map(Some).ok_or_else(error)
    }

    /// Refuses two options that may not be given together.
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
