//! Descriptions, layouts and preferences of cuBLASLt.

use std::collections::{BTreeMap, BTreeSet};

use super::codes::Code;
use crate::number::Format;
use crate::product::{ComputeType, MatrixLayout, Product, StorageOrder, cuda_format};

/// All live objects by handle.
#[derive(Default)]
pub(super) struct Descriptors {
    pub(super) handles: BTreeSet<usize>,
    pub(super) products: BTreeMap<usize, Description>,
    pub(super) layouts: BTreeMap<usize, MatrixLayout>,
    pub(super) preferences: BTreeMap<usize, Preference>,
}

/// A product without its matrices.
#[derive(Clone, Copy)]
pub(super) struct Description {
    compute_type: ComputeType,
    transposes_a: bool,
    transposes_b: bool,
}

/// Requirements for an algorithm.
#[derive(Clone, Copy)]
pub(super) struct Preference {
    pub(super) workspace_bytes: u64,
    /// Alignments of A, B, C and D in bytes.
    pub(super) alignments: [u32; 4],
}

/// An attribute to set: its number and its value.
pub(super) struct Attribute<'a> {
    pub(super) number: i32,
    pub(super) bytes: &'a [u8],
}

/// `CUBLAS_OP_N`, `CUBLAS_OP_T`, and `CUBLAS_OP_C`, which equals `CUBLAS_OP_T` for real numbers.
const OPERATIONS: [i32; 3] = [0, 1, 2];

impl Attribute<'_> {
    fn i32(&self) -> Result<i32, Code> {
        self.bytes.try_into().map(i32::from_le_bytes).map_err(|_| Code::CUBLAS_INVALID_VALUE)
    }

    fn i64(&self) -> Result<i64, Code> {
        self.bytes.try_into().map(i64::from_le_bytes).map_err(|_| Code::CUBLAS_INVALID_VALUE)
    }

    fn u64(&self) -> Result<u64, Code> {
        Ok(self.i64()?.cast_unsigned())
    }

    fn count(&self) -> Result<u64, Code> {
        u64::try_from(self.i64()?).map_err(|_| Code::CUBLAS_INVALID_VALUE)
    }

    fn element(&self) -> Result<Format, Code> {
        cuda_format(self.i32()?).ok_or(Code::CUBLAS_NOT_SUPPORTED)
    }

    fn is_transposed(&self) -> Result<bool, Code> {
        let operation = self.i32()?;
        if !OPERATIONS.contains(&operation) {
            return Err(Code::CUBLAS_INVALID_VALUE);
        }
        Ok(operation != 0)
    }

    /// Fails unless a value is the only supported one.
    fn must_be(&self, value: i32) -> Result<(), Code> {
        if self.i32()? == value { Ok(()) } else { Err(Code::CUBLAS_NOT_SUPPORTED) }
    }
}

impl Description {
    pub(super) fn new(compute: i32, scale: i32) -> Result<Self, Code> {
        let compute_type = ComputeType::of(compute).ok_or(Code::CUBLAS_NOT_SUPPORTED)?;
        if cuda_format(scale) != Some(compute_type.scale()) {
            return Err(Code::CUBLAS_NOT_SUPPORTED);
        }
        Ok(Self { compute_type, transposes_a: false, transposes_b: false })
    }

    /// Sets an attribute by the numbers of `cublasLtMatmulDescAttributes_t`.
    fn set(&mut self, attribute: &Attribute<'_>) -> Result<(), Code> {
        match attribute.number {
            0 => {
                let compute_type = ComputeType::of(attribute.i32()?);
                self.compute_type = compute_type.ok_or(Code::CUBLAS_NOT_SUPPORTED)?;
            }
            1 if attribute.element()? == self.compute_type.scale() => {}
            // Scalars on the host; C not transposed; all of D; no epilogue.
            2 | 5 => attribute.must_be(0)?,
            6 => attribute.must_be(2)?,
            7 => attribute.must_be(1)?,
            3 => self.transposes_a = attribute.is_transposed()?,
            4 => self.transposes_b = attribute.is_transposed()?,
            // Number of multiprocessors to use.
            15 => drop(attribute.i32()?),
            _ => return Err(Code::CUBLAS_NOT_SUPPORTED),
        }
        Ok(())
    }
}

