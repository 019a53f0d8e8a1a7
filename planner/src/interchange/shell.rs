//! Scripts of a shell, as far as launch scripts go: assignments, arrays, expansions and commands.
//!
//! What decides at run time is not followed: branches, loops, substitutions of commands. A word that depends on one of
//! these or on what they set, or on a variable that the script does not set, knows that it does.

mod expand;
mod lex;
mod word;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use expand::Scope;
use lex::{Break, Token};
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
    /// What variables stand for where it is run, as far as that is known and one word.
    pub(super) variables: BTreeMap<String, String>,
}

/// Reads a script; `set` are variables that the user gives.
///
/// # Errors
///
/// [`ShellError`] where it has no end, branches that start a program, or a command that ends before its options do.
pub(super) fn read(text: &str, set: &BTreeMap<String, String>) -> Result<Script, ShellError> {
    let tokens = lex::tokens(text)?;
    let mut reader = Reader {
        text,
        tokens: &tokens,
        scope: Scope::new(set),
        functions: BTreeMap::new(),
        commands: Vec::new(),
        ended: 0,
        depth: 0,
    };
    reader.run(0..tokens.len())?;
    let variables = reader.scope.known();
    Ok(Script { commands: reader.commands, directives: directives(text), variables })
}

/// How deep functions call each other, at most.
const DEEPEST: usize = 16;

/// Goes through a script as a shell does.
struct Reader<'a> {
    text: &'a str,
    tokens: &'a [Token],
    scope: Scope<'a>,
    /// Where the commands of each function are.
    functions: BTreeMap<String, Range<usize>>,
    commands: Vec<Command>,
    /// The line with which the last of them ends.
    ended: usize,
    /// How many functions call each other.
    depth: usize,
}

