//! Times at which a device executed its work.
//!
//! A GPU executes asynchronously: the host's clock shows when a kernel was launched, not when it ran. So the times of a
//! timeline are points in the device's work, which are read at the end of the step.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use ir::units::Nanos;

use crate::lock::lock;

/// A point in a device's work. The device has passed it once all work that was enqueued before it on one of the
/// device's streams is done.
#[derive(Clone)]
pub struct Point(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Point")
    }
}

/// The clock of a device.
pub trait DeviceClock: Send + Sync + fmt::Debug {
    /// A point after all computation that was enqueued on the device so far.
    ///
    /// # Errors
    ///
    /// The message of the device's driver.
    fn point(&self) -> Result<Point, String>;

    /// The time from one point to another, zero if the second comes first. Waits until the device has passed both.
    ///
    /// # Errors
    ///
    /// The message of the device's driver.
    fn between(&self, zero: &Point, point: &Point) -> Result<Nanos, String>;
}

/// The clock of a device that reports no times: a call for a point waits until the device has passed it.
#[derive(Debug)]
pub struct WaitingClock<B: Backend>(pub B::Device);

impl<B: Backend> DeviceClock for WaitingClock<B> {
    fn point(&self) -> Result<Point, String> {
        B::sync(&self.0).map_err(|error| error.to_string())?;
        Ok(Point(Arc::new(now())))
    }

    fn between(&self, zero: &Point, point: &Point) -> Result<Nanos, String> {
        let [zero, point] = [zero, point].map(|Point(at)| {
            *at.downcast_ref::<Instant>().expect("the points of this clock are the host's times")
        });
        Ok(Nanos::new(point.saturating_duration_since(zero).as_nanos() as u64))
    }
}

/// Intervals of a device's work for one event of a timeline. They are recorded only by libraries whose work overlaps
/// with computation.
#[derive(Clone, Debug, Default)]
pub struct Spans(Arc<Mutex<Vec<[Point; 2]>>>);

/// The time by the clock of the host.
#[expect(clippy::disallowed_methods, reason = "the executor measures what it runs")]
pub fn now() -> Instant {
    Instant::now()
}

/// A point in time after which no work is begun and no wait continues.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The deadline `time` from now.
    pub fn after(time: Duration) -> Self {
        Self(now() + time)
    }

    /// Time that is left.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(now())
    }

    /// Returns whether no time is left.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

thread_local! {
    /// The recorder of the work that this thread starts.
    static CURRENT: RefCell<Option<Spans>> = const { RefCell::new(None) };
}

impl Spans {
    /// The recorder of the work that this thread starts; none where no timeline is recorded.
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Option::clone)
    }

    /// Records the work that `run` starts on this thread.
    pub fn note<T>(&self, run: impl FnOnce() -> T) -> T {
        let _restored = Restored(CURRENT.replace(Some(self.clone())));
        run()
    }

    /// Records work from one point to another.
    pub fn add(&self, begin: Point, end: Point) {
        lock(&self.0).push([begin, end]);
    }

    /// Adds all intervals of another recorder.
    pub fn extend(&self, others: &Self) {
        let others = others.all();
        lock(&self.0).extend(others);
    }

    /// All recorded intervals.
    pub fn all(&self) -> Vec<[Point; 2]> {
        lock(&self.0).clone()
    }
}

/// Restores the previous recorder on drop, even if the thread panics.
struct Restored(Option<Spans>);

impl Drop for Restored {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Point, Spans};

    #[test]
    fn spans_are_noted_where_they_are_asked_for() {
        let note = || {
            if let Some(spans) = Spans::current() {
                spans.add(Point(Arc::new(1)), Point(Arc::new(2)));
            }
        };
        note();
        let (outer, inner) = (Spans::default(), Spans::default());
        outer.note(|| {
            note();
            inner.note(|| (note(), note()));
            note();
        });
        note();
        assert_eq!([outer.all().len(), inner.all().len()], [2, 2]);
        outer.extend(&inner);
        assert_eq!(outer.all().len(), 4);
    }
}
