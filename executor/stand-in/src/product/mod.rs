//! Products of matrices, with the arguments of `cublasLtMatmul`.
//!
//! # Source
//!
//! NVIDIA, *cuBLAS* 12.9, section 3.4: `cublasLtMatmul()`, with its table of types, and
//! `cublasLtMatrixLayoutAttribute_t`.

mod element;
mod layout;
#[cfg(test)]
mod tests;

use std::fmt;

pub use element::{ComputeType, cuda_format};
pub use layout::{MatrixLayout, StorageOrder};

use crate::number::{Format, Rounding};
use crate::recording::{Access, Range, Usage};

/// `D = alpha op(A) op(B) + beta C`, for each matrix of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Compute type.
    pub compute_type: ComputeType,
    /// True where A is transposed.
    pub transposes_a: bool,
    /// True where B is transposed.
    pub transposes_b: bool,
    /// The layouts of A, B, C and D.
    pub layouts: [MatrixLayout; 4],
}

/// Addresses of the matrices, and scalars.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// Addresses of A, B, C and D.
    pub addresses: [u64; 4],
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of C, which is not read if this is zero.
    pub beta: f64,
}

/// Reason why a product is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProductRefusal {
    /// The arguments contradict each other.
    Invalid(String),
    /// The product is not supported.
    NotSupported(String),
}

impl fmt::Display for ProductRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(what) | Self::NotSupported(what) => f.write_str(what),
        }
    }
}

const NAMES: [&str; 4] = ["A", "B", "C", "D"];

impl Product {
    /// Rows of D, columns of D, and inner size.
    pub fn dims(&self) -> [u64; 3] {
        let [a, b, ..] = &self.layouts;
        let (rows, inner) = swapped((a.rows, a.columns), self.transposes_a);
        let (_, columns) = swapped((b.rows, b.columns), self.transposes_b);
        [rows, columns, inner]
    }

    /// Fails if the product is invalid or not supported.
    ///
    /// # Errors
    ///
    /// The first reason.
    pub fn check(&self) -> Result<(), ProductRefusal> {
        let [a, b, c, d] = &self.layouts;
        let elements = [a.element, b.element, c.element, d.element];
        if !self.compute_type.accepts(elements) {
            let what = format!("no {:?} of {elements:?}", self.compute_type);
            return Err(ProductRefusal::NotSupported(what));
        }
        let [rows, columns, inner] = self.dims();
        let (inner_of_b, _) = swapped((b.rows, b.columns), self.transposes_b);
        if inner != inner_of_b {
            let what = format!("A has {inner} numbers to sum over, B has {inner_of_b}");
            return Err(ProductRefusal::Invalid(what));
        }
        for (name, layout) in NAMES.iter().zip(&self.layouts) {
            if layout.rows == 0 || layout.columns == 0 {
                return Err(ProductRefusal::Invalid(format!("{name} is empty")));
            }
            if layout.leading < layout.least_leading() {
                let (leading, least) = (layout.leading, layout.least_leading());
                let what = format!("{name} has a leading dimension of {leading}, below {least}");
                return Err(ProductRefusal::Invalid(what));
            }
            if layout.batch != d.batch {
                let what = format!("{name} has a batch of {}, D of {}", layout.batch, d.batch);
                return Err(ProductRefusal::Invalid(what));
            }
        }
        for (name, layout) in [("C", c), ("D", d)] {
            if (layout.rows, layout.columns) != (rows, columns) {
                let (own, its) = (layout.rows, layout.columns);
                let what = format!("{name} is {own} x {its}, the product {rows} x {columns}");
                return Err(ProductRefusal::Invalid(what));
            }
        }
        if d.batch > 1 && d.stride.unsigned_abs() < d.span() {
            return Err(ProductRefusal::Invalid("matrices of the batch of D overlap".to_owned()));
        }
        Ok(())
    }

