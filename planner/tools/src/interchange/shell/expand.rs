//! Variables of a script and their expansion.

use std::collections::{BTreeMap, BTreeSet};

use super::lex::{Token, Value, WordPart, expandable, tokens};
use super::pattern;
use super::text::Text;
use super::word::{MOST_BYTES_OF_ONE, is_name};

/// Variables that are set at a point of a script.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    variables: BTreeMap<String, Vec<Text>>,
    /// Variables that the user sets.
    given: &'a BTreeMap<String, String>,
    /// Arguments of the function or nested script that is being read; `None` in the script itself.
    arguments: Option<Vec<Text>>,
    /// Bytes that expansions have produced so far.
    spent: usize,
    /// Nesting depth of command substitutions.
    depth: usize,
    /// True if all scripts that the script sources are known.
    pub(super) is_whole: bool,
    /// True if a value, or all values together, exceed their limit.
    pub(super) is_too_large: bool,
}

/// Limit of bytes that expansions may produce in all.
const MOST_BYTES: usize = 256 << 20;

/// Bytes of a word in memory, added to those of its text.
const BYTES_OF_WORD: usize = 64;

/// Limit of the nesting of command substitutions that are expanded.
const DEEPEST_EXPANSION: usize = 8;

/// Largest number of words of `seq`.
const MOST_NUMBERS: i64 = 10_000;

/// Positional parameters as a whole.
const ALL: [&str; 2] = ["@", "*"];

impl<'a> Scope<'a> {
    /// Variables that the user sets, which override those of the script's surroundings.
    pub(super) fn new(
        given: &'a BTreeMap<String, String>,
        outer: &BTreeMap<String, String>,
    ) -> Self {
        let one = |(name, value): (&String, &String)| (name.clone(), vec![Text::known(value)]);
        let variables = outer.iter().chain(given).map(one).collect();
        Self {
            variables,
            given,
            arguments: None,
            spent: 0,
            depth: 0,
            is_whole: true,
            is_too_large: false,
        }
    }

    /// Assigns a variable in a branch that may not run: it takes the user's value, else becomes unknown. With `+=`, or
    /// if the variable is added to itself, its earlier value stays in front. The unknown value names the variables in
    /// `because` if there are any, else this variable.
    pub(super) fn leave_open(
        &mut self,
        name: &str,
        appends: bool,
        value: &Value,
        because: &BTreeSet<String>,
    ) {
        let is_list = matches!(value, Value::List(_));
        let is_itself = |piece: &WordPart| {
            matches!(piece, WordPart::Variable { text, .. }
                if text == name || text.strip_suffix("[@]") == Some(name))
        };
        let adds = appends
            || match value {
                Value::One(pieces) => pieces.first().is_some_and(is_itself),
                Value::List(words) => {
                    words.first().and_then(|it| it.first()).is_some_and(is_itself)
                }
            };
        let mut words = self.variables.remove(name).filter(|_| adds).unwrap_or_default();
        let open = match (self.given.get(name), because.is_empty()) {
            (Some(given), _) => Text::known(given),
            (None, true) => Text::unknown(name),
            (None, false) => Text::depending(because.clone()),
        };
        match (words.last_mut(), self.given.get(name)) {
            (_, Some(given)) if adds && is_list => {
                words.extend(given.split_ascii_whitespace().map(Text::known));
            }
            (Some(last), None) if adds && !is_list => {
                last.push(&Text::known(" "));
                last.push(&open);
            }
            (_, Some(_)) => words = vec![open],
            _ => words.push(open),
        }
        self.variables.insert(name.to_owned(), words);
    }

    /// Declares a variable that an untaken branch sets: it is empty, unless it is set already.
    pub(super) fn declare(&mut self, name: &str) {
        self.variables.entry(name.to_owned()).or_insert_with(|| vec![Text::default()]);
    }

    /// Sets a variable to one word.
    pub(super) fn set(&mut self, name: &str, value: Text) {
        self.variables.insert(name.to_owned(), vec![value]);
    }

    /// Sets `$1`, `$2` and so on for a function or a nested script; returns the previous ones.
    pub(super) fn with_arguments(&mut self, words: Option<Vec<Text>>) -> Option<Vec<Text>> {
        std::mem::replace(&mut self.arguments, words)
    }

    /// Drops the first arguments.
    pub(super) fn shift(&mut self, count: usize) {
        if let Some(arguments) = &mut self.arguments {
            arguments.drain(..count.min(arguments.len()));
        }
    }

