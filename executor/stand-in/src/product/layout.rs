//! How matrices lie in memory.

use super::element::Element;
use crate::recording::Range;

/// Which elements lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `CUBLASLT_ORDER_COL`: those of a column.
    Columns,
    /// `CUBLASLT_ORDER_ROW`: those of a row.
    Rows,
}

/// A batch of matrices in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The type of the elements.
    pub element: Element,
    /// How many rows.
    pub rows: u64,
    /// How many columns.
    pub columns: u64,
    /// From a column to the next, or from a row to the next, in elements.
    pub leading: u64,
    /// What lies side by side.
    pub order: Order,
    /// How many matrices.
    pub batch: u64,
    /// From a matrix to the next, in elements.
    pub stride: i64,
}

impl Layout {
    /// One matrix, by columns.
    pub fn new(element: Element, rows: u64, columns: u64, leading: u64) -> Self {
        Self { element, rows, columns, leading, order: Order::Columns, batch: 1, stride: 0 }
    }

    /// How many elements lie side by side, and how often.
    fn runs(&self) -> (u64, u64) {
        match self.order {
            Order::Columns => (self.rows, self.columns),
            Order::Rows => (self.columns, self.rows),
        }
    }

    /// The least leading dimension.
    pub(super) fn least_leading(&self) -> u64 {
        self.runs().0
    }

    /// Elements from the first of a matrix to its last, both counted.
    pub(super) fn span(&self) -> u64 {
        let (len, count) = self.runs();
        self.leading.saturating_mul(count - 1).saturating_add(len)
    }

    /// The bytes from the first of all matrices to the last.
    pub(super) fn range(&self, start: u64) -> Range {
        let bytes = self.element.bytes() as u64;
        let steps = (self.batch - 1).saturating_mul(bytes).min(i64::MAX as u64).cast_signed();
        let reach = self.stride.saturating_mul(steps);
        let start = start.wrapping_add_signed(reach.min(0));
        Range::new(start, reach.unsigned_abs().saturating_add(self.span().saturating_mul(bytes)))
    }

    /// Where an element of a matrix lies.
    pub(super) fn address(&self, start: u64, matrix: u64, row: u64, column: u64) -> u64 {
        let place = match self.order {
            Order::Columns => row + column * self.leading,
            Order::Rows => column + row * self.leading,
        };
        let offset = self.stride * matrix.cast_signed() + place.cast_signed();
        start.wrapping_add_signed(offset * self.element.bytes().cast_signed() as i64)
    }
}
