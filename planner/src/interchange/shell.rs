//! Scripts of a shell, as far as launch scripts go: assignments, arrays, expansions and commands.
//!
//! What decides at run time is not followed: branches, loops, substitutions of commands. A word that depends on one of
//! these or on what they set, or on a variable that the script does not set, knows that it does.

mod expand;
mod lex;
mod word;

use std::collections::BTreeMap;
use std::path::Path;

use expand::Scope;
use lex::{Piece, Token};
pub(super) use word::Word;
pub use word::{End, ShellError};

/// A script that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// Each command, in order.
    pub(super) commands: Vec<Command>,
    /// Options of the batch system, from comments at the head.
    pub(super) directives: BTreeMap<String, String>,
    /// What variables stand for at its end, as far as that is known and one word.
    pub(super) variables: BTreeMap<String, String>,
}

/// A command of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    /// Where it begins, from 1.
    pub(super) line: usize,
    /// Its words.
    pub(super) words: Vec<Word>,
}

/// Reads a script; `set` are variables that the user gives.
///
/// # Errors
///
/// [`ShellError`] where it has no end, branches that start a program, or a command that ends before its options do.
pub(super) fn read(text: &str, set: &BTreeMap<String, String>) -> Result<Script, ShellError> {
    let mut script = Script { directives: directives(text), ..Script::default() };
    let mut scope = Scope::new(set);
    let tokens = lex::tokens(text)?;
    let mut at = 0;
    let mut ended = 0;
    while at < tokens.len() {
        let end = (at..tokens.len()).find(|place| tokens[*place].is_end()).unwrap_or(tokens.len());
        let statement = &tokens[at..end];
        at = end + 1;
        let Some(first) = statement.first() else { continue };
        if let Some(keyword) = first.keyword() {
            at = skipped(&tokens, end, keyword, first.line(), &mut scope)?;
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
        let end = tokens.get(end).map_or(0, Token::line);
        match command.first() {
            Some(word) if is_local(&word.text) => declare(&mut scope, words),
            Some(_) => {
                let command = Command { line: first.line(), words: command };
                if script.commands.last().is_some_and(|last| goes_on(last, &command)) {
                    return Err(ended_early(text, ended, &command));
                }
                script.commands.push(command);
                ended = end;
            }
            None => {}
        }
    }
    script.variables = scope.known();
    Ok(script)
}

/// Whether the words of a command are the rest of the one before: options after what takes options, or the program
/// after what starts one.
fn goes_on(before: &Command, command: &Command) -> bool {
    let [first, start] =
        [command, before].map(|it| it.words.first().map_or("", |it| it.text.as_str()));
    let is_option = |it: &str| {
        it.starts_with("--")
            || it.strip_prefix('-').is_some_and(|rest| rest.starts_with(char::is_alphabetic))
    };
    let is_program = |it: &str| Path::new(it).extension().is_some_and(|ending| ending == "py");
    if is_option(first) {
        return !is_option(start);
    }
    let has_program = before
        .words
        .iter()
        .any(|it| is_program(&it.text) || ["-m", "-c"].contains(&it.text.as_str()));
    let name = start.rsplit('/').next().unwrap_or_default();
    is_program(first) && !has_program && STARTERS.contains(&name)
}

/// What starts a program of Python that it is given.
const STARTERS: [&str; 7] =
    ["torchrun", "python", "python3", "srun", "mpirun", "deepspeed", "accelerate"];

/// That a command ended with a line, though its words go on.
fn ended_early(text: &str, ended: usize, command: &Command) -> ShellError {
    let line = text.lines().nth(ended.saturating_sub(1)).unwrap_or_default().trim();
    let end = match line.chars().next() {
        None => End::Empty,
        Some('#') => End::Comment,
        Some(_) => End::Open,
    };
    let word = command.words.first().map_or_else(String::new, |it| it.text.clone());
    ShellError::Ended { line: command.line, word, ended, end }
}

/// `export NAME=value`, as if it stood alone.
fn declare(scope: &mut Scope<'_>, words: &[Token]) {
    for token in &words[1..] {
        if let Token::Assign { name, appends, value, .. } = token {
            scope.assign(name, *appends, value);
        }
    }
}

/// Where the statement after a branch or loop begins. What is set in it is left open.
fn skipped(
    tokens: &[Token],
    from: usize,
    keyword: &str,
    line: usize,
    scope: &mut Scope<'_>,
) -> Result<usize, ShellError> {
    let mut depth = 1;
    let mut starts = false;
    let mut is_start = false;
    for (place, token) in tokens.iter().enumerate().skip(from) {
        match token {
            Token::End { .. } => (starts, is_start) = (true, false),
            Token::Assign { name, .. } => scope.leave_open(name),
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
                let name = word.rsplit('/').next().unwrap_or_default();
                is_start |= starts && STARTERS.contains(&name);
                if is_start && word.starts_with("--") {
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
        let commands = script.commands.iter().map(|Command { words, .. }| {
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
        check("A=1\nif y; then\n  A=2\nelse y --b; fi\nx $A", &["[x][?A]"]);
        check("for i in 1 2; do A+=($i) B=1; done\nx \"${A[@]}\" z", &["[x][?A][z]"]);
        check("x <<EOF\nany $thing\nEOF\ny >out 2>&1", &["[x]", "[y]"]);
    }

    #[test]
    fn what_has_no_end_or_decides_is_refused() {
        let line = |text: &str| read(text, &BTreeMap::new()).unwrap_err().to_string();
        assert_eq!(line("a\n'b"), "line 2: a quote without its end");
        assert_eq!(line("A=(b"), "line 1: a list in brackets without its end");
        assert!(
            line("x\nif y; then\n  torchrun --nnodes 1 z.py\nfi")
                .starts_with("line 2: what `if` decides")
        );
        assert!(
            line("x 1\n  --b 2")
                .starts_with("line 2: `--b` begins a line, but the command before it")
        );
        assert!(line("x 1 \\ \n  --b 2").starts_with("line 1: a blank follows the `\\`"));
        assert!(
            line("x 1 \\\n# why\n  --b 2")
                .ends_with("hint: move the comment of line 2 above the command")
        );
        assert!(line("x 1 \\\n\n  --b 2").ends_with("hint: remove the empty line 2"));
        assert!(line("torchrun\nx.py --b 2").starts_with("line 2: `x.py` begins"));
        check("--a 1\n--b 2", &["[--a][1]", "[--b][2]"]);
        check("python x.py\npython y.py", &["[python][x.py]", "[python][y.py]"]);
    }
}
