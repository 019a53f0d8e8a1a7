//! Megatron-Bridge's settings, and the options of Megatron-LM that they are the same as.

/// How a setting has what an option says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As a number.
    Number,
    /// As a word in quotes.
    Text,
    /// As a list of such words.
    List,
    /// As `True` where the option is given, and `False` else.
    Switch,
    /// As `False` where the option is given.
    Unless,
    /// As a type of PyTorch's.
    Dtype,
    /// Nothing of a plan.
    None,
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Its place in a `ConfigContainer`.
    pub(super) path: &'static str,
    pub(super) kind: Kind,
    /// The option.
    pub(super) flag: &'static str,
    /// A place that has the same once more.
    pub(super) twin: Option<&'static str>,
}

/// Lines of a place, how it has what an option says, the option, and a place that has the same once more: fields of
/// megatron-bridge 0.6.2.
pub(super) const TABLE: &str = include_str!("settings.txt");

/// How an option is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HowGiven<'a> {
    /// Not at all.
    LeftOut,
    /// By itself.
    Switch,
    /// With a value.
    Value(&'a str),
}

/// The settings that have what an option of Megatron-LM says, each with its value in Python.
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
