//! A reader of shell scripts for launch scripts: assignments, arrays, expansions and commands.
//!
//! Run-time decisions are not followed: loops, command substitutions, branches on unknown values. A word that depends
//! on one of these, on variables that they set, or on variables that the script does not set, records this.

mod condition;
mod expand;
mod lex;
mod parts;
mod word;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::file::{basename, has_ending};
use expand::Scope;
use lex::{Break, Token};
use parts::{branches, cases, closing, function};
pub(super) use word::Word;
pub use word::{End, ShellError};

/// Commands and variables of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// Commands in order.
    pub(super) commands: Vec<Command>,
    /// Options of the batch system, from `#SBATCH` lines.
    pub(super) directives: BTreeMap<String, String>,
    /// Variables at the end of the script whose value is one known word.
    pub(super) variables: BTreeMap<String, String>,
}

/// A command of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    /// First line, from 1.
    pub(super) line: usize,
    /// Words after expansion.
    pub(super) words: Vec<Word>,
    /// Variables at the command whose value is one known word; empty unless the command runs `bash`, or
    /// sets some for itself.
    pub(super) variables: BTreeMap<String, String>,
}

/// Reads a script; `set` has the variables that the user sets.
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
        left: MOST_STATEMENTS,
        because: BTreeSet::new(),
    };
    reader.run(0..tokens.len())?;
    let variables = reader.scope.known();
    Ok(Script { commands: reader.commands, directives: directives(text), variables })
}

/// Limit of the nesting of functions, subshells and branches.
const DEEPEST: usize = 64;

/// Limit of executed statements; those of a function count for each call.
const MOST_STATEMENTS: usize = 100_000;

/// Interpreter of a script's tokens.
struct Reader<'a> {
    text: &'a str,
    tokens: &'a [Token],
    scope: Scope<'a>,
    /// Token ranges of the bodies of functions.
    functions: BTreeMap<String, Range<usize>>,
    commands: Vec<Command>,
    /// Line with which the last command ends.
    ended: usize,
    /// Nesting depth of functions, subshells and branches.
    depth: usize,
    /// Statements left until the limit.
    left: usize,
    /// Unknown variables on which it depends whether the current command runs.
    because: BTreeSet<String>,
}

