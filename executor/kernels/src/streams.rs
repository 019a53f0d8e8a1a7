//! The stream of a device on which all threads compute.
//!
//! CubeCL gives every thread its own stream and memory pool. It tracks neither writes to an array after its creation
//! nor pending reads of freed memory, so arrays that threads pass to each other would be read too early and overwritten
//! too early. On one stream the device works in the order in which threads submit; that order is the threads'
//! responsibility. Work that overlaps with computation (NCCL) has its own streams, ordered by events.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

/// Runs `work`. All of its computation goes to the single stream that the process has on each device.
///
/// Every thread that uses a device runs within this function.
pub fn on_one_stream<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    return cubecl::stream_id::StreamId { value: 0 }.executes(work);
    #[cfg(not(any(feature = "cuda", feature = "wgpu")))]
    return work();
}

/// Makes CubeCL create one stream for each device that is opened later, so that threads that do not run within
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
