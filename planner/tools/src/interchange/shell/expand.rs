//! Variables of a script and their expansion.

use std::collections::{BTreeMap, BTreeSet};

use super::lex::{Piece, Value};
use super::word::Word;

/// Variables that are set at a point of a script.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    variables: BTreeMap<String, Vec<Word>>,
    /// Variables that the user sets.
    given: &'a BTreeMap<String, String>,
    /// Bytes that expansions of variables have produced so far, as estimated for the limit.
    spent: usize,
}

/// Limit of bytes that expansions may produce; beyond it, variables are unknown. `A=$A$A` doubles the text each time.
const MOST_BYTES: usize = 16 << 20;

/// Estimated bytes of a word's overhead, added to its text.
const BYTES_OF_WORD: usize = 64;

/// Expression of a command substitution that runs `expr`.
fn expr(text: &str) -> Option<String> {
    let inner = text.strip_prefix("$(").and_then(|it| it.strip_suffix(')'));
    let inner = inner.or_else(|| text.strip_prefix('`').and_then(|it| it.strip_suffix('`')));
    Some(inner?.trim().strip_prefix("expr ")?.replace(['\\', '\'', '"'], ""))
}

/// Positional parameters as a whole, which expand to nothing: a script is read without arguments.
const NOTHING: [&str; 2] = ["@", "*"];

impl<'a> Scope<'a> {
    pub(super) fn new(given: &'a BTreeMap<String, String>) -> Self {
        let one = |(name, value): (&String, &String)| (name.clone(), vec![Word::known(value)]);
        Self { variables: given.iter().map(one).collect(), given, spent: 0 }
    }

    /// A variable set only in one branch: takes the user's value, else unknown. For `LIST+=`, only the addition does.
    /// An unknown value names the variables in `because`, if any, instead of this one.
    pub(super) fn leave_open(
        &mut self,
        name: &str,
        appends: bool,
        value: &Value,
        because: &BTreeSet<String>,
    ) {
        let adds = appends && matches!(value, Value::List(_));
        let mut words = self.variables.remove(name).filter(|_| adds).unwrap_or_default();
        match self.given.get(name) {
            Some(given) if adds => {
                words.extend(given.split_ascii_whitespace().map(Word::known));
            }
            Some(given) => words.push(Word::known(given)),
            None if because.is_empty() => words.push(unknown(name)),
            None => words.push(Word { text: String::new(), unknown: because.clone() }),
        }
        self.variables.insert(name.to_owned(), words);
    }

    /// Declares a variable that a branch not taken sets: empty, unless it is set already.
    pub(super) fn declare(&mut self, name: &str) {
        self.variables.entry(name.to_owned()).or_insert_with(|| vec![Word::default()]);
    }

    /// Sets `$1`, `$2` and so on for a call of a function with these words.
    pub(super) fn call_with(&mut self, words: &[Word]) {
        for (place, word) in words.iter().enumerate() {
            self.variables.insert((place + 1).to_string(), vec![word.clone()]);
        }
    }

    /// Variables whose value is one known word.
    pub(super) fn known(&self) -> BTreeMap<String, String> {
        let known = self.variables.iter().filter_map(|(name, words)| match words.as_slice() {
            [word] if word.unknown.is_empty() => Some((name.clone(), word.text.clone())),
            _ => None,
        });
        known.collect()
    }

    pub(super) fn assign(&mut self, name: &str, appends: bool, value: &Value) {
        let (mut new, is_list) = match value {
            Value::List(words) => (words.iter().flat_map(|it| self.words(it)).collect(), true),
            Value::One(pieces) => (vec![self.joined(pieces)], false),
        };
        let old = self.variables.get(name).cloned().filter(|_| appends).unwrap_or_default();
        new = match (old.split_last(), is_list) {
            (Some(_), true) => [old, new].concat(),
            (Some((last, before)), false) => {
                let text = format!("{}{}", last.text, new[0].text);
                let unknown = last.unknown.union(&new[0].unknown).cloned().collect();
                [before, &[Word { text, unknown }]].concat()
            }
            (None, _) => new,
        };
        self.variables.insert(name.to_owned(), new);
    }

