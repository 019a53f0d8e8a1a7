//! Commands of the shell itself that set variables.

use super::expand::Scope;
use super::lex::{Token, Value};
use super::reader::Reader;
use super::text::Text;
use super::word::is_name;

/// Commands that set variables by assignments in their words.
const DECLARERS: [&str; 5] = ["export", "declare", "typeset", "readonly", "local"];

/// Options of `read` that have a value.
const WITH_VALUE: [char; 6] = ['d', 'p', 't', 'n', 'N', 'u'];

impl Reader<'_> {
    /// Executes `export`, `local` and the like; returns whether the command is one.
    pub(super) fn declares(&mut self, name: &str, words: &[Token], is_conditional: bool) -> bool {
        if !DECLARERS.contains(&name) {
            return false;
        }
        let plain: Vec<&str> = words.iter().skip(1).filter_map(Token::plain).collect();
        let has = |option: char| plain.iter().any(|it| it.starts_with('-') && it.contains(option));
        let is_local = ["local", "declare", "typeset"].contains(&name) && !has('g');
        if is_local && let Some(mut locals) = self.locals.take() {
            for token in words {
                if let Token::Assign { name, .. } = token {
                    locals.push((name.clone(), self.scope.taken(name)));
                }
            }
            for name in plain.iter().filter(|it| is_name(it)) {
                locals.push(((*name).to_owned(), self.scope.taken(name)));
                self.scope.declare(name);
            }
            self.locals = Some(locals);
        }
        if is_local && has('i') && !is_conditional {
            for token in words {
                if let Token::Assign { name, value: Value::One(pieces), .. } = token {
                    let text = self.scope.joined(pieces);
                    let value =
                        text.as_known().map_or(text.clone(), |it| self.scope.arithmetic(it));
                    self.scope.set(name, value);
                }
            }
        } else {
            self.assign(words, is_conditional);
        }
        true
    }

    /// Executes a command that sets variables; returns whether it is one.
    pub(super) fn sets(&mut self, name: &str, command: &[Text], statement: &[Token]) -> bool {
        let item = name.split_once('[').filter(|(list, rest)| is_name(list) && rest.contains("]="));
        if let Some((list, _)) = item {
            self.scope.forget(list);
            return true;
        }
        let arguments: Vec<Option<&str>> = command.iter().skip(1).map(Text::as_known).collect();
        match (name, arguments.as_slice()) {
            ("read", _) => {
                let here = self.redirected(statement).0;
                self.scope.read(&arguments, here.as_ref());
            }
            ("let", all) => {
                let is_assigned = |expression: &&&str| {
                    statement.iter().any(|token| {
                        matches!(token, Token::Assign { name, appends: false, .. }
                            if expression.split('=').next() == Some(name))
                    })
                };
                for expression in all.iter().flatten().filter(|it| !is_assigned(it)) {
                    self.scope.calculate(expression);
                }
                for token in statement {
                    if let Token::Assign { name, appends, value: Value::One(pieces), .. } = token {
                        let value = self.scope.joined(pieces);
                        let sign = if *appends { "+" } else { "" };
                        self.scope.calculate(&format!("{name}{sign}={}", value.source()));
                    }
                }
            }
            ("printf", [Some("-v"), Some(name), Some("%s" | "%d"), Some(value)]) => {
                self.scope.set(name, Text::known(value));
            }
            ("printf", [Some("-v"), Some(name), ..]) => self.scope.forget(name),
            ("printf", _) => return false,
            ("break" | "continue", _) => {}
            ("unset", all) => {
                for name in all.iter().flatten() {
                    self.scope.taken(name);
                }
            }
            ("mapfile" | "readarray" | "getopts", _) => {
                let names = arguments.into_iter().flatten();
                names.filter(|it| !it.starts_with('-')).for_each(|it| self.scope.forget(it));
            }
            _ => return false,
        }
        true
    }
}

impl Scope<'_> {
    /// Executes `read` with its input, if that is known.
    fn read(&mut self, arguments: &[Option<&str>], here: Option<&Text>) {
        let (mut is_list, mut is_whole) = (false, false);
        let mut names: Vec<&str> = Vec::new();
        let mut all = arguments.iter().flatten();
        while let Some(word) = all.next() {
            let Some(options) = word.strip_prefix('-') else {
                names.push(word);
                continue;
            };
            is_list |= options.contains('a');
            if options.ends_with(WITH_VALUE) {
                let value = all.next();
                is_whole |= options.ends_with('d') && value.is_some_and(|it| it.is_empty());
            }
        }
        if let (Some(text), true, [name]) = (here, is_whole, names.as_slice()) {
            self.set(name, text.clone());
            return;
        }
        let known = here.and_then(Text::as_known).and_then(|it| it.lines().next());
        let Some(line) = known.filter(|_| !is_whole) else {
            for name in names {
                self.forget(name);
            }
            return;
        };
        let separators = self.first("IFS").and_then(Text::as_known).unwrap_or(" \t\n").to_owned();
        let is_separator = |c: char| separators.contains(c);
        let is_blank = separators.trim().is_empty();
        let mut fields = line.split(is_separator).filter(|it| !(is_blank && it.is_empty()));
        match names.as_slice() {
            [name] if is_list => self.put(name, Some(fields.map(Text::known).collect())),
            [name] => {
                let line = line.trim_matches(|c| is_blank && is_separator(c));
                self.set(name, Text::known(line));
            }
            names => {
                for (place, name) in names.iter().enumerate() {
                    let field = fields.next().unwrap_or_default();
                    self.set(name, Text::known(field));
                    if place + 1 == names.len() && fields.next().is_some() {
                        self.forget(name);
                    }
                }
            }
        }
    }
}
