//! How frozen weights are stored.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Weights that share a scale, where weights are quantised.
///
/// # Source
///
/// Dettmers et al. 2023, *QLoRA* (arXiv 2305.14314), section 3: blocks of 64 for weights.
pub const QUANTISED_BLOCK: u64 = 64;

/// Bytes of a scale: fp32, as bitsandbytes keeps it without double quantisation.
const SCALE_BYTES: u64 = 4;

/// How a frozen weight is stored between its uses. What kernels read is made from it for each use.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum WeightFormat {
    /// As kernels read it.
    #[default]
    Plain,
    /// Whole numbers of 8 bits, a scale for each block.
    Int8,
    /// Whole numbers of 4 bits, a scale for each block.
    Int4,
    /// The 16 quantiles of a normal distribution, 4 bits each, a scale for each block (QLoRA's NormalFloat).
    Nf4,
}

impl WeightFormat {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Int8, Self::Int4, Self::Nf4];

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Nf4 => "nf4",
        }
    }

    /// Bits of a quantised weight; none where weights are stored as they are read.
    pub const fn bits(self) -> Option<u64> {
        match self {
            Self::Plain => None,
            Self::Int8 => Some(8),
            Self::Int4 | Self::Nf4 => Some(4),
        }
    }

    /// Bytes of `rows` rows of `row_len` weights, read in elements of `compute_bytes`.
    ///
    /// A row is what no layout cuts, so blocks begin anew with each row and every layout rounds alike.
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

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