/// Sets an attribute by the numbers of `cublasLtMatrixLayoutAttribute_t`.
fn set_layout(layout: &mut MatrixLayout, attribute: &Attribute<'_>) -> Result<(), Code> {
    match attribute.number {
        0 => layout.element = attribute.element()?,
        1 => {
            layout.order = match attribute.i32()? {
                0 => StorageOrder::Columns,
                1 => StorageOrder::Rows,
                _ => return Err(Code::CUBLAS_NOT_SUPPORTED),
            };
        }
        2 => layout.rows = attribute.u64()?,
        3 => layout.columns = attribute.u64()?,
        4 => layout.leading = attribute.count()?,
        5 => {
            let count = u64::try_from(attribute.i32()?).ok().filter(|count| *count > 0);
            layout.batch = count.ok_or(Code::CUBLAS_INVALID_VALUE)?;
        }
        6 => layout.stride = attribute.i64()?,
        _ => return Err(Code::CUBLAS_NOT_SUPPORTED),
    }
    Ok(())
}

impl Preference {
    /// No workspace, and the default alignment.
    pub(super) fn new() -> Self {
        Self { workspace_bytes: 0, alignments: [256; 4] }
    }

    /// Sets an attribute by the numbers of `cublasLtMatmulPreferenceAttributes_t`.
    fn set(&mut self, attribute: &Attribute<'_>) -> Result<(), Code> {
        match attribute.number {
            1 => self.workspace_bytes = attribute.u64()?,
            5..=8 => {
                let bytes = u32::try_from(attribute.i32()?).ok().filter(|n| n.is_power_of_two());
                let place = &mut self.alignments[attribute.number as usize - 5];
                *place = bytes.ok_or(Code::CUBLAS_INVALID_VALUE)?;
            }
            // Search mode, reduction scheme, number of waves, implementation.
            0 | 3 | 9 => drop(attribute.i32()?),
            12 => drop(attribute.u64()?),
            _ => return Err(Code::CUBLAS_INVALID_VALUE),
        }
        Ok(())
    }
}

impl Descriptors {
    pub(super) fn set_product(&mut self, handle: usize, set: &Attribute<'_>) -> Result<(), Code> {
        self.products.get_mut(&handle).ok_or(Code::CUBLAS_INVALID_VALUE)?.set(set)
    }

    pub(super) fn set_layout(&mut self, handle: usize, set: &Attribute<'_>) -> Result<(), Code> {
        let layout = self.layouts.get_mut(&handle).ok_or(Code::CUBLAS_INVALID_VALUE)?;
        set_layout(layout, set)
    }

    pub(super) fn set_preference(
        &mut self,
        handle: usize,
        set: &Attribute<'_>,
    ) -> Result<(), Code> {
        self.preferences.get_mut(&handle).ok_or(Code::CUBLAS_INVALID_VALUE)?.set(set)
    }

    pub(super) fn remove_preference(&mut self, handle: usize) -> Result<(), Code> {
        self.preferences.remove(&handle).map(drop).ok_or(Code::CUBLAS_INVALID_VALUE)
    }

    /// Fails if there is no such handle of the library.
    pub(super) fn check_handle(&self, handle: usize) -> Result<(), Code> {
        self.handles.contains(&handle).then_some(()).ok_or(Code::CUBLAS_NOT_INITIALIZED)
    }

    pub(super) fn preference(&self, handle: usize) -> Result<Preference, Code> {
        self.preferences.get(&handle).copied().ok_or(Code::CUBLAS_INVALID_VALUE)
    }

    /// The product of a description with the layouts of A, B, C and D.
    pub(super) fn product(&self, handle: usize, layouts: [usize; 4]) -> Result<Product, Code> {
        let description = self.products.get(&handle).ok_or(Code::CUBLAS_INVALID_VALUE)?;
        let layout = |handle| self.layouts.get(&handle).copied().ok_or(Code::CUBLAS_INVALID_VALUE);
        let [a, b, c, d] = layouts;
        let Description { compute_type, transposes_a, transposes_b } = *description;
        let layouts = [layout(a)?, layout(b)?, layout(c)?, layout(d)?];
        Ok(Product { compute_type, transposes_a, transposes_b, layouts })
    }
}