impl Reader<'_> {
    /// Executes a range of tokens.
    fn run(&mut self, range: Range<usize>) -> Result<(), ShellError> {
        self.depth += 1;
        let result = self.run_within(range);
        self.depth -= 1;
        result
    }

    fn run_within(&mut self, range: Range<usize>) -> Result<(), ShellError> {
        let tokens = self.tokens;
        let mut at = range.start;
        // Whether the next command runs after `&&` or `||`; `None` if unknown.
        let mut is_run = Some(true);
        // Whether the last command succeeded; `None` if unknown.
        let mut succeeded = Some(true);
        while at < range.end {
            if self.depth > DEEPEST || self.left == 0 {
                return Err(ShellError::Endless { line: tokens[at].line() });
            }
            self.left -= 1;
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
                match by {
                    Some(Break::Open) => {
                        // Variables that a subshell sets end with it.
                        let close = closing(tokens, end..range.end);
                        let before = self.scope.clone();
                        self.run(at..close)?;
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
                at = match self.chosen(at..range.end) {
                    Some((body, after)) => {
                        self.run(body)?;
                        after
                    }
                    None => self.skip(end, range.end, keyword, first.line())?,
                };
                is_run = Some(true);
                continue;
            }
            at = end + 1;
            match is_run {
                Some(true) => succeeded = self.statement(statement, end, false)?,
                Some(false) => self.declare(statement),
                None => {
                    self.statement(statement, end, true)?;
                    succeeded = None;
                }
            }
            is_run = match by {
                Some(Break::And) => succeeded,
                Some(Break::Or) => succeeded.map(|it| !it),
                _ => Some(true),
            };
        }
        Ok(())
    }

    /// Body that the branch at the start of a range executes, and the index after it; `None` if that is unknown.
    fn chosen(&mut self, range: Range<usize>) -> Option<(Range<usize>, usize)> {
        let (parts, after) = match cases(self.tokens, range.clone()) {
            Some(found) => found,
            None => branches(self.tokens, range.clone())?,
        };
        let subject = match self.tokens[range.start].keyword() {
            Some("case") => self.words(range.start + 1..range.start + 2)?.pop(),
            _ => None,
        };
        let mut chosen = None;
        for (decides, body) in &parts {
            let is_it = match &subject {
                Some(subject) => condition::matches(&subject.text, &self.words(decides.clone())?)?,
                None => decides.is_empty() || self.holds(decides.clone())?,
            };
            if is_it {
                chosen = Some(body.clone());
                break;
            }
        }
        for (_, body) in parts {
            self.declare(&self.tokens[body]);
        }
        Some((chosen.unwrap_or(after..after), after))
    }

    /// Declares variables that tokens which do not run assign: they are empty, unless set already.
    fn declare(&mut self, tokens: &[Token]) {
        for token in tokens {
            if let Token::Assign { name, .. } = token {
                self.scope.declare(name);
            }
        }
    }

    /// Words of some tokens; `None` if one is unknown.
    fn words(&mut self, range: Range<usize>) -> Option<Vec<Word>> {
        let mut all = Vec::new();
        for token in &self.tokens[range] {
            if let Token::Word { pieces, .. } = token {
                all.extend(self.scope.words(pieces));
            }
        }
        all.iter().all(|word| word.unknown.is_empty()).then_some(all)
    }

    /// Result of a condition; `None` if unknown.
    fn holds(&mut self, range: Range<usize>) -> Option<bool> {
        let mut result = None;
        let mut joined = Break::Plain;
        for statement in self.tokens[range].split_inclusive(Token::is_end) {
            let by = statement.last().and_then(Token::ends_by);
            let words = &statement[..statement.len() - usize::from(by.is_some())];
            if words.is_empty() {
                continue;
            }
            let mut command = Vec::new();
            for token in words {
                let Token::Word { pieces, .. } = token else { return None };
                command.extend(self.scope.words(pieces));
            }
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

    /// Executes a statement: assignments or a command. Returns whether it succeeds, `None` if unknown.
    fn statement(
        &mut self,
        statement: &[Token],
        end: usize,
        is_conditional: bool,
    ) -> Result<Option<bool>, ShellError> {
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
        if condition::is_test(&command) {
            self.because = variables_of(&command);
            return Ok(condition::holds(&command));
        }
        let Some(name) = command.first().map(|it| it.text.clone()) else {
            self.assign(assigned, is_conditional);
            return Ok(Some(true));
        };
        if is_local(&name) {
            self.assign(words, is_conditional);
            return Ok(Some(true));
        }
        // Assignments before a command hold for this command only.
        let before = (!assigned.is_empty()).then(|| self.scope.clone());
        self.assign(assigned, false);
        if let Some(body) = self.functions.get(&name).cloned() {
            self.scope.call_with(&command[1..]);
            self.run(body)?;
        } else {
            let line = statement.first().map_or(0, Token::line);
            // A nested shell sees the variables.
            let has_shell = command.iter().any(|word| word.text == "bash");
            let sees = has_shell || !assigned.is_empty();
            let variables = if sees { self.scope.known() } else { BTreeMap::new() };
            let command = Command { line, words: command, variables };
            if self.commands.last().is_some_and(|last| goes_on(last, &command)) {
                return Err(ended_early(self.text, self.ended, &command));
            }
            self.commands.push(command);
            self.ended = self.tokens.get(end).map_or(0, Token::line);
        }
        if let Some(before) = before {
            self.scope.restore(before);
        }
        Ok(SAFE.contains(&name.as_str()).then_some(true))
    }

    /// Sets variables, or marks them as unknown if it is unknown whether the assignment runs.
    fn assign(&mut self, tokens: &[Token], is_conditional: bool) {
        for token in tokens {
            if let Token::Assign { name, appends, value, .. } = token {
                if is_conditional {
                    self.scope.leave_open(name, *appends, value, &self.because);
                } else {
                    self.scope.assign(name, *appends, value);
                }
            }
        }
    }

    /// Index after a branch or loop that is not followed. Variables that it sets become unknown.
    fn skip(
        &mut self,
        from: usize,
        to: usize,
        keyword: &str,
        line: usize,
    ) -> Result<usize, ShellError> {
        // Words of the condition, up to the first commands of the branch.
        let decides = (0..from).rev().find(|place| self.tokens[*place].keyword() == Some(keyword));
        let mut words = Vec::new();
        for token in &self.tokens[decides.map_or(from, |place| place + 1)..from] {
            if let Token::Word { pieces, .. } = token {
                words.extend(self.scope.words(pieces));
            }
        }
        self.because = variables_of(&words);
        let mut depth = 1;
        let mut starts = false;
        let mut is_start = false;
        for place in from..to {
            match &self.tokens[place] {
                Token::End { .. } => (starts, is_start) = (true, false),
                Token::Assign { name, appends, value, .. } => {
                    self.scope.leave_open(name, *appends, value, &self.because);
                }
                token @ Token::Word { .. } => {
                    let word = token.plain().unwrap_or_default();
                    if starts && ["if", "for", "while", "until", "case"].contains(&word) {
                        depth += 1;
                    }
                    if starts && ["fi", "done", "esac"].contains(&word) {
                        depth -= 1;
                    }
                    is_start |= starts && STARTERS.contains(&basename(word));
                    if is_start && word.starts_with("--") {
                        return Err(ShellError::Branch { line, keyword: keyword.to_owned() });
                    }
                    // A new command begins after these words.
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

/// Variables on which words depend and which a user can set.
fn variables_of(words: &[Word]) -> BTreeSet<String> {
    let is_name = |name: &&String| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    words.iter().flat_map(|word| &word.unknown).filter(is_name).cloned().collect()
}

/// Commands that are taken to succeed, so that the command after their `&&` runs.
const SAFE: [&str; 8] = ["cd", "mkdir", "echo", "source", ".", "set", "ulimit", "module"];

/// Returns whether a command's words continue the command before: options after a command that takes options, or a
/// program after a launcher.
fn goes_on(before: &Command, command: &Command) -> bool {
    let [first, start] =
        [command, before].map(|it| it.words.first().map_or("", |it| it.text.as_str()));
    let is_option = |it: &str| {
        it.starts_with("--")
            || it.strip_prefix('-').is_some_and(|rest| rest.starts_with(char::is_alphabetic))
    };
    let is_program = |it: &str| has_ending(it, "py");
    if is_option(first) {
        return !is_option(start);
    }
    let has_program = before
        .words
        .iter()
        .any(|it| is_program(&it.text) || ["-m", "-c"].contains(&it.text.as_str()));
    is_program(first) && !has_program && STARTERS.contains(&basename(start))
}

/// Commands that start the Python program in their arguments.
const STARTERS: [&str; 7] =
    ["torchrun", "python", "python3", "srun", "mpirun", "deepspeed", "accelerate"];

/// Error for a command that ends with a line although its words go on.
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

/// Options of `#SBATCH` lines, such as `--nodes=8`.
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
        check("A=1\n[ -f y ] && A=2\nx $A", &["[x][?A]"]);
        check("[ 1 = 1 ] || A=2 || A=3\nx $A", &["[x]"]);
        check("A=1\nif [ $A -gt 0 ]; then\n  A=2\nelse A=3; fi\nx $A", &["[x][2]"]);
        check(
            "A=b\nif [[ $A == c ]]; then A=1\nelif [ -z \"$A\" ]; then A=2\nfi\nx $A",
            &["[x][b]"],
        );
        check("A=1\nif [ $A = 1 ] && [ -f y ]; then A=2; fi\nx $A", &["[x][?A]"]);
        check("if [ 1 = 1 ]; then if [ 1 = 2 ]; then x; else y; fi; fi; z", &["[y]", "[z]"]);
        check("A=1\n[ $A = 1 ] && A=2 || A=3\nx $A", &["[x][2]"]);
        check("[ $# -lt 1 ] && A=2\nx $A", &["[x][?A]"]);
        check("if [ 1 = 2 ]; then A=1; fi\nx $A y", &["[x][y]"]);
        check("[ 1 = 2 ] && A=1\nx $A y", &["[x][y]"]);
        check("if [ -n \"$Y\" ]; then A=2; fi\n[ $Z = 1 ] && B=2\nx $A $B", &["[x][?Y][?Z]"]);
        check("A=\nif [ -z $A ]; then B=1; fi\nx $B", &["[x][1]"]);
        let text = "A=70b\ncase $A in\n  8b|7b) T=2;;\n  \"70b\") T=8 ;;\n  *) T=1\nesac\nx $T";
        check(text, &["[x][8]"]);
        check("A=y; case \"$A\" in z*) T=2;; *) T=1;; esac; x $T", &["[x][?T]"]);
        check("case $B in z) T=2;; esac\nx $T", &["[x][?B]"]);
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
        assert_eq!(line(&"(".repeat(20_000)), line(&"(".repeat(1_000)));
        let doubled = "A=xx\n".to_owned() + &"A=$A$A\n".repeat(100) + "x $A";
        check(&doubled, &["[x][?A]"]);
        let laughs = "f() { f; f; }\nf";
        assert!(line(laughs).starts_with("line 1: functions call each other too often"));
        assert!(line("torchrun\nx.py --b 2").starts_with("line 2: `x.py` begins"));
        check("--a 1\n--b 2", &["[--a][1]", "[--b][2]"]);
        check("python x.py\npython y.py", &["[python][x.py]", "[python][y.py]"]);
    }
}
