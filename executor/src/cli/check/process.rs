//! Processes that are given some time: what they print while they have it, and how they end.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use executor::check::Deadline;

/// How several processes ended that are one job.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// What the first wrote to stdout, line by line.
    pub(super) lines: Vec<String>,
    /// Why it did not end well, if it did not.
    pub(super) failure: Option<Failure>,
}

/// Why a job did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It had to be ended.
    TooLong,
    /// A process ended in another way than it should have, with this code if it has one, and this on stderr.
    Ended { code: Option<i32>, stderr: String },
}

/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Processes end within so long of the first that does.
const TOGETHER: Duration = Duration::from_secs(20);

/// Runs a job to its end, or to the end of `limit`. `heard` is told every line of the first process as it comes.
pub(super) fn run(
    commands: Vec<Command>,
    limit: Duration,
    heard: impl FnMut(&str),
) -> anyhow::Result<Ended> {
    run_by_turns(commands, limit, Duration::ZERO, heard)
}

/// The same, for processes that do something for each line that they read, of which the first then writes one: all of
/// them are given lines for as long as `turns`, and so end together.
pub(super) fn run_by_turns(
    commands: Vec<Command>,
    limit: Duration,
    turns: Duration,
    mut heard: impl FnMut(&str),
) -> anyhow::Result<Ended> {
    let mut job = Job(Vec::new());
    for mut command in commands {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = command.spawn();
        job.0.push(
            started.with_context(|| format!("starting `{}`", command.get_program().display()))?,
        );
    }
    let (send, receive) = channel();
    let mut errors = Vec::new();
    for (nth, child) in job.0.iter_mut().enumerate() {
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let send = send.clone();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Who asked may have stopped listening.
                if nth == 0 && send.send(line).is_err() {
                    return;
                }
            }
        });
        errors.push(thread::spawn(move || {
            let mut text = Vec::new();
            // What could be read is enough.
            let _ = BufReader::new(stderr).read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        }));
    }
    drop(send);
    let stdins = job.0.iter_mut().filter_map(|child| child.stdin.take()).collect();
    let mut turns = Turns { stdins, deadline: Deadline::after(turns) };
    turns.give();
    let mut ended = Ended::default();
    let mut deadline = Deadline::after(limit);
    let mut is_ending = false;
    let is_too_long = loop {
        match receive.recv_timeout(LOOK) {
            Ok(line) => {
                heard(&line);
                ended.lines.push(line);
                turns.give();
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let count = job.num_ended()?;
        if count == job.0.len() {
            break false;
        }
        if count > 0 && !is_ending {
            is_ending = true;
            deadline = Deadline::after(deadline.left().min(TOGETHER));
        }
        if deadline.is_over() {
            break true;
        }
    };
    job.end();
    for line in receive.try_iter() {
        heard(&line);
        ended.lines.push(line);
    }
    let codes = job.0.iter_mut().map(|child| child.wait().map(|status| status.code()));
    let codes = codes.collect::<Result<Vec<_>, _>>()?;
    let errors: Vec<String> = errors.into_iter().map(|it| it.join().unwrap_or_default()).collect();
    // Of those that failed, one that said why says most.
    let failed = codes.iter().zip(&errors).filter(|(code, _)| **code != Some(0));
    let failed = failed.max_by_key(|(_, stderr)| stderr.contains("error: "));
    ended.failure = match failed {
        _ if is_too_long => Some(Failure::TooLong),
        Some((code, stderr)) => Some(Failure::Ended { code: *code, stderr: stderr.clone() }),
        None => None,
    };
    Ok(ended)
}

/// Lines for processes to read, until there is no time for more.
struct Turns {
    stdins: Vec<ChildStdin>,
    deadline: Deadline,
}

impl Turns {
    fn give(&mut self) {
        if self.deadline.is_over() {
            return self.stdins.clear();
        }
        for stdin in &mut self.stdins {
            // One that reads no more has ended, which is seen elsewhere.
            let _ = stdin.write_all(b"\n").and_then(|()| stdin.flush());
        }
    }
}

/// Processes, ended when nobody waits for them any more.
struct Job(Vec<Child>);

impl Job {
    fn num_ended(&mut self) -> anyhow::Result<usize> {
        let mut count = 0;
        for child in &mut self.0 {
            count += usize::from(child.try_wait()?.is_some());
        }
        Ok(count)
    }

    fn end(&mut self) {
        for child in &mut self.0 {
            // One that has ended cannot be killed.
            let _ = child.kill();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.end();
    }
}

impl Failure {
    /// What the process itself called its error, or what else there is to say.
    pub(super) fn message(&self) -> String {
        let (code, stderr) = match self {
            Self::TooLong => return "it did not end in time".to_owned(),
            Self::Ended { code, stderr } => (code, stderr),
        };
        if let Some(error) = stderr.split("error: ").nth(1).filter(|_| *code == Some(2)) {
            return error.trim().to_owned();
        }
        let how = match code {
            Some(code) => format!("it ended with code {code}"),
            None => "it was ended by a signal".to_owned(),
        };
        let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or(how.clone(), |last| format!("{how}: {}", last.trim()))
    }
}

#[cfg(all(test, unix))]
mod tests;
