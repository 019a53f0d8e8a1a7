//! Statements of a script, from its tokens.

use std::rc::Rc;

use super::lex::{Break, Token, tokens};
use super::word::ShellError;

/// A statement of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// Line where it begins, from 1.
    pub(super) line: usize,
    /// Line of the separator that ends it.
    pub(super) last: usize,
    /// Separator that ends it.
    pub(super) by: Break,
    pub(super) form: Form,
}

/// Form of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Assignments, words and redirections.
    Command(Vec<Token>),
    /// Branch or loop.
    Compound {
        /// Keyword that begins it.
        keyword: &'static str,
        /// Variable of `for` or `select`.
        variable: Option<String>,
        /// Conditions with their bodies; for `for`, the condition is a command of its words. A loop has one part.
        parts: Vec<(Decides, Vec<Statement>)>,
    },
    /// Name and body of a function that is defined.
    Function(String, Rc<Statement>),
    /// Statements in round brackets.
    Subshell(Vec<Statement>),
    /// Statements in braces.
    Group(Vec<Statement>),
}

/// Condition that decides whether a body of a branch or loop runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decides {
    /// A condition.
    Condition(Vec<Statement>),
    /// Patterns, one of which the first word must match.
    Patterns(Vec<Token>, Vec<Token>),
    /// No body before it runs.
    Otherwise,
}

impl Statement {
    /// Tokens of a command; empty for other statements.
    pub(super) fn tokens(&self) -> &[Token] {
        match &self.form {
            Form::Command(tokens) => tokens,
            _ => &[],
        }
    }
}

/// Calls a function with the tokens of each command in some statements.
pub(super) fn each(statements: &[Statement], f: &mut dyn FnMut(&[Token])) {
    for statement in statements {
        match &statement.form {
            Form::Command(tokens) => f(tokens),
            Form::Compound { parts, .. } => each_of(parts, f),
            Form::Function(_, body) => each(std::slice::from_ref(body), f),
            Form::Subshell(body) | Form::Group(body) => each(body, f),
        }
    }
}

/// [`each`] of a branch or loop.
pub(super) fn each_of(parts: &[(Decides, Vec<Statement>)], f: &mut dyn FnMut(&[Token])) {
    for (decides, body) in parts {
        if let Decides::Condition(condition) = decides {
            each(condition, f);
        }
        each(body, f);
    }
}

/// Statements of a script.
pub(super) fn statements(text: &str) -> Result<Vec<Statement>, ShellError> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0 };
    let mut all = Vec::new();
    while parser.at < tokens.len() {
        all.extend(parser.statements(&[])?);
        // A closing word or bracket without an opening one is skipped.
        parser.at += 1;
    }
    Ok(all)
}

