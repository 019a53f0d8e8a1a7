//! The numbers of operators that decide what they compute, but not what that costs: epsilons, angles,
//! scales.

use ordered_float::OrderedFloat;
use serde::Deserialize;

/// A number of an operator. Unlike a plain one it can be compared and hashed, as blocks are.
pub type Real = OrderedFloat<f64>;

/// How positions rotate the features of heads (Su et al. 2021, arXiv 2104.09864).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rotation {
    /// How many features of a head are rotated, the first ones; all if none is stated.
    pub features: Option<u64>,
    /// Which of them are rotated together.
    pub pairs: RotaryPairs,
    /// The base: pair `i` of `d / 2` turns by `theta^(-2 i / d)` a position.
    pub theta: Real,
    /// How angles are changed for sequences longer than those trained on first.
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

/// Which features are rotated together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RotaryPairs {
    /// `i` and `i + d / 2` (GPT-NeoX, Llama in Hugging Face).
    #[default]
    Halves,
    /// `2 i` and `2 i + 1` (GPT-J, Cohere, DeepSeek).
    Neighbours,
}

/// How angles are changed for long sequences, in the words of Hugging Face.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RotaryScaling {
    /// Not at all.
    #[default]
    None,
    /// All divided by `factor`.
    Linear {
        /// By how much.
        factor: Real,
    },
    /// Slow ones divided by `factor`, fast ones kept, and between them a blend (Llama 3.1).
    Llama3 {
        /// By how much.
        factor: Real,
        /// Waves longer than the original length over this are slow.
        low_freq_factor: Real,
        /// Waves shorter than the original length over this are fast.
        high_freq_factor: Real,
        /// The original length.
        original_max_position_embeddings: Real,
    },
    /// The same by the number of turns within the original length (Peng et al. 2023, *YaRN*, arXiv 2309.00071).
    Yarn {
        /// By how much.
        factor: Real,
        /// Pairs that turn oftener are kept.
        beta_fast: Real,
        /// Pairs that turn less often are divided by the whole factor.
        beta_slow: Real,
        /// What cosines and sines are multiplied by.
        attention_factor: Real,
        /// The original length.
        original_max_position_embeddings: Real,
        /// Whether the ends of the blend are whole numbers of pairs.
        truncates: bool,
    },
    /// Each pair divided by a factor of its own, of which there are two lists (Phi-3's LongRoPE).
    LongRope {
        /// For sequences up to the original length.
        short_factor: Vec<Real>,
        /// For longer ones.
        long_factor: Vec<Real>,
        /// What cosines and sines are multiplied by.
        attention_factor: Real,
        /// The original length.
        original_max_position_embeddings: Real,
    },
    /// All of another base, the larger the longer the sequence, for sequences longer than the original.
    Dynamic {
        /// By how much.
        factor: Real,
        /// The original length.
        max_position_embeddings: u64,
    },
    /// Another one, which can be planned but not run.
    Other(String),
}

/// How attention makes scores of queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scores {
    /// What products are multiplied by; one over the root of the features of a head if none is stated.
    pub scale: Option<Real>,
    /// Scores `s` become `cap tanh(s / cap)` (Gemma 2).
    pub soft_cap: Option<Real>,
    /// What is added for positions.
    pub bias: PositionBias,
}

/// What attention adds to its scores for positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PositionBias {
    /// Nothing.
    #[default]
    None,
    /// The distance times a slope of the head's own (Press et al. 2021, *ALiBi*, arXiv 2108.12409).
    Alibi(AlibiSlopes),
    /// A trained number for each head and bucket of distances (Raffel et al. 2019, *T5*, arXiv 1910.10683).
    Relative {
        /// How many buckets.
        num_buckets: u64,
        /// Distances from here on share the last bucket.
        max_distance: u64,
        /// Whether keys after the query have buckets of their own.
        both_ways: bool,
    },
}

/// Which slope each of `n` heads has. Where `n` is a power of two all have `2^(-8 i / n)`, `i` from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlibiSlopes {
    /// Those of the power of two below, and every other one of that above, from the first (BLOOM).
    PowerBelow,
    /// Every other one of the power of two above, from the second, then the others from the first (MPT).
    PowerAbove,
    /// As BLOOM, but slopes and biases in 16 bits, and scaled with the scores (Falcon).
    Rounded,
}

/// How a router weighs and chooses experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Routing {
    /// What of a token's scores its probabilities are.
    pub scores: RouterScores,
    /// Whether the weights of the chosen experts are scaled to add up to 1.
    pub normalized: bool,
    /// What they are multiplied by then.
    pub scaling: Real,
    /// Groups of experts of which some are chosen first.
    pub groups: Option<ExpertGroups>,
}

impl Routing {
    /// As Mixtral's: the softmax over the chosen ones.
    pub const NORMALIZED: Self = Self {
        scores: RouterScores::Softmax,
        normalized: true,
        scaling: OrderedFloat(1.0),
        groups: None,
    };
}

/// What a router makes of its scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouterScores {
    /// Their softmax over the experts.
    Softmax,
    /// The logistic function of each (DeepSeek-V3).
    Sigmoid,
}

/// Groups of experts of which a token chooses some, and then experts among those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExpertGroups {
    /// How many groups.
    pub count: u64,
    /// How many of them are chosen.
    pub chosen: u64,
    /// How many of a group's best experts add up to its score: one (DeepSeek-V2), or two (DeepSeek-V3).
    pub scored_by: u64,
}
