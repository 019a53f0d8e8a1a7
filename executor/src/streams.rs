//! The stream of a device that threads compute on.

/// Runs `work`, all of whose computation goes to the one stream that each device has for this process.
///
/// CubeCL gives every thread a stream and a pool of memory of its own. It tracks neither what was written to an array
/// after its making nor who still reads memory that was freed, so arrays that threads hand to each other would be read
/// too early, and written again too early. On one stream the device works in the order in which threads ask; that
/// order is theirs to keep, as everywhere. What goes on beside computation (NCCL) has streams of its own, ordered by
/// events.
///
/// Every thread that touches a device runs within this.
pub fn on_one_stream<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(feature = "cuda")]
    return burn_cubecl::cubecl::stream_id::StreamId { value: 0 }.executes(work);
    #[cfg(not(feature = "cuda"))]
    return work();
}