    /// Value of pieces as one word, without splitting, as in an assignment.
    fn joined(&mut self, pieces: &[Piece]) -> Word {
        let mut all = Word::default();
        for piece in pieces {
            let parts = self.values(piece);
            let texts: Vec<&str> = parts.iter().map(|it| it.text.as_str()).collect();
            all.text.push_str(&texts.join(" "));
            all.unknown.extend(parts.iter().flat_map(|it| it.unknown.iter().cloned()));
        }
        all
    }

    /// Words that pieces expand to: unquoted text is split at blanks.
    pub(super) fn words(&mut self, pieces: &[Piece]) -> Vec<Word> {
        let mut words: Vec<Word> = Vec::new();
        let mut is_open = false;
        let add = |words: &mut Vec<Word>, word: Word, joins: bool| match words.last_mut() {
            Some(last) if joins => {
                last.text.push_str(&word.text);
                last.unknown.extend(word.unknown);
            }
            _ => words.push(word),
        };
        for piece in pieces {
            let is_quoted = match piece {
                Piece::Plain(_) | Piece::Quoted(_) => true,
                Piece::Variable { quoted, .. } => *quoted,
                Piece::Arithmetic(_) | Piece::Command(_) => true,
            };
            for (index, value) in self.values(piece).into_iter().enumerate() {
                if is_quoted {
                    add(&mut words, value, is_open && index == 0);
                    is_open = true;
                    continue;
                }
                let parts: Vec<&str> = value.text.split_ascii_whitespace().collect();
                if parts.is_empty() && !value.unknown.is_empty() {
                    add(&mut words, value, is_open && index == 0);
                    is_open = true;
                    continue;
                }
                for (part, text) in parts.into_iter().enumerate() {
                    let word = Word { text: text.to_owned(), unknown: value.unknown.clone() };
                    add(&mut words, word, is_open && index == 0 && part == 0);
                    is_open = true;
                }
            }
        }
        words
    }

    /// Values of a piece: several words if it is a list.
    fn values(&mut self, piece: &Piece) -> Vec<Word> {
        match piece {
            Piece::Plain(text) | Piece::Quoted(text) => vec![Word::known(text)],
            Piece::Command(text) => match expr(text) {
                Some(expression) => vec![self.arithmetic(&expression)],
                None => vec![unknown(text)],
            },
            Piece::Arithmetic(text) => vec![self.arithmetic(text)],
            Piece::Variable { text, .. } if self.spent > MOST_BYTES => vec![unknown(text)],
            Piece::Variable { text, .. } => {
                let words = self.variable(text);
                let bytes = words.iter().map(|word| word.text.len() + BYTES_OF_WORD);
                // Split at blanks, an unquoted value may become a word for every other byte.
                self.spent += bytes.sum::<usize>().saturating_mul(BYTES_OF_WORD / 2);
                words
            }
        }
    }

    /// Restores the variables of `before`; `spent` keeps counting.
    pub(super) fn restore(&mut self, before: Self) {
        let spent = self.spent;
        *self = Self { spent, ..before };
    }

    /// Words of a parameter expansion: `NAME`, `NAME[@]`, `#NAME[@]`, `NAME:-default` and the like.
    fn variable(&mut self, text: &str) -> Vec<Word> {
        if NOTHING.contains(&text) {
            return Vec::new();
        }
        // `$#`, the number of arguments, is unknown; `#NAME[@]` is the length of a list.
        if let Some(counted) = text.strip_prefix('#').filter(|it| !it.is_empty()) {
            let name = counted.trim_end_matches("[@]").trim_end_matches("[*]");
            let count = self.variables.get(name).map_or(0, Vec::len);
            return vec![Word::known(&count.to_string())];
        }
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let (name, rest) = text.split_at(end.unwrap_or(text.len()));
        let value = self.variables.get(name).cloned();
        let is_set =
            value.as_ref().is_some_and(|it| it.iter().any(|word| *word != Word::default()));
        match rest {
            "" => value.map_or_else(|| vec![unknown(name)], |it| it.into_iter().take(1).collect()),
            "[@]" | "[*]" => match (value, self.given.get(name)) {
                // A list that the user sets is one text, with blanks between its words.
                (Some(words), Some(given)) if words == [Word::known(given)] => {
                    given.split_ascii_whitespace().map(Word::known).collect()
                }
                (value, _) => value.unwrap_or_else(|| vec![unknown(name)]),
            },
            _ => {
                let operator = rest.trim_start_matches(':');
                let default = operator.get(1..).unwrap_or_default();
                match operator.chars().next() {
                    Some('-' | '=' | '?') if is_set => value.unwrap_or_default(),
                    Some('?') => vec![unknown(name)],
                    Some(sign @ ('-' | '=')) => {
                        let word = self.default(default);
                        if sign == '=' {
                            self.variables.insert(name.to_owned(), vec![word.clone()]);
                        }
                        vec![word]
                    }
                    _ => vec![unknown(text)],
                }
            }
        }
    }

