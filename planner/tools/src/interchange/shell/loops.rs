//! Loops whose iterations are known.

use super::continued::starts;
use super::lex::{Token, WordPart};
use super::reader::Reader;
use super::syntax::{Statement, each, has_any};
use super::text::Text;
use super::word::ShellError;

/// Limit of the iterations of a loop.
const MOST_ROUNDS: usize = 1_000;

impl Reader<'_> {
    /// Executes a loop; returns whether its iterations are known. If a loop starts a program until it succeeds, or
    /// forever, the first iteration counts.
    pub(super) fn looped(
        &mut self,
        keyword: &str,
        variable: Option<&str>,
        condition: &[Statement],
        body: &[Statement],
    ) -> Result<bool, ShellError> {
        let is_once = has_any(body, starts);
        let is_early = has_any(body, |it| ends(it, &["break", "exit"]));
        let skips = has_any(body, |it| ends(it, &["continue", "return"]));
        if skips || is_early && !is_once {
            return Ok(false);
        }
        match (keyword, variable) {
            ("for", Some(variable)) => self.over(variable, condition, body, is_early),
            ("for", None) => self.counted(condition, body, is_early),
            _ if has_any(condition, starts) => self.run(condition, false).map(|_| true),
            ("while" | "until", _) => {
                for _ in 0..MOST_ROUNDS {
                    let is_constant = condition.iter().all(|it| {
                        let word = it.tokens().first().and_then(Token::plain);
                        word.is_some_and(|it| ["true", ":", "false"].contains(&it))
                    });
                    match self.holds(condition).map(|it| it == (keyword == "while")) {
                        Some(true) if is_once && (is_early || is_constant) => {
                            return self.once(body);
                        }
                        Some(true) if !is_constant => self.run(body, false)?,
                        Some(false) => {
                            self.declare(body);
                            return Ok(true);
                        }
                        _ => return Ok(false),
                    };
                }
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// Executes one iteration of a loop that may have more: variables that the loop sets are unknown after it.
    fn once(&mut self, body: &[Statement]) -> Result<bool, ShellError> {
        self.run(body, false)?;
        self.because.clear();
        each(body, &mut |tokens| self.assign(tokens, true));
        Ok(true)
    }

    /// Executes the body of a loop for each of its words; returns whether these are known.
    fn over(
        &mut self,
        variable: &str,
        words: &[Statement],
        body: &[Statement],
        is_early: bool,
    ) -> Result<bool, ShellError> {
        let words = self.expanded(words.iter().flat_map(Statement::tokens));
        let is_known = |it: &Text| it.as_known().is_some_and(|it| !it.contains(['*', '?']));
        if !words.iter().all(is_known) || words.len() > MOST_ROUNDS {
            return Ok(false);
        }
        for word in words {
            self.scope.set(variable, word);
            if is_early {
                return self.once(body);
            }
            self.run(body, false)?;
        }
        Ok(true)
    }

    /// Executes the body of a loop of the form `for ((I = 0; I < 4; I++))`; returns whether its iterations are known.
    fn counted(
        &mut self,
        header: &[Statement],
        body: &[Statement],
        is_early: bool,
    ) -> Result<bool, ShellError> {
        let [Token::Word { pieces, .. }] = header[0].tokens() else { return Ok(false) };
        let [WordPart::Truth(text)] = pieces.as_slice() else { return Ok(false) };
        let parts: Vec<&str> = text.split(';').collect();
        let [first, test, step] = parts.as_slice() else { return Ok(false) };
        self.scope.calculate(first);
        for _ in 0..MOST_ROUNDS {
            match self.scope.truth(test).as_known() {
                Some("true") if is_early => return self.once(body),
                Some("true") => self.run(body, false)?,
                Some(_) => return Ok(true),
                None => break,
            };
            self.scope.calculate(step);
        }
        Ok(false)
    }
}

/// Returns whether a command is one of `commands`, which end an iteration or the whole loop.
fn ends(tokens: &[Token], commands: &[&str]) -> bool {
    tokens.first().and_then(Token::plain).is_some_and(|it| commands.contains(&it))
}
