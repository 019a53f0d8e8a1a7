//! The clock of a GPU: events on its streams.

use std::sync::Arc;

use burn_cuda::CudaDevice;
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, DriverError};
use ir::units::Nanos;

use super::compute_stream::ComputeStream;
use super::context_of;
use crate::clock::{DeviceClock, Point};

/// Flags of events that record times.
pub const TIMED: CUevent_flags = CUevent_flags::CU_EVENT_DEFAULT;

/// The clock of a GPU.
#[derive(Debug)]
pub struct CudaClock {
    compute: ComputeStream,
}

impl CudaClock {
    /// The clock of a GPU, one of [`devices`](super::devices).
    ///
    /// # Errors
    ///
    /// The driver's message.
    pub fn of(device: &CudaDevice) -> Result<Self, String> {
        let context = context_of(device).map_err(of_driver)?;
        let compute = ComputeStream::of(device, context).map_err(|error| error.to_string())?;
        Ok(Self { compute })
    }
}

impl DeviceClock for CudaClock {
    fn point(&self) -> Result<Point, String> {
        let event = self.compute.passed(Some(TIMED)).map_err(of_driver)?;
        Ok(Point(Arc::new(event)))
    }

    fn between(&self, zero: &Point, point: &Point) -> Result<Nanos, String> {
        let milliseconds = event(zero).elapsed_ms(event(point)).map_err(of_driver)?;
        // Work that was enqueued before time zero may end before it.
        Ok(Nanos::new((f64::from(milliseconds).max(0.0) * 1e6).round() as u64))
    }
}

fn event(Point(point): &Point) -> &CudaEvent {
    // Events of calls to NCCL are shared with the thread that watches them.
    let shared = point.downcast_ref::<Arc<CudaEvent>>();
    shared
        .map(|event| &**event)
        .or_else(|| point.downcast_ref())
        .expect("a GPU's points are events")
}

fn of_driver(error: DriverError) -> String {
    error.to_string()
}