    /// Default value in an expansion; it may be another variable.
    fn default(&mut self, text: &str) -> Word {
        let text = text.trim_matches(|c| c == '"' || c == '\'');
        match text.strip_prefix('$') {
            None => Word::known(text),
            Some(name) => {
                let name = name.trim_start_matches('{').trim_end_matches('}');
                self.variable(name).into_iter().next().unwrap_or_default()
            }
        }
    }

    /// Value of integer arithmetic with `+ - * / %` and brackets.
    fn arithmetic(&self, text: &str) -> Word {
        let chars = text.chars().filter(|c| !c.is_whitespace() && *c != '$').collect();
        let mut reader = Arithmetic { scope: self, chars, at: 0, missing: BTreeSet::new() };
        match reader.value(0) {
            Some(value) if reader.at == reader.chars.len() && reader.missing.is_empty() => {
                Word::known(&value.to_string())
            }
            _ if reader.missing.is_empty() => unknown(&format!("$(({text}))")),
            _ => Word { text: String::new(), unknown: reader.missing },
        }
    }
}

/// Operators of each level of precedence, the weakest first.
const OPERATORS: [&str; 2] = ["+-", "*/%"];

/// A reader of integer arithmetic.
struct Arithmetic<'a> {
    scope: &'a Scope<'a>,
    chars: Vec<char>,
    at: usize,
    /// Unknown variables, which are counted as 1.
    missing: BTreeSet<String>,
}

impl Arithmetic<'_> {
    /// Value of what operators of a level of precedence, or of stronger ones, join.
    fn value(&mut self, level: usize) -> Option<i64> {
        let Some(operators) = OPERATORS.get(level) else { return self.factor() };
        let mut value = self.value(level + 1)?;
        while let Some(operator) =
            self.chars.get(self.at).copied().filter(|c| operators.contains(*c))
        {
            self.at += 1;
            let other = self.value(level + 1)?;
            value = match operator {
                '+' => value.checked_add(other)?,
                '-' => value.checked_sub(other)?,
                '*' => value.checked_mul(other)?,
                '/' => value.checked_div(other)?,
                _ => value.checked_rem(other)?,
            };
        }
        Some(value)
    }

    /// Value of a number, a variable or an expression in brackets.
    fn factor(&mut self) -> Option<i64> {
        if self.chars.get(self.at) == Some(&'(') {
            self.at += 1;
            let value = self.value(0)?;
            self.at += 1;
            return (self.chars.get(self.at - 1) == Some(&')')).then_some(value);
        }
        let is_part = |c: &&char| c.is_ascii_alphanumeric() || "_{}".contains(**c);
        let word: String = self.chars.iter().skip(self.at).take_while(is_part).collect();
        self.at += word.chars().count();
        let word = word.trim_matches(['{', '}']);
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.parse().ok();
        }
        match self.scope.variables.get(word).and_then(|it| it.first()) {
            Some(value) if value.unknown.is_empty() => return value.text.trim().parse().ok(),
            Some(value) => self.missing.extend(value.unknown.iter().cloned()),
            None if word.is_empty() => return None,
            None => self.missing.extend([word.to_owned()]),
        }
        Some(1)
    }
}

/// A word of unknown text that depends on `name`.
fn unknown(name: &str) -> Word {
    Word { text: String::new(), unknown: BTreeSet::from([name.to_owned()]) }
}
