//! Work of PyTorch operators, from the shapes and types of their inputs.
//!
//! # Source
//!
//! PyTorch, `native_functions.yaml`; Dao-AILab/flash-attention, `flash_attn_interface.py`.

use cost_models::{MatmulShape, SelfAttentionShape};
use ir::cluster::Precision;
use ir::units::Bytes;

use super::profile::ProfiledWork;

/// A call of an operator.
pub(super) struct Call<'a> {
    /// Name, such as `aten::mm`.
    pub name: &'a str,
    /// Sizes of the inputs; empty for inputs that are not tensors.
    pub dims: &'a [Vec<u64>],
    /// Types of its inputs, such as `c10::BFloat16`.
    pub types: &'a [String],
    /// Values of the inputs that are numbers or booleans.
    pub values: &'a [String],
}

/// Size in bytes below which inputs are often still in the cache.
const LEAST_BYTES: u64 = 64 << 20;

/// Operators that read each input once and write one output of the size of the largest input.
const POINTWISE: [&str; 14] = [
    "aten::add",
    "aten::sub",
    "aten::mul",
    "aten::div",
    "aten::silu",
    "aten::gelu",
    "aten::relu",
    "aten::sigmoid",
    "aten::tanh",
    "aten::neg",
    "aten::exp",
    "aten::silu_backward",
    "aten::gelu_backward",
    "aten::clone",
];

impl Call<'_> {
    /// The work of the call, if it is known.
    pub(super) fn work(&self) -> Option<ProfiledWork> {
        let name = self.name;
        match name {
            "aten::mm" | "aten::_scaled_mm" => self.product(0),
            "aten::addmm" | "aten::bmm" | "aten::baddbmm" => {
                self.product(usize::from(name != "aten::bmm"))
            }
            _ => self.attention().or_else(|| self.pointwise()),
        }
    }

    fn product(&self, first: usize) -> Option<ProfiledWork> {
        let precision = precision(self.types.get(first)?)?;
        let (left, right) = (self.dims.get(first)?, self.dims.get(first + 1)?);
        let (batch, left, right) = match (left.as_slice(), right.as_slice()) {
            ([b, left @ ..], [c, right @ ..]) if left.len() == 2 && b == c => (*b, left, right),
            (left, right) => (1, left, right),
        };
        let ([m, k], [depth, n]) = (left, right) else { return None };
        let shape = MatmulShape { batch, m: *m, n: *n, k: *k };
        (k == depth && ![batch, *m, *n, *k].contains(&0))
            .then_some(ProfiledWork::Product(shape, precision))
    }

    /// The queries are the first input, or follow the output's gradient. In PyTorch's own interface, the dimension of
    /// heads is before that of positions.
    fn attention(&self) -> Option<ProfiledWork> {
        // The tuple is: backward or not, heads before positions or not, index of the causal flag.
        let (is_backward, heads_first, mask) = match self.name {
            "aten::_flash_attention_forward" => (false, false, 8),
            "aten::_flash_attention_backward" => (true, false, 11),
            "aten::_scaled_dot_product_flash_attention" => (false, true, 4),
            "aten::_scaled_dot_product_flash_attention_backward" => (true, true, 11),
            "aten::_scaled_dot_product_cudnn_attention" => (false, true, 6),
            "aten::_cudnn_attention_forward" => (false, true, 10),
            "flash_attn::_flash_attn_forward" => (false, false, 5),
            "flash_attn::_flash_attn_backward" => (true, false, 11),
            _ => return None,
        };
        let first = usize::from(is_backward);
        let precision = precision(self.types.get(first)?)?;
        let [queries, keys] = [first, first + 1].map(|at| self.dims.get(at).map(Vec::as_slice));
        let (Some(&[batch, a, b, head_dim]), Some(&[_, c, d, _])) = (queries, keys) else {
            return None;
        };
        let (sequence, heads, length, kv_heads) =
            if heads_first { (b, a, d, c) } else { (a, b, c, d) };
        if sequence != length || [batch, sequence, heads, kv_heads, head_dim].contains(&0) {
            return None;
        }
        // Without the flag, attention is assumed to be causal, as in decoders.
        let causal = self.values.get(mask).is_none_or(|value| value != "False");
        let shape = SelfAttentionShape { batch, sequence, heads, kv_heads, head_dim, causal };
        Some(if is_backward {
            ProfiledWork::AttentionBackward(shape, precision)
        } else {
            ProfiledWork::AttentionForward(shape, precision)
        })
    }

    fn pointwise(&self) -> Option<ProfiledWork> {
        let bytes = |at: usize| {
            let dims = self.dims.get(at).filter(|dims| !dims.is_empty())?;
            let each = bytes_of(self.types.get(at)?)?;
            dims.iter().try_fold(each, |bytes, size| bytes.checked_mul(*size))
        };
        let read = (0..self.dims.len()).filter_map(bytes).try_fold(0, u64::checked_add)?;
        let written = match self.name.strip_suffix('_').unwrap_or(self.name) {
            "aten::fill" | "aten::zero" | "aten::copy" => 0,
            name if POINTWISE.contains(&name) => (0..self.dims.len()).filter_map(bytes).max()?,
            _ => return None,
        };
        (read >= LEAST_BYTES)
            .then(|| ProfiledWork::Memory(Bytes::new(read.saturating_add(written))))
    }
}

/// The precision of matrix products with inputs of a type.
pub(super) fn precision(name: &str) -> Option<Precision> {
    match name.trim_start_matches("c10::").to_ascii_lowercase().as_str() {
        "bfloat16" => Some(Precision::Bf16),
        "half" | "float16" => Some(Precision::Fp16),
        "float" | "float32" => Some(Precision::Fp32),
        name if name.starts_with("float8") => Some(Precision::Fp8),
        _ => None,
    }
}

/// Bytes of an element of a type.
pub(super) fn bytes_of(name: &str) -> Option<u64> {
    match name.trim_start_matches("c10::").to_ascii_lowercase().as_str() {
        "double" | "long" | "int64" | "float64" => Some(8),
        "float" | "int" | "float32" | "int32" => Some(4),
        "bfloat16" | "half" | "short" | "float16" => Some(2),
        "byte" | "char" | "bool" | "signed char" | "unsigned char" | "uint8" | "int8" => Some(1),
        name if name.starts_with("float8") => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace may contain any sizes; work that would not fit in any memory is unknown.
    #[test]
    fn sizes_that_overflow_are_no_work() {
        let large = u64::MAX / 2;
        let types = ["c10::BFloat16", "c10::BFloat16"].map(str::to_owned);
        let work = |name: &str, dims: [&[u64]; 2]| {
            let dims = dims.map(<[u64]>::to_vec);
            Call { name, dims: &dims, types: &types, values: &[] }.work()
        };
        assert_eq!(work("aten::add", [&[large, 32], &[1]]), None);
        assert_eq!(work("aten::add", [&[large], &[large]]), None);
        assert_eq!(work("aten::mm", [&[large, 0], &[0, large]]), None);
        assert!(work("aten::mm", [&[large, 4], &[4, large]]).is_some());
        let heads = [large, 8, 4, 64];
        assert!(work("aten::_flash_attention_forward", [&heads, &heads]).is_some());
        assert!(work("aten::add", [&[8192, 8192], &[1]]).is_some());
    }
}
