//! Lexer: from the text of a script to words that are not expanded yet.

use super::word::ShellError;

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Literal text without quotes.
    Plain(String),
    /// Text in quotes.
    Quoted(String),
    /// `$NAME` or the inside of `${..}`; `quoted` if in double quotes.
    Variable { text: String, quoted: bool },
    /// Inside of `$((..))`.
    Arithmetic(String),
    /// Inside of `((..))`, a test.
    Truth(String),
    /// Command substitution as written: `$(..)` or with backquotes.
    Command { text: String, quoted: bool },
}

/// A token of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A word.
    Word { pieces: Vec<Piece>, line: usize },
    /// `NAME=..` or `NAME+=..`, with a word or with a list in brackets.
    Assign { name: String, appends: bool, value: Value, line: usize },
    /// A here-document, which is the command's input.
    Here { body: Vec<Piece>, line: usize },
    /// File to which the command's output goes.
    Output { file: Vec<Piece>, line: usize },
    /// The end of a command.
    End { line: usize, by: Break },
}

/// Separator that ends a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// A line's end, `;`, `&` or `|`: the next command always runs.
    Plain,
    /// `&&`: the next command runs if this one succeeds.
    And,
    /// `||`: the next command runs if this one fails.
    Or,
    /// `;;`, the end of a branch of `case`.
    Case,
    /// `(`.
    Open,
    /// `)`.
    Close,
}

/// Right-hand side of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A word.
    One(Vec<Piece>),
    /// A list: words in brackets.
    List(Vec<Vec<Piece>>),
}

impl Token {
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::End { .. })
    }

    pub(super) fn line(&self) -> usize {
        match self {
            Self::Word { line, .. }
            | Self::Assign { line, .. }
            | Self::Here { line, .. }
            | Self::Output { line, .. }
            | Self::End { line, .. } => *line,
        }
    }

    /// Text of a word without quotes and variables.
    pub(super) fn plain(&self) -> Option<&str> {
        let Self::Word { pieces, .. } = self else { return None };
        let [Piece::Plain(word)] = pieces.as_slice() else { return None };
        Some(word)
    }

    /// Separator that ends a command, if the token is one.
    pub(super) fn ends_by(&self) -> Option<Break> {
        match self {
            Self::End { by, .. } => Some(*by),
            _ => None,
        }
    }
}

/// The tokens of a script. A test in `[[ .. ]]` of several parts is as many tests, which `&&` and `||` join.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, ShellError> {
    // Line ends of Windows become `\n`, within quotes too.
    let mut lexer = Lexer::new(&text.replace("\r\n", "\n"));
    let mut tokens = Vec::new();
    let mut is_test = false;
    while let Some(token) = lexer.token()? {
        let word = |text: &str| Token::Word {
            pieces: vec![Piece::Plain(text.to_owned())],
            line: token.line(),
        };
        let is_line = lexer.at > 0 && lexer.chars[lexer.at - 1] == '\n';
        is_test =
            !is_line && (is_test || token.plain() == Some("[[")) && token.plain() != Some("]]");
        match token.ends_by().filter(|_| is_test) {
            Some(Break::And | Break::Or) => tokens.extend([word("]]"), token.clone(), word("[[")]),
            Some(Break::Open) => tokens.push(word("(")),
            Some(Break::Close) => tokens.push(word(")")),
            Some(_) => tokens.push(word("|")),
            None => tokens.push(token),
        }
        if is_line && !lexer.here.is_empty() {
            let mut bodies = lexer.here_documents()?.into_iter().rev();
            for token in tokens.iter_mut().rev() {
                if let Token::Here { body, .. } = token {
                    let Some(found) = bodies.next() else { break };
                    *body = found;
                }
            }
        }
    }
    Ok(tokens)
}

/// Pieces of a text in which expansions count, but quotes do not.
pub(super) fn expandable(text: &str) -> Result<Vec<Piece>, ShellError> {
    let mut pieces = Vec::new();
    Lexer::new(text).expanded_until(None, &mut pieces)?;
    Ok(pieces)
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    /// Here-documents that begin on the next line.
    here: Vec<Here>,
}

/// A here-document whose text is still to be read.
struct Here {
    /// Line that ends it.
    end: String,
    /// True if expansions in it count.
    is_expanded: bool,
}

impl Lexer {
    fn new(text: &str) -> Self {
        Self { chars: text.chars().collect(), at: 0, line: 1, here: Vec::new() }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        self.line += usize::from(next == '\n');
        Some(next)
    }

