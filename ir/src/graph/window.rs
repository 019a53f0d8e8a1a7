//! Windows of convolutions and poolings.

/// Kernel, stride and padding of a convolution or pooling, alike in both directions unless stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window2d {
    /// Rows and columns of the kernel.
    pub kernel: [u64; 2],
    /// Rows and columns between two applications of the kernel.
    pub stride: [u64; 2],
    /// Rows and columns of zeros on each side.
    pub padding: [u64; 2],
    /// Rows and columns from one element of the kernel to the next; 1 in a plain kernel.
    pub dilation: [u64; 2],
}

impl Window2d {
    /// Rows and columns of the output for `input` rows and columns; `None` if the kernel exceeds the padded input.
    pub fn output(&self, input: [u64; 2]) -> Option<[u64; 2]> {
        let side = |axis: usize| {
            let padded = input[axis] + 2 * self.padding[axis];
            Some(padded.checked_sub(self.reach(axis)?)? / self.stride[axis] + 1)
        };
        Some([side(0)?, side(1)?])
    }

    /// Rows and columns of a transposed convolution's output, whose padding is taken off; `None` if nothing is left, or
    /// it cannot be counted.
    pub fn transposed_output(&self, input: [u64; 2], added: [u64; 2]) -> Option<[u64; 2]> {
        let side = |axis: usize| {
            let strides = input[axis].checked_sub(1)?.checked_mul(self.stride[axis])?;
            let whole = strides.checked_add(self.reach(axis)?)?.checked_add(added[axis])?;
            whole.checked_sub(2 * self.padding[axis]).filter(|side| *side > 0)
        };
        Some([side(0)?, side(1)?])
    }

    /// Rows (0) or columns (1) that a kernel covers, with its gaps; `None` if they cannot be counted.
    pub fn reach(&self, axis: usize) -> Option<u64> {
        self.kernel[axis].checked_sub(1)?.checked_mul(self.dilation[axis])?.checked_add(1)
    }
}
