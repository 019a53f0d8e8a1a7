//! Numeric values in memory and in files.

use executor_kernels::array::Element;
use safetensors::Dtype;

/// Values of a piece, in their stored precision.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Four bytes each.
    F32(Vec<f32>),
    /// Eight bytes each.
    F64(Vec<f64>),
}

impl From<Vec<f32>> for Values {
    fn from(values: Vec<f32>) -> Self {
        Self::F32(values)
    }
}

impl From<Vec<f64>> for Values {
    fn from(values: Vec<f64>) -> Self {
        Self::F64(values)
    }
}

impl Values {
    /// Number of values.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Element type of the values in a file.
    pub(super) fn dtype(&self) -> Dtype {
        match self {
            Self::F32(_) => Dtype::F32,
            Self::F64(_) => Dtype::F64,
        }
    }

    /// The values as bytes of a file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::F32(values) => values.iter().copied().flat_map(f32::to_le_bytes).collect(),
            Self::F64(values) => values.iter().copied().flat_map(f64::to_le_bytes).collect(),
        }
    }
}

/// `f32` or `f64`: the types as which pieces of a checkpoint are read.
pub trait Scalar: Copy + Default + private::Sealed {
    /// Decodes numbers of a file into `values`, unchanged; `None` if this type cannot hold all numbers of the file's
    /// type.
    #[doc(hidden)]
    fn decode(bytes: &[u8], dtype: Dtype, values: &mut [Self]) -> Option<()>;
    /// The types that can be read as this one.
    #[doc(hidden)]
    const READABLE: &'static str;
}

impl Scalar for f32 {
    fn decode(bytes: &[u8], dtype: Dtype, values: &mut [Self]) -> Option<()> {
        match dtype {
            Dtype::F32 => each(bytes, values, Self::from_le_bytes),
            _ => return None,
        }
        Some(())
    }

    const READABLE: &'static str = "F32";
}

impl Scalar for f64 {
    fn decode(bytes: &[u8], dtype: Dtype, values: &mut [Self]) -> Option<()> {
        match dtype {
            Dtype::F64 => each(bytes, values, Self::from_le_bytes),
            Dtype::F32 => each(bytes, values, |bytes| Self::from(f32::from_le_bytes(bytes))),
            _ => return None,
        }
        Some(())
    }

    const READABLE: &'static str = "F32 or F64";
}

fn each<const N: usize, T>(bytes: &[u8], values: &mut [T], decode: impl Fn([u8; N]) -> T) {
    let (chunks, rest) = bytes.as_chunks();
    assert!(rest.is_empty() && chunks.len() == values.len(), "bytes are those of the values");
    for (value, bytes) in values.iter_mut().zip(chunks) {
        *value = decode(*bytes);
    }
}

/// The file's element type.
pub(super) fn dtype(element: Element) -> Dtype {
    match element {
        Element::F64 => Dtype::F64,
        Element::F32 | Element::Flex32 => Dtype::F32,
        Element::F16 => Dtype::F16,
        Element::BF16 => Dtype::BF16,
    }
}

/// Bytes of an element of a file, where it has whole bytes.
pub(super) fn num_bytes(dtype: Dtype) -> usize {
    dtype.bitsize() / 8
}

mod private {
    /// Keeps [`super::Scalar`] to the types above.
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}
