//! Parser of kernels' text.

/// The text of a kernel's body, without comments and line numbers.
pub(crate) struct Body(String);

/// An item of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// Start of a scope.
    Open,
    /// End of a scope.
    Close,
    /// A label.
    Label(&'a str),
    /// A declaration such as `.reg .b32 %r<7>`.
    Declaration(&'a str),
    /// An instruction.
    Instruction(Instruction<'a>),
}

/// `@guard opcode operand, operand, ..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instruction<'a> {
    /// The whole text.
    pub(crate) text: &'a str,
    /// The guard predicate, including `!`.
    pub(crate) guard: Option<&'a str>,
    /// The words of the opcode.
    pub(crate) words: Vec<&'a str>,
    /// The operands.
    pub(crate) operands: Vec<&'a str>,
}

impl Body {
    /// The body of a kernel, from after its opening brace to its closing brace.
    pub(crate) fn new(text: &str) -> Self {
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
        // Directives that end with their line.
        let whole_lines = [".loc", ".file", ".version", ".target", ".address_size"];
        let is_code = |line: &&str| {
            let word = line.split_whitespace().next();
            word.is_some_and(|word| !whole_lines.contains(&word))
        };
        Self(lines.filter(is_code).collect::<Vec<_>>().join(" "))
    }

    /// All items in order.
    pub(crate) fn items(&self) -> Vec<Item<'_>> {
        let mut items = Vec::new();
        for mut text in self.0.split(';') {
            // Braces within an instruction come after its opcode.
            loop {
                text = text.trim_start();
                if let Some(rest) = text.strip_prefix('{') {
                    items.push(Item::Open);
                    text = rest;
                } else if let Some(rest) = text.strip_prefix('}') {
                    items.push(Item::Close);
                    text = rest;
                } else if let Some((label, rest)) = label(text) {
                    items.push(Item::Label(label));
                    text = rest;
                } else {
                    break;
                }
            }
            let text = text.trim_end();
            if text.starts_with('.') {
                items.push(Item::Declaration(text));
            } else if !text.is_empty() {
                items.push(Item::Instruction(Instruction::parse(text)));
            }
        }
        items
    }
}

/// A label at the start of a text, and the rest.
fn label(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !is_part_of_name(c))?;
    let rest = text[end..].trim_start().strip_prefix(':')?;
    (end > 0 && !rest.starts_with(':')).then_some((&text[..end], rest))
}

fn is_part_of_name(c: char) -> bool {
    c.is_alphanumeric() || "%_$".contains(c)
}

impl<'a> Instruction<'a> {
    fn parse(text: &'a str) -> Self {
        let (guard, rest) = match text.strip_prefix('@') {
            Some(rest) => {
                let (guard, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                (Some(guard), rest.trim_start())
            }
            None => (None, text),
        };
        let (opcode, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let operands = if rest.trim().is_empty() { Vec::new() } else { operands(rest) };
        Self { text, guard, words: opcode.split('.').collect(), operands }
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|own| own.split("::").next() == Some(word))
    }
}

/// Splits at commas that are not in brackets.
pub(crate) fn operands(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_u32, 0, Vec::new());
    for (index, c) in text.char_indices() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}
