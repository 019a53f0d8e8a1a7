//! Token ranges of a script's parts: branches, functions, subshells.

use std::ops::Range;

use super::lex::{Break, Token};

/// Branches of the `if` at the start of a range (`else` has an empty condition), and the first token after its `fi`.
pub(super) fn branches(tokens: &[Token], range: Range<usize>) -> Option<(Vec<Branch>, usize)> {
    if tokens[range.start].keyword() != Some("if") {
        return None;
    }
    let mut parts: Vec<Branch> = Vec::new();
    let mut depth = 0usize;
    let mut starts = true;
    let mut from = range.start + 1;
    let mut condition = from..from;
    for (place, token) in tokens.iter().enumerate().take(range.end).skip(from) {
        if token.is_end() {
            starts = true;
            continue;
        }
        let word = token.plain().filter(|_| starts).unwrap_or_default();
        starts = ["then", "do", "else", "elif", "{"].contains(&word);
        match (word, depth) {
            ("if" | "for" | "while" | "until" | "case", _) => depth += 1,
            ("fi" | "done" | "esac", 1..) => depth -= 1,
            ("then", 0) => {
                condition = from..place;
                from = place + 1;
            }
            ("elif", 0) => {
                parts.push((condition.clone(), from..place));
                from = place + 1;
            }
            ("else", 0) => {
                parts.push((condition, from..place));
                condition = place..place;
                from = place + 1;
            }
            ("fi", 0) => {
                parts.push((condition, from..place));
                return Some((parts, place + 1));
            }
            _ => {}
        }
    }
    None
}

/// Token ranges of a branch's condition or patterns, and of its commands.
pub(super) type Branch = (Range<usize>, Range<usize>);

/// Name and body of a function that is defined at the start of a range.
pub(super) fn function(tokens: &[Token], range: Range<usize>) -> Option<(&str, Range<usize>)> {
    let tokens = &tokens[..range.end];
    let mut at = range.start;
    let first = tokens.get(at)?.plain()?;
    let is_named = first == "function";
    at += usize::from(is_named);
    let name = tokens.get(at)?.plain()?;
    at += 1;
    let by = |place: usize| tokens.get(place).and_then(Token::ends_by);
    let has_brackets = by(at) == Some(Break::Open) && by(at + 1) == Some(Break::Close);
    if !(is_named || has_brackets) {
        return None;
    }
    at += if has_brackets { 2 } else { 0 };
    while by(at) == Some(Break::Plain) {
        at += 1;
    }
    if tokens.get(at)?.plain()? != "{" {
        return None;
    }
    let start = at + 1;
    let mut depth = 1;
    for (place, token) in tokens.iter().enumerate().skip(start) {
        match token.plain() {
            Some("{") => depth += 1,
            Some("}") => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((name, start..place));
        }
    }
    None
}

/// Index of the bracket that closes the one at the start of a range, or the range's end.
pub(super) fn closing(tokens: &[Token], range: Range<usize>) -> usize {
    let mut depth = 0usize;
    for place in range.clone() {
        match tokens[place].ends_by() {
            Some(Break::Open) => depth += 1,
            Some(Break::Close) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return place;
        }
    }
    range.end
}

/// Branches of the `case` at the start of a range, each with its patterns, and the first token after its `esac`.
pub(super) fn cases(tokens: &[Token], range: Range<usize>) -> Option<(Vec<Branch>, usize)> {
    let is_in = tokens.get(range.start + 2)?.plain() == Some("in");
    if tokens[range.start].keyword() != Some("case") || !is_in {
        return None;
    }
    let mut parts: Vec<Branch> = Vec::new();
    let mut depth = 0usize;
    let mut starts = true;
    let mut from = range.start + 3;
    let mut patterns: Option<Range<usize>> = None;
    for (place, token) in tokens.iter().enumerate().take(range.end).skip(from) {
        let word = token.plain().filter(|_| starts).unwrap_or_default();
        let by = token.ends_by();
        match (&patterns, by, word) {
            (_, None, "esac") if depth == 0 => {
                parts.extend(patterns.map(|it| (it, from..place)));
                return Some((parts, place + 1));
            }
            (None, Some(Break::Close), _) => {
                patterns = Some(from..place);
                from = place + 1;
            }
            (Some(_), Some(Break::Case), _) if depth == 0 => {
                parts.extend(patterns.take().map(|it| (it, from..place)));
                from = place + 1;
            }
            (Some(_), None, "case") => depth += 1,
            (Some(_), None, "esac") => depth -= 1,
            _ => {}
        }
        starts = by.is_some() || ["then", "do", "else", "elif", "{"].contains(&word);
    }
    None
}

/// Variable, words and body of the `for NAME in WORDS` at the start of some tokens, and the first token after its
/// `done`. `None` if it is no such loop, or one that may end early.
pub(super) fn over(tokens: &[Token]) -> Option<(&str, Range<usize>, Range<usize>, usize)> {
    if tokens.first()?.plain() != Some("for") || tokens.get(2)?.plain() != Some("in") {
        return None;
    }
    let name = tokens.get(1)?.plain()?;
    let end = tokens.iter().position(Token::is_end)?;
    let start = tokens.iter().skip(end).position(|it| !it.is_end())? + end;
    if tokens[start].plain() != Some("do") {
        return None;
    }
    let mut depth = 0usize;
    let mut starts = true;
    for (place, token) in tokens.iter().enumerate().skip(start + 1) {
        let word = token.plain().filter(|_| starts).unwrap_or_default();
        match (word, depth) {
            ("break" | "continue" | "return" | "exit", _) => return None,
            ("done", 0) => return Some((name, 3..end, start + 1..place, place + 1)),
            ("for" | "while" | "until", _) => depth += 1,
            ("done", _) => depth -= 1,
            _ => {}
        }
        starts = token.is_end() || ["then", "do", "else", "elif", "{"].contains(&word);
    }
    None
}
