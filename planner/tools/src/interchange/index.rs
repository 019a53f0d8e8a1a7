//! Rows of a table of options by name, indexed once: lint looks up thousands.

use std::collections::BTreeMap;

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexedRow {
    /// An option, or a key of a file; one that ends with `*` stands for all with this prefix.
    pub(super) name: &'static str,
    /// Number of values, or `word`.
    pub(super) arity: &'static str,
    /// What it becomes: a field of the plan, or an option of another tool.
    pub(super) becomes: Option<&'static str>,
    /// The whole row.
    pub(super) line: &'static str,
}

/// Rows by name.
#[derive(Debug)]
pub(super) struct Index {
    /// In the order of the table; topics are left out.
    pub(super) rows: Vec<IndexedRow>,
    /// Place of the first row of each name.
    first: BTreeMap<&'static str, usize>,
    /// Place of the first row of each name that a parser knows.
    first_parsed: BTreeMap<&'static str, usize>,
    /// Places of names that end with `*`.
    prefixes: Vec<usize>,
    /// True if these are keys of a file.
    are_keys: bool,
}

impl Index {
    pub(super) fn of(table: &'static str) -> Self {
        let row = |line: &'static str| {
            let mut words = line.split_whitespace();
            let (name, arity) = (words.next()?, words.next()?);
            (!name.starts_with('[')).then(|| IndexedRow {
                name,
                arity,
                becomes: words.next(),
                line,
            })
        };
        let rows: Vec<IndexedRow> = table.lines().filter_map(row).collect();
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

    /// First row of a name, or of a prefix of it, that a parser knows.
    pub(super) fn parsed(&self, name: &str) -> Option<&IndexedRow> {
        let name = if self.are_keys { name.trim_start_matches("--") } else { name };
        let mut prefixes = self.prefixes(name).filter(|place| self.rows[*place].is_parsed());
        let places = self.first_parsed.get(name).copied().into_iter().chain(prefixes.next());
        places.min().map(|place| &self.rows[place])
    }

    /// Row of a key: one with its whole name counts before one with a prefix, and that before one of a key that it is
    /// within and that is no option.
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

    /// Places of rows for all names with a prefix that this one has.
    fn prefixes<'a>(&'a self, name: &'a str) -> impl Iterator<Item = usize> + 'a {
        let starts = |place: &usize| name.starts_with(self.rows[*place].name.trim_end_matches('*'));
        self.prefixes.iter().copied().filter(starts)
    }
}

impl IndexedRow {
    /// Returns whether a parser knows the option.
    pub(super) fn is_parsed(&self) -> bool {
        self.arity != "word"
    }
}
