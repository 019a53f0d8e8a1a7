//! What was started, and may not have ended.

use std::fmt;

use super::error::CommunicationError;

/// Work beside computation that still reads or writes memory of its own.
pub trait Underway: Send {
    /// Has computation that is started from now on wait for its end. The calling thread does not wait.
    ///
    /// # Errors
    ///
    /// Those of the library that does it.
    fn join(self: Box<Self>) -> Result<(), CommunicationError>;

    /// Whether it has ended.
    fn is_over(&self) -> bool;
}

/// Something that comes beside computation. It is handed out once computation has been told to wait for it.
///
/// A device works through what it was given in its own time: what is here is a promise among threads of the
/// host, and an order on the device.
#[must_use = "what comes must be waited for"]
pub struct Arriving<T> {
    value: T,
    underway: Vec<Box<dyn Underway>>,
}

impl<T> Arriving<T> {
    /// What is here already.
    pub fn here(value: T) -> Self {
        Self { value, underway: Vec::new() }
    }

    /// What comes with the end of some work.
    pub fn with(value: T, underway: Box<dyn Underway>) -> Self {
        Self { value, underway: vec![underway] }
    }

    /// The thing, which may be read by any computation that is started from now on.
    ///
    /// # Errors
    ///
    /// Those of the library that brings it.
    pub fn wait(self) -> Result<T, CommunicationError> {
        for underway in self.underway {
            underway.join()?;
        }
        Ok(self.value)
    }

    /// Whether it is here already.
    pub fn is_here(&self) -> bool {
        self.underway.is_empty()
    }

    /// The same with what `pick` makes of it, which must not compute: only choose, or name anew.
    pub fn map<U>(self, pick: impl FnOnce(T) -> U) -> Arriving<U> {
        Arriving { value: pick(self.value), underway: self.underway }
    }

    /// What `next` starts with it on the stream on which it comes, and which so comes after it.
    ///
    /// # Errors
    ///
    /// Those of `next`.
    pub fn then<U>(
        self,
        next: impl FnOnce(T) -> Result<Arriving<U>, CommunicationError>,
    ) -> Result<Arriving<U>, CommunicationError> {
        let Arriving { value, underway: after } = next(self.value)?;
        let underway = self.underway.into_iter().chain(after).collect();
        Ok(Arriving { value, underway })
    }

    /// All of them as one.
    pub fn all(each: Vec<Self>) -> Arriving<Vec<T>> {
        let mut underway = Vec::new();
        let values = each
            .into_iter()
            .map(|one| {
                underway.extend(one.underway);
                one.value
            })
            .collect();
        Arriving { value: values, underway }
    }

    /// The work that brings it, for who wants no more than to keep its memory.
    pub fn into_underway(self) -> Vec<Box<dyn Underway>> {
        self.underway
    }
}

impl<T: fmt::Debug> fmt::Debug for Arriving<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Arriving");
        shown.field("value", &self.value).field("underway", &self.underway.len()).finish()
    }
}
