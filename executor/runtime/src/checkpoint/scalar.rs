//! Numeric values in files.

use executor_kernels::array::Element;
use half::{bf16, f16};
use safetensors::Dtype;

/// The types that [`decode`] reads.
pub(super) const READABLE: &str = "F32 or F64";

/// Decodes numbers of a file into `values`, unchanged; `None` if their type is not in [`READABLE`].
pub(super) fn decode(bytes: &[u8], dtype: Dtype, values: &mut [f64]) -> Option<()> {
    match dtype {
        Dtype::F64 => each(bytes, values, f64::from_le_bytes),
        Dtype::F32 => each(bytes, values, |bytes| f64::from(f32::from_le_bytes(bytes))),
        _ => return None,
    }
    Some(())
}

fn each<const N: usize>(bytes: &[u8], values: &mut [f64], decode: impl Fn([u8; N]) -> f64) {
    let (chunks, rest) = bytes.as_chunks();
    assert!(rest.is_empty() && chunks.len() == values.len(), "bytes are those of the values");
    for (value, bytes) in values.iter_mut().zip(chunks) {
        *value = decode(*bytes);
    }
}

/// Numbers as bytes of a file's type.
pub(super) fn encoded(values: &[f64], dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::F64 => values.iter().copied().flat_map(f64::to_le_bytes).collect(),
        Dtype::F32 => values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
        Dtype::BF16 => {
            values.iter().flat_map(|value| bf16::from_f64(*value).to_le_bytes()).collect()
        }
        Dtype::F16 => values.iter().flat_map(|value| f16::from_f64(*value).to_le_bytes()).collect(),
        other => unreachable!("no element of an array is {other}"),
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
