//! Scripts that a script runs, and files that it writes.

use std::collections::BTreeMap;

use super::super::file::{basename, has_ending};
use super::lex::Token;
use super::reader::{DEEPEST_SCRIPT, Reader};
use super::slurm;
use super::syntax::statements;
use super::text::Text;
use super::word::ShellError;

/// Shells, which run the script in their arguments.
const SHELLS: [&str; 3] = ["bash", "sh", "zsh"];

impl Reader<'_> {
    /// Executes the script that a command runs, or records the file that it writes; returns whether the command does
    /// nothing else.
    pub(super) fn nested(
        &mut self,
        name: &str,
        command: &[Text],
        statement: &[Token],
    ) -> Result<bool, ShellError> {
        let line = statement.first().map_or(0, Token::line);
        let (here, output) = self.redirected(statement);
        match name {
            "eval" => {
                let text = Text::joined(&command[1..], " ");
                self.script_of(&text.source(), line, None)?;
                return Ok(true);
            }
            "source" | "." => {
                if let Some(file) = command.get(1) {
                    let arguments = &command[2..];
                    let arguments = (!arguments.is_empty()).then_some(arguments);
                    self.scope.is_whole &= self.file(file, line, arguments)?;
                }
                return Ok(true);
            }
            "cat" | "tee" | "echo" if here.is_some() || name == "echo" => {
                let file =
                    output.or_else(|| Some(command.get(1).filter(|_| name == "tee")?.word().text));
                let text = here.unwrap_or_else(|| Text::joined(&command[1..], " "));
                if let Some(file) = file {
                    let is_of_keys = ["json", "yaml", "yml"].iter().any(|it| has_ending(&file, it));
                    let text = if is_of_keys { text.of_keys() } else { text.source() };
                    self.script.written.insert(basename(&file).to_owned(), text);
                }
                return Ok(false);
            }
            "sbatch" | "bash" | "sh" if command.len() == 1 || name == "sbatch" => {
                let Some(text) = here else { return Ok(false) };
                let text = text.source();
                self.script.directives.extend(slurm::directives(&text));
                self.in_shell(&[], |reader| reader.script_of(&text, line, None))?;
                return Ok(true);
            }
            _ => {}
        }
        self.shell(command, line)
    }

    /// Input that a here-document gives to a command, and the file to which its output goes.
    pub(super) fn redirected(&mut self, command: &[Token]) -> (Option<Text>, Option<String>) {
        let (mut here, mut output) = (None, None);
        for token in command {
            match token {
                Token::Here { body, .. } => here = Some(self.scope.joined(body)),
                Token::Output { file, .. } => output = Some(self.scope.joined(file).word().text),
                _ => {}
            }
        }
        (here, output)
    }

    /// Records the file that a command writes, if it is unknown whether the command runs. The record counts only if
    /// nothing else writes the file.
    pub(super) fn may_write(&mut self, command: &[Token]) {
        if let (Some(text), Some(file)) = self.redirected(command)
            && let Some(text) = text.as_known()
        {
            let name = basename(&file).to_owned();
            self.script.written.entry(name).or_insert_with(|| text.to_owned());
        }
    }

    /// Executes the script of the shell that a command starts: the text after `-c`, or a file. Returns whether it was
    /// executed.
    fn shell(&mut self, command: &[Text], line: usize) -> Result<bool, ShellError> {
        let texts: Vec<String> = command.iter().map(|it| it.word().text).collect();
        let Some(place) = texts.iter().position(|it| SHELLS.contains(&basename(it))) else {
            return Ok(false);
        };
        let is_option = |it: &&String| it.starts_with('-') && it.len() > 1;
        let options = texts[place + 1..].iter().take_while(is_option);
        let inline = options.clone().position(|it| !it.starts_with("--") && it.ends_with('c'));
        let next = place + 1 + inline.map_or(options.count(), |it| it + 1);
        let next = next + usize::from(texts.get(next).is_some_and(|it| it == "--"));
        let Some(script) = command.get(next) else { return Ok(false) };
        // The words after the script are its arguments; after `-c` and its text, the first word is the name instead.
        let from = (next + 1 + usize::from(inline.is_some())).min(command.len());
        let arguments = command[from..].to_vec();
        let before = &command[..place];
        if inline.is_some() {
            let text = script.source();
            // A text in double quotes refers to the enclosing script's arguments; those that are unknown are not
            // expanded yet.
            let arguments = (!arguments.is_empty()).then_some(arguments.as_slice());
            self.in_shell(before, |reader| reader.script_of(&text, line, arguments))?;
            return Ok(true);
        }
        let script = script.clone();
        self.in_shell(before, |reader| reader.file(&script, line, Some(&arguments)))
    }

    /// Executes the statements of a shell that a command starts; variables that these set end with the shell. Variables
    /// count even if they are not exported, since a missing export is not a fault of the settings.
    fn in_shell<T>(
        &mut self,
        before: &[Text],
        run: impl FnOnce(&mut Self) -> Result<T, ShellError>,
    ) -> Result<T, ShellError> {
        let outer = (self.scope.clone(), self.before.len());
        for (name, value) in passed(before) {
            self.scope.set(&name, value);
        }
        self.before.extend(before.iter().cloned());
        let result = run(self);
        self.scope.restore(outer.0);
        self.before.truncate(outer.1);
        result
    }

    /// Executes a file, if it is known; returns whether it is.
    fn file(
        &mut self,
        file: &Text,
        line: usize,
        arguments: Option<&[Text]>,
    ) -> Result<bool, ShellError> {
        let path = file.word().text;
        let files = self.files;
        let written = self.script.written.get(basename(&path)).cloned();
        let text = written.or_else(|| files.get(basename(&path)).cloned());
        self.script.runs.insert(path);
        let Some(text) = text else { return Ok(false) };
        self.script_of(&text, line, arguments)?;
        Ok(true)
    }

    /// Executes the text of a script that a line runs, with its own arguments or those of the enclosing script.
    fn script_of(
        &mut self,
        text: &str,
        line: usize,
        arguments: Option<&[Text]>,
    ) -> Result<(), ShellError> {
        if self.depth > DEEPEST_SCRIPT {
            return Err(ShellError::Endless { line });
        }
        let statements = statements(text)?;
        let outer = (std::mem::replace(&mut self.text, text.into()), self.started, self.ended);
        let before = arguments.map(|it| self.scope.with_arguments(Some(it.to_vec())));
        self.started.get_or_insert(line);
        let result = self.run(&statements, false);
        if let Some(before) = before {
            self.scope.with_arguments(before);
        }
        (self.text, self.started, self.ended) = outer;
        result.map(drop)
    }
}

/// Variables that `srun --export` passes.
fn passed(words: &[Text]) -> BTreeMap<String, Text> {
    let of_one =
        |it: &str| it.split_once('=').map(|(name, value)| (name.to_owned(), Text::known(value)));
    let lists = words.iter().filter_map(|word| word.as_known()?.strip_prefix("--export="));
    lists.flat_map(|list| list.split(',')).filter_map(of_one).collect()
}
