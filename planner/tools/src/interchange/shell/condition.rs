//! Tests in a script, evaluated where all their words are known.

use super::pattern;
use super::text::Text;

/// Returns whether a command is a test without side effects.
pub(super) fn is_test(words: &[Text]) -> bool {
    let deciding = ["[", "[[", "test", "true", "false", ":"];
    let first = words.iter().map(|it| it.as_known().unwrap_or_default()).find(|it| *it != "!");
    first.is_some_and(|it| deciding.contains(&it))
}

/// Evaluates a test (`[ .. ]`, `[[ .. ]]`, `test ..`, `true`, `false`). `None` where the result is unknown, such as for
/// a file test.
pub(super) fn holds(words: &[Text]) -> Option<bool> {
    let texts: Vec<&str> = words.iter().map(Text::as_known).collect::<Option<_>>()?;
    let (is_negated, texts) = without_negations(&texts);
    let holds = match texts {
        ["true" | ":"] => Some(true),
        ["false"] => Some(false),
        ["[[", left, "=~", right @ .., "]]"] => pattern::is_found(&right.concat(), left),
        ["[[", left, sign @ ("=" | "==" | "!="), right, "]]"] if right.contains(PATTERN) => {
            pattern::matches(right, left).map(|it| it == (*sign != "!="))
        }
        ["[", inner @ .., "]"] | ["[[", inner @ .., "]]"] | ["test", inner @ ..] => {
            expression(inner)
        }
        _ => None,
    };
    holds.map(|it| it != is_negated)
}

/// The words without leading `!`s, and whether these negate the result.
fn without_negations<'a, 'w>(words: &'a [&'w str]) -> (bool, &'a [&'w str]) {
    let count = words.iter().take_while(|it| **it == "!").count();
    (count % 2 == 1, &words[count..])
}

fn expression(words: &[&str]) -> Option<bool> {
    let (is_negated, words) = without_negations(words);
    let holds = match *words {
        // A test of one word: `-n` alone remains if its operand was an empty unquoted variable.
        [] => Some(false),
        [word] if !word.contains(PATTERN) => Some(!word.is_empty()),
        ["-n", word] => Some(!word.is_empty()),
        ["-z", word] => Some(word.is_empty()),
        // A pattern of file names.
        [_, "=" | "==" | "!=", right] if right.contains(PATTERN) => None,
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
    };
    holds.map(|it| it != is_negated)
}

/// Characters of patterns.
const PATTERN: [char; 3] = ['*', '?', '['];

/// Returns whether a word matches any of some patterns; `None` if that is unknown.
pub(super) fn matches(word: &str, patterns: &[Text]) -> Option<bool> {
    for pattern in patterns {
        match pattern.as_known()? {
            "*" => return Some(true),
            text if text == word => return Some(true),
            text if text.contains(PATTERN) && pattern::matches(text, word)? => return Some(true),
            _ => {}
        }
    }
    Some(false)
}
