//! Options of a program, parsed as the program parses them.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use ir::text::typeset;

use super::index::{Index, IndexedRow};
pub use super::option_error::{OptionError, UnknownPart};
use super::shell::Word;
use super::unread::{SAVES_MEMORY, Unread};

/// Options of a program, each with its number of values; or the keys of its file, written as paths with dots.
#[derive(Debug)]
pub(super) struct Vocabulary {
    /// Name of the program.
    program: &'static str,
    /// Lines of a name and `none`, `one`, `some`, `any` or a number of values. A name that ends with `*` stands for all
    /// names with this prefix.
    table: &'static str,
    /// True if names that are not in the table may be options of the user's own script. Then only names that are almost
    /// the same as a known one count as misspelt. Otherwise names that leave out words of a known one count as misspelt
    /// too.
    takes_own: bool,
    /// Rows by name. `ManuallyDrop` has no destructor: `..Wrapper::new(..)` in a static moves fields out, which Rust
    /// forbids for a type with a destructor.
    index: ManuallyDrop<OnceLock<Index>>,
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
    /// Names that the vocabulary does not have and that are not certainly misspelt, each with the most similar known
    /// name if it is similar enough.
    others: Vec<(String, Option<String>)>,
    /// Options that are given several times with different values.
    repeated: Vec<Repeated>,
}

/// An option that is given several times with different values. The last one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// Name of the option.
    pub option: String,
    /// Values before the last ones.
    pub before: Vec<String>,
    /// Last values; none for a switch.
    pub last: Vec<String>,
}

/// Least similarity of a name and a known option for a hint: normalized Damerau-Levenshtein, from 0 to 1.
const LIKENESS: f64 = 0.7;

/// Least similarity at which a name is certainly a misspelt option.
const SAME_LIKENESS: f64 = 0.9;

/// Least letters of a name that counts as misspelt if one letter differs; shorter names may be the user's own.
const SHORT: usize = 6;

/// Value that is filled in when the program reads the file.
const AUTO: &str = "auto";

impl Vocabulary {
    /// Options of a program whose version has no others.
    pub(super) const fn whole(program: &'static str, table: &'static str) -> Self {
        let index = ManuallyDrop::new(OnceLock::new());
        Self { program, table, takes_own: false, index }
    }

    /// Options of a program to which the user's script may add its own.
    pub(super) const fn with_own(program: &'static str, table: &'static str) -> Self {
        let index = ManuallyDrop::new(OnceLock::new());
        Self { program, table, takes_own: true, index }
    }

