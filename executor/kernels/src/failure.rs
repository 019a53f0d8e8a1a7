//! Devices that fail.
//!
//! burn tells of it in two ways: who reads an array is told, sometimes; and the thread that serves a device panics,
//! which those that ask it for more are not told. So what such a thread says is noted, and whoever reads an array
//! afterwards fails by it: what it would read is not what was computed.

use std::any::Any;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::OnceLock;

/// What failed first.
static FIRST: OnceLock<DeviceFailure> = OnceLock::new();

/// What a device, or burn's thread that serves it, said when it failed. Programs of ranks end with it by a panic that
/// prints nothing: it is told once, by who runs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFailure(String);

impl DeviceFailure {
    /// A failure by what was said of it: its causes, each of which burn puts on lines of its own, in one line.
    pub fn new(said: &str) -> Self {
        let said = said.trim_start_matches("called `Result::unwrap()` on an `Err` value: ");
        let told = said.lines().map(str::trim).take_while(|line| !line.starts_with("Backtrace"));
        let told = told.filter(|line| !line.is_empty() && *line != "Caused by:");
        Self(told.map(|line| line.trim_end_matches(':')).collect::<Vec<_>>().join(": "))
    }

    /// That of a panic, if it was one.
    pub fn of(panic: &(dyn Any + Send)) -> Option<&Self> {
        panic.downcast_ref()
    }

    /// Notes a failure; the first stays.
    pub fn note(self) {
        let _ = FIRST.set(self);
    }

    /// That which was noted.
    pub fn noted() -> Option<&'static Self> {
        FIRST.get()
    }

    /// Ends the program of a rank, or another job that is waited for, with the failure.
    pub fn raise(self) -> ! {
        resume_unwind(Box::new(self))
    }
}

impl fmt::Display for DeviceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a GPU has failed: {}", self.0)
    }
}

/// The reason why a device, or a library for it, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

impl DeviceError {
    /// The error of what has failed, from what was said of it.
    pub fn of<E: fmt::Display>(failed: &str) -> impl Fn(E) -> Self {
        move |said| Self(format!("{failed}: {said}"))
    }
}

/// What a device gave, unless it or what serves it has failed: then the program of the rank ends.
pub fn unless_failed<T, E: fmt::Display>(given: Result<T, E>) -> T {
    if let Some(noted) = DeviceFailure::noted() {
        noted.clone().raise();
    }
    given.unwrap_or_else(|error| DeviceFailure::new(&error.to_string()).raise())
}

#[cfg(test)]
mod tests {
    use super::DeviceFailure;

    #[test]
    fn causes_are_told_in_a_line() {
        let said = "An error happened during execution\nCaused by:\n  The server is in an invalid state\nCaused by:\n  \
                    [Launch(An unknown error happened during launch\nCaused by:\n  DriverError(700)\nBacktrace\nNone)]";
        assert_eq!(
            DeviceFailure::new(said).to_string(),
            "a GPU has failed: An error happened during execution: The server is in an invalid state: [Launch(An unknown \
             error happened during launch: DriverError(700)"
        );
    }
}