impl Reader<'_> {
    /// Goes through some of the tokens.
    fn run(&mut self, range: Range<usize>) -> Result<(), ShellError> {
        let tokens = self.tokens;
        let mut at = range.start;
        // Whether what comes is run or not, as what stands before it decides.
        let mut is_conditional = false;
        // Whether the commands so far that decide are such as always succeed.
        let mut succeeds = true;
        while at < range.end {
            let end = (at..range.end).find(|place| tokens[*place].is_end()).unwrap_or(range.end);
            let statement = &tokens[at..end];
            let by = tokens.get(end).filter(|_| end < range.end).and_then(Token::ends_by);
            if let Some((name, body)) = function(tokens, at..range.end) {
                at = body.end + 1;
                self.functions.insert(name.to_owned(), body);
                continue;
            }
            let Some(first) = statement.first() else {
                at = end + 1;
                if by == Some(Break::Open) {
                    // What a subshell sets ends with it.
                    let close = closing(tokens, end..range.end);
                    let before = self.scope.clone();
                    self.run(at..close)?;
                    self.scope = before;
                    at = close + 1;
                } else if by == Some(Break::Condition) {
                    // A subshell, or arithmetic in brackets, decides.
                    (is_conditional, succeeds) = (true, false);
                }
                continue;
            };
            if let Some(keyword) = first.keyword() {
                at = self.skip(end, range.end, keyword, first.line())?;
                (is_conditional, succeeds) = (false, true);
                continue;
            }
            at = end + 1;
            let is_safe = self.statement(statement, end, is_conditional)?;
            succeeds &= is_safe;
            is_conditional = by == Some(Break::Condition) && !succeeds;
            if by != Some(Break::Condition) {
                succeeds = true;
            }
        }
        Ok(())
    }

    /// Takes a statement: what it sets, or the command that it is. Says whether it succeeds in any case.
    fn statement(
        &mut self,
        statement: &[Token],
        end: usize,
        is_conditional: bool,
    ) -> Result<bool, ShellError> {
        let assigned = statement.iter().take_while(|it| matches!(it, Token::Assign { .. })).count();
        let (assigned, words) = statement.split_at(assigned);
        let command: Vec<Word> = words
            .iter()
            .flat_map(|token| match token {
                Token::Word { pieces, .. } => self.scope.words(pieces),
                Token::Assign { .. } | Token::End { .. } => Vec::new(),
            })
            .collect();
        let is_local = |word: &str| ["export", "declare", "readonly", "local"].contains(&word);
        let Some(name) = command.first().map(|it| it.text.clone()) else {
            self.assign(assigned, is_conditional);
            return Ok(true);
        };
        if is_local(&name) {
            self.assign(words, is_conditional);
            return Ok(true);
        }
        // What stands before a command is set for it alone.
        let before = (!assigned.is_empty()).then(|| self.scope.clone());
        self.assign(assigned, false);
        if let Some(body) = self.functions.get(&name).cloned().filter(|_| self.depth < DEEPEST) {
            self.scope.call_with(&command[1..]);
            self.depth += 1;
            self.run(body)?;
            self.depth -= 1;
        } else {
            let line = statement.first().map_or(0, Token::line);
            let command = Command { line, words: command, variables: self.scope.known() };
            if self.commands.last().is_some_and(|last| goes_on(last, &command)) {
                return Err(ended_early(self.text, self.ended, &command));
            }
            self.commands.push(command);
            self.ended = self.tokens.get(end).map_or(0, Token::line);
        }
        if let Some(before) = before {
            self.scope = before;
        }
        Ok(SAFE.contains(&name.as_str()))
    }

    /// Sets variables, or leaves open what they are where that depends.
    fn assign(&mut self, tokens: &[Token], is_conditional: bool) {
        for token in tokens {
            if let Token::Assign { name, appends, value, .. } = token {
                if is_conditional {
                    self.scope.leave_open(name, *appends, value);
                } else {
                    self.scope.assign(name, *appends, value);
                }
            }
        }
    }

    /// Where the statement after a branch or loop begins. What is set in it is left open.
    fn skip(
        &mut self,
        from: usize,
        to: usize,
        keyword: &str,
        line: usize,
    ) -> Result<usize, ShellError> {
        let mut depth = 1;
        let mut starts = false;
        let mut is_start = false;
        for place in from..to {
            match &self.tokens[place] {
                Token::End { .. } => (starts, is_start) = (true, false),
                Token::Assign { name, appends, value, .. } => {
                    self.scope.leave_open(name, *appends, value);
                }
                token @ Token::Word { .. } => {
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
}

/// Commands that succeed, so that what `&&` has after them is run.
const SAFE: [&str; 8] = ["cd", "mkdir", "echo", "source", ".", "set", "ulimit", "module"];

/// The function that is defined from a place on, with its commands.
fn function(tokens: &[Token], range: Range<usize>) -> Option<(&str, Range<usize>)> {
    let tokens = &tokens[..range.end];
    let mut at = range.start;
    let first = tokens.get(at)?.plain()?;
    let is_named = first == "function";
    at += usize::from(is_named);
    let name = tokens.get(at)?.plain()?;
    at += 1;
    let by = |place: usize| tokens.get(place).and_then(Token::ends_by);
    let has_brackets = by(at) == Some(Break::Open) && by(at + 1) == Some(Break::Close);
    if !(is_named || has_brackets) {
        return None;
    }
    at += if has_brackets { 2 } else { 0 };
    while by(at) == Some(Break::Plain) {
        at += 1;
    }
    if tokens.get(at)?.plain()? != "{" {
        return None;
    }
    let start = at + 1;
    let mut depth = 1;
    for (place, token) in tokens.iter().enumerate().skip(start) {
        match token.plain() {
            Some("{") => depth += 1,
            Some("}") => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((name, start..place));
        }
    }
    None
}

/// The bracket that closes the one at the start of a range, or its end.
fn closing(tokens: &[Token], range: Range<usize>) -> usize {
    let mut depth = 0usize;
    for place in range.clone() {
        match tokens[place].ends_by() {
            Some(Break::Open) => depth += 1,
            Some(Break::Close) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return place;
        }
    }
    range.end
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
        check("A=(a)\nfor i in 1 2; do A+=($i) B=1; done\nx \"${A[@]}\" z", &["[x][a][?A][z]"]);
        check("A=1\n[ y ] && A=2\nx $A", &["[[][y][]]", "[x][?A]"]);
        check("N=2; A=0; (( N > 1 )) && A=1 || A=2\nx $A", &["[N]", "[x][?A]"]);
        check("A=1 && export B=2 && cd y && C=3\nx $A $B $C", &["[cd][y]", "[x][1][2][3]"]);
        check("A=1\n(A=2; y $A)\nA=3 z $A\nx $A", &["[y][2]", "[z][1]", "[x][1]"]);
        check("f() { A=$1; y $A; }\nA=1\nf 2\nx $A", &["[y][2]", "[x][2]"]);
        check("function f {\n  torchrun --a\n}\nx", &["[x]"]);
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
