//! Numbers of operators that decide their results but not their cost: epsilons, angles, scales.

use ordered_float::OrderedFloat;
use serde::Deserialize;

/// A number in an operator's description. Unlike an `f64`, it can be compared and hashed, as blocks are.
pub type Real = OrderedFloat<f64>;

/// Rotary position embedding of the features of heads (Su et al. 2021, arXiv 2104.09864).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rotation {
    /// Number of leading features of a head that are rotated; all if none is stated.
    pub features: Option<u64>,
    /// Pairing of the features that are rotated together.
    pub pairs: RotaryPairs,
    /// The base: pair `i` of `d / 2` turns by `theta^(-2 i / d)` per position.
    pub theta: Real,
    /// Change of the angles for sequences longer than the original training length.
    pub scaling: RotaryScaling,
}

impl Rotation {
    /// All features in halves, angles unchanged.
    pub const fn plain(theta: f64) -> Self {
        Self {
            features: None,
            pairs: RotaryPairs::Halves,
            theta: OrderedFloat(theta),
            scaling: RotaryScaling::None,
        }
    }
}

/// Pairing of the features that are rotated together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RotaryPairs {
    /// `i` and `i + d / 2` (GPT-NeoX, Llama in Hugging Face).
    #[default]
    Halves,
    /// `2 i` and `2 i + 1` (GPT-J, Cohere, DeepSeek).
    Neighbours,
}

/// Change of the angles for long sequences, named as in Hugging Face.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RotaryScaling {
    /// No change.
    #[default]
    None,
    /// All angles divided by `factor`.
    Linear {
        /// Divisor of the angles.
        factor: Real,
    },
    /// Divides slow angles by `factor`, leaves fast ones unchanged, and blends in between (Llama 3.1).
    Llama3 {
        /// Divisor of slow angles.
        factor: Real,
        /// Angles are slow if their wavelength is above the original length divided by this.
        low_freq_factor: Real,
        /// Angles are fast if their wavelength is below the original length divided by this.
        high_freq_factor: Real,
        /// Maximum sequence length of the original training.
        original_max_position_embeddings: Real,
    },
    /// A blend by the number of turns within the original length (Peng et al. 2023, *YaRN*, arXiv 2309.00071).
    Yarn {
        /// Divisor of slow angles.
        factor: Real,
        /// Pairs with more turns than this are unchanged.
        beta_fast: Real,
        /// Pairs with fewer turns than this are divided by the whole factor.
        beta_slow: Real,
        /// Factor of cosines and sines.
        attention_factor: Real,
        /// Maximum sequence length of the original training.
        original_max_position_embeddings: Real,
        /// True if the ends of the blend are rounded to whole numbers of pairs.
        truncates: bool,
    },
    /// Each pair divided by a separate factor, from one of two lists (Phi-3's LongRoPE).
    LongRope {
        /// Divisors for sequences up to the original length.
        short_factor: Vec<Real>,
        /// Divisors for longer sequences.
        long_factor: Vec<Real>,
        /// Factor of cosines and sines.
        attention_factor: Real,
        /// Maximum sequence length of the original training.
        original_max_position_embeddings: Real,
    },
    /// A larger base for all angles, growing with the sequence length beyond the original one.
    Dynamic {
        /// Factor in the growth of the base.
        factor: Real,
        /// Maximum sequence length of the original training.
        max_position_embeddings: u64,
    },
    /// Another scaling, which can be planned but not run.
    Other(String),
}

/// Computation of attention scores from queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scores {
    /// Factor of the products of queries and keys; one over the root of the head's features if none is stated.
    pub scale: Option<Real>,
    /// Scores `s` become `cap tanh(s / cap)` (Gemma 2).
    pub soft_cap: Option<Real>,
    /// Position bias added to the scores.
    pub bias: PositionBias,
}

/// Bias that attention adds to its scores for positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PositionBias {
    /// No bias.
    #[default]
    None,
    /// The distance times a slope of the head (Press et al. 2021, *ALiBi*, arXiv 2108.12409).
    Alibi(AlibiSlopes),
    /// A trained number for each head and bucket of distances (Raffel et al. 2019, *T5*, arXiv 1910.10683).
    Relative {
        /// Number of buckets.
        num_buckets: u64,
        /// All distances from this one on share the last bucket.
        max_distance: u64,
        /// True if keys after the query have separate buckets.
        both_ways: bool,
    },
}

/// Slopes of `n` heads. Where `n` is a power of two, all variants have `2^(-8 i / n)`, `i` from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlibiSlopes {
    /// Slopes of the next power of two below `n`, then every other slope of the one above, starting with the first
    /// (BLOOM).
    PowerBelow,
    /// Every other slope of the next power of two above `n`, starting with the second, then the others from the first
    /// (MPT).
    PowerAbove,
    /// Slopes as in BLOOM; but slopes and biases are in 16 bits, and biases are scaled with the scores (Falcon).
    Rounded,
}

/// Weighting and choice of experts by a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Routing {
    /// Function from a token's scores to its probabilities.
    pub scores: RouterScores,
    /// True if the weights of the chosen experts are scaled to add up to 1.
    pub normalized: bool,
    /// Factor of the weights after that.
    pub scaling: Real,
    /// Groups of experts, some of which are chosen first.
    pub groups: Option<ExpertGroups>,
}

impl Routing {
    /// Routing as in Mixtral: the softmax over the chosen experts.
    pub const NORMALIZED: Self = Self {
        scores: RouterScores::Softmax,
        normalized: true,
        scaling: OrderedFloat(1.0),
        groups: None,
    };
}

/// Function from a router's scores to probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouterScores {
    /// Softmax over the experts.
    Softmax,
    /// The logistic function of each score (DeepSeek-V3).
    Sigmoid,
}

/// Groups of experts: a token first chooses some groups, and then experts among those of these groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExpertGroups {
    /// Number of groups.
    pub count: u64,
    /// Number of groups that are chosen.
    pub chosen: u64,
    /// Number of best experts summed into a group's score: one (DeepSeek-V2), or two (DeepSeek-V3).
    pub scored_by: u64,
}
