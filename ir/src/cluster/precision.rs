//! Number formats.

named_enum! {
    /// A number format that matrix products take as input; the widest first.
    pub enum Precision {
        /// 32-bit floats, on the units for 32-bit floats.
        Fp32 = "fp32",
        /// IEEE half precision.
        Fp16 = "fp16",
        /// 16-bit floats with the range of `fp32`.
        Bf16 = "bf16",
        /// 8-bit floats; sums in higher precision.
        Fp8 = "fp8",
        /// 4-bit floats with a scale for each few elements (NVFP4, MXFP4); sums in higher precision.
        Fp4 = "fp4",
    }
}

impl Precision {
    /// Bits of one input element of a matrix product.
    pub const fn input_bits(self) -> u64 {
        match self {
            Self::Fp32 => 32,
            Self::Fp16 | Self::Bf16 => 16,
            Self::Fp8 => 8,
            Self::Fp4 => 4,
        }
    }

    /// Bytes of an element of an activation.
    pub const fn activation_bytes(self) -> u64 {
        self.activation().input_bits() / 8
    }

    /// The precision in which a step saves its activations: the same one, or bf16 for formats of 8 and 4 bits, which
    /// only linear layers use.
    #[must_use]
    pub const fn activation(self) -> Self {
        match self {
            Self::Fp8 | Self::Fp4 => Self::Bf16,
            other => other,
        }
    }

    /// True if activations are cast to this format for each product.
    pub fn is_cast(self) -> bool {
        self != self.activation()
    }
}
