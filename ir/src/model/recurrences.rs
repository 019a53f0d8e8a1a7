//! Sizes of recurrences and short convolutions.

use super::norm::Norm;
use crate::graph::{Activation, Real};

/// Mamba-2 (Dao and Gu 2024, arXiv 2405.21060).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSpace {
    /// Number of heads.
    pub num_heads: u64,
    /// Number of features of a head.
    pub head_dim: u64,
    /// Number of groups of heads that share the inputs to and outputs from the state.
    pub num_groups: u64,
    /// Number of state entries for each feature.
    pub state_size: u64,
    /// Positions of the convolution.
    pub kernel: u64,
    /// Function of the convolution's output.
    pub activation: Activation,
    /// Positions of a chunk.
    pub chunk: u64,
    /// True where the convolution has a bias.
    pub convolution_bias: bool,
    /// True where the projections of the input have biases.
    pub bias: bool,
    /// True where the output projection has a bias.
    pub output_bias: bool,
    /// Smallest and largest time step.
    pub time_steps: [Real; 2],
    /// The norm after the gate, over each group separately.
    pub norm: Option<Norm>,
}

/// Mamba (Gu and Dao 2023, arXiv 2312.00752).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectiveScan {
    /// Number of features.
    pub inner_size: u64,
    /// Number of state entries for each feature.
    pub state_size: u64,
    /// Features from which time steps are computed.
    pub rank: u64,
    /// Positions of the convolution.
    pub kernel: u64,
    /// True where the convolution has a bias.
    pub convolution_bias: bool,
    /// True where the projections have biases.
    pub bias: bool,
    /// The norm of inputs to and outputs from the state, and of the inputs of time steps.
    pub norm: Option<Norm>,
}

/// The gated delta rule (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaNet {
    /// Number of heads of queries and keys.
    pub num_key_heads: u64,
    /// Number of features of a query or key.
    pub key_dim: u64,
    /// Number of heads of values.
    pub num_value_heads: u64,
    /// Number of features of a value.
    pub value_dim: u64,
    /// Positions of the convolution.
    pub kernel: u64,
    /// Function of the convolution's output.
    pub activation: Activation,
    /// Decays of the state.
    pub decays: Decays,
    /// The norm of each head's output.
    pub norm: Norm,
}

/// Decays of a delta rule's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decays {
    /// One for each head.
    Heads,
    /// One for each feature of each head, from a linear layer (Ling 2.5).
    Features,
    /// One for each feature of each head, computed through few features (Kimi Linear).
    LowRankFeatures {
        /// Number of these features.
        rank: u64,
        /// True where the gate is computed through the same number of features (not in Kimi K3).
        gate: bool,
    },
}

/// Lightning attention (MiniMax 2025, arXiv 2501.08313, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lightning {
    /// Number of heads.
    pub num_heads: u64,
    /// Number of features of a head.
    pub head_dim: u64,
    /// Positions of a chunk.
    pub chunk: u64,
    /// The function of queries, keys and values.
    pub activation: Activation,
    /// The norm of all heads' outputs at once.
    pub norm: Norm,
}

/// A short convolution between two gates (Liquid AI, LFM2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Number of positions.
    pub kernel: u64,
    /// True where projections and convolution have biases.
    pub bias: bool,
}
