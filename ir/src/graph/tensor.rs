//! Tensors: named dimensions whose extents may depend on batch and sequence.

use std::fmt;

named_enum! {
    /// Meaning of a tensor's dimension. It decides, rather than the position, how the dimension may be sharded.
    pub enum DimName {
        /// Samples of the micro-batch.
        Batch = "batch",
        /// Positions of the sequence that the tensor holds.
        Sequence = "sequence",
        /// Positions that attention reads: those of keys and values.
        Context = "context",
        /// The residual stream.
        Hidden = "hidden",
        /// Parallel residual streams.
        Streams = "streams",
        /// Query heads.
        Heads = "heads",
        /// Key and value heads.
        KvHeads = "kv_heads",
        /// Features of one head.
        HeadDim = "head_dim",
        /// Groups of heads that share their inputs to and outputs from a state (Mamba-2).
        Groups = "groups",
        /// State entries for each feature of a head.
        State = "state",
        /// The inner width of a feed-forward block.
        Intermediate = "intermediate",
        /// Experts of a mixture.
        Experts = "experts",
        /// The experts chosen for each token.
        TopK = "top_k",
        /// Entries of the vocabulary.
        Vocabulary = "vocabulary",
        /// A compressed representation, as in latent attention, which every shard needs whole.
        Latent = "latent",
        /// Features without another role.
        Features = "features",
        /// Channels of an image.
        Channels = "channels",
        /// Rows of an image or of a convolution kernel.
        Height = "height",
        /// Columns of an image or of a convolution kernel.
        Width = "width",
    }
}

impl DimName {
    /// True if tensor parallelism shards weights along this dimension.
    pub(super) fn is_tensor_sharded(self) -> bool {
        matches!(
            self,
            Self::Heads | Self::KvHeads | Self::Groups | Self::Intermediate | Self::Vocabulary
        )
    }
}

/// The size of a dimension, symbolic where it depends on the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Extent {
    /// The micro-batch size.
    Batch,
    /// The sequence length.
    Sequence,
    /// One for each block of this number of positions of the sequence; the last block may be shorter.
    Blocks(u64),
    /// A number that the model fixes.
    Fixed(u64),
}

impl Extent {
    /// The number that this extent stands for.
    pub fn resolve(self, sizes: Sizes) -> u64 {
        match self {
            Self::Batch => sizes.micro_batch_size,
            Self::Sequence => sizes.sequence_length,
            Self::Blocks(length) => sizes.sequence_length.div_ceil(length),
            Self::Fixed(size) => size,
        }
    }

    /// The extent that the model fixes; `None` where it depends on the micro-batch or the sequence.
    pub fn fixed(self) -> Option<u64> {
        match self {
            Self::Batch | Self::Sequence | Self::Blocks(_) => None,
            Self::Fixed(size) => Some(size),
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch => f.pad("b"),
            Self::Sequence => f.pad("s"),
            Self::Blocks(length) => write!(f, "s/{length}"),
            Self::Fixed(size) => size.fmt(f),
        }
    }
}

/// Values of the symbolic extents in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sizes {
    /// Sequences (or images) in a micro-batch.
    pub micro_batch_size: u64,
    /// Tokens in a sequence.
    pub sequence_length: u64,
}

impl Sizes {
    /// One sequence of one token, for quantities that depend on neither.
    pub const ONE: Self = Self { micro_batch_size: 1, sequence_length: 1 };

    /// The sizes with this many tokens in a sequence.
    #[must_use]
    pub const fn with_tokens(self, sequence_length: u64) -> Self {
        Self { sequence_length, ..self }
    }
}

/// One dimension: its name and its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim {
    /// Name of the dimension.
    pub name: DimName,
    /// Size of the dimension.
    pub extent: Extent,
}

impl Dim {
    /// A dimension whose size the model fixes.
    pub const fn fixed(name: DimName, size: u64) -> Self {
        Self { name, extent: Extent::Fixed(size) }
    }

    /// The batch dimension `b`.
    pub const BATCH: Self = Self { name: DimName::Batch, extent: Extent::Batch };
    /// The sequence dimension `s`.
    pub const SEQUENCE: Self = Self { name: DimName::Sequence, extent: Extent::Sequence };
}

/// Type of a tensor's element, which decides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementType {
    /// The precision of the step's computation (2 bytes for bf16).
    Compute,
    /// Four bytes, whatever the precision: statistics, logits in the loss.
    Float32,
    /// Eight bytes: token ids, indices.
    Index,
}

impl ElementType {
    /// Bytes of one element where the step computes in elements of `compute_bytes`.
    pub fn bytes(self, compute_bytes: u64) -> u64 {
        match self {
            Self::Compute => compute_bytes,
            Self::Float32 => 4,
            Self::Index => 8,
        }
    }
}

/// A tensor: its dimensions, outermost first, and its element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tensor {
    /// Dimensions, outermost first.
    pub dims: Vec<Dim>,
    /// Type of the elements.
    pub element: ElementType,
}

impl Tensor {
    /// A tensor in the precision of the step.
    pub fn new(dims: impl Into<Vec<Dim>>) -> Self {
        Self { dims: dims.into(), element: ElementType::Compute }
    }

    /// The tensor with another element type.
    pub fn with_element(mut self, element: ElementType) -> Self {
        self.element = element;
        self
    }

    /// The dimension called `name`, if there is one.
    pub fn dim(&self, name: DimName) -> Option<Dim> {
        self.dims.iter().copied().find(|dim| dim.name == name)
    }

    /// True if the tensor has rows for experts: the row of each token, once for each expert that the token goes to.
    pub fn is_routed(&self) -> bool {
        self.dim(DimName::TopK).is_some()
    }

    /// Number of elements of the whole tensor.
    pub fn num_elements(&self, sizes: Sizes) -> u64 {
        self.dims.iter().map(|dim| dim.extent.resolve(sizes)).product()
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, dim) in self.dims.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{} {}", dim.name, dim.extent)?;
        }
        f.write_str("]")
    }
}
