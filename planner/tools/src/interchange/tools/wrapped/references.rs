//! Values in files that refer to other values, in the notation of Hydra and OmegaConf: `${a.b}`, `${.sibling}`,
//! `${multiply:4, ${.b}}`; and `${NAME:default}` for an environment variable.

use std::collections::BTreeMap;

use crate::interchange::shell::Word;

/// Values by their keys.
pub(super) type Values = BTreeMap<String, Vec<String>>;

/// Largest number of references that are followed in a row, so that circular ones end.
const MOST_DEPTH: usize = 16;

/// Value of a key, with its references resolved; a reference to a key that is not in the file is unknown.
pub(super) fn value(text: &str, key: &str, all: &Values) -> Word {
    match inner(text) {
        None => Word::known(text),
        Some(reference) => match resolved(text, key, all, MOST_DEPTH) {
            Some(value) => Word::known(&value),
            None => Word {
                text: String::new(),
                unknown: std::iter::once(reference.to_owned()).collect(),
            },
        },
    }
}

fn inner(text: &str) -> Option<&str> {
    text.trim().strip_prefix("${").and_then(|it| it.strip_suffix('}'))
}

fn resolved(text: &str, key: &str, all: &Values, depth: usize) -> Option<String> {
    let Some(reference) = inner(text) else { return Some(text.trim().to_owned()) };
    let depth = depth.checked_sub(1)?;
    if let Some(factors) = reference.strip_prefix("multiply:") {
        let number = |it: &str| resolved(it, key, all, depth)?.parse::<u64>().ok();
        let product = factors.split(',').try_fold(1u64, |all, it| all.checked_mul(number(it)?));
        return product.map(|it| it.to_string());
    }
    if let Some((_, usual)) = reference.split_once(':') {
        return Some(usual.to_owned());
    }
    let path = match reference.strip_prefix('.') {
        Some(sibling) => {
            key.rsplit_once('.').map_or(sibling.to_owned(), |it| format!("{}.{sibling}", it.0))
        }
        None => reference.to_owned(),
    };
    match all.get(&path)?.as_slice() {
        [one] => resolved(one, &path, all, depth),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_followed_within_a_file() {
        let all =
            [("a.b", "64"), ("a.c", "${.b}"), ("a.d", "${a.d}"), ("a.e", "${multiply:4, ${.c}}")];
        let all = all.map(|(key, value)| (key.to_owned(), vec![value.to_owned()])).into();
        let text = |text: &str| {
            let word = value(text, "a.x", &all);
            word.text + &word.unknown.into_iter().collect::<String>()
        };
        for (given, meant) in [
            ("7", "7"),
            ("${.b}", "64"),
            ("${a.c}", "64"),
            ("${multiply:4, ${.b}}", "256"),
            ("${a.e}", "256"),
            ("${HOSTS:8}", "8"),
            ("${a.d}", "a.d"),
            ("${elsewhere}", "elsewhere"),
        ] {
            assert_eq!(text(given), meant, "{given}");
        }
    }
}