    /// Removes a variable and returns its value.
    pub(super) fn taken(&mut self, name: &str) -> Option<Vec<Text>> {
        self.variables.remove(name)
    }

    /// Restores the previous value of a variable; without one, removes the variable.
    pub(super) fn put(&mut self, name: &str, value: Option<Vec<Text>>) {
        match value {
            Some(value) => drop(self.variables.insert(name.to_owned(), value)),
            None => drop(self.variables.remove(name)),
        }
    }

    /// Returns whether the user sets a variable.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Variables whose value is one known word.
    pub(super) fn known(&self) -> BTreeMap<String, String> {
        let known = self.variables.iter().filter_map(|(name, words)| match words.as_slice() {
            [word] => word.as_known().map(|text| (name.clone(), text.to_owned())),
            _ => None,
        });
        known.collect()
    }

    pub(super) fn assign(&mut self, name: &str, appends: bool, value: &Value) {
        let (mut new, is_list) = match value {
            Value::List(words) => (words.iter().flat_map(|it| self.words(it)).collect(), true),
            Value::One(pieces) => (vec![self.joined(pieces)], false),
        };
        // If the output of a command is wholly unknown, the user's value replaces it; without one, the unknown part is
        // named after the variable.
        if let ([text], Value::One(pieces)) = (new.as_mut_slice(), value)
            && is_command(pieces)
            && text.is_hole()
        {
            *text = self.given_or_unknown(name);
        }
        let old = self.variables.remove(name).filter(|_| appends).unwrap_or_default();
        let mut all = old;
        match (all.last_mut(), is_list) {
            (Some(last), false) => new.iter().for_each(|it| last.push(it)),
            _ => all.extend(new),
        }
        let bytes: usize = all.iter().map(|it| it.len() + BYTES_OF_WORD).sum();
        self.spend(all.iter().map(Text::len).sum::<usize>());
        self.is_too_large |= bytes > MOST_BYTES_OF_ONE + BYTES_OF_WORD;
        if !self.is_too_large {
            self.variables.insert(name.to_owned(), all);
        }
    }

    fn spend(&mut self, bytes: usize) {
        self.spent = self.spent.saturating_add(bytes);
        self.is_too_large |= self.spent > MOST_BYTES;
    }

    /// Value of pieces as one word, without splitting, as in an assignment.
    pub(super) fn joined(&mut self, pieces: &[WordPart]) -> Text {
        let mut all = Text::default();
        for piece in pieces {
            let values = self.values(piece);
            all.push(&Text::joined(&values, " "));
        }
        all
    }

    /// Words that pieces expand to: unquoted text is split at blanks.
    pub(super) fn words(&mut self, pieces: &[WordPart]) -> Vec<Text> {
        let mut words: Vec<Text> = Vec::new();
        let mut current: Option<Text> = None;
        for piece in pieces {
            let is_quoted = match piece {
                WordPart::Plain(_) | WordPart::Quoted(_) => true,
                WordPart::Arithmetic(_) | WordPart::Truth(_) => true,
                WordPart::Variable { quoted, .. } | WordPart::Command { quoted, .. } => *quoted,
            };
            for (index, value) in self.values(piece).into_iter().enumerate() {
                if index > 0 {
                    words.extend(current.take());
                }
                if is_quoted {
                    current.get_or_insert_default().push(&value);
                    continue;
                }
                for (is_new, part) in value.split() {
                    if is_new {
                        words.extend(current.take());
                    }
                    if !part.is_empty() {
                        current.get_or_insert_default().push(&part);
                    }
                }
            }
        }
        words.extend(current);
        self.spend(words.iter().map(|it| it.len() + BYTES_OF_WORD).sum());
        words
    }

    /// Values of a piece: several words if it is a list.
    fn values(&mut self, piece: &WordPart) -> Vec<Text> {
        if self.is_too_large {
            return Vec::new();
        }
        match piece {
            WordPart::Plain(text) | WordPart::Quoted(text) => vec![Text::known(text)],
            WordPart::Command { text, .. } => {
                vec![self.output(text).unwrap_or_else(|| Text::unknown(text))]
            }
            WordPart::Arithmetic(text) => vec![self.arithmetic(text)],
            WordPart::Truth(text) => vec![self.truth(text)],
            WordPart::Variable { text, quoted } => {
                let words = self.variable(text);
                self.spend(words.iter().map(|word| word.len() + BYTES_OF_WORD).sum());
                let is_one = *quoted && (text == "*" || text.ends_with("[*]"));
                if is_one { vec![Text::joined(&words, " ")] } else { words }
            }
        }
    }

