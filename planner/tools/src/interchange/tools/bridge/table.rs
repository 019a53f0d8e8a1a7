//! Megatron-Bridge's settings, each with the Megatron-LM option that it equals.

/// Form in which a setting has the value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Number.
    Number,
    /// String in quotes.
    Text,
    /// List of strings in quotes.
    List,
    /// `True` if the option is given, else `False`.
    Switch,
    /// `False` if the option is given, else `True`.
    Unless,
    /// PyTorch dtype.
    Dtype,
    /// No option of Megatron-LM: the setting is known, but not read.
    None,
}

/// A setting, which is a row of [`TABLE`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Path in a `ConfigContainer`.
    pub(super) path: &'static str,
    pub(super) kind: Kind,
    /// The option of Megatron-LM.
    pub(super) flag: &'static str,
    /// Path of a second setting with the same value.
    pub(super) twin: Option<&'static str>,
}

/// Rows of path, kind, option, and an optional second path with the same value: fields of megatron-bridge 0.6.2.
pub(super) const TABLE: &str = include_str!("settings.txt");

/// Form in which an option is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HowGiven<'a> {
    /// The option is not given.
    LeftOut,
    /// The option has no value.
    Switch,
    /// The option has a value.
    Value(&'a str),
}

/// Settings of Megatron-Bridge that equal an option of Megatron-LM, as paths and values in Python.
pub(crate) fn settings(flag: &str, given: HowGiven<'_>) -> Vec<(String, String)> {
    let quoted = |word: &str| format!("\"{word}\"");
    let is_left_out = given == HowGiven::LeftOut;
    let of_row = |row: Row| {
        let value = match (row.kind, given) {
            (Kind::Switch, _) => if is_left_out { "False" } else { "True" }.to_owned(),
            (Kind::Unless, _) => if is_left_out { "True" } else { "False" }.to_owned(),
            (_, HowGiven::LeftOut) => "None".to_owned(),
            (Kind::Number, HowGiven::Value(value)) => value.to_owned(),
            (Kind::Text, HowGiven::Value(value)) => quoted(value),
            (Kind::List, HowGiven::Value(value)) => {
                let words: Vec<String> = value.split_whitespace().map(quoted).collect();
                format!("[{}]", words.join(", "))
            }
            (Kind::Dtype | Kind::None, _) | (_, HowGiven::Switch) => return None,
        };
        let paths = std::iter::once(row.path).chain(row.twin);
        Some(paths.map(move |path| (path.to_owned(), value.clone())).collect::<Vec<_>>())
    };
    rows().filter(|row| row.flag == flag).filter_map(of_row).flatten().collect()
}

/// The rows of the table.
pub(super) fn rows() -> impl Iterator<Item = Row> {
    TABLE.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (path, kind, flag) = (words.next()?, words.next()?, words.next()?);
        let kind = match kind {
            "number" => Kind::Number,
            "text" => Kind::Text,
            "list" => Kind::List,
            "switch" => Kind::Switch,
            "unless" => Kind::Unless,
            "dtype" => Kind::Dtype,
            _ => Kind::None,
        };
        Some(Row { path, kind, flag, twin: words.next() })
    })
}
