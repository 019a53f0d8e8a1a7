//! Lexer: from the text of a script to words that are not expanded yet.

use super::word::ShellError;

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WordPart {
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
    Word { pieces: Vec<WordPart>, line: usize },
    /// `NAME=..` or `NAME+=..`, with a word or with a list in brackets.
    Assign { name: String, appends: bool, value: Value, line: usize },
    /// A here-document, which is the command's input.
    Here { body: Vec<WordPart>, line: usize },
    /// File to which the command's output goes.
    Output { file: Vec<WordPart>, line: usize },
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
    One(Vec<WordPart>),
    /// A list: words in brackets.
    List(Vec<Vec<WordPart>>),
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
        let [WordPart::Plain(word)] = pieces.as_slice() else { return None };
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

/// The tokens of a script. A test `[[ .. ]]` with several parts becomes one test for each part, joined by `&&` and
/// `||`.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, ShellError> {
    // Windows line ends become `\n`, also within quotes.
    let mut lexer = Lexer::new(&text.replace("\r\n", "\n"));
    let mut tokens = Vec::new();
    // Line of the test that is open.
    let mut open = None;
    while let Some(token) = lexer.token()? {
        let line = token.line();
        let word =
            |text: &str| Token::Word { pieces: vec![WordPart::Plain(text.to_owned())], line };
        match token.plain() {
            Some("[[") => open = Some(line),
            Some("]]") => open = None,
            _ => {}
        }
        match token.ends_by().filter(|_| open == Some(line) && !lexer.is_at_line()) {
            Some(Break::And | Break::Or) => tokens.extend([word("]]"), token, word("[[")]),
            Some(Break::Open) => tokens.push(word("(")),
            Some(Break::Close) => tokens.push(word(")")),
            Some(_) => tokens.push(word("|")),
            None => tokens.push(token),
        }
    }
    Ok(tokens)
}

/// Pieces of a text in which expansions are recognised, but quotes are not.
pub(super) fn expandable(text: &str) -> Result<Vec<WordPart>, ShellError> {
    Lexer::new(text).pieces(Within::Text)
}

/// Kind of text that is read into pieces.
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
    /// Places of the line's end before a here-document, and of the text after the document.
    here: Option<(usize, usize)>,
    /// Nesting depth of command substitutions.
    depth: usize,
}

