//! Patterns of scripts, as tests, branches and expansions match them.

use regex_lite::{NoExpand, Regex};

/// Regular expression for a pattern with `*`, `?` and `[..]`; `None` if the pattern has other syntax.
fn expression(pattern: &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '@' | '+' | '!' | '*' | '?' if chars.peek() == Some(&'(') => return None,
            '*' => text.push_str(".*"),
            '?' => text.push('.'),
            '[' => {
                text.push('[');
                if chars.next_if(|it| ['!', '^'].contains(it)).is_some() {
                    text.push('^');
                }
                let inner: String = chars.by_ref().take_while(|it| *it != ']').collect();
                text.push_str(&inner.replace('\\', "\\\\").replace('[', "\\["));
                text.push(']');
            }
            '\\' => text.push_str(&regex_lite::escape(&chars.next()?.to_string())),
            c => text.push_str(&regex_lite::escape(&c.to_string())),
        }
    }
    Some(text)
}

/// Regular expression that matches a pattern from end to end; `None` if the pattern is not supported.
fn whole(pattern: &str) -> Option<Regex> {
    Regex::new(&format!("(?s)^(?:{})$", expression(pattern)?)).ok()
}

/// Returns whether a text matches a whole pattern; `None` if that is unknown.
pub(super) fn matches(pattern: &str, text: &str) -> Option<bool> {
    whole(pattern).map(|it| it.is_match(text))
}

/// Returns whether a regular expression is found in a text; `None` if it cannot be read.
pub(super) fn is_found(expression: &str, text: &str) -> Option<bool> {
    Regex::new(expression).ok().map(|it| it.is_match(text))
}

/// Operators that remove the part that matches a pattern; whether from the front, and whether the longest match.
const REMOVING: [(&str, bool, bool); 4] =
    [("##", true, true), ("#", true, false), ("%%", false, true), ("%", false, false)];

/// A value changed by an expansion: `##PATTERN`, `%PATTERN`, `//PATTERN/TEXT`, `:FROM:COUNT`, `,,` and the like; `None`
/// for an unknown operator.
pub(super) fn changed(value: &str, operator: &str) -> Option<String> {
    match operator {
        "^^" => return Some(value.to_uppercase()),
        ",," => return Some(value.to_lowercase()),
        _ => {}
    }
    for (prefix, is_front, is_longest) in REMOVING {
        let Some(pattern) = operator.strip_prefix(prefix) else { continue };
        let whole = whole(pattern)?;
        let mut places = value.char_indices().map(|it| it.0).chain([value.len()]);
        let left = if is_front {
            let fits = |at: &usize| whole.is_match(&value[..*at]);
            let end = if is_longest { places.rfind(fits) } else { places.find(fits) };
            &value[end.unwrap_or(0)..]
        } else {
            let fits = |at: &usize| whole.is_match(&value[*at..]);
            let start = if is_longest { places.find(fits) } else { places.rfind(fits) };
            &value[..start.unwrap_or(value.len())]
        };
        return Some(left.to_owned());
    }
    if let Some(rest) = operator.strip_prefix('/') {
        let (is_all, rest) = rest.strip_prefix('/').map_or((false, rest), |it| (true, it));
        let (pattern, text) = rest.split_once('/').unwrap_or((rest, ""));
        if pattern.is_empty() || pattern.starts_with(['#', '%']) {
            return None;
        }
        let pattern = Regex::new(&format!("(?s){}", expression(pattern)?)).ok()?;
        let most = usize::from(!is_all);
        return Some(pattern.replacen(value, most, NoExpand(text)).into_owned());
    }
    let (from, count) = match operator.strip_prefix(':')?.split_once(':') {
        Some((from, count)) => (from, count.trim().parse().ok()?),
        None => (&operator[1..], usize::MAX),
    };
    Some(value.chars().skip(from.trim().parse().ok()?).take(count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansions_change_values_as_a_shell_does() {
        for (operator, result) in [
            ("##*_", "c.sh"),
            ("#*_", "b_c.sh"),
            ("%%_*", "a"),
            ("%_*", "a_b"),
            ("%.[a-z]h", "a_b_c"),
            ("%x", "a_b_c.sh"),
            ("/_/-", "a-b_c.sh"),
            ("//_/-", "a-b-c.sh"),
            ("//[!a-c]", "abc"),
            (":2:3", "b_c"),
            (":4", "c.sh"),
            ("^^", "A_B_C.SH"),
        ] {
            assert_eq!(changed("a_b_c.sh", operator).as_deref(), Some(result), "{operator}");
        }
        for other in ["#@(a|b)", "/#a/b", ":x", "@Q"] {
            assert_eq!(changed("a", other), None, "{other}");
        }
        assert_eq!(matches("*70b*", "llama-70b-chat"), Some(true));
        assert_eq!(matches("70b", "llama-70b"), Some(false));
    }
}
