//! Optimizers, and the numbers that they keep for each parameter.

use crate::graph::ShapeCounts;

named_enum! {
    /// Optimizer that updates the parameters.
    #[derive(Default)]
    pub enum Optimizer {
        /// Adam with decoupled weight decay: two moments.
        #[default]
        AdamW = "adamw",
        /// `AdamW` with moments of 8 bits and a scale for each 256 of them (Dettmers et al. 2021, arXiv 2110.02861;
        /// the block size is that of bitsandbytes and torchao).
        AdamW8bit = "adamw-8bit",
        /// Orthogonalised momentum for each matrix of a layer; `AdamW` for tables, heads, norms and biases (Jordan et
        /// al. 2024; Liu et al. 2025, arXiv 2502.16982).
        Muon = "muon",
        /// No first moment; of the second moment, only the means of rows and of columns (Shazeer and Stern 2018, arXiv
        /// 1804.04235).
        Adafactor = "adafactor",
        /// The sign of the momentum (Chen et al. 2023, arXiv 2302.06675).
        Lion = "lion",
        /// Gradient descent with momentum: one moment.
        Momentum = "momentum",
        /// Plain gradient descent: no moments.
        Sgd = "sgd",
    }
}

impl Optimizer {
    /// Numbers that the optimizer keeps for some parameters of a rank, in addition to weights; `shapes` gives the
    /// number of `parameters` that are in matrices.
    pub const fn num_moments(self, parameters: u64, shapes: ShapeCounts) -> u64 {
        match self {
            Self::AdamW | Self::AdamW8bit => 2 * parameters,
            Self::Muon => parameters + shapes.outside_matrices,
            Self::Adafactor => shapes.rows_and_columns,
            Self::Lion | Self::Momentum => parameters,
            Self::Sgd => 0,
        }
    }

    /// True if the optimizer has a momentum for each parameter, which can be stored in bf16.
    pub const fn has_full_moments(self) -> bool {
        matches!(self, Self::AdamW | Self::Muon | Self::Lion | Self::Momentum)
    }
}
