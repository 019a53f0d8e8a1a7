//! Interpreter of a script's tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::condition;
use super::continued::{STARTERS, ended_early, goes_on, list_goes_on};
use super::expand::Scope;
use super::lex::{Break, Piece, Token};
use super::parts::{branches, cases, closing, function, over};
use super::script::{Command, Open, Script, Way};
use super::text::Text;
use super::word::ShellError;

/// Limit of the nesting of functions, nested scripts, subshells and branches.
pub(super) const DEEPEST: usize = 64;

/// Limit of executed statements; those of a function count for each call.
const MOST_STATEMENTS: usize = 100_000;

/// Limit of the rounds of a loop.
const MOST_ROUNDS: usize = 1_000;

/// Interpreter of a script's tokens.
pub(super) struct Reader<'a> {
    pub(super) script: Script,
    /// Text whose tokens are executed.
    pub(super) text: Rc<str>,
    pub(super) scope: Scope<'a>,
    /// Scripts that may be run, by their names.
    pub(super) files: &'a BTreeMap<String, String>,
    way: &'a Way,
    /// Bodies of functions.
    functions: BTreeMap<String, Rc<[Token]>>,
    /// Words of the commands that start the shell whose script is executed.
    pub(super) before: Vec<Text>,
    /// Line of the outermost script that starts it.
    pub(super) started: Option<usize>,
    /// Line with which the last command ends.
    pub(super) ended: usize,
    /// Nesting depth of functions, subshells and branches.
    pub(super) depth: usize,
    /// Statements left until the limit.
    left: usize,
    /// Depth of branches of which it is unknown whether they run.
    guesses: usize,
    /// Unknown variables on which it depends whether the current command runs.
    because: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    /// Interpreter of a text with the variables that the user sets, and those around the script.
    pub(super) fn new(
        text: &str,
        (set, outer): (&'a BTreeMap<String, String>, &BTreeMap<String, String>),
        files: &'a BTreeMap<String, String>,
        way: &'a Way,
    ) -> Self {
        Self {
            script: Script::default(),
            text: text.into(),
            scope: Scope::new(set, outer),
            files,
            way,
            functions: BTreeMap::new(),
            before: Vec::new(),
            started: None,
            ended: 0,
            depth: 0,
            left: MOST_STATEMENTS,
            guesses: 0,
            because: BTreeSet::new(),
        }
    }

    /// The script as far as it was executed.
    pub(super) fn into_script(self) -> Script {
        Script { variables: self.scope.known(), ..self.script }
    }

    /// Executes tokens.
    pub(super) fn run(&mut self, tokens: &[Token]) -> Result<(), ShellError> {
        self.depth += 1;
        let result = self.run_within(tokens);
        self.depth -= 1;
        result
    }

    fn run_within(&mut self, tokens: &[Token]) -> Result<(), ShellError> {
        let mut at = 0;
        // Whether the next command runs after `&&` or `||`; `None` if unknown.
        let mut is_run = Some(true);
        // Whether the last command succeeded; `None` if unknown.
        let mut succeeded = Some(true);
        while at < tokens.len() {
            let line = tokens[at].line();
            if self.depth > DEEPEST || self.left == 0 {
                return Err(ShellError::Endless { line });
            }
            if self.scope.is_too_large {
                return Err(ShellError::Large { line });
            }
            self.left -= 1;
            let end = (at..tokens.len()).find(|place| tokens[*place].is_end());
            let end = end.unwrap_or(tokens.len());
            let statement = &tokens[at..end];
            let by = tokens.get(end).and_then(Token::ends_by);
            if let Some((name, body)) = function(tokens, at..tokens.len()) {
                at = body.end + 1;
                self.functions.insert(name.to_owned(), tokens[body].into());
                continue;
            }
            let Some(first) = statement.first() else {
                at = end + 1;
                match by {
                    Some(Break::Open) => {
                        // Variables that a subshell sets end with it.
                        let close = closing(tokens, end..tokens.len());
                        let before = self.scope.clone();
                        self.run(&tokens[at..close])?;
                        self.scope.restore(before);
                        at = close + 1;
                    }
                    // The outcome of a subshell, or of arithmetic in brackets, is unknown.
                    Some(Break::And | Break::Or) => (is_run, succeeded) = (None, None),
                    _ => {}
                }
                continue;
            };
            if let Some(keyword) = first.keyword() {
                at = self.followed(&tokens[at..], end - at, keyword)? + at;
                is_run = Some(true);
                continue;
            }
            at = end + 1;
            let last = tokens.get(end).map_or(0, Token::line);
            match is_run {
                Some(true) => succeeded = self.statement(statement, last, false)?,
                Some(false) => self.declare(statement),
                None => {
                    self.statement(statement, last, true)?;
                    succeeded = None;
                }
            }
            if let (None, Some(sign @ (Break::And | Break::Or)), Some(true)) =
                (succeeded, by, is_run)
            {
                succeeded = self.guessed(line, sign, statement);
            }
            is_run = match by {
                Some(Break::And) => succeeded,
                Some(Break::Or) => succeeded.map(|it| !it),
                _ => Some(true),
            };
        }
        Ok(())
    }

    /// Whether a command succeeds of which that is unknown: `None` if no way is followed. A test fails in the first way,
    /// another command succeeds.
    fn guessed(&mut self, line: usize, sign: Break, statement: &[Token]) -> Option<bool> {
        let words = self.expanded(statement);
        let is_test = condition::is_test(&words);
        let keyword = if sign == Break::And { "&&" } else { "||" };
        let way = self.way_of(line, keyword, variables_of(&words), 2)?;
        Some((way == 0) != is_test)
    }

    /// Number of the way that is followed at a branch on what is unknown; `None` if none is.
    fn way_of(
        &mut self,
        line: usize,
        keyword: &str,
        variables: BTreeSet<String>,
        num_ways: usize,
    ) -> Option<usize> {
        let Way::One(ways) = self.way else { return None };
        let line = self.started.unwrap_or(line);
        let open = Open { keyword: keyword.to_owned(), variables, num_ways };
        self.script.open.insert(line, open);
        Some(ways.get(&line).copied().unwrap_or(0).min(num_ways - 1))
    }

    /// Executes the branch or loop at the start of some tokens; returns the index after it.
    fn followed(
        &mut self,
        tokens: &[Token],
        end: usize,
        keyword: &str,
    ) -> Result<usize, ShellError> {
        if let Some((name, words, body, after)) = over(tokens) {
            let words: Vec<Text> = self.expanded(&tokens[words]);
            let is_known = |it: &Text| it.as_known().is_some_and(|it| !it.contains(['*', '?']));
            if words.iter().all(is_known) && words.len() <= MOST_ROUNDS {
                for word in words {
                    self.scope.set(name, word);
                    self.run(&tokens[body.clone()])?;
                }
                return Ok(after);
            }
        }
        match self.chosen(tokens, keyword) {
            Some((body, after, is_guess)) => {
                self.guesses += usize::from(is_guess);
                let result = self.run(&tokens[body]);
                self.guesses -= usize::from(is_guess);
                result.map(|()| after)
            }
            None => self.skip(tokens, end, keyword),
        }
    }

    /// Body that the branch at the start of some tokens executes, the index after it, and whether that is a guess; `None`
    /// if it is unknown.
    fn chosen(
        &mut self,
        tokens: &[Token],
        keyword: &str,
    ) -> Option<(std::ops::Range<usize>, usize, bool)> {
        let (parts, after) = match cases(tokens, 0..tokens.len()) {
            Some(found) => found,
            None => branches(tokens, 0..tokens.len())?,
        };
        let subject = (keyword == "case").then(|| self.expanded(&tokens[1..2]));
        // Bodies that may run, with what they depend on; the last is certain to run if none before does.
        let mut may_run = Vec::new();
        let mut names = BTreeSet::new();
        let mut otherwise = after..after;
        for (decides, body) in &parts {
            let words = self.expanded(&tokens[decides.clone()]);
            let is_it = match subject.as_deref() {
                Some([subject]) => match (subject.as_known(), words.as_slice()) {
                    (_, [all]) if all.as_known() == Some("*") => Some(true),
                    (Some(subject), patterns) => condition::matches(subject, patterns),
                    (None, _) => None,
                },
                Some(_) => None,
                None if decides.is_empty() => Some(true),
                None => self.holds(&tokens[decides.clone()]),
            };
            match is_it {
                Some(true) => {
                    otherwise = body.clone();
                    break;
                }
                Some(false) => {}
                None => {
                    names.extend(variables_of(&words));
                    names.extend(variables_of(subject.as_deref().unwrap_or_default()));
                    may_run.push(body.clone());
                }
            }
        }
        let mut chosen = otherwise;
        let is_guess = !may_run.is_empty();
        if is_guess {
            let way = self.way_of(tokens[0].line(), keyword, names, may_run.len() + 1)?;
            if way > 0 {
                chosen = may_run[way - 1].clone();
            }
        }
        for (_, body) in parts {
            self.declare(&tokens[body]);
        }
        Some((chosen, after, is_guess))
    }

    /// Declares variables that tokens which do not run assign: they are empty, unless set already.
    fn declare(&mut self, tokens: &[Token]) {
        for token in tokens {
            if let Token::Assign { name, .. } = token {
                self.scope.declare(name);
            }
        }
    }

    /// Words that tokens expand to.
    fn expanded(&mut self, tokens: &[Token]) -> Vec<Text> {
        let mut all = Vec::new();
        for token in tokens {
            if let Token::Word { pieces, .. } = token {
                all.extend(self.scope.words(pieces));
            }
        }
        all
    }

    /// Result of a condition; `None` if unknown.
    fn holds(&mut self, tokens: &[Token]) -> Option<bool> {
        let mut result = None;
        let mut joined = Break::Plain;
        for statement in tokens.split_inclusive(Token::is_end) {
            let by = statement.last().and_then(Token::ends_by);
            let words = &statement[..statement.len() - usize::from(by.is_some())];
            if words.is_empty() {
                continue;
            }
            if words.iter().any(|token| !matches!(token, Token::Word { .. })) {
                return None;
            }
            let command = self.expanded(words);
            let holds = condition::holds(&command);
            result = Some(match joined {
                Break::And => result? && holds?,
                Break::Or => result? || holds?,
                _ => holds?,
            });
            joined = by.unwrap_or(Break::Plain);
        }
        result
    }

    /// Executes a statement that ends with a line: assignments or a command. Returns whether it succeeds, `None` if
    /// unknown.
    fn statement(
        &mut self,
        statement: &[Token],
        last: usize,
        is_conditional: bool,
    ) -> Result<Option<bool>, ShellError> {
        let assigned = statement.iter().take_while(|it| matches!(it, Token::Assign { .. })).count();
        let (assigned, words) = statement.split_at(assigned);
        let command = self.expanded(words);
        if condition::is_test(&command) {
            self.because = variables_of(&command);
            return Ok(condition::holds(&command));
        }
        let Some(name) = command.first().map(|it| it.word().text) else {
            self.assign(assigned, is_conditional);
            return Ok(Some(true));
        };
        if ["export", "declare", "readonly", "local"].contains(&name.as_str()) {
            self.assign(words, is_conditional);
            return Ok(Some(true));
        }
        // Assignments before a command hold for this command only.
        let before = (!assigned.is_empty()).then(|| self.scope.clone());
        self.assign(assigned, false);
        if let Some(body) = self.functions.get(&name).cloned() {
            let outer = self.scope.with_arguments(Some(command[1..].to_vec()));
            self.run(&body)?;
            self.scope.with_arguments(outer);
        } else if SETTERS.contains(&name.as_str()) {
            let set = command.iter().skip(1).filter_map(Text::as_known);
            set.filter(|it| !it.starts_with('-')).for_each(|it| self.scope.forget(it));
        } else if name == "shift" {
            let count = command.get(1).and_then(|it| it.as_known()?.parse().ok());
            self.scope.shift(count.unwrap_or(1));
        } else if !self.nested(&name, &command, statement)? {
            self.record(&command, words, last, !assigned.is_empty())?;
        }
        if let Some(before) = before {
            self.scope.restore(before);
        }
        Ok(SAFE.contains(&name.as_str()).then_some(true))
    }

    /// Adds a command; an error if it was meant to continue the one before.
    fn record(
        &mut self,
        command: &[Text],
        tokens: &[Token],
        last: usize,
        has_own: bool,
    ) -> Result<(), ShellError> {
        let first = tokens.first().map_or(0, Token::line);
        let own: Vec<_> = command.iter().map(Text::word).collect();
        let is_list = command[0].is_hole();
        if let Some(before) = self.script.commands.last()
            && (goes_on(before, &own) || is_list && list_goes_on(before, self.ended, tokens))
        {
            let word = if is_list { command[0].source() } else { own[0].text.clone() };
            return Err(ended_early(&self.text, self.ended, first, word));
        }
        let words = self.before.iter().map(Text::word).chain(own).collect();
        let variables = if has_own { self.scope.known() } else { BTreeMap::new() };
        let line = self.started.unwrap_or(first);
        self.script.commands.push(Command { line, words, variables });
        self.ended = last;
        Ok(())
    }

    /// Sets variables, or marks them as unknown if it is unknown whether the assignment runs.
    fn assign(&mut self, tokens: &[Token], is_conditional: bool) {
        for token in tokens {
            if let Token::Assign { name, appends, value, .. } = token {
                // Where a branch is a guess, the user's value counts.
                let is_said = self.guesses > 0 && self.scope.is_given(name);
                if is_conditional || is_said {
                    self.scope.leave_open(name, *appends, value, &self.because);
                } else {
                    self.scope.assign(name, *appends, value);
                }
            }
        }
    }

    /// Index after a branch or loop that is not followed. Variables that it sets become unknown.
    fn skip(&mut self, tokens: &[Token], from: usize, keyword: &str) -> Result<usize, ShellError> {
        let line = tokens[0].line();
        let decides = &tokens[1..from.max(1)];
        let words = self.expanded(decides);
        // A loop over the arguments of the script, which is read without any.
        let is_count = |piece: &Piece| matches!(piece, Piece::Variable { text, .. } if text == "#");
        let is_of_arguments = keyword != "if"
            && decides
                .iter()
                .any(|it| matches!(it, Token::Word { pieces, .. } if pieces.iter().any(is_count)));
        self.because = variables_of(&words);
        let mut depth = 1;
        let mut starts = false;
        let mut is_start = false;
        for (place, token) in tokens.iter().enumerate().skip(from) {
            match token {
                Token::End { .. } => (starts, is_start) = (true, false),
                Token::Assign { name, appends, value, .. } if !is_of_arguments => {
                    self.scope.leave_open(name, *appends, value, &self.because);
                }
                Token::Word { .. } => {
                    let word = token.plain().unwrap_or_default();
                    if starts && ["if", "for", "while", "until", "case"].contains(&word) {
                        depth += 1;
                    }
                    if starts && ["fi", "done", "esac"].contains(&word) {
                        depth -= 1;
                    }
                    let name = word.rsplit('/').next().unwrap_or_default();
                    is_start |= starts && STARTERS.contains(&name);
                    if is_start && word.starts_with("--") {
                        let variables = self.because.iter().cloned().collect();
                        let keyword = keyword.to_owned();
                        return Err(ShellError::Branch { line, keyword, variables });
                    }
                    // A new command begins after these words.
                    starts = ["then", "do", "else"].contains(&word);
                    if depth == 0 {
                        return Ok(place + 1);
                    }
                }
                Token::Assign { .. } | Token::Here { .. } | Token::Output { .. } => {}
            }
        }
        Err(ShellError::Open { line, what: "a branch or loop" })
    }
}

/// Commands that set the variables in their arguments to what is not known.
const SETTERS: [&str; 4] = ["read", "mapfile", "readarray", "getopts"];

/// Commands that are taken to succeed, so that the command after their `&&` runs.
const SAFE: [&str; 9] = ["cd", "mkdir", "echo", "source", ".", "set", "ulimit", "module", "shift"];

/// Variables on which words depend and which a user can set.
fn variables_of(words: &[Text]) -> BTreeSet<String> {
    let is_name = |name: &String| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    words.iter().flat_map(Text::unknown_names).filter(is_name).collect()
}