    /// Name of the program.
    pub(super) const fn program(&self) -> &'static str {
        self.program
    }

    /// Rows by name.
    pub(super) fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(self.table))
    }

    /// Names that a parser knows, in the order of the table.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.index().rows.iter().filter(|row| row.is_parsed()).map(|row| row.name)
    }

    /// Number of values of an option, if it is known.
    pub(super) fn arity(&self, name: &str) -> Option<&'static str> {
        self.index().parsed(name).map(|row| row.arity)
    }

    /// Returns whether an unknown name is an option of the user's own script, of a fork or of another version, rather
    /// than a misspelt known one.
    ///
    /// A name is misspelt if it is nearly the same as an option that decides the plan, or differs from it by one
    /// letter. Unless the script may have options of its own, a name is also misspelt if it has typographic characters,
    /// or if it leaves out words of such an option. Names like those of options that decide nothing are accepted, since
    /// forks have such options.
    fn is_other(&self, name: &str) -> bool {
        let Some((likeness, known)) = self.most_similar(name) else { return true };
        let is_a_letter_off = name.len() >= SHORT && strsim::damerau_levenshtein(name, known) <= 1;
        let words = |name: &'_ str| {
            let last = name.rsplit('.').next().unwrap_or_default().replace('_', "-");
            last.split('-').map(str::to_owned).collect::<Vec<_>>()
        };
        let lacks_words = || {
            let all = words(known);
            words(name).iter().all(|it| all.contains(it))
        };
        let is_like = likeness >= SAME_LIKENESS
            || is_a_letter_off
            || !self.takes_own && likeness >= LIKENESS && lacks_words();
        let is_typeset = !self.takes_own && typeset(name).is_some();
        !(is_typeset || is_like && self.decides_plan(known))
    }

    /// Returns whether a known option decides the plan.
    fn decides_plan(&self, known: &str) -> bool {
        const NOT: [&str; 4] = ["model", "unplanned", "none", "#"];
        let becomes = self.index().named(known).and_then(|row| row.becomes);
        becomes.is_some_and(|field| !NOT.contains(&field))
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
            let is_within = |known: &&str| {
                known.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'))
            };
            let Some(arity) = self.arity(name) else {
                let (program, name) = (self.program, name.clone());
                match (self.names().find(is_within), leaf) {
                    // A section that is present but empty counts as given.
                    (Some(_), Leaf::NoKeys) => drop(given.all.insert(name, Vec::new())),
                    (Some(_), Leaf::Null) => {}
                    (Some(known), Leaf::Values(_)) => {
                        let takes = format!("`{known}`");
                        return Err(OptionError::Kind { name, program, has: "a value", takes });
                    }
                    (None, Leaf::Null) => {}
                    (None, _) if self.is_above(&name).is_none() && self.is_other(&name) => {
                        let nearest = self.nearest(&name);
                        given.others.push((name, nearest));
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
            if arity == "one" && has != 1 {
                let takes = "a value".to_owned();
                return Err(OptionError::Values { name: name.clone(), takes, has });
            }
            let word = |text: &String| {
                let open = open_name(text).or((text == AUTO).then_some(AUTO));
                let unknown = open.map(str::to_owned).into_iter().collect();
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

    /// A known key that takes a value although this name has it as a parent of nested keys.
    fn is_above(&self, name: &str) -> Option<&'static str> {
        let is_it = |known: &str| name.strip_prefix(known).is_some_and(|it| it.starts_with('.'));
        self.names().find(|known| is_it(known))
    }

    /// Known option of the most similar spelling, if it is similar enough.
    fn nearest(&self, name: &str) -> Option<String> {
        let best = self.most_similar(name);
        best.filter(|(likeness, _)| *likeness >= LIKENESS).map(|(_, known)| known.to_owned())
    }

    fn most_similar(&self, name: &str) -> Option<(f64, &'static str)> {
        let plain = |name: &str| name.replace('_', "-");
        // Keys are compared without the section that they share, since it alone makes them similar.
        let like = |known: &str| {
            let shared = name.bytes().zip(known.bytes()).take_while(|(a, b)| a == b).count();
            let section = name[..shared].rfind('.').map_or(0, |dot| dot + 1);
            let [name, known] = [name, known].map(|it| plain(&it[section..]));
            strsim::normalized_damerau_levenshtein(&name, &known)
        };
        let scored = self.names().map(|known| (like(known), known));
        scored.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))
    }

    /// Reads the words after a program, all of which must be options and their values.
    pub(super) fn read(&self, words: &[Word]) -> Result<ParsedOptions, OptionError> {
        let (given, read) = self.read_options(words)?;
        match words.get(read) {
            None => Ok(given),
            Some(word) => {
                let before = words[..read].iter().rev().find(|it| it.text.starts_with("--"));
                let before = before.map(|it| it.name().to_owned());
                let unknown: Vec<String> = word.unknown.iter().cloned().collect();
                if word.text.is_empty() && !unknown.is_empty() {
                    let of = before.map_or(UnknownPart::First, UnknownPart::After);
                    return Err(OptionError::unresolved(of, unknown));
                }
                Err(OptionError::Stray { word: word.text.clone(), after: before })
            }
        }
    }

    /// Reads options up to the first word that is not one; returns the index of that word.
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
            let Some(arity) = self.arity(name) else {
                if !self.is_other(name) {
                    return Err(self.unknown(name));
                }
                given.others.push((name.to_owned(), self.nearest(name)));
                at += words[at..].iter().take_while(|it| !it.text.starts_with("--")).count();
                continue;
            };
            let (least, most) = match arity {
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
            // A placeholder of several words is one value.
            at += if most == 1 && has == 1 { placeholder(&values[0], &words[at..]) } else { 0 };
            if has < least || has > most {
                let takes = match (least, most) {
                    (_, 0) => "no value".to_owned(),
                    (_, 1) => "a value".to_owned(),
                    (_, usize::MAX) => "one value or more".to_owned(),
                    _ => format!("{least} values"),
                };
                return Err(OptionError::Values { name: name.to_owned(), takes, has });
            }
            if let Some(before) = given.all.insert(name.to_owned(), values.clone())
                && before != values
            {
                let [before, last] = [before, values].map(|it| it.into_iter().map(|it| it.text));
                given.repeated.retain(|it| it.option != name);
                let (before, last) = (before.collect(), last.collect());
                given.repeated.push(Repeated { option: name.to_owned(), before, last });
            }
        }
        Ok((given, at))
    }
}