/// Limit of the nesting of statements.
const DEEPEST_STATEMENT: usize = 64;

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    fn ends_by(&self) -> Option<Break> {
        self.peek()?.ends_by()
    }

    fn line(&self) -> usize {
        self.peek().or(self.tokens.last()).map_or(0, Token::line)
    }

    /// Consumes a word or a bracket if it comes next.
    fn accept(&mut self, word: &str) -> bool {
        let is_next = match word {
            "(" => self.ends_by() == Some(Break::Open),
            ")" => self.ends_by() == Some(Break::Close),
            ";;" => self.ends_by() == Some(Break::Case),
            _ => self.peek().and_then(Token::plain) == Some(word),
        };
        self.at += usize::from(is_next);
        is_next
    }

    fn skip_lines(&mut self) {
        while self.ends_by() == Some(Break::Plain) {
            self.at += 1;
        }
    }

    /// Tokens up to the end of a command.
    fn command(&mut self) -> Vec<Token> {
        let rest = &self.tokens[self.at..];
        let length = rest.iter().position(Token::is_end).unwrap_or(rest.len());
        self.at += length;
        rest[..length].to_vec()
    }

    /// Statements up to one of some closing words.
    fn statements(&mut self, ends: &[&str]) -> Result<Vec<Statement>, ShellError> {
        self.depth += 1;
        if self.depth > DEEPEST_STATEMENT {
            return Err(ShellError::Endless { line: self.line() });
        }
        let mut all = Vec::new();
        loop {
            let at = self.at;
            if self.peek().is_none() || ends.iter().any(|it| self.accept(it)) {
                self.at = at;
                break;
            }
            match self.ends_by() {
                None | Some(Break::Open) => all.push(self.statement()?),
                Some(Break::Close | Break::Case) if ends.is_empty() => break,
                Some(_) => self.at += 1,
            }
        }
        self.depth -= 1;
        Ok(all)
    }

    /// Statements up to a closing word, which is consumed.
    fn closed(&mut self, line: usize, ends: &[&str]) -> Result<Vec<Statement>, ShellError> {
        let all = self.statements(ends)?;
        self.peek().ok_or(ShellError::Open { line, what: "a branch or loop" })?;
        Ok(all)
    }

    fn statement(&mut self) -> Result<Statement, ShellError> {
        let line = self.line();
        let form = self.form(line)?;
        // Redirections of a whole statement.
        while matches!(self.peek(), Some(Token::Here { .. } | Token::Output { .. })) {
            self.at += 1;
        }
        let last = self.line();
        let by = self.ends_by().filter(|it| [Break::Plain, Break::And, Break::Or].contains(it));
        self.at += usize::from(by.is_some());
        Ok(Statement { line, last, by: by.unwrap_or(Break::Plain), form })
    }

    fn form(&mut self, line: usize) -> Result<Form, ShellError> {
        Ok(match self.peek().and_then(Token::plain) {
            _ if self.accept("(") => Form::Subshell(self.bracketed(")")?),
            Some("{") => {
                self.at += 1;
                Form::Group(self.bracketed("}")?)
            }
            Some("if") => self.branches(line)?,
            Some("case") => self.cases(line)?,
            Some("for") => self.looped("for", line)?,
            Some("select") => self.looped("select", line)?,
            Some("while") => self.looped("while", line)?,
            Some("until") => self.looped("until", line)?,
            _ => match self.function()? {
                Some(function) => function,
                None => Form::Command(self.command()),
            },
        })
    }

    /// Statements up to a closing bracket, or to the end if that is missing.
    fn bracketed(&mut self, end: &str) -> Result<Vec<Statement>, ShellError> {
        let body = self.statements(&[end])?;
        self.accept(end);
        Ok(body)
    }

    fn branches(&mut self, line: usize) -> Result<Form, ShellError> {
        let mut parts = Vec::new();
        while self.accept("if") || self.accept("elif") {
            let condition = self.closed(line, &["then"])?;
            self.at += 1;
            let body = self.closed(line, &["elif", "else", "fi"])?;
            parts.push((Decides::Condition(condition), body));
        }
        if self.accept("else") {
            parts.push((Decides::Otherwise, self.closed(line, &["fi"])?));
        }
        self.at += 1;
        Ok(Form::Compound { keyword: "if", variable: None, parts })
    }

    fn cases(&mut self, line: usize) -> Result<Form, ShellError> {
        self.at += 1;
        let start = self.at;
        let mut subject = self.command();
        // The first pattern may be on the same line.
        if let Some(place) = subject.iter().position(|it| it.plain() == Some("in")) {
            subject.truncate(place);
            self.at = start + place + 1;
        }
        let mut parts = Vec::new();
        loop {
            self.skip_lines();
            if self.accept("esac") {
                return Ok(Form::Compound { keyword: "case", variable: None, parts });
            }
            self.accept("(");
            let start = self.at;
            while !self.accept(")") {
                self.peek().ok_or(ShellError::Open { line, what: "a branch or loop" })?;
                self.at += 1;
            }
            let patterns = self.tokens[start..self.at].iter().filter(|it| !it.is_end()).cloned();
            let decides = Decides::Patterns(subject.clone(), patterns.collect());
            parts.push((decides, self.closed(line, &["esac", ";;"])?));
            self.accept(";;");
        }
    }

    fn looped(&mut self, keyword: &'static str, line: usize) -> Result<Form, ShellError> {
        self.at += 1;
        let mut variable = None;
        let condition = if ["while", "until"].contains(&keyword) {
            self.closed(line, &["do"])?
        } else {
            let mut words = self.command();
            if words.get(1).and_then(Token::plain) == Some("in") {
                variable = words[0].plain().map(str::to_owned);
                words.drain(..2);
            }
            let (last, form) = (self.line(), Form::Command(words));
            self.skip_lines();
            vec![Statement { line, last, by: Break::Plain, form }]
        };
        self.accept("do");
        let body = self.closed(line, &["done"])?;
        self.at += 1;
        Ok(Form::Compound { keyword, variable, parts: vec![(Decides::Condition(condition), body)] })
    }

    /// The definition of a function, if one begins here.
    fn function(&mut self) -> Result<Option<Form>, ShellError> {
        let start = self.at;
        let is_named = self.accept("function");
        let name = self.peek().and_then(Token::plain).map(str::to_owned);
        self.at += 1;
        let has_brackets = self.accept("(") && self.accept(")");
        self.skip_lines();
        let is_body = self.ends_by() == Some(Break::Open)
            || self.peek().is_some_and(|it| it.plain() == Some("{"));
        let Some(name) = name.filter(|_| is_body && (is_named || has_brackets)) else {
            self.at = start;
            return Ok(None);
        };
        let line = self.line();
        let form = self.form(line)?;
        let body = Statement { line, last: self.line(), by: Break::Plain, form };
        Ok(Some(Form::Function(name, Rc::new(body))))
    }
}

/// Returns whether any command of some statements satisfies a predicate.
pub(super) fn has_any(statements: &[Statement], is_it: impl Fn(&[Token]) -> bool) -> bool {
    let mut has = false;
    each(statements, &mut |tokens| has |= is_it(tokens));
    has
}