    fn starts(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(place, c)| self.chars.get(self.at + place) == Some(&c))
    }

    /// The next token; `None` at the end of the text.
    fn token(&mut self) -> Result<Option<Token>, ShellError> {
        loop {
            self.skip_blanks();
            let line = self.line;
            match self.peek() {
                None => return Ok(None),
                Some('#') => self.skip_line(),
                Some('\n') => {
                    self.next();
                    return Ok(Some(Token::End { line, by: Break::Plain }));
                }
                Some('(') if let Some(text) = self.truth() => {
                    return Ok(Some(Token::Word { pieces: vec![Piece::Truth(text)], line }));
                }
                Some(c @ (';' | '&' | '|' | '(' | ')')) => {
                    self.next();
                    let is_twice = self.peek() == Some(c);
                    let by = match c {
                        '&' | '|' if is_twice => {
                            self.next();
                            if c == '&' { Break::And } else { Break::Or }
                        }
                        ';' if is_twice => {
                            self.next();
                            Break::Case
                        }
                        '(' => Break::Open,
                        ')' => Break::Close,
                        _ => Break::Plain,
                    };
                    return Ok(Some(Token::End { line, by }));
                }
                Some(c) if "<>".contains(c) || c.is_ascii_digit() && self.is_redirection() => {
                    if let Some(token) = self.redirection()? {
                        return Ok(Some(token));
                    }
                }
                Some(_) => return self.word_or_assignment().map(Some),
            }
        }
    }

    /// Inside of the `((..))` that begins here, if it ends on this line.
    fn truth(&mut self) -> Option<String> {
        /// Limit of its characters.
        const MOST: usize = 256;

        let inner = self.chars[self.at..].strip_prefix(&['(', '('])?;
        let mut depth = 0usize;
        for (place, c) in inner.iter().enumerate().take(MOST).take_while(|it| *it.1 != '\n') {
            match c {
                '(' => depth += 1,
                ')' if depth > 0 => depth -= 1,
                ')' => {
                    let text = inner[..place].iter().collect();
                    let is_end = inner.get(place + 1) == Some(&')');
                    self.at += if is_end { place + 4 } else { 0 };
                    return is_end.then_some(text);
                }
                _ => {}
            }
        }
        None
    }

    fn skip_blanks(&mut self) {
        loop {
            if self.starts("\\\n") {
                self.next();
                self.next();
            } else if self.peek().is_some_and(|c| c == ' ' || c == '\t' || c == '\r') {
                self.next();
            } else {
                return;
            }
        }
    }

    fn skip_line(&mut self) {
        while self.peek().is_some_and(|c| c != '\n') {
            self.next();
        }
    }

    /// Returns whether the digits here are the file descriptor of a redirection.
    fn is_redirection(&self) -> bool {
        let rest = self.chars[self.at..].iter();
        rest.clone().find(|c| !c.is_ascii_digit()).is_some_and(|c| *c == '<' || *c == '>')
    }

    /// A here-document, or the file of an output; `None` for another redirection.
    fn redirection(&mut self) -> Result<Option<Token>, ShellError> {
        let (line, start) = (self.line, self.at);
        let is_here = self.starts("<<") && !self.starts("<<<");
        while self.peek().is_some_and(|c| c.is_ascii_digit() || "<>&-".contains(c)) {
            self.next();
        }
        let sign: String = self.chars[start..self.at].iter().collect();
        self.skip_blanks();
        if self.peek().is_none_or(|c| "\n;|&".contains(c)) {
            return Ok(None);
        }
        let is_expanded = !self.peek().is_some_and(|c| "'\"\\".contains(c));
        let pieces = self.pieces(false)?;
        if is_here {
            self.here.push(Here { end: plain(&pieces), is_expanded });
            return Ok(Some(Token::Here { body: Vec::new(), line }));
        }
        let is_output = [">", ">>", "1>", "&>"].contains(&sign.as_str());
        Ok(is_output.then_some(Token::Output { file: pieces, line }))
    }

    /// Bodies of the here-documents that begin here.
    fn here_documents(&mut self) -> Result<Vec<Vec<Piece>>, ShellError> {
        let mut all = Vec::new();
        for Here { end, is_expanded } in std::mem::take(&mut self.here) {
            let mut body = String::new();
            loop {
                let start = self.at;
                self.skip_line();
                let line: String = self.chars[start..self.at].iter().collect();
                let is_last = self.next().is_none();
                if line.trim() == end {
                    break;
                }
                body.extend([line.as_str(), "\n"]);
                if is_last {
                    break;
                }
            }
            let pieces =
                if is_expanded { expandable(&body) } else { Ok(vec![Piece::Quoted(body)]) };
            all.push(pieces?);
        }
        Ok(all)
    }

    fn word_or_assignment(&mut self) -> Result<Token, ShellError> {
        let line = self.line;
        let start = self.at;
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|c| c.is_ascii_alphanumeric() || *c == '_') {
            name.push(c);
            self.at += 1;
        }
        let appends = self.starts("+=");
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !(is_name && (appends || self.starts("="))) {
            self.at = start;
            return Ok(Token::Word { pieces: self.pieces(false)?, line });
        }
        self.at += if appends { 2 } else { 1 };
        let value = if self.peek() == Some('(') {
            self.next();
            Value::List(self.list(line)?)
        } else {
            Value::One(self.pieces(true)?)
        };
        Ok(Token::Assign { name, appends, value, line })
    }

    /// Words of a list, up to the closing bracket.
    fn list(&mut self, line: usize) -> Result<Vec<Vec<Piece>>, ShellError> {
        let mut words = Vec::new();
        loop {
            self.skip_blanks();
            match self.peek() {
                None => return Err(ShellError::Open { line, what: "a list in brackets" }),
                Some(')') => {
                    self.next();
                    return Ok(words);
                }
                Some('\n') => {
                    self.next();
                }
                Some('#') => self.skip_line(),
                Some(_) => words.push(self.pieces(false)?),
            }
        }
    }

    /// Pieces of a word, up to a blank or the end of the command; the value of an assignment may be empty.
    fn pieces(&mut self, may_be_empty: bool) -> Result<Vec<Piece>, ShellError> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let start = self.at;
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '<' | '>' | ')' | '(' => break,
                '\\' => {
                    self.check_backslash()?;
                    self.next();
                    if let Some(c) = self.next().filter(|c| *c != '\n') {
                        flush(&mut pieces, &mut text);
                        pieces.push(Piece::Quoted(c.to_string()));
                    }
                }
                '\'' => {
                    flush(&mut pieces, &mut text);
                    pieces.push(Piece::Quoted(self.until('\'')?));
                }
                '"' => {
                    flush(&mut pieces, &mut text);
                    self.double_quoted(&mut pieces)?;
                }
                '`' => {
                    flush(&mut pieces, &mut text);
                    let command = self.until('`')?;
                    pieces.push(Piece::Command { text: format!("`{command}`"), quoted: false });
                }
                '$' => {
                    flush(&mut pieces, &mut text);
                    pieces.push(self.expansion(false)?);
                }
                c => {
                    text.push(c);
                    self.next();
                }
            }
        }
        flush(&mut pieces, &mut text);
        if self.at == start && !may_be_empty {
            // A character that is no word and no end is skipped, so that reading goes on.
            self.next();
        }
        Ok(pieces)
    }

    /// Refuses a backslash that was meant to join lines, but has blanks or a comment after it.
    fn check_backslash(&self) -> Result<(), ShellError> {
        let is_blank = |c: &&char| matches!(**c, ' ' | '\t');
        let blanks = self.chars[self.at + 1..].iter().take_while(is_blank).count();
        let what = match self.chars.get(self.at + 1 + blanks) {
            None | Some('\n' | '\r') if blanks > 0 => "a blank",
            Some('#') if blanks > 0 => "a comment",
            _ => return Ok(()),
        };
        Err(ShellError::Backslash { line: self.line, what })
    }

    /// Text up to the next `end`; the current character is the opening one.
    fn until(&mut self, end: char) -> Result<String, ShellError> {
        let line = self.line;
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None => return Err(ShellError::Open { line, what: "a quote" }),
                Some(c) if c == end => return Ok(text),
                Some(c) => text.push(c),
            }
        }
    }

    fn double_quoted(&mut self, pieces: &mut Vec<Piece>) -> Result<(), ShellError> {
        self.next();
        let begun = pieces.len();
        self.expanded_until(Some('"'), pieces)?;
        // An empty pair of quotes is a word too.
        if pieces.len() == begun {
            pieces.push(Piece::Quoted(String::new()));
        }
        Ok(())
    }

    /// Adds the pieces up to a closing character, or to the end of the text.
    fn expanded_until(
        &mut self,
        end: Option<char>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), ShellError> {
        let line = self.line;
        let mut text = String::new();
        let flush = |pieces: &mut Vec<Piece>, text: &mut String| {
            if !text.is_empty() {
                pieces.push(Piece::Quoted(std::mem::take(text)));
            }
        };
        loop {
            match self.peek() {
                None if end.is_some() => return Err(ShellError::Open { line, what: "a quote" }),
                c if c == end => {
                    self.next();
                    flush(pieces, &mut text);
                    return Ok(());
                }
                Some('\\') => {
                    if end.is_some() {
                        self.check_backslash()?;
                    }
                    self.next();
                    match self.next() {
                        Some('\n') | None => {}
                        Some(c) if "\"\\$`".contains(c) => text.push(c),
                        Some(c) => text.extend(['\\', c]),
                    }
                }
                Some('$') => {
                    flush(pieces, &mut text);
                    pieces.push(self.expansion(true)?);
                }
                Some('`') => {
                    flush(pieces, &mut text);
                    let command = self.until('`')?;
                    pieces.push(Piece::Command { text: format!("`{command}`"), quoted: true });
                }
                Some(c) => {
                    text.push(c);
                    self.next();
                }
                None => return Ok(()),
            }
        }
    }

    /// Expansion that a dollar sign begins.
    fn expansion(&mut self, quoted: bool) -> Result<Piece, ShellError> {
        let line = self.line;
        self.next();
        if self.starts("((") {
            let text = self.bracketed('(', ')', line)?;
            let inner = text.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
            return Ok(Piece::Arithmetic(inner.unwrap_or(&text).to_owned()));
        }
        if self.starts("(") {
            let text = self.bracketed('(', ')', line)?;
            return Ok(Piece::Command { text: format!("$({text})"), quoted });
        }
        if self.starts("{") {
            return Ok(Piece::Variable { text: self.bracketed('{', '}', line)?, quoted });
        }
        let mut text = String::new();
        while let Some(c) = self.peek().filter(|c| c.is_ascii_alphanumeric() || *c == '_') {
            text.push(c);
            self.at += 1;
        }
        if text.is_empty() {
            if let Some(c) = self.peek().filter(|c| "@*#?!-$".contains(*c)) {
                text.push(c);
                self.at += 1;
            } else {
                return Ok(Piece::Quoted("$".to_owned()));
            }
        }
        Ok(Piece::Variable { text, quoted })
    }

    /// Text up to the matching closing bracket, with nested pairs included. Brackets in quotes do not count, unless the
    /// quotes have no end, as an apostrophe in a here-document.
    fn bracketed(&mut self, open: char, close: char, line: usize) -> Result<String, ShellError> {
        let before = (self.at, self.line);
        self.bracketed_by([open, close], line, Some(DEEPEST)).or_else(|_| {
            (self.at, self.line) = before;
            self.bracketed_by([open, close], line, None)
        })
    }

    /// [`Self::bracketed`], with quotes up to a nesting depth, or without.
    fn bracketed_by(
        &mut self,
        [open, close]: [char; 2],
        line: usize,
        quotes: Option<usize>,
    ) -> Result<String, ShellError> {
        let unclosed = ShellError::Open { line, what: "a bracket" };
        self.next();
        let mut depth = 1;
        let mut quote = None;
        let mut text = String::new();
        loop {
            let c = self.next().ok_or(unclosed.clone())?;
            match (quote, quotes) {
                (Some(end), _) if c == end => quote = None,
                // A command in double quotes has quotes of its own.
                (Some('"'), Some(quotes)) if c == '$' && self.starts("(") => {
                    let less = quotes.checked_sub(1).ok_or(unclosed.clone())?;
                    let inner = self.bracketed_by(['(', ')'], line, Some(less))?;
                    text.extend(["$(", &inner, ")"]);
                    continue;
                }
                (Some(_), _) => {}
                (None, Some(_)) if open == '(' && (c == '"' || c == '\'') => quote = Some(c),
                (None, _) => depth += i32::from(c == open) - i32::from(c == close),
            }
            if depth == 0 {
                return Ok(text);
            }
            text.push(c);
            if c == '\\' && quotes.is_some() && quote != Some('\'') {
                text.extend(self.next());
            }
        }
    }
}

/// Limit of the nesting of commands in quotes in commands.
const DEEPEST: usize = 16;

fn flush(pieces: &mut Vec<Piece>, text: &mut String) {
    if !text.is_empty() {
        pieces.push(Piece::Plain(std::mem::take(text)));
    }
}

/// Text of pieces without their variables.
fn plain(pieces: &[Piece]) -> String {
    let text = |piece: &Piece| match piece {
        Piece::Plain(text) | Piece::Quoted(text) => text.clone(),
        _ => String::new(),
    };
    pieces.iter().map(text).collect()
}
