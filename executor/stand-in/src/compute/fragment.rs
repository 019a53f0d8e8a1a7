//! Matrices in the registers of a warp, and their products.
//!
//! CUDA does not define which lane holds which element of a `wmma` fragment, so any order is valid. For `mma` it does.
//!
//! # Source
//!
//! NVIDIA, *PTX ISA* 8.8, section 9.7.14: "Matrix Fragments for WMMA" (number of registers), and "Matrix Fragments for
//! mma.m16n8k4", "mma.m16n8k8" and "mma.m16n8k16".

use super::lanes::{Lanes, WIDTH};
use crate::number::{Format, Rounding};

/// Role of a matrix in a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    A,
    B,
    /// C or D.
    Sum,
}

/// Assignment of a matrix's elements to lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FragmentOrder {
    /// The order of `wmma` fragments, chosen here: one lane after the other.
    Own,
    /// The documented order of `mma`.
    Documented(Role),
}

/// A matrix in the registers of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) element: Format,
    /// Elements of each lane. If that is more than the matrix has, some elements are in several lanes.
    pub(super) per_lane: usize,
    pub(super) order: FragmentOrder,
    /// True where rows are contiguous in memory.
    pub(super) is_by_rows: bool,
}

impl Fragment {
    /// The row and the column of an element of a lane.
    pub(super) fn place(&self, lane: usize, index: usize) -> (usize, usize) {
        match self.order {
            FragmentOrder::Own => {
                let element = (lane * self.per_lane + index) % (self.rows * self.columns);
                (element / self.columns, element % self.columns)
            }
            FragmentOrder::Documented(role) => self.documented(role, lane / 4, lane % 4, index),
        }
    }

    fn documented(&self, role: Role, group: usize, member: usize, i: usize) -> (usize, usize) {
        // 16-bit numbers are packed in pairs, neighbours along the inner dimension.
        let is_wide = self.element.bytes() == 4;
        match role {
            Role::A if is_wide => (group + 8 * (i % 2), member + 4 * (i / 2)),
            Role::A => (group + 8 * (i / 2 % 2), 2 * member + i % 2 + 8 * (i / 4)),
            Role::B if is_wide => (member + 4 * i, group),
            Role::B => (2 * member + i % 2 + 8 * (i / 2), group),
            Role::Sum => (group + 8 * (i / 2), 2 * member + i % 2),
        }
    }

    /// The whole matrix, row-major.
    fn matrix(&self, registers: &[Lanes]) -> Vec<f64> {
        let mut matrix = vec![0.0; self.rows * self.columns];
        for lane in 0..WIDTH {
            let words = registers.iter().map(|values| values[lane]);
            for (index, bits) in unpack(self.element, words).enumerate() {
                let (row, column) = self.place(lane, index);
                matrix[row * self.columns + column] = self.element.read(bits);
            }
        }
        matrix
    }

    /// The registers that hold a whole matrix.
    fn registers(&self, matrix: &[f64]) -> Vec<Lanes> {
        let words = |lane: usize| -> Vec<u64> {
            let elements = (0..self.per_lane).map(|index| {
                let (row, column) = self.place(lane, index);
                let value = matrix[row * self.columns + column];
                self.element.write(value, Rounding::NearestEven)
            });
            pack(self.element, &elements.collect::<Vec<_>>()).collect()
        };
        let by_lane: Vec<Vec<u64>> = (0..WIDTH).map(words).collect();
        (0..by_lane[0].len())
            .map(|register| std::array::from_fn(|lane| by_lane[lane][register]))
            .collect()
    }
}

/// `D = A B + C`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Multiply {
    pub(super) a: Fragment,
    pub(super) b: Fragment,
    pub(super) c: Fragment,
    pub(super) d: Fragment,
}

impl Multiply {
    /// The registers of D. Sums are as exact as binary64, which is more than PTX guarantees.
    pub(super) fn compute(&self, [a, b, c]: [&[Lanes]; 3]) -> Vec<Lanes> {
        let (a, b, mut sums) = (self.a.matrix(a), self.b.matrix(b), self.c.matrix(c));
        let (inner, columns) = (self.a.columns, self.b.columns);
        for (sums, row) in sums.chunks_exact_mut(columns).zip(a.chunks_exact(inner)) {
            for (x, other) in row.iter().zip(b.chunks_exact(columns)) {
                for (sum, y) in sums.iter_mut().zip(other) {
                    *sum += x * y;
                }
            }
        }
        self.d.registers(&sums)
    }
}

/// Elements packed into registers of 32 or 64 bits.
pub(super) fn pack(element: Format, elements: &[u64]) -> impl Iterator<Item = u64> {
    let per_register = if element.bytes() == 2 { 2 } else { 1 };
    elements
        .chunks(per_register)
        .map(|part| part.iter().rev().fold(0, |word, element| word << 16 | element))
}

/// The elements in registers.
pub(super) fn unpack(
    element: Format,
    words: impl Iterator<Item = u64>,
) -> impl Iterator<Item = u64> {
    let per_register = if element.bytes() == 2 { 2 } else { 1 };
    words.flat_map(move |word| {
        (0..per_register).map(move |index| match per_register {
            2 => word >> (16 * index) & 0xffff,
            _ => word,
        })
    })
}
