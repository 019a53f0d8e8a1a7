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
        let line = token.line();
        let word = |text: &str| Token::Word { pieces: vec![Piece::Plain(text.to_owned())], line };
        let is_line = lexer.is_at_line();
        is_test =
            !is_line && (is_test || token.plain() == Some("[[")) && token.plain() != Some("]]");
        match token.ends_by().filter(|_| is_test) {
            Some(Break::And | Break::Or) => tokens.extend([word("]]"), token, word("[[")]),
            Some(Break::Open) => tokens.push(word("(")),
            Some(Break::Close) => tokens.push(word(")")),
            Some(_) => tokens.push(word("|")),
            None => tokens.push(token),
        }
        if is_line {
            let mut bodies = lexer.here_documents()?.into_iter().rev();
            let here = tokens.iter_mut().rev().filter_map(|it| match it {
                Token::Here { body, .. } => Some(body),
                _ => None,
            });
            here.zip(&mut bodies).for_each(|(body, found)| *body = found);
        }
    }
    Ok(tokens)
}

/// Pieces of a text in which expansions count, but quotes do not.
pub(super) fn expandable(text: &str) -> Result<Vec<Piece>, ShellError> {
    Lexer::new(text).pieces(Within::Text)
}

/// Kind of text that consists of pieces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// A word: up to a blank or the end of the command.
    Word,
    /// Double quotes: up to the closing one.
    Quotes,
    /// A here-document, or a default value.
    Text,
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    /// Here-documents that begin on the next line.
    here: Vec<Here>,
    /// Nesting depth of command substitutions.
    depth: usize,
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
        Self { chars: text.chars().collect(), at: 0, line: 1, here: Vec::new(), depth: 0 }
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

    /// Returns whether a line begins here.
    fn is_at_line(&self) -> bool {
        self.at > 0 && self.chars[self.at - 1] == '\n'
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
                Some(c)
                    if "<>".contains(c) && !self.is_process()
                        || c.is_ascii_digit() && self.is_redirection() =>
                {
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
        let pieces = self.word()?;
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
            return Ok(Token::Word { pieces: self.word()?, line });
        }
        self.at += if appends { 2 } else { 1 };
        let value = if self.peek() == Some('(') {
            self.next();
            Value::List(self.list(line)?)
        } else {
            Value::One(self.pieces(Within::Word)?)
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
                Some(_) => words.push(self.word()?),
            }
        }
    }

    /// Returns whether a process substitution begins here.
    fn is_process(&self) -> bool {
        self.starts("<(") || self.starts(">(")
    }

    /// Pieces of a word. A character that is no word and no end is skipped, so that reading goes on.
    fn word(&mut self) -> Result<Vec<Piece>, ShellError> {
        if self.is_process() {
            let sign = self.next().unwrap_or_default();
            let text = format!("{sign}({})", self.substitution()?);
            return Ok(vec![Piece::Command { text, quoted: true }]);
        }
        let start = self.at;
        let pieces = self.pieces(Within::Word)?;
        if self.at == start {
            self.next();
        }
        Ok(pieces)
    }

    /// Pieces of a word, of what is in double quotes, or of a text, up to its end.
    fn pieces(&mut self, within: Within) -> Result<Vec<Piece>, ShellError> {
        let line = self.line;
        let quoted = within != Within::Word;
        let mut pieces = Vec::new();
        let mut text = String::new();
        loop {
            let piece = match self.peek() {
                None if within == Within::Quotes => {
                    return Err(ShellError::Open { line, what: "a quote" });
                }
                None => break,
                Some('"') if within == Within::Quotes => break,
                Some(c) if !quoted && " \t\r\n;&|<>()".contains(c) => break,
                Some('\\') => {
                    if within != Within::Text {
                        self.check_backslash()?;
                    }
                    self.next();
                    match self.next() {
                        None | Some('\n') => continue,
                        Some(c) if !quoted => Piece::Quoted(c.to_string()),
                        Some(c) => {
                            text.extend((!"\"\\$`".contains(c)).then_some('\\'));
                            text.push(c);
                            continue;
                        }
                    }
                }
                Some('\'') if !quoted => Piece::Quoted(self.until('\'')?),
                Some('"') if !quoted => {
                    flush(&mut pieces, &mut text, quoted);
                    self.next();
                    let inner = self.pieces(Within::Quotes)?;
                    self.next();
                    // An empty pair of quotes is a word too.
                    let is_empty = inner.is_empty();
                    pieces.extend(inner);
                    pieces.extend(is_empty.then(|| Piece::Quoted(String::new())));
                    continue;
                }
                Some('`') => Piece::Command { text: format!("`{}`", self.until('`')?), quoted },
                Some('$') if !quoted && self.starts("$'") => Piece::Quoted(self.escaped()?),
                Some('$') => self.expansion(quoted)?,
                Some(c) => {
                    text.push(c);
                    self.next();
                    continue;
                }
            };
            flush(&mut pieces, &mut text, quoted);
            pieces.push(piece);
        }
        flush(&mut pieces, &mut text, quoted);
        Ok(pieces)
    }

    /// Text in `$'..'`, with its escapes.
    fn escaped(&mut self) -> Result<String, ShellError> {
        let line = self.line;
        self.at += 2;
        let mut text = String::new();
        loop {
            match self.next().ok_or(ShellError::Open { line, what: "a quote" })? {
                '\'' => return Ok(text),
                '\\' => match self.next().unwrap_or('\\') {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    c if "\\'\"?".contains(c) => text.push(c),
                    c => text.extend(['\\', c]),
                },
                c => text.push(c),
            }
        }
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

    /// Expansion that a dollar sign begins.
    fn expansion(&mut self, quoted: bool) -> Result<Piece, ShellError> {
        self.next();
        if self.starts("((") {
            let text = self.bracketed('(', ')')?;
            let inner = text.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
            return Ok(Piece::Arithmetic(inner.unwrap_or(&text).to_owned()));
        }
        if self.starts("(") {
            let text = format!("$({})", self.substitution()?);
            return Ok(Piece::Command { text, quoted });
        }
        if self.starts("{") {
            return Ok(Piece::Variable { text: self.bracketed('{', '}')?, quoted });
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

    /// Text up to the matching closing bracket, with nested pairs included.
    fn bracketed(&mut self, open: char, close: char) -> Result<String, ShellError> {
        let line = self.line;
        self.next();
        let mut depth = 1;
        let mut text = String::new();
        loop {
            let c = self.next().ok_or(ShellError::Open { line, what: "a bracket" })?;
            depth += i32::from(c == open) - i32::from(c == close);
            if depth == 0 {
                return Ok(text);
            }
            text.push(c);
            if c == '\\' {
                text.extend(self.next());
            }
        }
    }

    /// Text of the commands up to the bracket that closes the one here. Where these have no end, such as that of a quote,
    /// brackets alone count.
    fn substitution(&mut self) -> Result<String, ShellError> {
        let before = (self.at, self.line);
        self.depth += 1;
        let is_closed = self.depth < DEEPEST && self.closes().unwrap_or(false);
        self.depth -= 1;
        if is_closed {
            return Ok(self.chars[before.0 + 1..self.at - 1].iter().collect());
        }
        (self.at, self.line) = before;
        self.bracketed('(', ')')
    }

    /// Passes over the commands up to the bracket that closes the one here; returns whether there is one.
    fn closes(&mut self) -> Result<bool, ShellError> {
        let outer = std::mem::take(&mut self.here);
        let mut depth = 0usize;
        while let Some(token) = self.token()? {
            match token.ends_by() {
                Some(Break::Open) => depth += 1,
                Some(Break::Close) if depth == 1 => {
                    self.here = outer;
                    return Ok(true);
                }
                Some(Break::Close) => depth -= 1,
                Some(Break::Plain) if self.is_at_line() => drop(self.here_documents()?),
                _ => {}
            }
        }
        Ok(false)
    }
}

/// Limit of the nesting of command substitutions.
const DEEPEST: usize = 16;

fn flush(pieces: &mut Vec<Piece>, text: &mut String, quoted: bool) {
    if !text.is_empty() {
        let text = std::mem::take(text);
        pieces.push(if quoted { Piece::Quoted(text) } else { Piece::Plain(text) });
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
