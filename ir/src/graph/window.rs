//! Windows of convolutions and poolings.

/// Kernel, stride and padding of a convolution or pooling, equal in both directions unless stated.
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
    /// True if a last window may reach beyond the padding, as with PyTorch's `ceil_mode`.
    pub rounds_up: bool,
}

impl Window2d {
    /// Rows and columns of the output for `input` rows and columns; `None` if the kernel exceeds the padded input.
    pub fn output(&self, input: [u64; 2]) -> Option<[u64; 2]> {
        let side = |axis: usize| {
            let (stride, padding) = (self.stride[axis], self.padding[axis]);
            let moved = (input[axis] + 2 * padding).checked_sub(self.reach(axis)?)?;
            if !self.rounds_up {
                return Some(moved / stride + 1);
            }
            // A window begins within the input or the padding before it.
            let strides = moved.div_ceil(stride);
            let is_within = strides.checked_mul(stride)? < input[axis] + padding;
            Some(strides + u64::from(is_within))
        };
        Some([side(0)?, side(1)?])
    }

    /// Rows and columns of a transposed convolution's output after its padding is removed; `None` if nothing is left,
    /// or if they cannot be counted.
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