    /// Output of a command substitution that runs one of a few commands; `None` for another.
    fn output(&mut self, text: &str) -> Option<Text> {
        let inner = text.strip_prefix("$(").and_then(|it| it.strip_suffix(')'));
        let inner = inner.or_else(|| text.strip_prefix('`').and_then(|it| it.strip_suffix('`')))?;
        if let Some(expression) = inner.trim().strip_prefix("expr ") {
            return Some(self.arithmetic(&expression.replace(['\\', '\'', '"'], "")));
        }
        if self.depth >= DEEPEST_EXPANSION {
            return None;
        }
        if let Some(printed) =
            inner.trim_end().strip_suffix("bc").and_then(|it| it.trim_end().strip_suffix('|'))
        {
            let expression = self.output(&format!("$({printed})"))?;
            let is_whole = |c: char| c.is_ascii_digit() || " +-*/%()".contains(c);
            let text = expression.as_known().filter(|it| it.chars().all(is_whole))?;
            return Some(self.arithmetic(text));
        }
        let tokens = tokens(inner).ok()?;
        let end = tokens.iter().position(Token::is_end).unwrap_or(tokens.len());
        if tokens[end..].iter().any(|it| !it.is_end()) {
            return None;
        }
        self.depth += 1;
        let output = self.printed(&tokens[..end]);
        self.depth -= 1;
        output
    }

    /// Output of a command, for commands that only print.
    fn printed(&mut self, command: &[Token]) -> Option<Text> {
        let mut words = Vec::new();
        let mut here = None;
        for token in command {
            match token {
                Token::Word { pieces, .. } => words.extend(self.words(pieces)),
                Token::Here { body, .. } => here = Some(self.joined(body)),
                _ => return None,
            }
        }
        let known: Vec<Option<&str>> = words.iter().map(Text::as_known).collect();
        match known.as_slice() {
            [Some("cat")] => here,
            [Some("which"), Some(name)] | [Some("command"), Some("-v"), Some(name)] => {
                Some(Text::known(name))
            }
            [Some("echo"), rest @ ..] if rest.first() != Some(&Some("-e")) => {
                Some(Text::joined(&words[1..], " "))
            }
            [Some("seq"), numbers @ ..] => {
                let numbers: Option<Vec<i64>> =
                    numbers.iter().map(|it| it.and_then(|it| it.parse().ok())).collect();
                let [first, step, last] = match numbers?.as_slice() {
                    [last] => [1, 1, *last],
                    [first, last] => [*first, 1, *last],
                    [first, step, last] => [*first, *step, *last],
                    _ => return None,
                };
                if step <= 0 || last.checked_sub(first)? / step > MOST_NUMBERS {
                    return None;
                }
                let all = (first..=last).step_by(usize::try_from(step).ok()?);
                let all: Vec<String> = all.map(|it| it.to_string()).collect();
                Some(Text::known(&all.join(" ")))
            }
            _ => None,
        }
    }

    /// Restores the variables of `before`; the bytes that were spent keep counting.
    pub(super) fn restore(&mut self, before: Self) {
        let (spent, is_too_large) = (self.spent, self.is_too_large);
        *self = Self { spent, is_too_large, ..before };
    }

    /// All arguments: those of a function, or those that the user gives to the script; without the latter, the script
    /// is read without arguments.
    fn all_arguments(&self) -> Vec<Text> {
        self.arguments.clone().unwrap_or_else(|| {
            let given = (1..).map_while(|place: usize| self.given.get(&place.to_string()));
            given.map(|it| Text::known(it)).collect()
        })
    }

    /// Value of a variable or of an argument by its number.
    pub(super) fn value(&self, name: &str) -> Option<Vec<Text>> {
        let place = name.parse::<usize>().ok().and_then(|it| it.checked_sub(1));
        match (place, &self.arguments) {
            (Some(place), Some(arguments)) => {
                Some(vec![arguments.get(place).cloned().unwrap_or_default()])
            }
            _ => self.variables.get(name).cloned(),
        }
    }

    /// First word of a variable.
    pub(super) fn first(&self, name: &str) -> Option<&Text> {
        self.variables.get(name)?.first()
    }

    /// The user's value of a variable, else an unknown one.
    fn given_or_unknown(&self, name: &str) -> Text {
        self.given.get(name).map_or_else(|| Text::unknown(name), |it| Text::known(it))
    }

