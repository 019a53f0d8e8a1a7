//! Devices that fail.
//!
//! burn reports a failure in two ways: as the error of a read, or by a panic of the thread that serves the device.
//! Later callers are not informed of the panic. So the thread's message is recorded, and every later read of an array
//! fails with it, because the array does not hold what should have been computed.

use std::any::Any;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::OnceLock;

/// The first failure.
static FIRST: OnceLock<DeviceFailure> = OnceLock::new();

/// Message of a device, or of burn's thread that serves the device, when it failed. A rank's program then ends by a
/// panic that carries this message and prints nothing: the code that runs the program reports the message once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFailure(String);

impl DeviceFailure {
    /// A failure from burn's message. burn prints each cause on separate lines; here all causes are joined in one line.
    pub fn new(message: &str) -> Self {
        let message = message.trim_start_matches("called `Result::unwrap()` on an `Err` value: ");
        let lines =
            message.lines().map(str::trim).take_while(|line| !line.starts_with("Backtrace"));
        let lines = lines.filter(|line| !line.is_empty() && *line != "Caused by:");
        Self(lines.map(|line| line.trim_end_matches(':')).collect::<Vec<_>>().join(": "))
    }

    /// The failure that a panic carries, if it carries one.
    pub fn of(panic: &(dyn Any + Send)) -> Option<&Self> {
        panic.downcast_ref()
    }

    /// Records a failure, unless one was recorded before.
    pub fn note(self) {
        let _ = FIRST.set(self);
    }

    /// The recorded failure.
    pub fn noted() -> Option<&'static Self> {
        FIRST.get()
    }

    /// Ends the program of a rank, or another job that a thread joins, with the failure.
    pub fn raise(self) -> ! {
        resume_unwind(Box::new(self))
    }
}

impl fmt::Display for DeviceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a GPU has failed: {}", self.0)
    }
}

/// Message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .or_else(|| DeviceFailure::of(panic).map(DeviceFailure::to_string))
        .unwrap_or_else(|| "no message".to_owned())
}

/// The reason why a device, or a library for it, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

impl DeviceError {
    /// An error from the start of its message, which says what has failed, and the message of the failure.
    pub fn of<E: fmt::Display>(failed: &str) -> impl Fn(E) -> Self {
        move |said| Self(format!("{failed}: {said}"))
    }
}

/// The value that a device returned. If the device or the thread that serves it has failed, the program of the rank
/// ends.
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
