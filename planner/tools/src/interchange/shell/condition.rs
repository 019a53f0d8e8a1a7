//! Tests that decide what a script does, as far as they follow from words that are known.

use super::word::Word;

/// Whether a command does nothing but decide.
pub(super) fn is_test(words: &[Word]) -> bool {
    let deciding = ["[", "[[", "test", "true", "false", ":"];
    let first = words.iter().map(|it| it.text.as_str()).find(|it| *it != "!");
    first.is_some_and(|it| deciding.contains(&it))
}

/// Whether a test holds: `[ .. ]`, `[[ .. ]]`, `test ..`, `true`, `false`. Nothing where that depends on what is not known, such
/// as a file.
pub(super) fn holds(words: &[Word]) -> Option<bool> {
    if words.iter().any(|it| !it.unknown.is_empty()) {
        return None;
    }
    let texts: Vec<&str> = words.iter().map(|it| it.text.as_str()).collect();
    match texts.as_slice() {
        ["!", rest @ ..] => holds(&words[words.len() - rest.len()..]).map(|holds| !holds),
        ["true" | ":"] => Some(true),
        ["false"] => Some(false),
        ["[", inner @ .., "]"] | ["[[", inner @ .., "]]"] | ["test", inner @ ..] => {
            expression(inner)
        }
        _ => None,
    }
}

fn expression(words: &[&str]) -> Option<bool> {
    match *words {
        ["!", ref rest @ ..] => expression(rest).map(|holds| !holds),
        // One word is no word's test, but something itself: a variable of nothing stands behind it.
        ["-n" | "-z"] => Some(true),
        ["-n", word] => Some(!word.is_empty()),
        ["-z", word] => Some(word.is_empty()),
        // A pattern is not matched.
        [_, "=" | "==" | "!=", right] if right.contains(['*', '?', '[']) => None,
        [left, "=" | "==", right] => Some(left == right),
        [left, "!=", right] => Some(left != right),
        [left, operator, right] => {
            let (left, right) = (left.parse::<i64>().ok()?, right.parse::<i64>().ok()?);
            match operator {
                "-eq" => Some(left == right),
                "-ne" => Some(left != right),
                "-lt" => Some(left < right),
                "-le" => Some(left <= right),
                "-gt" => Some(left > right),
                "-ge" => Some(left >= right),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether a word is one of some patterns, if that can be told without matching.
pub(super) fn matches(word: &str, patterns: &[Word]) -> Option<bool> {
    for pattern in patterns {
        match pattern.text.as_str() {
            "*" => return Some(true),
            text if text == word => return Some(true),
            text if text.contains(['*', '?', '[']) => return None,
            _ => {}
        }
    }
    Some(false)
}
