//! Checks of launches that CUDA refuses.

use std::fmt;

use crate::ptx::KernelAttributes;

/// Sizes in three dimensions.
pub type Dims = [u32; 3];

/// Configuration of a launch, without its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Number of blocks.
    pub grid: Dims,
    /// Number of threads of a block.
    pub block: Dims,
    /// Bytes of dynamic shared memory of a block, in addition to the kernel's static shared memory.
    pub shared_bytes: u64,
    /// The kernel's limit of dynamic shared memory in bytes, if it was set.
    pub allowed_bytes: Option<u64>,
}

/// Limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Blocks of a grid, by dimension.
    pub grid: Dims,
    /// Threads of a block, by dimension.
    pub block: Dims,
    /// Threads of a block, all dimensions together.
    pub threads: u64,
    /// Bytes of shared memory of a block by default.
    pub shared_bytes: u64,
    /// Bytes of shared memory of a block with a raised limit.
    pub most_shared_bytes: u64,
}

/// Reason why a launch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchRefusal {
    /// The grid or block is empty, which is an error.
    Empty(Dims, Dims),
    /// The grid has too many blocks.
    Grid(Dims),
    /// Blocks have too many threads.
    Block(Dims, u64),
    /// Blocks have too much shared memory.
    Shared(u64, u64),
}

impl fmt::Display for LaunchRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty(grid, block) => write!(f, "the grid {grid:?} of blocks {block:?} is empty"),
            Self::Grid(grid) => write!(f, "the grid {grid:?} is too large"),
            Self::Block(block, most) => {
                write!(f, "blocks of {block:?} have more than {most} threads, or too many in a row")
            }
            Self::Shared(bytes, most) => {
                write!(f, "blocks want {bytes} bytes of shared memory, of {most}")
            }
        }
    }
}

impl DeviceLimits {
    /// The limits of a compute capability, such as 90.
    ///
    /// # Source
    ///
    /// NVIDIA, *CUDA C++ Programming Guide* 12.9, section 17.2, table "Technical Specifications per
    /// Compute Capability".
    pub fn of(architecture: u32) -> Self {
        let most_shared_kib = match architecture {
            70 => 96,
            75 => 64,
            80 | 87 => 163,
            86 | 89 | 120.. => 99,
            90.. => 227,
            _ => 48,
        };
        Self {
            grid: [(1 << 31) - 1, 65_535, 65_535],
            block: [1024, 1024, 64],
            threads: 1024,
            shared_bytes: 48 << 10,
            most_shared_bytes: most_shared_kib << 10,
        }
    }

    /// Fails if CUDA refuses a launch of a kernel.
    ///
    /// # Errors
    ///
    /// The first reason.
    pub fn check(
        &self,
        kernel: &KernelAttributes,
        launch: &LaunchConfig,
    ) -> Result<(), LaunchRefusal> {
        let LaunchConfig { grid, block, .. } = *launch;
        if grid.contains(&0) || block.contains(&0) {
            return Err(LaunchRefusal::Empty(grid, block));
        }
        let is_larger =
            |dims: Dims, most: Dims| dims.iter().zip(most).any(|(dim, most)| *dim > most);
        if is_larger(grid, self.grid) {
            return Err(LaunchRefusal::Grid(grid));
        }
        let most = kernel.max_threads.unwrap_or(self.threads).min(self.threads);
        let threads: u64 = block.iter().map(|dim| u64::from(*dim)).product();
        if threads > most || is_larger(block, self.block) {
            return Err(LaunchRefusal::Block(block, most));
        }
        let shared = launch.shared_bytes + kernel.shared_bytes;
        let without_asking = self.shared_bytes.saturating_sub(kernel.shared_bytes);
        let allowed = launch.allowed_bytes.unwrap_or(without_asking).max(without_asking);
        let most = allowed.saturating_add(kernel.shared_bytes).min(self.most_shared_bytes);
        if shared > most {
            return Err(LaunchRefusal::Shared(shared, most));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{DeviceLimits, LaunchConfig, LaunchRefusal};
    use crate::ptx::KernelAttributes;

    const FITS: LaunchConfig =
        LaunchConfig { grid: [4, 1, 1], block: [256, 1, 1], shared_bytes: 0, allowed_bytes: None };

    #[track_caller]
    fn check(launch: LaunchConfig, expected: Result<(), LaunchRefusal>) {
        let kernel = KernelAttributes {
            max_threads: Some(256),
            shared_bytes: 1024,
            ..KernelAttributes::default()
        };
        assert_eq!(DeviceLimits::of(90).check(&kernel, &launch), expected);
    }

    #[test]
    fn launches_that_cuda_refuses_are_refused() {
        check(FITS, Ok(()));
        let empty = LaunchConfig { grid: [4, 0, 1], ..FITS };
        check(empty, Err(LaunchRefusal::Empty([4, 0, 1], [256, 1, 1])));
        check(
            LaunchConfig { grid: [1, 65_536, 1], ..FITS },
            Err(LaunchRefusal::Grid([1, 65_536, 1])),
        );
        check(
            LaunchConfig { block: [257, 1, 1], ..FITS },
            Err(LaunchRefusal::Block([257, 1, 1], 256)),
        );
        check(
            LaunchConfig { block: [1, 1, 65], ..FITS },
            Err(LaunchRefusal::Block([1, 1, 65], 256)),
        );
    }

    #[test]
    fn shared_memory_beyond_48_kib_is_asked_for() {
        check(LaunchConfig { shared_bytes: 47 << 10, ..FITS }, Ok(()));
        let large = LaunchConfig { shared_bytes: 48 << 10, ..FITS };
        check(large, Err(LaunchRefusal::Shared(49 << 10, 48 << 10)));
        check(LaunchConfig { allowed_bytes: Some(48 << 10), ..large }, Ok(()));
        let huge = LaunchConfig { shared_bytes: 227 << 10, allowed_bytes: Some(228 << 10), ..FITS };
        check(huge, Err(LaunchRefusal::Shared(228 << 10, 227 << 10)));
    }
}
