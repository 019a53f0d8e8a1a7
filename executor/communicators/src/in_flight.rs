//! Operations that were started, and may still run on the device.

use std::fmt;

use super::error::Result;

/// Work of a device outside its computation, such as a collective of NCCL, which holds memory until it has ended.
pub trait DeviceWork: Send {
    /// Makes later computation wait for the end of the work. The calling thread does not wait.
    ///
    /// # Errors
    ///
    /// Failures of the library that does the work.
    fn join(self: Box<Self>) -> Result<()>;

    /// True once the work has ended.
    fn is_over(&self) -> bool;
}

/// The result of operations that were started and may still run on the device.
///
/// A device works asynchronously, so the host gets the result at once, as a promise. Computation may read it after
/// [`Self::wait`], which orders computation after the operations.
#[must_use = "computation must be told to wait for the result"]
pub struct InFlight<T> {
    value: T,
    work: Vec<Box<dyn DeviceWork>>,
}

impl<T> InFlight<T> {
    /// The result of operations that have ended.
    pub fn done(value: T) -> Self {
        Self { value, work: Vec::new() }
    }

    /// A result that is valid once `work` has ended.
    pub fn with(value: T, work: Box<dyn DeviceWork>) -> Self {
        Self { value, work: vec![work] }
    }

    /// The result, for computation that is started after this call.
    ///
    /// # Errors
    ///
    /// Failures of the library that does the work.
    pub fn wait(self) -> Result<T> {
        self.work.into_iter().try_for_each(DeviceWork::join)?;
        Ok(self.value)
    }

    /// True if the result needs no waiting.
    pub fn is_done(&self) -> bool {
        self.work.is_empty()
    }

    /// The operations with another view of their result: `view` must not compute, only choose or reshape.
    pub fn map<U>(self, view: impl FnOnce(T) -> U) -> InFlight<U> {
        InFlight { value: view(self.value), work: self.work }
    }

    /// The result of `next`, which is started with this result on the same stream, and so runs after it.
    ///
    /// # Errors
    ///
    /// Failures of `next`.
    pub fn then<U>(self, next: impl FnOnce(T) -> Result<InFlight<U>>) -> Result<InFlight<U>> {
        let InFlight { value, work: later } = next(self.value)?;
        Ok(InFlight { value, work: self.work.into_iter().chain(later).collect() })
    }

    /// One handle for the results of several operations.
    pub fn all(each: Vec<Self>) -> InFlight<Vec<T>> {
        let (value, work): (Vec<T>, Vec<_>) =
            each.into_iter().map(|one| (one.value, one.work)).unzip();
        InFlight { value, work: work.into_iter().flatten().collect() }
    }

    /// The work that produces the result, for callers that only hold its memory.
    pub fn into_work(self) -> Vec<Box<dyn DeviceWork>> {
        self.work
    }
}

impl<T: fmt::Debug> fmt::Debug for InFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("InFlight");
        shown.field("value", &self.value).field("work", &self.work.len()).finish()
    }
}
