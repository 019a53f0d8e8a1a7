//! Result of reading a script.

use std::collections::{BTreeMap, BTreeSet};

use super::super::file::basename;
use super::word::Word;

/// Commands and variables of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Script {
    /// Commands in order; of a shell that another command starts, its own commands after the words of that one.
    pub(in super::super) commands: Vec<Command>,
    /// Options of the batch system, from `#SBATCH` lines.
    pub(in super::super) directives: BTreeMap<String, String>,
    /// Variables at the end of the script whose value is one known word.
    pub(in super::super) variables: BTreeMap<String, String>,
    /// Files that the script writes, by their names.
    pub(in super::super) written: BTreeMap<String, String>,
    /// Paths of scripts that it runs or takes the lines of, as far as they are known.
    pub(in super::super) runs: BTreeSet<String>,
    /// Branches that depend on what is unknown, by their lines.
    pub(in super::super) open: BTreeMap<usize, Open>,
}

/// A branch that depends on what is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Open {
    /// Keyword that begins it, or the sign that joins commands.
    pub(in super::super) keyword: String,
    /// Variables on which it depends.
    pub(in super::super) variables: BTreeSet<String>,
    /// Number of its ways, of which the first is that nothing but `else` runs.
    pub(in super::super) num_ways: usize,
}

/// Treatment of branches that depend on what is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Way {
    /// None is followed: what they set is unknown.
    None,
    /// The first way of each is followed, or the way of this number at this line.
    One(BTreeMap<usize, usize>),
}

/// Largest number of branches whose other ways are followed.
const MOST_OPEN: usize = 24;

impl Way {
    /// The first way of every branch.
    pub(in super::super) const fn first() -> Self {
        Self::One(BTreeMap::new())
    }

    /// Every other way of one branch of a script, with the line of the branch.
    pub(in super::super) fn others(script: &Script) -> Vec<(usize, Self)> {
        let open = script.open.iter().take(MOST_OPEN);
        let of_branch = |(line, open): (&usize, &Open)| {
            let line = *line;
            (1..open.num_ways).map(move |way| (line, Self::One(BTreeMap::from([(line, way)]))))
        };
        open.flat_map(of_branch).collect()
    }
}

/// Commands that start none of the programs that their words name.
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
    /// Variables at the command whose value is one known word; empty unless it sets some for itself.
    pub(in super::super) variables: BTreeMap<String, String>,
}

impl Command {
    /// Returns whether it does something with files or processes that its words name, and starts no program in them.
    pub(in super::super) fn starts_nothing(&self) -> bool {
        let name = self.words.first().map_or("", |it| basename(&it.text));
        UTILITIES.contains(&name)
    }
}
