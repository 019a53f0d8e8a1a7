//! Result of reading a script.

use std::collections::{BTreeMap, BTreeSet};

use super::super::file::basename;
use super::word::Word;

/// Commands and variables of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Script {
    /// Commands in order. A command of a nested shell includes the words of the command that starts the shell, in front
    /// of its own.
    pub(in super::super) commands: Vec<Command>,
    /// Options of the batch system, from `#SBATCH` lines.
    pub(in super::super) directives: BTreeMap<String, String>,
    /// Variables at the end of the script whose value is one known word.
    pub(in super::super) variables: BTreeMap<String, String>,
    /// Files that the script writes, by their names.
    pub(in super::super) written: BTreeMap<String, String>,
    /// Paths of scripts that the script runs or sources, as far as they are known.
    pub(in super::super) runs: BTreeSet<String>,
    /// Branches that depend on unknown values, by line.
    pub(in super::super) open: BTreeMap<usize, Open>,
}

/// A branch that depends on unknown values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Open {
    /// Keyword that begins it, or the operator that joins commands.
    pub(in super::super) keyword: String,
    /// Variables on which it depends.
    pub(in super::super) variables: BTreeSet<String>,
    /// Number of its ways. In the first way, only `else` runs.
    pub(in super::super) num_ways: usize,
}

/// Treatment of branches that depend on unknown values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Way {
    /// No way is followed: variables that the branches set become unknown.
    None,
    /// The way of the given number is followed at each given line, and the first way everywhere else.
    One(BTreeMap<usize, usize>),
}

/// Largest number of branches whose other ways are followed.
const MOST_OPEN: usize = 24;

impl Way {
    /// The first way of every branch.
    pub(in super::super) const fn first() -> Self {
        Self::One(BTreeMap::new())
    }

    /// All ways that differ from the first at one branch of a script, each with the line of that branch.
    pub(in super::super) fn others(script: &Script) -> Vec<(usize, Self)> {
        let open = script.open.iter().take(MOST_OPEN);
        let of_branch = |(line, open): (&usize, &Open)| {
            let line = *line;
            (1..open.num_ways).map(move |way| (line, Self::One(BTreeMap::from([(line, way)]))))
        };
        open.flat_map(of_branch).collect()
    }
}

/// Commands whose words may name programs that they do not start.
const UTILITIES: [&str; 47] = [
    "[",
    "awk",
    "cat",
    "cd",
    "chmod",
    "chown",
    "command",
    "cp",
    "curl",
    "cut",
    "diff",
    "du",
    "echo",
    "egrep",
    "file",
    "find",
    "git",
    "grep",
    "head",
    "kill",
    "less",
    "ln",
    "log",
    "ls",
    "md5sum",
    "mkdir",
    "more",
    "mv",
    "pgrep",
    "pip",
    "pkill",
    "printf",
    "ps",
    "readlink",
    "realpath",
    "rm",
    "rsync",
    "scp",
    "sed",
    "sha256sum",
    "stat",
    "tail",
    "tee",
    "test",
    "touch",
    "wc",
    "which",
];

/// A command of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Command {
    /// First line, from 1.
    pub(in super::super) line: usize,
    /// Words after expansion.
    pub(in super::super) words: Vec<Word>,
    /// Variables at the command whose value is one known word; empty unless the command sets variables for itself.
    pub(in super::super) variables: BTreeMap<String, String>,
}

impl Command {
    /// Returns whether the command only handles files or processes that its words name, and starts no program among
    /// them.
    pub(in super::super) fn starts_nothing(&self) -> bool {
        let name = self.words.first().map_or("", |it| basename(&it.text));
        UTILITIES.contains(&name)
    }
}
