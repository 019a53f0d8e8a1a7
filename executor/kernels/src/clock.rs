//! When a device did what it was asked for.
//!
//! A GPU works through what it is given in its own time: the host's clock tells when a kernel was asked for, and not
//! when it ran. So a timeline is made of points in the device's work, which are read when the step is over.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use burn::tensor::backend::Backend;
use ir::units::Nanos;

use crate::lock::lock;

/// A point in a device's work, which it passes once all is done that was asked of one of its streams before.
#[derive(Clone)]
pub struct Point(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Point")
    }
}

/// The clock of a device.
pub trait DeviceClock: Send + Sync + fmt::Debug {
    /// A point after all that the device was asked to compute so far.
    ///
    /// # Errors
    ///
    /// What the device's driver says.
    fn point(&self) -> Result<Point, String>;

    /// The time from one point to another, zero if that comes before. Waits until the device has passed both.
    ///
    /// # Errors
    ///
    /// What the device's driver says.
    fn between(&self, zero: &Point, point: &Point) -> Result<Nanos, String>;
}

/// The clock of a device that tells no times: whoever asks for a point waits until the device has passed it.
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

/// What a device does for one event of a timeline, from its beginning to its end, as far as libraries note it that
/// work beside computation.
#[derive(Clone, Debug, Default)]
pub struct Spans(Arc<Mutex<Vec<[Point; 2]>>>);

/// The time by the clock of the host.
#[expect(clippy::disallowed_methods, reason = "the executor measures what it runs")]
pub fn now() -> Instant {
    Instant::now()
}

thread_local! {
    /// Where what this thread starts is noted.
    static CURRENT: RefCell<Option<Spans>> = const { RefCell::new(None) };
}

impl Spans {
    /// Where what this thread starts is to be noted; none where nobody asks.
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Option::clone)
    }

    /// Notes here what `run` starts on this thread.
    pub fn note<T>(&self, run: impl FnOnce() -> T) -> T {
        let _restored = Restored(CURRENT.replace(Some(self.clone())));
        run()
    }

    /// Notes work from one point to another.
    pub fn add(&self, begin: Point, end: Point) {
        lock(&self.0).push([begin, end]);
    }

    /// Notes all that was noted there.
    pub fn extend(&self, others: &Self) {
        let others = others.all();
        lock(&self.0).extend(others);
    }

    /// All that was noted.
    pub fn all(&self) -> Vec<[Point; 2]> {
        lock(&self.0).clone()
    }
}

/// Puts back where things were noted before, also where a thread panics.
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
