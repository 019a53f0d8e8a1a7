//! Rows of a table of options, indexed by name once, since lint looks up thousands of names.

use std::collections::BTreeMap;

/// A row of a table.
#[derive(Clone, Debug)]
pub(super) struct IndexedRow {
    /// Title of the topic that the row belongs to.
    pub(super) topic: &'static str,
    /// An option, or a key of a file; one that ends with `*` stands for all with this prefix.
    pub(super) name: &'static str,
    /// Number of values, or `word`.
    pub(super) arity: &'static str,
    /// What the option becomes: a field of the plan, or an option of another tool.
    pub(super) becomes: Option<&'static str>,
    /// The words after `becomes`: forms of values, and conditions.
    pub(super) words: Vec<&'static str>,
    /// The text after ` # `: the reason, or a description of the option.
    pub(super) why: &'static str,
}

/// Rows by name.
#[derive(Debug)]
pub(super) struct Index {
    /// The rows in the order of the table, without lines of topics.
    pub(super) rows: Vec<IndexedRow>,
    /// Place of the first row of each name.
    first: BTreeMap<&'static str, usize>,
    /// Place of the first row of each name that a parser knows.
    first_parsed: BTreeMap<&'static str, usize>,
    /// Places of names that end with `*`.
    prefixes: Vec<usize>,
    /// True if the rows are keys of a file.
    are_keys: bool,
}

impl Index {
    pub(super) fn of(table: &'static str) -> Self {
        let mut topic = "";
        let mut rows: Vec<IndexedRow> = Vec::new();
        for line in table.lines() {
            match line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                Some(title) => topic = title,
                None => rows.extend(IndexedRow::of(topic, line)),
            }
        }
        let mut first = BTreeMap::new();
        let mut first_parsed = BTreeMap::new();
        for (place, row) in rows.iter().enumerate() {
            first.entry(row.name).or_insert(place);
            if row.is_parsed() {
                first_parsed.entry(row.name).or_insert(place);
            }
        }
        let prefixes = (0..rows.len()).filter(|place| rows[*place].name.ends_with('*')).collect();
        // Keys of a file may be options of a command line too.
        let are_keys = rows.iter().all(|row| !row.name.starts_with("--"));
        Self { rows, first, first_parsed, prefixes, are_keys }
    }

    /// First row of a name.
    pub(super) fn named(&self, name: &str) -> Option<&IndexedRow> {
        self.first.get(name).map(|place| &self.rows[*place])
    }

    /// First row that a parser knows for a name, or for a prefix of it.
    pub(super) fn parsed(&self, name: &str) -> Option<&IndexedRow> {
        let name = if self.are_keys { name.trim_start_matches("--") } else { name };
        let mut prefixes = self.prefixes(name).filter(|place| self.rows[*place].is_parsed());
        let places = self.first_parsed.get(name).copied().into_iter().chain(prefixes.next());
        places.min().map(|place| &self.rows[place])
    }

    /// Row of a key. A row with the whole name takes precedence over one with a prefix (`*`), and that over the row of
    /// an enclosing key that becomes no option.
    pub(super) fn of_key(&self, key: &str) -> Option<&IndexedRow> {
        let is_no_option = |place: &usize| {
            self.rows[*place].becomes.is_some_and(|it| ["none", "unplanned"].contains(&it))
        };
        let above = || {
            let keys = key.match_indices('.').filter_map(|(at, _)| self.first.get(&key[..at]));
            keys.copied().filter(is_no_option).min()
        };
        let row = |place: usize| &self.rows[place];
        let within = || self.prefixes(key).next().or_else(above).map(row);
        self.named(key).or_else(within)
    }

    /// Places of the rows whose prefix (`*`) matches the name.
    fn prefixes<'a>(&'a self, name: &'a str) -> impl Iterator<Item = usize> + 'a {
        let starts = |place: &usize| name.starts_with(self.rows[*place].name.trim_end_matches('*'));
        self.prefixes.iter().copied().filter(starts)
    }
}

impl IndexedRow {
    fn of(topic: &'static str, line: &'static str) -> Option<Self> {
        let (line, why) = line.split_once(" # ").unwrap_or((line, ""));
        let mut words = line.split_whitespace();
        let (name, arity, becomes) = (words.next()?, words.next()?, words.next());
        Some(Self { topic, name, arity, becomes, words: words.collect(), why })
    }

    /// Returns whether a parser knows the option.
    pub(super) fn is_parsed(&self) -> bool {
        self.arity != "word"
    }
}