    /// Marks a variable as set to an unknown value.
    pub(super) fn forget(&mut self, name: &str) {
        self.set(name, self.given_or_unknown(name));
    }

    /// Words of a parameter expansion: `NAME`, `NAME[@]`, `#NAME[@]`, `NAME:-default` and the like.
    fn variable(&mut self, text: &str) -> Vec<Text> {
        if ALL.contains(&text) {
            return self.all_arguments();
        }
        if let Some((list, sign, default)) = list_operator(text) {
            let words = self.variable(list);
            let is_set = words.iter().any(|word| *word != Text::default());
            return match (sign, is_set) {
                ('+', true) | ('-' | '=', false) => self.default_words(default),
                ('+', false) => Vec::new(),
                _ => words,
            };
        }
        // A slice. Lists are indexed from 0, all arguments from 1.
        let is_list = |it: &str| ALL.contains(&it) || it.ends_with("[@]") || it.ends_with("[*]");
        if let Some((list, slice)) = text.split_once(':').filter(|(list, _)| is_list(list)) {
            let bounds: Result<Vec<usize>, _> =
                slice.split(':').map(|it| it.trim().parse()).collect();
            let first = usize::from(ALL.contains(&list));
            let (from, count) = match bounds.as_deref() {
                Ok([from]) => (*from, usize::MAX),
                Ok([from, count]) => (*from, *count),
                _ => return vec![Text::unknown(text)],
            };
            let all = self.variable(list).into_iter();
            return all.skip(from.saturating_sub(first)).take(count).collect();
        }
        if text == "#"
            && let Some(arguments) = &self.arguments
        {
            return vec![Text::known(&arguments.len().to_string())];
        }
        // `$#` of the script is unknown; `#NAME[@]` is the length of a list.
        if let Some(counted) = text.strip_prefix('#').filter(|it| !it.is_empty()) {
            return vec![self.length(counted)];
        }
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let (name, rest) = text.split_at(end.unwrap_or(text.len()));
        let value = self.value(name);
        let is_set =
            value.as_ref().is_some_and(|it| it.iter().any(|word| *word != Text::default()));
        match rest {
            "" => value
                .map_or_else(|| vec![Text::unknown(name)], |it| it.into_iter().take(1).collect()),
            _ if self.given.contains_key(text) && !name.is_empty() => {
                vec![Text::known(&self.given[text])]
            }
            "[@]" | "[*]" => match (value, self.given.get(name)) {
                // A list that the user sets is one text whose words are separated by blanks.
                (Some(words), Some(given)) if words == [Text::known(given)] => {
                    given.split_ascii_whitespace().map(Text::known).collect()
                }
                (Some(words), _) => {
                    words.into_iter().map(|it| keyed(&it).map_or(it.clone(), |it| it.1)).collect()
                }
                // The environment has no lists, so a list that no script sets is empty.
                (None, _) if self.is_whole => Vec::new(),
                (None, _) => vec![Text::unknown(name)],
            },
            _ if rest.starts_with('[') && rest.ends_with(']') => {
                vec![self.item(name, value, &rest[1..rest.len() - 1])]
            }
            _ => {
                let operator = rest.trim_start_matches(':');
                let default = operator.get(1..).unwrap_or_default();
                match operator.chars().next() {
                    Some('-' | '=' | '?') if is_set => value.unwrap_or_default(),
                    Some('+') if is_set && value.iter().flatten().all(|it| !it.is_hole()) => {
                        self.default_words(default)
                    }
                    Some('+') if value.is_some() && !is_set => vec![Text::default()],
                    Some('?') => vec![Text::unknown(name)],
                    Some(sign @ ('-' | '=')) => {
                        let word = Text::joined(&self.default_words(default), " ");
                        // In place of a command's output, the user can set the variable.
                        let is_output = |it: &String| it.starts_with(['$', '`']);
                        let is_hole = word.is_hole() && word.unknown_names().iter().all(is_output);
                        let is_open = is_hole && is_name(name);
                        let word = if is_open { Text::unknown(name) } else { word };
                        if sign == '=' {
                            self.variables.insert(name.to_owned(), vec![word.clone()]);
                        }
                        vec![word]
                    }
                    // A value with unknown parts passes on the names that these depend on.
                    _ if value.iter().flatten().any(Text::is_hole) => {
                        let names = value.iter().flatten().flat_map(Text::unknown_names);
                        vec![Text::depending(names.collect())]
                    }
                    // For a part of an unknown variable, the user can set the whole variable.
                    _ if value.is_none() && !name.is_empty() => vec![Text::unknown(name)],
                    _ => {
                        let operator = self.default(rest);
                        let known = value.iter().flatten().next().and_then(Text::as_known);
                        let changed = || pattern::changed(known?, operator.as_known()?);
                        vec![changed().map_or_else(|| Text::unknown(text), |it| Text::known(&it))]
                    }
                }
            }
        }
    }