impl Lexer {
    fn new(text: &str) -> Self {
        Self { chars: text.chars().collect(), at: 0, line: 1, here: None, depth: 0 }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        self.line += usize::from(next == '\n');
        if let Some((_, after)) = self.here.take_if(|(end, _)| *end + 1 == self.at) {
            self.line += self.chars[self.at..after].iter().filter(|c| **c == '\n').count();
            self.at = after;
        }
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
                    return Ok(Some(Token::Word { pieces: vec![WordPart::Truth(text)], line }));
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
                Some('<') if let Some(text) = self.placeholder() => {
                    return Ok(Some(Token::Word { pieces: vec![WordPart::Quoted(text)], line }));
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
        let before = (self.at, self.line, self.here);
        let begins = self.starts("((");
        self.next();
        let text = self.bracketed('(', ')', MOST_CONDITION_BYTES).ok().filter(|_| begins);
        let text = text.filter(|it| self.starts(")") && !it.contains('\n'));
        if text.is_some() {
            self.next();
        } else {
            (self.at, self.line, self.here) = before;
        }
        text
    }

    /// Placeholder that begins here and that the user has to fill in, such as `<PATH TO DATA>`.
    fn placeholder(&mut self) -> Option<String> {
        let rest = &self.chars[self.at + 1..];
        let end =
            rest.iter().position(|c| "<>\n\"'$".contains(*c)).filter(|it| rest[*it] == '>')?;
        let is_end = rest.get(end + 1).is_none_or(|c| c.is_whitespace());
        let is_named = rest[0].is_ascii_uppercase() && !rest[end - 1].is_whitespace();
        let text = (is_end && is_named).then(|| rest[..end].iter().collect::<String>())?;
        self.at += end + 2;
        Some(format!("<{text}>"))
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
        if sign == "<<<" {
            return Ok(Some(Token::Here { body: pieces, line }));
        }
        if is_here {
            let body = self.here_document(&plain(&pieces));
            let body = if is_expanded { expandable(&body)? } else { vec![WordPart::Quoted(body)] };
            return Ok(Some(Token::Here { body, line }));
        }
        let is_output = [">", ">>", "1>", "&>"].contains(&sign.as_str());
        Ok(is_output.then_some(Token::Output { file: pieces, line }))
    }

    /// Text of a here-document, up to the line `last`. It begins after the command's line, or after the previous
    /// document.
    fn here_document(&mut self, last: &str) -> String {
        let is_end = |at: &usize| self.chars[*at] == '\n' && self.chars[at - 1] != '\\';
        let end = (self.at..self.chars.len()).find(is_end).unwrap_or(self.chars.len());
        let (end, mut after) = self.here.unwrap_or((end, end + 1));
        let mut body = String::new();
        while after < self.chars.len() {
            let rest = self.chars[after..].iter();
            let line: String = rest.take_while(|c| **c != '\n').collect();
            after = (after + line.chars().count() + 1).min(self.chars.len());
            if line.trim() == last {
                break;
            }
            body.extend([line.as_str(), "\n"]);
        }
        self.here = Some((end, after));
        body
    }

    fn word_or_assignment(&mut self) -> Result<Token, ShellError> {
        let line = self.line;
        let start = self.at;
        let name = self.name();
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
    fn list(&mut self, line: usize) -> Result<Vec<Vec<WordPart>>, ShellError> {
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

    /// Pieces of a word. A character that neither belongs to a word nor ends one is skipped, so that reading continues.
    fn word(&mut self) -> Result<Vec<WordPart>, ShellError> {
        if self.is_process() {
            let sign = self.next().unwrap_or_default();
            let text = format!("{sign}({})", self.substitution()?);
            return Ok(vec![WordPart::Command { text, quoted: true }]);
        }
        let start = self.at;
        let pieces = self.pieces(Within::Word)?;
        if self.at == start {
            self.next();
        }
        Ok(pieces)
    }

    /// Pieces of a word, of a double-quoted text or of a plain text, up to its end.
    fn pieces(&mut self, within: Within) -> Result<Vec<WordPart>, ShellError> {
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
                        Some(c) if !quoted => WordPart::Quoted(c.to_string()),
                        Some(c) => {
                            text.extend((!"\"\\$`".contains(c)).then_some('\\'));
                            text.push(c);
                            continue;
                        }
                    }
                }
                Some('\'') if !quoted => WordPart::Quoted(self.until('\'')?),
                Some('"') if !quoted => {
                    flush(&mut pieces, &mut text, quoted);
                    self.next();
                    let inner = self.pieces(Within::Quotes)?;
                    self.next();
                    // An empty pair of quotes is a word too.
                    let is_empty = inner.is_empty();
                    pieces.extend(inner);
                    pieces.extend(is_empty.then(|| WordPart::Quoted(String::new())));
                    continue;
                }
                Some('`') => WordPart::Command { text: format!("`{}`", self.until('`')?), quoted },
                Some('$') if !quoted && self.starts("$'") => WordPart::Quoted(self.escaped()?),
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

    /// Refuses a backslash that was meant to join lines but is followed by blanks or a comment.
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

    /// Expansion that begins with a dollar sign.
    fn expansion(&mut self, quoted: bool) -> Result<WordPart, ShellError> {
        self.next();
        if self.starts("((") {
            let text = self.bracketed('(', ')', usize::MAX)?;
            let inner = text.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
            return Ok(WordPart::Arithmetic(inner.unwrap_or(&text).to_owned()));
        }
        if self.starts("[") {
            return Ok(WordPart::Arithmetic(self.bracketed('[', ']', usize::MAX)?));
        }
        if self.starts("(") {
            let text = format!("$({})", self.substitution()?);
            return Ok(WordPart::Command { text, quoted });
        }
        if self.starts("{") {
            return Ok(WordPart::Variable { text: self.bracketed('{', '}', usize::MAX)?, quoted });
        }
        let mut text = self.name();
        if text.is_empty() {
            let Some(c) = self.peek().filter(|c| "@*#?!-$".contains(*c)) else {
                return Ok(WordPart::Quoted("$".to_owned()));
            };
            text.push(c);
            self.at += 1;
        }
        Ok(WordPart::Variable { text, quoted })
    }

    /// The name of letters, digits and `_` that begins here.
    fn name(&mut self) -> String {
        let is_part = |c: &&char| c.is_ascii_alphanumeric() || **c == '_';
        let name: String = self.chars[self.at..].iter().take_while(is_part).collect();
        self.at += name.len();
        name
    }

    /// Text up to the matching closing bracket, with nested pairs included, if it has at most `most` bytes.
    fn bracketed(&mut self, open: char, close: char, most: usize) -> Result<String, ShellError> {
        let line = self.line;
        self.next();
        let mut depth = 1;
        let mut text = String::new();
        loop {
            let next = self.next().filter(|_| text.len() <= most);
            let c = next.ok_or(ShellError::Open { line, what: "a bracket" })?;
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

    /// Text of the commands up to the bracket that closes the one here. If the commands cannot be read to their end,
    /// for example because of an unclosed quote, only brackets are counted.
    fn substitution(&mut self) -> Result<String, ShellError> {
        let before = (self.at, self.line, self.here);
        self.depth += 1;
        let is_closed = self.depth < DEEPEST_SUBSTITUTION && self.closes().unwrap_or(false);
        self.depth -= 1;
        if is_closed {
            return Ok(self.chars[before.0 + 1..self.at - 1].iter().collect());
        }
        (self.at, self.line, self.here) = before;
        self.bracketed('(', ')', usize::MAX)
    }

    /// Skips the commands up to the bracket that closes the one here; returns whether there is one.
    fn closes(&mut self) -> Result<bool, ShellError> {
        let mut depth = 0usize;
        while let Some(token) = self.token()? {
            match token.ends_by() {
                Some(Break::Open) => depth += 1,
                Some(Break::Close) if depth == 1 => return Ok(true),
                Some(Break::Close) => depth -= 1,
                _ => {}
            }
        }
        Ok(false)
    }
}

/// Limit of the bytes in `((..))`.
const MOST_CONDITION_BYTES: usize = 256;

/// Limit of the nesting of command substitutions whose commands are read to find their end.
const DEEPEST_SUBSTITUTION: usize = 16;

fn flush(pieces: &mut Vec<WordPart>, text: &mut String, quoted: bool) {
    if !text.is_empty() {
        let text = std::mem::take(text);
        pieces.push(if quoted { WordPart::Quoted(text) } else { WordPart::Plain(text) });
    }
}

/// Text of pieces without their variables.
fn plain(pieces: &[WordPart]) -> String {
    let text = |piece: &WordPart| match piece {
        WordPart::Plain(text) | WordPart::Quoted(text) => text.clone(),
        _ => String::new(),
    };
    pieces.iter().map(text).collect()
}
