//! Scripts of a shell, as far as launch scripts go: assignments, arrays, expansions and commands.
//!
//! What decides at run time is not followed: branches, loops, substitutions of commands. A word that depends on one of
//! these, or on a variable that the script does not set, knows that it does.

mod expand;
mod lex;
mod word;

use std::collections::BTreeMap;

use expand::Scope;
use lex::{Piece, Token};
pub use word::ShellError;
pub(super) use word::Word;

/// A script that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// The words of each command, in order.
    pub(super) commands: Vec<Vec<Word>>,
    /// Options of the batch system, from comments at the head.
    pub(super) directives: BTreeMap<String, String>,
}

/// Reads a script; `set` are variables that the user gives.
///
/// # Errors
///
/// [`ShellError`] where it has no end, or branches that set something.
pub(super) fn read(text: &str, set: &BTreeMap<String, String>) -> Result<Script, ShellError> {
    let mut script = Script { commands: Vec::new(), directives: directives(text) };
    let mut scope = Scope::new(set);
    let tokens = lex::tokens(text)?;
    let mut at = 0;
    while at < tokens.len() {
        let end = (at..tokens.len()).find(|place| tokens[*place].is_end()).unwrap_or(tokens.len());
        let statement = &tokens[at..end];
        at = end + 1;
        let Some(first) = statement.first() else { continue };
        if let Some(keyword) = first.keyword() {
            at = skipped(&tokens, end, keyword, first.line())?;
            continue;
        }
        let mut words = statement;
        while let Some((Token::Assign { name, appends, value, .. }, rest)) = words.split_first() {
            scope.assign(name, *appends, value);
            words = rest;
        }
        let command: Vec<Word> = words
            .iter()
            .flat_map(|token| match token {
                Token::Word { pieces, .. } => scope.words(pieces),
                Token::Assign { .. } | Token::End { .. } => Vec::new(),
            })
            .collect();
        let is_local = |word: &str| ["export", "declare", "readonly", "local"].contains(&word);
        match command.first() {
            Some(word) if is_local(&word.text) => declare(&mut scope, words),
            Some(_) => script.commands.push(command),
            None => {}
        }
    }
    Ok(script)
}

/// `export NAME=value`, as if it stood alone.
fn declare(scope: &mut Scope, words: &[Token]) {
    for token in &words[1..] {
        if let Token::Assign { name, appends, value, .. } = token {
            scope.assign(name, *appends, value);
        }
    }
}

/// Where the statement after a branch or loop begins.
fn skipped(tokens: &[Token], from: usize, keyword: &str, line: usize) -> Result<usize, ShellError> {
    let mut depth = 1;
    let mut starts = false;
    for (place, token) in tokens.iter().enumerate().skip(from) {
        match token {
            Token::End { .. } => starts = true,
            Token::Assign { .. } => {
                return Err(ShellError::Branch { line, keyword: keyword.to_owned() });
            }
            Token::Word { pieces, .. } => {
                let word = match pieces.as_slice() {
                    [Piece::Plain(word)] => word.as_str(),
                    _ => "",
                };
                if starts && ["if", "for", "while", "until", "case"].contains(&word) {
                    depth += 1;
                }
                if starts && ["fi", "done", "esac"].contains(&word) {
                    depth -= 1;
                }
                if word.starts_with("--") {
                    return Err(ShellError::Branch { line, keyword: keyword.to_owned() });
                }
                // What follows these is a command of its own.
                starts = ["then", "do", "else"].contains(&word);
                if depth == 0 {
                    return Ok(place + 1);
                }
            }
        }
    }
    Err(ShellError::Open { line, what: "a branch or loop" })
}

/// `#SBATCH --nodes=8` and the like.
fn directives(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let Some(option) = line.strip_prefix("#SBATCH ") else { continue };
        let option = option.split('#').next().unwrap_or_default().trim();
        let split = option.split_once('=').or_else(|| option.split_once(char::is_whitespace));
        let (name, value) = split.unwrap_or((option, ""));
        all.insert(name.trim().to_owned(), value.trim().to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let script = read(text, &BTreeMap::new()).unwrap();
        let commands = script.commands.iter().map(|words| {
            let word = |word: &Word| {
                let unknown: Vec<&str> = word.unknown.iter().map(String::as_str).collect();
                let unknown = unknown.join(",");
                let mark = if unknown.is_empty() { "" } else { "?" };
                format!("[{}{mark}{unknown}]", word.text)
            };
            words.iter().map(word).collect::<String>()
        });
        assert_eq!(commands.collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn words_are_those_of_a_shell() {
        check("a 'b c' \"d e\"f g\\ h # not i\nj", &["[a][b c][d ef][g h]", "[j]"]);
        check("a \\\n  b; c && d | e", &["[a][b]", "[c]", "[d]", "[e]"]);
        check("A=1 B='2 3'\nx $A \"$B\" $B ${A}0", &["[x][1][2 3][2][3][10]"]);
        check("export A=4\nx $((A * 2 + 1)) ${N:-7} ${A:?no} ${M:=5} $M", &["[x][9][7][4][5][5]"]);
        check("L=(a 'b c'\n # why\n d)\nL+=(e)\nx \"${L[@]}\" ${#L[@]}", &["[x][a][b c][d][e][4]"]);
        check("A=\"--b 1\"\nA+=\" --c\"\nx $A", &["[x][--b][1][--c]"]);
        check("x $A \"$A/b\" $(hostname) `date` \"$@\"", &["[x][?A][/b?A][?$(hostname)][?`date`]"]);
        check("if [ -z \"$A\" ]; then\n  exit 1\nfi\nx", &["[x]"]);
        check("x <<EOF\nany $thing\nEOF\ny >out 2>&1", &["[x]", "[y]"]);
    }

    #[test]
    fn what_has_no_end_or_decides_is_refused() {
        let line = |text: &str| read(text, &BTreeMap::new()).unwrap_err().to_string();
        assert_eq!(line("a\n'b"), "line 2: a quote without its end");
        assert_eq!(line("A=(b"), "line 1: a list in brackets without its end");
        assert!(line("if x; then\nTP=4\nfi").starts_with("line 1: what `if` decides"));
        assert!(line("for i in 1 2; do A+=($i); done").starts_with("line 1: what `for` decides"));
    }
}
