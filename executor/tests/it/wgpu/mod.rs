//! The wgpu backend, on whatever device its driver has: Mesa's software one will do.

mod kernels;
mod parity;

use burn_wgpu::WgpuDevice;

/// The device, or none where there is no driver, which the test then says.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn device() -> Option<WgpuDevice> {
    let device = executor::wgpu::device();
    if let Err(error) = &device {
        eprintln!("skipped: {error}");
    }
    device.ok()
}
