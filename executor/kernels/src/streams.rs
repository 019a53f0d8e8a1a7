//! The stream of a device that threads compute on.
//!
//! CubeCL gives every thread a stream and a pool of memory of its own. It tracks neither what was written to an array
//! after its making nor who still reads memory that was freed, so arrays that threads hand to each other would be read
//! too early, and written again too early. On one stream the device works in the order in which threads ask; that
//! order is theirs to keep, as everywhere. What goes on beside computation (NCCL) has streams of its own, ordered by
//! events.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

/// Runs `work`, all of whose computation goes to the one stream that each device has for this process.
///
/// Every thread that touches a device runs within this.
pub fn on_one_stream<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    return cubecl::stream_id::StreamId { value: 0 }.executes(work);
    #[cfg(not(any(feature = "cuda", feature = "wgpu")))]
    return work();
}

/// Has CubeCL make one stream for each device that is opened from now on, so that threads that do not run within
/// [`on_one_stream`] are ordered too.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) fn make_one_stream() {
    let mut state = CubeClRuntimeConfig::storage().lock();
    let mut config = match state.take() {
        Some(config) => std::sync::Arc::unwrap_or_clone(config),
        None => CubeClRuntimeConfig::from_current_dir().override_from_env(),
    };
    config.streaming.max_streams = 1;
    *state = Some(std::sync::Arc::new(config));
}
