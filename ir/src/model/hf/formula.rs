//! Numbers of parameters as sums and products of a configuration's sizes, for parts for which the graph has no
//! operators.

use crate::model::error::ModelError;

/// The value of a formula of names, numbers, `+`, `-`, `*`, `/` (whole, rounded down), parentheses, `min(a, b)` and
/// `max(a, b)`.
///
/// # Errors
///
/// The errors of `size`; [`None`] inside the result where the text is not a formula, or has no value that is a whole
/// number below 2^63.
pub(super) fn value(
    formula: &str,
    size: &dyn Fn(&str) -> Result<u64, ModelError>,
) -> Result<Option<u64>, ModelError> {
    let mut reader = Reader { rest: formula.trim_start(), size };
    let value = reader.sum()?.filter(|_| reader.rest.is_empty());
    Ok(value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value < 1 << 63))
}

struct Reader<'a> {
    rest: &'a str,
    size: &'a dyn Fn(&str) -> Result<u64, ModelError>,
}

type Evaluated = Result<Option<i128>, ModelError>;

impl Reader<'_> {
    fn sum(&mut self) -> Evaluated {
        let mut sum = self.product()?;
        while let Some(sign) = self.one_of(['+', '-']) {
            let further = self.product()?;
            sum = sum.zip(further).and_then(|(a, b)| match sign {
                '+' => a.checked_add(b),
                _ => a.checked_sub(b),
            });
        }
        Ok(sum)
    }

    fn product(&mut self) -> Evaluated {
        let mut product = self.factor()?;
        while let Some(sign) = self.one_of(['*', '/']) {
            let further = self.factor()?;
            product = product.zip(further).and_then(|(a, b)| match sign {
                '*' => a.checked_mul(b),
                _ => a.checked_div(b),
            });
        }
        Ok(product)
    }

    fn factor(&mut self) -> Evaluated {
        if self.one_of(['(']).is_some() {
            let inner = self.sum()?;
            return Ok(inner.filter(|_| self.one_of([')']).is_some()));
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':');
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        if word.is_empty() {
            return Ok(None);
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(word.parse().ok());
        }
        if matches!(word, "min" | "max") {
            return self.extreme(word == "min");
        }
        (self.size)(word).map(|size| Some(i128::from(size)))
    }

    /// The smaller or the larger of two sums in parentheses.
    fn extreme(&mut self, least: bool) -> Evaluated {
        let opens = self.one_of(['(']).is_some();
        let first = self.sum()?;
        let divided = self.one_of([',']).is_some();
        let second = self.sum()?;
        let closes = self.one_of([')']).is_some();
        let both = first.zip(second).filter(|_| opens && divided && closes);
        Ok(both.map(|(a, b)| if least { a.min(b) } else { a.max(b) }))
    }

    fn one_of<const N: usize>(&mut self, signs: [char; N]) -> Option<char> {
        let sign = self.rest.chars().next().filter(|sign| signs.contains(sign))?;
        self.rest = self.rest[1..].trim_start();
        Some(sign)
    }
}
