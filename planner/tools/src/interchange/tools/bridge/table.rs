//! Megatron-Bridge's settings, each with the Megatron-LM option that it equals.

/// Form in which a setting has the value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueForm {
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
    pub(super) kind: ValueForm,
    /// The option of Megatron-LM.
    pub(super) flag: &'static str,
    /// Path of a second setting with the same value.
    pub(super) twin: Option<&'static str>,
}

/// Rows of path, kind, option, and an optional second path with the same value: fields of megatron-bridge 0.6.2.
pub(super) const TABLE: &str = include_str!("settings.txt");

impl Row {
    /// Python literal for the option's values (empty for a switch); Python's `None` if the option is not given.
    pub(super) fn literal(&self, values: Option<&[String]>) -> String {
        let quoted = |word: &String| format!("\"{word}\"");
        let truth = |is_true| if is_true { "True" } else { "False" }.to_owned();
        match (self.kind, values) {
            (ValueForm::Switch, _) => truth(values.is_some()),
            (ValueForm::Unless, _) => truth(values.is_none()),
            (_, None) => "None".to_owned(),
            (ValueForm::Number, Some(values)) => values.join(" "),
            (ValueForm::Text, Some(values)) => quoted(&values.join(" ")),
            (ValueForm::List, Some(values)) => {
                format!("[{}]", values.iter().map(quoted).collect::<Vec<_>>().join(", "))
            }
            (ValueForm::Dtype, Some([value])) if value == "bf16" => "torch.bfloat16".to_owned(),
            (ValueForm::Dtype | ValueForm::None, _) => "torch.float32".to_owned(),
        }
    }

    /// Returns whether lint can set the setting to values.
    fn can_be(&self, values: &[String]) -> bool {
        match self.kind {
            ValueForm::Switch | ValueForm::Unless => true,
            ValueForm::Number | ValueForm::Text | ValueForm::List => !values.is_empty(),
            ValueForm::Dtype | ValueForm::None => false,
        }
    }

    /// Paths that have the value.
    fn paths(self) -> impl Iterator<Item = String> {
        std::iter::once(self.path).chain(self.twin).map(str::to_owned)
    }
}

/// Settings of Megatron-Bridge that equal an option of Megatron-LM with these values, as paths and values in Python.
pub(crate) fn settings(flag: &str, values: Option<&[String]>) -> Vec<(String, String)> {
    let rows = rows().filter(|row| row.flag == flag && values.is_none_or(|it| row.can_be(it)));
    rows.flat_map(|row| row.paths().map(move |path| (path, row.literal(values)))).collect()
}

/// The rows of the table.
pub(super) fn rows() -> impl Iterator<Item = Row> {
    TABLE.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (path, kind, flag) = (words.next()?, words.next()?, words.next()?);
        let kind = match kind {
            "number" => ValueForm::Number,
            "text" => ValueForm::Text,
            "list" => ValueForm::List,
            "switch" => ValueForm::Switch,
            "unless" => ValueForm::Unless,
            "dtype" => ValueForm::Dtype,
            _ => ValueForm::None,
        };
        Some(Row { path, kind, flag, twin: words.next() })
    })
}
