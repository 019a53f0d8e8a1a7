//! Processes with a time limit: their output while they run, and their exit.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use executor_kernels::clock::Deadline;

/// Exit of the processes of one job.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Lines of the first process's stdout.
    pub(super) lines: Vec<String>,
    /// Failure of the job, if it failed.
    pub(super) failure: Option<Failure>,
}

/// Failure of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The job was ended at its time limit.
    TooLong,
    /// A process failed, with this exit code if it has one, and this on stderr.
    Ended { code: Option<i32>, stderr: String },
}

/// Interval at which processes are polled.
const LOOK: Duration = Duration::from_millis(20);

/// Time limit of the other processes after the first one ends.
const TOGETHER: Duration = Duration::from_secs(20);

/// Runs a job to its end, or to its time limit. `heard` is called with each line of the first process as it comes.
pub(super) fn run(
    commands: Vec<Command>,
    limit: Duration,
    heard: impl FnMut(&str),
) -> anyhow::Result<Ended> {
    run_by_turns(commands, limit, Duration::ZERO, heard)
}

/// [`run`] for processes that do one piece of work for each line on stdin; after each, the first process writes a line.
/// All of them get lines until `turns` is over, so they end together.
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
                // The receiver may be gone.
                if nth == 0 && send.send(line).is_err() {
                    return;
                }
            }
        });
        errors.push(thread::spawn(move || {
            let mut text = Vec::new();
            // An incomplete text suffices.
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
    // Among failed processes, one with an error message tells most.
    let failed = codes.iter().zip(&errors).filter(|(code, _)| **code != Some(0));
    let failed = failed.max_by_key(|(_, stderr)| stderr.contains("error: "));
    ended.failure = match failed {
        _ if is_too_long => Some(Failure::TooLong),
        Some((code, stderr)) => Some(Failure::Ended { code: *code, stderr: stderr.clone() }),
        None => None,
    };
    Ok(ended)
}

/// Lines for the stdin of processes, until a deadline.
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
            // A write fails where a process has ended, which is noticed elsewhere.
            let _ = stdin.write_all(b"\n").and_then(|()| stdin.flush());
        }
    }
}

/// Processes that are killed when this is dropped.
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
            // Killing fails where a process has ended.
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
    /// The error that the process printed, or else a description of its exit.
    pub(super) fn message(&self) -> String {
        let (code, stderr) = match self {
            Self::TooLong => return "it did not end in time".to_owned(),
            Self::Ended { code, stderr } => (code, stderr),
        };
        if let Some((_, error)) = stderr.split_once("error: ").filter(|_| *code == Some(2)) {
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