    /// Item of a list by its number, or of `declare -A` by its key.
    fn item(&mut self, name: &str, value: Option<Vec<Text>>, index: &str) -> Text {
        let index = self.default(index);
        let (Some(words), Some(index)) = (value, index.as_known()) else {
            return Text::unknown(name);
        };
        if words.iter().any(|it| keyed(it).is_some()) {
            let mut items = words.iter().filter_map(keyed);
            return items.find(|it| it.0 == index).map(|it| it.1).unwrap_or_default();
        }
        let place = self.arithmetic(index);
        let place = place.as_known().and_then(|it| it.parse::<i64>().ok());
        let from_end = |it: i64| words.len().checked_sub(usize::try_from(it.unsigned_abs()).ok()?);
        match place.and_then(|it| usize::try_from(it).ok().or_else(|| from_end(it))) {
            Some(place) if words[..words.len().min(place)].iter().all(|it| !it.is_hole()) => {
                words.get(place).cloned().unwrap_or_default()
            }
            _ => Text::unknown(name),
        }
    }

    /// Number of words of a list, or of characters of a word.
    pub(super) fn length(&self, counted: &str) -> Text {
        let list = counted.strip_suffix("[@]").or_else(|| counted.strip_suffix("[*]"));
        let name = list.unwrap_or(counted);
        let words = self.variables.get(name).map_or(&[][..], Vec::as_slice);
        let length = match (list, words.first()) {
            (None, Some(word)) => word.as_known().map(|it| it.chars().count()),
            _ => (!words.iter().any(Text::is_hole)).then_some(words.len()),
        };
        length.map_or_else(|| Text::unknown(name), |it| Text::known(&it.to_string()))
    }

    /// Words of a default value in an expansion; quotes in it are parsed as in a command.
    fn default_words(&mut self, text: &str) -> Vec<Text> {
        let is_word = |token: &Token| matches!(token, Token::Word { .. });
        let quoted = text.contains(['"', '\'']).then(|| tokens(text).ok()).flatten();
        let Some(tokens) = quoted.filter(|it| it.iter().all(is_word)) else {
            return vec![self.default(text)];
        };
        if self.depth >= DEEPEST_EXPANSION {
            return vec![Text::unknown(text)];
        }
        self.depth += 1;
        let mut words = Vec::new();
        for token in &tokens {
            if let Token::Word { pieces, .. } = token {
                words.extend(self.words(pieces));
            }
        }
        self.depth -= 1;
        words
    }

    /// Default value in an expansion; it may contain further expansions.
    fn default(&mut self, text: &str) -> Text {
        let text = text.trim_matches(|c| c == '"' || c == '\'');
        if self.depth >= DEEPEST_EXPANSION {
            return Text::unknown(text);
        }
        self.depth += 1;
        let value = expandable(text).map(|pieces| self.joined(&pieces));
        self.depth -= 1;
        value.unwrap_or_else(|_| Text::unknown(text))
    }
}

/// Returns whether pieces are the output of a command, or arithmetic that contains one.
fn is_command(pieces: &[WordPart]) -> bool {
    match pieces {
        [WordPart::Command { .. }] => true,
        [WordPart::Arithmetic(text)] => text.contains("$(") || text.contains('`'),
        _ => false,
    }
}

/// List, operator and default of `NAME[@]:-default` and the like.
fn list_operator(text: &str) -> Option<(&str, char, &str)> {
    let end = match text.find("[@]").or_else(|| text.find("[*]")) {
        Some(end) if is_name(&text[..end]) => end + 3,
        _ => text.starts_with(['@', '*']).then_some(1)?,
    };
    let (list, rest) = text.split_at(end);
    let mut operator = rest.strip_prefix(':').unwrap_or(rest).chars();
    let sign = operator.next().filter(|sign| "-+=?".contains(*sign))?;
    Some((list, sign, operator.as_str()))
}

/// Key and value of an item of `declare -A`, as `[key]=value`.
fn keyed(item: &Text) -> Option<(String, Text)> {
    let (key, value) = item.as_known()?.strip_prefix('[')?.split_once("]=")?;
    Some((key.to_owned(), Text::known(value)))
}
