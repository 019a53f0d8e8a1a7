//! Interpreter of a script's statements.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::condition;
use super::continued::{ended_early, goes_on, list_goes_on, starts};
use super::expand::Scope;
use super::lex::{Break, Token, Value, WordPart};
use super::script::{Command, Open, Script, Way};
use super::syntax::{Decides, Form, Statement, each, each_of, has_any};
use super::text::{Locals, Text};
use super::word::{ShellError, is_name};

/// Limit of the nesting of functions, nested scripts, subshells and branches.
pub(super) const DEEPEST_SCRIPT: usize = 64;

/// Limit of executed statements; those of a function count for each call.
const MOST_STATEMENTS: usize = 100_000;

/// Interpreter of a script's statements.
pub(super) struct Reader<'a> {
    pub(super) script: Script,
    /// Text whose statements are executed.
    pub(super) text: Rc<str>,
    pub(super) scope: Scope<'a>,
    /// Scripts that may be run, by their names.
    pub(super) files: &'a BTreeMap<String, String>,
    way: &'a Way,
    /// Values that local variables of the function being executed had outside of it; `None` outside of functions.
    pub(super) locals: Option<Locals>,
    /// Bodies of functions.
    functions: BTreeMap<String, Rc<Statement>>,
    /// Words of the commands that start the shell whose script is being executed.
    pub(super) before: Vec<Text>,
    /// Line of the outermost script that starts the nested script being executed.
    pub(super) started: Option<usize>,
    /// Line on which the last command ends.
    pub(super) ended: usize,
    /// Nesting depth of functions, subshells and branches.
    pub(super) depth: usize,
    /// Statements left until the limit.
    left: usize,
    /// Nesting depth of branches that may not run.
    guesses: usize,
    /// Unknown variables that decide whether the current command runs.
    pub(super) because: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    /// Interpreter of a text, with the variables that the user sets and those of the script's surroundings.
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
            locals: None,
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

    /// The part of the script that was executed.
    pub(super) fn into_script(self) -> Script {
        Script { variables: self.scope.known(), ..self.script }
    }

    /// Executes statements; with `is_conditional`, it is unknown whether they run. Returns whether the last one
    /// succeeds; `None` if unknown.
    pub(super) fn run(
        &mut self,
        statements: &[Statement],
        is_conditional: bool,
    ) -> Result<Option<bool>, ShellError> {
        self.depth += 1;
        let mut succeeded = Some(true);
        // Whether the next statement runs after `&&` or `||`; `None` if unknown.
        let mut is_run = Some(true);
        for (place, statement) in statements.iter().enumerate() {
            let line = self.started.unwrap_or(statement.line);
            if self.depth > DEEPEST_SCRIPT || self.left == 0 {
                return Err(ShellError::Endless { line });
            }
            if self.scope.is_too_large {
                return Err(ShellError::Large { line });
            }
            self.left -= 1;
            if is_run == Some(false) {
                self.declare(std::slice::from_ref(statement));
            } else {
                succeeded = self.execute(statement, is_conditional || is_run.is_none())?;
                succeeded = succeeded.filter(|_| is_run.is_some());
            }
            let is_joined = matches!(statement.by, Break::And | Break::Or);
            if succeeded.is_none() && is_run == Some(true) && is_joined {
                let next = statements.get(place + 1).map(std::slice::from_ref);
                let is_unset = self.holds_unset(statement.tokens(), next.unwrap_or_default());
                succeeded = is_unset.or_else(|| self.guessed(statement));
            }
            is_run = match statement.by {
                Break::And => succeeded,
                Break::Or => succeeded.map(|it| !it),
                _ => Some(true),
            };
        }
        self.depth -= 1;
        Ok(succeeded)
    }

    /// Executes a statement. Returns whether it succeeds; `None` if unknown.
    fn execute(
        &mut self,
        statement: &Statement,
        is_conditional: bool,
    ) -> Result<Option<bool>, ShellError> {
        match &statement.form {
            Form::Command(tokens) => return self.command(tokens, statement.last, is_conditional),
            Form::Function(name, body) => {
                self.functions.insert(name.clone(), Rc::clone(body));
            }
            Form::Subshell(body) => {
                // Variables that a subshell sets end with it.
                let before = self.scope.clone();
                self.run(body, is_conditional)?;
                self.scope.restore(before);
                return Ok(None);
            }
            Form::Group(body) => return self.run(body, is_conditional),
            Form::Compound { keyword: keyword @ ("if" | "case"), parts, .. } => {
                match self.chosen(statement.line, keyword, parts) {
                    Some((body, is_guess)) => {
                        self.guesses += usize::from(is_guess);
                        let result = self.run(body, is_conditional);
                        self.guesses -= usize::from(is_guess);
                        result?;
                    }
                    None => self.skip(statement.line, keyword, parts)?,
                }
            }
            Form::Compound { keyword, variable, parts } => {
                let is_followed = match parts.as_slice() {
                    [(Decides::Condition(condition), body)] => {
                        self.looped(keyword, variable.as_deref(), condition, body)?
                    }
                    _ => false,
                };
                if !is_followed {
                    self.skip(statement.line, keyword, parts)?;
                }
            }
        }
        Ok(Some(true))
    }

    /// Guess of whether a statement succeeds, if that is unknown; `None` if no way is followed. In the first way, a
    /// test fails and any other command succeeds.
    fn guessed(&mut self, statement: &Statement) -> Option<bool> {
        if matches!(statement.form, Form::Subshell(_)) {
            return None;
        }
        let words = self.expanded(statement.tokens());
        let is_test = condition::is_test(&words);
        let keyword = if statement.by == Break::And { "&&" } else { "||" };
        let way = self.way_of(statement.line, keyword, variables_of(&words), 2)?;
        Some((way == 0) != is_test)
    }

    /// Number of the way that is followed at a branch on unknown values; `None` if none is followed.
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

    /// Body that a branch executes, and whether that is a guess; `None` if it is unknown.
    fn chosen<'s>(
        &mut self,
        line: usize,
        keyword: &str,
        parts: &'s [(Decides, Vec<Statement>)],
    ) -> Option<(&'s [Statement], bool)> {
        // Bodies that may run, and the variables that decide this; `chosen` runs if none of them does.
        let mut may_run: Vec<&'s [Statement]> = Vec::new();
        let mut names = BTreeSet::new();
        let mut chosen: &[Statement] = &[];
        for (decides, body) in parts {
            let (words, is_it) = self.decided(decides, body);
            match is_it {
                Some(true) => {
                    chosen = body;
                    break;
                }
                Some(false) => {}
                None => {
                    names.extend(variables_of(&words));
                    may_run.push(body);
                }
            }
        }
        let is_guess = !may_run.is_empty();
        if is_guess {
            let way = self.way_of(line, keyword, names, may_run.len() + 1)?;
            if way > 0 {
                chosen = may_run[way - 1];
            }
        }
        for (_, body) in parts {
            self.declare(body);
        }
        Some((chosen, is_guess))
    }

    /// Words on which a body of a branch depends, and whether the body runs if none before it does; `None` if unknown.
    fn decided(&mut self, decides: &Decides, body: &[Statement]) -> (Vec<Text>, Option<bool>) {
        match decides {
            Decides::Otherwise => (Vec::new(), Some(true)),
            Decides::Condition(condition) => {
                let tokens = condition.iter().flat_map(Statement::tokens);
                let words = self.expanded(tokens);
                let holds = self.holds(condition);
                let unset = || self.holds_unset(condition.first()?.tokens(), body);
                (words, if condition.len() == 1 { holds.or_else(unset) } else { holds })
            }
            Decides::Patterns(subject, patterns) => {
                let subject = self.expanded(subject);
                let patterns = self.expanded(patterns);
                let is_it = match (subject.as_slice(), patterns.as_slice()) {
                    (_, [all]) if all.as_known() == Some("*") => Some(true),
                    ([subject], patterns) => {
                        subject.as_known().and_then(|it| condition::matches(it, patterns))
                    }
                    _ => None,
                };
                (subject.into_iter().chain(patterns).collect(), is_it)
            }
        }
    }

    /// Declares variables that are assigned in statements which do not run: they are empty, unless set already.
    pub(super) fn declare(&mut self, statements: &[Statement]) {
        each(statements, &mut |tokens| {
            self.may_write(tokens);
            for token in tokens {
                if let Token::Assign { name, .. } = token {
                    self.scope.declare(name);
                }
            }
        });
    }

    /// Words that tokens expand to.
    pub(super) fn expanded<'t>(
        &mut self,
        tokens: impl IntoIterator<Item = &'t Token>,
    ) -> Vec<Text> {
        let mut all = Vec::new();
        for token in tokens {
            match token {
                Token::Word { pieces, .. } => all.extend(self.scope.words(pieces)),
                // After the name of a command, an assignment is an ordinary word.
                Token::Assign { name, appends: false, value: Value::One(pieces), .. }
                    if !all.is_empty() =>
                {
                    let mut word = Text::known(&format!("{name}="));
                    word.push(&self.scope.joined(pieces));
                    all.push(word);
                }
                _ => {}
            }
        }
        all
    }

    /// Result of a condition; `None` if unknown.
    pub(super) fn holds(&mut self, condition: &[Statement]) -> Option<bool> {
        let mut result = None;
        let mut joined = Break::Plain;
        for statement in condition {
            let tokens = statement.tokens();
            if tokens.is_empty() || !tokens.iter().all(|it| matches!(it, Token::Word { .. })) {
                return None;
            }
            let holds = condition::holds(&self.expanded(tokens));
            result = Some(match joined {
                Break::And => result? && holds?,
                Break::Or => result? || holds?,
                _ => holds?,
            });
            joined = statement.by;
        }
        result
    }

    /// Result of a test for emptiness of variables that nothing sets. Such a variable counts as empty, as in
    /// `${NAME:-VALUE}`, if the branch assigns it; so does an argument of the script, which is read without arguments.
    fn holds_unset(&mut self, test: &[Token], body: &[Statement]) -> Option<bool> {
        let is_empty = |it: &Token| match it {
            Token::Word { pieces, .. } => {
                pieces.iter().all(|it| matches!(it, WordPart::Quoted(text) if text.is_empty()))
            }
            _ => false,
        };
        let is_of_empty = |it: &Token| it.plain().is_some_and(|it| ["-z", "-n"].contains(&it));
        if !test.iter().any(|it| is_empty(it) || is_of_empty(it)) {
            return None;
        }
        let words = self.expanded(test);
        let names: BTreeSet<String> = words.iter().flat_map(Text::unknown_names).collect();
        let gives = |name: &str| {
            has_any(body, |tokens| {
                tokens.iter().any(|it| matches!(it, Token::Assign { name: it, .. } if it == name))
            })
        };
        let is_argument = |name: &str| name.parse::<usize>().is_ok();
        let is_unset =
            |name: &String| self.scope.value(name).is_none() && (is_argument(name) || gives(name));
        if names.is_empty() || !names.iter().all(is_unset) {
            return None;
        }
        let without = |it: &Text| Text::known(&it.word().text);
        condition::holds(&words.iter().map(without).collect::<Vec<_>>())
    }

    /// Executes assignments or a command, which ends on line `last`. Returns whether it succeeds; `None` if unknown.
    fn command(
        &mut self,
        statement: &[Token],
        last: usize,
        is_conditional: bool,
    ) -> Result<Option<bool>, ShellError> {
        let assigned = statement.iter().take_while(|it| matches!(it, Token::Assign { .. })).count();
        let (assigned, words) = statement.split_at(assigned);
        if let [Token::Word { pieces, .. }] = words
            && let [WordPart::Truth(text)] = pieces.as_slice()
            && !is_conditional
            && self.scope.calculate(text)
        {
            return Ok(None);
        }
        let command = self.expanded(words);
        if condition::is_test(&command) {
            self.because = variables_of(&command);
            return Ok(condition::holds(&command));
        }
        let Some(name) = command.first().map(|it| it.word().text) else {
            self.assign(assigned, is_conditional);
            return Ok(Some(true));
        };
        if self.declares(&name, words, is_conditional) {
            return Ok(Some(true));
        }
        // Assignments before a command hold for this command only.
        let mut before = Vec::new();
        for token in assigned {
            if let Token::Assign { name, .. } = token {
                before.push((name.clone(), self.scope.value(name)));
            }
        }
        self.assign(assigned, false);
        if let Some(body) = self.functions.get(&name).cloned() {
            let outer = self.scope.with_arguments(Some(command[1..].to_vec()));
            let around = self.locals.replace(Vec::new());
            self.run(std::slice::from_ref(&body), false)?;
            let locals = std::mem::replace(&mut self.locals, around);
            for (name, value) in locals.into_iter().flatten().rev() {
                self.scope.put(&name, value);
            }
            self.scope.with_arguments(outer);
        } else if self.sets(&name, &command, statement) {
        } else if name == "shift" {
            let count = command.get(1).and_then(|it| it.as_known()?.parse().ok());
            self.scope.shift(count.unwrap_or(1));
        } else if !self.nested(&name, &command, statement)? {
            self.record(&command, words, last, !assigned.is_empty())?;
        }
        for (name, value) in before.into_iter().rev() {
            self.scope.put(&name, value);
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
    pub(super) fn assign(&mut self, tokens: &[Token], is_conditional: bool) {
        for token in tokens {
            if let Token::Assign { name, appends, value, .. } = token {
                // If a branch is a guess, the user's value takes precedence.
                let is_said = self.guesses > 0 && self.scope.is_given(name);
                if is_conditional || is_said {
                    self.scope.leave_open(name, *appends, value, &self.because);
                } else {
                    self.scope.assign(name, *appends, value);
                }
            }
        }
    }

    /// Skips a branch or loop that is not followed. Variables that it sets become unknown.
    fn skip(
        &mut self,
        line: usize,
        keyword: &str,
        parts: &[(Decides, Vec<Statement>)],
    ) -> Result<(), ShellError> {
        let decides: Vec<&Token> = match parts.first() {
            Some((Decides::Condition(it), _)) => it.iter().flat_map(Statement::tokens).collect(),
            Some((Decides::Patterns(subject, _), _)) => subject.iter().collect(),
            _ => Vec::new(),
        };
        // A loop over the arguments of the script, which is read without arguments.
        let is_count =
            |piece: &WordPart| matches!(piece, WordPart::Variable { text, .. } if text == "#");
        let counts =
            |it: &Token| matches!(it, Token::Word { pieces, .. } if pieces.iter().any(is_count));
        let is_of_arguments = keyword != "if" && decides.iter().copied().any(counts);
        self.because = variables_of(&self.expanded(decides));
        let mut is_start = false;
        let mut leave = |tokens: &[Token]| {
            for token in tokens {
                // Variables that are set only from arguments are unknown without arguments.
                if let Token::Assign { name, .. } = token
                    && (!is_of_arguments || self.scope.first(name).is_some_and(Text::is_empty))
                {
                    self.assign(std::slice::from_ref(token), true);
                }
            }
            self.may_write(tokens);
            is_start |= starts(tokens);
        };
        each_of(parts, &mut leave);
        if !is_start {
            return Ok(());
        }
        let variables = self.because.iter().cloned().collect();
        Err(ShellError::Branch { line, keyword: keyword.to_owned(), variables })
    }
}

/// Commands that are taken to succeed, so that the command after their `&&` runs.
const SAFE: [&str; 9] = ["cd", "mkdir", "echo", "source", ".", "set", "ulimit", "module", "shift"];

/// Variables that a user can set and on which words depend.
fn variables_of(words: &[Text]) -> BTreeSet<String> {
    words.iter().flat_map(Text::unknown_names).filter(|it| is_name(it)).collect()
}
