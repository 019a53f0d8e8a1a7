//! Storage of frozen weights.

use crate::units::Bytes;

/// Number of quantised weights that share a scale.
///
/// # Source
///
/// Dettmers et al. 2023, *QLoRA* (arXiv 2305.14314), section 3: blocks of 64 for weights.
pub const QUANTISED_BLOCK: u64 = 64;

/// Bytes of a scale: fp32, as stored by bitsandbytes without double quantisation.
const SCALE_BYTES: u64 = 4;

named_enum! {
    /// Storage format of a frozen weight between its uses. For each use, it is converted to the format that kernels
    /// read.
    #[derive(Default)]
    pub enum WeightFormat {
        /// As kernels read it.
        #[default]
        Plain = "plain",
        /// Integers of 8 bits, a scale for each block.
        Int8 = "int8",
        /// Integers of 4 bits, a scale for each block.
        Int4 = "int4",
        /// The 16 quantiles of a normal distribution, 4 bits each, a scale for each block (QLoRA's NormalFloat).
        Nf4 = "nf4",
    }
}

impl WeightFormat {
    /// Bits of a quantised weight; `None` where weights are stored as kernels read them.
    pub const fn bits(self) -> Option<u64> {
        match self {
            Self::Plain => None,
            Self::Int8 => Some(8),
            Self::Int4 | Self::Nf4 => Some(4),
        }
    }

    /// Bytes of `rows` rows of `row_len` weights, read in elements of `compute_bytes`.
    ///
    /// A row has the dimensions that no layout shards. Each row starts a new block, so rounding is the same for all
    /// layouts.
    ///
    /// ```text
    /// rows (ceil(row_len bits / 8) + 4 ceil(row_len / 64))
    /// ```
    pub fn bytes(self, rows: u64, row_len: u64, compute_bytes: u64) -> Bytes {
        let row = match self.bits() {
            None => row_len * compute_bytes,
            Some(bits) => {
                (row_len * bits).div_ceil(8) + SCALE_BYTES * row_len.div_ceil(QUANTISED_BLOCK)
            }
        };
        Bytes::new(rows * row)
    }
}