/// Number of following words that belong to the placeholder that a value begins: `<PATH TO DATA>`, `PATH TO DATA`,
/// `your path`.
fn placeholder(value: &Word, rest: &[Word]) -> usize {
    let next: Vec<&str> = rest.iter().map(|it| it.text.as_str()).collect();
    let next = &next[..next.iter().position(|it| it.starts_with("--")).unwrap_or(next.len())];
    let is_capital = |it: &str| !it.is_empty() && it.chars().all(|c| c.is_ascii_uppercase());
    match value.text.as_str() {
        it if it.starts_with('<') && !it.ends_with('>') => {
            next.iter().position(|it| it.ends_with('>')).map_or(0, |it| it + 1)
        }
        it if it.eq_ignore_ascii_case("your") => next.len(),
        it if is_capital(it) && next.iter().all(|it| is_capital(it)) => next.len(),
        _ => 0,
    }
}

/// Name of the variable in a value `${NAME}` of a file that a script writes.
pub(super) fn open_name(text: &str) -> Option<&str> {
    text.split_once("${").and_then(|it| Some(it.1.split_once('}')?.0))
}

/// Returns whether single underscores stand between the digits of a number.
fn is_grouped(text: &str) -> bool {
    text.split('_').all(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()))
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

    /// Names that no table has, and the names in `unplanned` that are given and not switched off. Each row of
    /// `unplanned` describes its option; a name that ends with `*` stands for all names with this prefix.
    pub(super) fn unread<'a>(
        &self,
        unplanned: impl Iterator<Item = (&'a str, &'a IndexedRow)>,
        program: &str,
    ) -> Vec<Unread> {
        const OFF: [&str; 8] = ["false", "False", "none", "None", "no", "NO", "0", ""];
        let mut all = Vec::new();
        for (known, IndexedRow { words: forms, why, .. }) in unplanned {
            let saves_memory = forms.contains(&SAVES_MEMORY);
            let is_idle = |it: &str| forms.iter().any(|form| form.strip_suffix('=') == Some(it));
            let is_off = |words: &Vec<Word>| {
                let is = |it: &str| OFF.contains(&it) || is_idle(it);
                words.first().is_some_and(|it| it.unknown.is_empty() && is(&it.text))
            };
            let is_it = |name: &str| match known.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == known,
            };
            let given = self.all.iter().filter(|(name, words)| is_it(name) && !is_off(words));
            all.extend(given.map(|(name, _)| Unread { saves_memory, ..Unread::new(name, *why) }));
        }
        let why = format!("no option of {program} that is known");
        all.extend(self.others.iter().map(|(name, nearest)| {
            let meant = nearest.as_ref().map(|it| format!("; is `{it}` meant?"));
            let why = why.clone() + &meant.unwrap_or_default();
            Unread { is_unknown: true, ..Unread::new(name, why) }
        }));
        all
    }

    /// Options that are given several times with different values.
    pub(super) fn repeated(&self) -> &[Repeated] {
        &self.repeated
    }

    /// Returns whether any option with a prefix is given.
    pub(super) fn has_within(&self, start: &str) -> bool {
        self.all.keys().any(|name| name.starts_with(start))
    }

    /// Options of both; if both give an option, the value of `self` counts.
    #[must_use]
    pub(super) fn over(mut self, other: Self) -> Self {
        for (name, words) in other.all {
            self.all.entry(name).or_insert(words);
        }
        self.others.extend(other.others);
        self.repeated.extend(other.repeated);
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
        // An option that `without` filled with no value counts as not given.
        self.all.retain(|name, words| !words.is_empty() || !other.all.contains_key(name));
        self
    }

    /// All options but one.
    #[must_use]
    pub(super) fn but(mut self, name: &str) -> Self {
        self.all.remove(name);
        self
    }

    /// Adds an option without a value, which `filled` then removes.
    #[must_use]
    pub(super) fn without(mut self, name: &str) -> Self {
        self.all.insert(name.to_owned(), Vec::new());
        self
    }

    /// Value of an option even if parts of it are unknown; used for paths, where only the file name matters.
    pub(super) fn text_if_known(&self, name: &str) -> Option<&str> {
        self.all.get(name)?.first().map(|word| word.text.as_str())
    }

    /// First value of an option that may be a path. If the folder is unknown, as in `$HERE/ds.json`, only the name of
    /// the file counts.
    pub(super) fn path(&self, name: &str) -> Result<Option<&str>, OptionError> {
        let is_in_folder = |it: &Word| it.unknown.len() == 1 && it.text.starts_with('/');
        match self.all.get(name).and_then(|words| words.first()) {
            Some(word) if is_in_folder(word) => Ok(Some(&word.text)),
            _ => self.text(name),
        }
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

    /// Boolean value of an option; a switch without a value is true. Accepts the words of `HfArgumentParser`, in any
    /// case.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, OptionError> {
        if self.all.get(name).is_some_and(Vec::is_empty) {
            return Ok(Some(true));
        }
        let word = self.text(name)?.map(str::to_lowercase);
        match word.as_deref() {
            Some("yes" | "t" | "y" | "1" | "true") => Ok(Some(true)),
            Some("no" | "f" | "n" | "0" | "false") => Ok(Some(false)),
            _ => self.one_of(name, &[("true", true), ("false", false)]),
        }
    }

    /// Returns whether a flag is given and on.
    pub(super) fn is_on(&self, name: &str) -> Result<bool, OptionError> {
        Ok(self.flag(name)?.unwrap_or(false))
    }

    /// Values of an option; an error if one is unknown or `auto`.
    pub(super) fn values(&self, name: &str) -> Result<Option<Vec<&str>>, OptionError> {
        let Some(words) = self.all.get(name) else { return Ok(None) };
        let unknown: BTreeSet<&String> = words.iter().flat_map(|it| &it.unknown).collect();
        let unknown: Vec<String> = unknown.into_iter().cloned().collect();
        if words.iter().any(|it| it.text == AUTO && it.unknown.contains(AUTO)) {
            return Err(OptionError::Auto { name: name.to_owned() });
        }
        if !unknown.is_empty() {
            let of = UnknownPart::Value(name.to_owned());
            return Err(OptionError::unresolved(of, unknown));
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
        // Python accepts underscores between digits: `32_000`.
        let digits = if is_grouped(text) { text.replace('_', "") } else { text.to_owned() };
        let count = digits.parse().ok().filter(|count| *count >= T::from(1));
        let works = "a whole number, at least 1, is expected".to_owned();
        let error = || OptionError::value(name, text, works);
        count.map(Some).ok_or_else(error)
    }

    /// Value of an option as a count; 0 means none.
    pub(super) fn count_unless_0<T: std::str::FromStr + PartialOrd + From<u8>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, OptionError> {
        if self.text(name)? == Some("0") { Ok(None) } else { self.count(name) }
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