    /// The memory that is read and written.
    pub fn accesses(&self, operands: &Operands) -> Vec<Access> {
        let [_, _, c, d] = operands.addresses;
        let range = |index: usize| self.layouts[index].range(operands.addresses[index]);
        let mut accesses: Vec<Access> =
            [0, 1].map(|index| Access { range: range(index), usage: Usage::Read }).into();
        let reads_result = operands.beta != 0.0 && c == d;
        if operands.beta != 0.0 && !reads_result {
            accesses.push(Access { range: range(2), usage: Usage::Read });
        }
        let usage = if reads_result { Usage::ReadWrite } else { Usage::Write };
        accesses.push(Access { range: range(3), usage });
        accesses
    }

    /// Fails if matrices are unaligned or overlap.
    ///
    /// # Errors
    ///
    /// The first reason.
    pub fn check_operands(&self, operands: &Operands) -> Result<(), ProductRefusal> {
        let [a, b, c, d] = operands.addresses;
        let reads_c = operands.beta != 0.0;
        for (index, address) in operands.addresses.iter().enumerate() {
            let bytes = self.layouts[index].element.bytes() as u64;
            if (index != 2 || reads_c) && (*address == 0 || address % bytes != 0) {
                let what = format!("{} lies at {address:#x}, unaligned", NAMES[index]);
                return Err(ProductRefusal::Invalid(what));
            }
        }
        let range =
            |index: usize| -> Range { self.layouts[index].range(operands.addresses[index]) };
        for (index, address) in [a, b, c].into_iter().enumerate().filter(|(i, _)| *i < 2 || reads_c)
        {
            let is_in_place = index == 2 && address == d && self.layouts[2] == self.layouts[3];
            if !is_in_place && range(index).overlap(range(3)).is_some() {
                return Err(ProductRefusal::Invalid(format!("{} overlaps with D", NAMES[index])));
            }
        }
        Ok(())
    }

    /// Computes D in memory, which is accessed by `read` and `write`.
    pub fn compute(
        &self,
        operands: &Operands,
        read: &impl Fn(u64, usize) -> u64,
        write: &mut impl FnMut(u64, usize, u64),
    ) {
        let [rows, columns, inner] = self.dims();
        let [a, b, c, d] = &self.layouts;
        let load =
            |index: usize, layout: &MatrixLayout, at: (u64, u64, u64), is_transposed: bool| {
                let (row, column) = swapped((at.1, at.2), is_transposed);
                let address = layout.address(operands.addresses[index], at.0, row, column);
                layout.element.read(read(address, layout.element.bytes()))
            };
        for matrix in 0..d.batch {
            let rounded = |value| self.compute_type.round_operand(value);
            let take =
                |index, layout: &MatrixLayout, (m, n): (u64, u64), is_transposed| -> Vec<f64> {
                    let places = (0..n).flat_map(|j| (0..m).map(move |i| (i, j)));
                    places
                        .map(|(i, j)| rounded(load(index, layout, (matrix, i, j), is_transposed)))
                        .collect()
                };
            // The summed elements are contiguous in each.
            let left = take(0, a, (inner, rows), !self.transposes_a);
            let right = take(1, b, (inner, columns), self.transposes_b);
            for row in 0..rows {
                for column in 0..columns {
                    let lane = |all: &[f64], at: u64| -> std::ops::Range<usize> {
                        let start = (at * inner) as usize;
                        debug_assert!(start < all.len(), "a lane lies within its matrix");
                        start..start + inner as usize
                    };
                    let pairs = left[lane(&left, row)].iter().zip(&right[lane(&right, column)]);
                    let sum = self.compute_type.sum(pairs.map(|(x, y)| (*x, *y)));
                    let mut result = operands.alpha * sum;
                    if operands.beta != 0.0 {
                        result += operands.beta * load(2, c, (matrix, row, column), false);
                    }
                    let address = d.address(operands.addresses[3], matrix, row, column);
                    let bits = self.store(result);
                    write(address, d.element.bytes(), bits);
                }
            }
        }
    }

    /// The bits of a result, rounded to the precision of the sum first.
    fn store(&self, result: f64) -> u64 {
        let format = self.layouts[3].element;
        let result = match self.compute_type {
            ComputeType::F64 => result,
            _ => Format::F32.round(result, Rounding::NearestEven),
        };
        format.write(result, Rounding::NearestEven)
    }
}

fn swapped<T>((first, second): (T, T), swaps: bool) -> (T, T) {
    if swaps { (second, first) } else { (first, second) }
}
