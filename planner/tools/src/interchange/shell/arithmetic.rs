//! Integer arithmetic of scripts, with the unknown variables that it depends on.

use std::collections::BTreeSet;

use super::expand::Scope;
use super::text::Text;
use super::word::is_name;

impl Scope<'_> {
    /// `true` or `false` for the test `((..))`; variables that it sets become unknown.
    pub(super) fn truth(&mut self, text: &str) -> Text {
        for part in text.split([';', ',']) {
            if let Some((name, value)) = set_by(part) {
                let value = self.arithmetic(&value);
                let value = if value.is_hole() { value } else { Text::unknown(name) };
                self.set(name, value.clone());
                return value;
            }
        }
        let value = self.arithmetic(text);
        match value.as_known() {
            Some(value) => Text::known(if value == "0" { "false" } else { "true" }),
            None => value,
        }
    }

    /// Executes the assignments in expressions such as `I = 0` and `I++`; returns whether each expression is an
    /// assignment.
    pub(super) fn calculate(&mut self, text: &str) -> bool {
        let mut all = text.split(',').map(set_by);
        all.all(|it| it.map(|(name, value)| self.set(name, self.arithmetic(&value))).is_some())
    }

    /// Value of integer arithmetic with comparisons, `&& || + - * / % ** ? :` and brackets.
    pub(super) fn arithmetic(&self, text: &str) -> Text {
        if text.contains("$(") || text.contains('`') || text.len() > MOST_BYTES {
            return Text::unknown(&format!("$(({text}))"));
        }
        let chars = text.chars().filter(|c| !c.is_whitespace() && *c != '$').collect();
        let mut reader = Arithmetic { scope: self, chars, at: 0, missing: BTreeSet::new() };
        match reader.choice() {
            Some(value) if reader.at == reader.chars.len() && reader.missing.is_empty() => {
                Text::known(&value.to_string())
            }
            _ if reader.missing.is_empty() => Text::unknown(&format!("$(({text}))")),
            _ => Text::depending(reader.missing),
        }
    }
}

/// Variable that an expression such as `I++` or `I += 2` sets, and the expression of its value.
fn set_by(expression: &str) -> Option<(&str, String)> {
    let text = expression.trim();
    let step = ["++", "--"].into_iter().find_map(|sign| {
        let name = text.strip_prefix(sign).or_else(|| text.strip_suffix(sign))?.trim();
        Some((name, format!("{name} {} 1", &sign[1..])))
    });
    let assigned = || {
        let (left, value) = text.split_once('=').filter(|(_, value)| !value.starts_with('='))?;
        let name = left.trim_end_matches(['+', '-', '*', '/', '%']);
        let sign = &left[name.len()..];
        let value =
            if sign.is_empty() { value.to_owned() } else { format!("{name}{sign}({value})") };
        Some((name.trim(), value))
    };
    step.or_else(assigned).filter(|(name, _)| is_name(name))
}

/// Limit of the bytes of an expression: each nested bracket takes stack space.
const MOST_BYTES: usize = 512;

/// Operators of each level of precedence, the weakest first.
const OPERATORS: [&[&str]; 6] =
    [&["||"], &["&&"], &["==", "!="], &["<=", ">=", "<", ">"], &["+", "-"], &["*", "/", "%"]];

/// A reader of integer arithmetic.
struct Arithmetic<'a> {
    scope: &'a Scope<'a>,
    chars: Vec<char>,
    at: usize,
    /// Unknown variables, which are counted as 1.
    missing: BTreeSet<String>,
}

impl Arithmetic<'_> {
    /// Value of `A ? B : C`, or of an expression of binary operators.
    fn choice(&mut self) -> Option<i64> {
        let value = self.value(0)?;
        if !self.starts("?") {
            return Some(value);
        }
        self.at += 1;
        let one = self.choice()?;
        self.starts(":").then(|| self.at += 1)?;
        let other = self.choice()?;
        Some(if value == 0 { other } else { one })
    }

    /// Value of a factor, or of a power of one.
    fn power(&mut self) -> Option<i64> {
        let base = self.factor()?;
        if !self.starts("**") {
            return Some(base);
        }
        self.at += 2;
        let exponent = u32::try_from(self.power()?).ok()?;
        base.checked_pow(exponent)
    }

    /// Value of an expression of operators of this or a higher level of precedence.
    fn value(&mut self, level: usize) -> Option<i64> {
        let Some(operators) = OPERATORS.get(level) else { return self.power() };
        let mut value = self.value(level + 1)?;
        while let Some(operator) = operators.iter().find(|it| self.starts(it)) {
            self.at += operator.len();
            let other = self.value(level + 1)?;
            value = match *operator {
                "||" => i64::from(value != 0 || other != 0),
                "&&" => i64::from(value != 0 && other != 0),
                "==" => i64::from(value == other),
                "!=" => i64::from(value != other),
                "<=" => i64::from(value <= other),
                ">=" => i64::from(value >= other),
                "<" => i64::from(value < other),
                ">" => i64::from(value > other),
                "+" => value.checked_add(other)?,
                "-" => value.checked_sub(other)?,
                "*" => value.checked_mul(other)?,
                "/" => value.checked_div(other)?,
                _ => value.checked_rem(other)?,
            };
        }
        Some(value)
    }

    fn starts(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(place, c)| self.chars.get(self.at + place) == Some(&c))
    }

    /// Value of a number, a variable or an expression in brackets.
    fn factor(&mut self) -> Option<i64> {
        if let Some(sign) = ['-', '!'].into_iter().find(|it| self.chars.get(self.at) == Some(it)) {
            self.at += 1;
            let value = self.factor()?;
            return if sign == '-' { value.checked_neg() } else { Some(i64::from(value == 0)) };
        }
        if self.chars.get(self.at) == Some(&'(') {
            self.at += 1;
            let value = self.choice()?;
            self.at += 1;
            return (self.chars.get(self.at - 1) == Some(&')')).then_some(value);
        }
        let is_part = |c: &&char| c.is_ascii_alphanumeric() || "_{}#[]@".contains(**c);
        let word: String = self.chars.iter().skip(self.at).take_while(is_part).collect();
        self.at += word.chars().count();
        let word = word.trim_matches(['{', '}']);
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.parse().ok();
        }
        if word.is_empty() {
            return None;
        }
        let value = match (word.strip_prefix('#'), self.scope.first(word)) {
            (Some(counted), _) => self.scope.length(counted),
            (None, Some(value)) => value.clone(),
            (None, None) => Text::unknown(word),
        };
        if let Some(value) = value.as_known() {
            return value.trim().parse().ok();
        }
        self.missing.extend(value.unknown_names());
        Some(1)
    }
}
