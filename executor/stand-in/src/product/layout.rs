//! Layouts of matrices in memory.

use crate::number::Format;
use crate::recording::Range;

/// Storage order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageOrder {
    /// `CUBLASLT_ORDER_COL`: column-major.
    Columns,
    /// `CUBLASLT_ORDER_ROW`: row-major.
    Rows,
}

/// A batch of matrices in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixLayout {
    /// The format of the elements.
    pub element: Format,
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
    /// Distance in elements between columns, or between rows if the matrix is row-major.
    pub leading: u64,
    /// Storage order.
    pub order: StorageOrder,
    /// Number of matrices.
    pub batch: u64,
    /// Distance of matrices, in elements.
    pub stride: i64,
}

impl MatrixLayout {
    /// One matrix, column-major.
    pub fn new(element: Format, rows: u64, columns: u64, leading: u64) -> Self {
        Self { element, rows, columns, leading, order: StorageOrder::Columns, batch: 1, stride: 0 }
    }

    /// Length and number of contiguous runs.
    fn runs(&self) -> (u64, u64) {
        match self.order {
            StorageOrder::Columns => (self.rows, self.columns),
            StorageOrder::Rows => (self.columns, self.rows),
        }
    }

    /// The least leading dimension.
    pub(super) fn least_leading(&self) -> u64 {
        self.runs().0
    }

    /// Elements from the first of a matrix to its last, inclusive.
    pub(super) fn span(&self) -> u64 {
        let (len, count) = self.runs();
        self.leading.saturating_mul(count - 1).saturating_add(len)
    }

    /// The bytes of all matrices, from the first to the last.
    pub(super) fn range(&self, start: u64) -> Range {
        let bytes = self.element.bytes() as u64;
        let steps = (self.batch - 1).saturating_mul(bytes).min(i64::MAX as u64).cast_signed();
        let reach = self.stride.saturating_mul(steps);
        let start = start.wrapping_add_signed(reach.min(0));
        Range::new(start, reach.unsigned_abs().saturating_add(self.span().saturating_mul(bytes)))
    }

    /// The address of an element of a matrix.
    pub(super) fn address(&self, start: u64, matrix: u64, row: u64, column: u64) -> u64 {
        let place = match self.order {
            StorageOrder::Columns => row + column * self.leading,
            StorageOrder::Rows => column + row * self.leading,
        };
        let offset = self.stride * matrix.cast_signed() + place.cast_signed();
        start.wrapping_add_signed(offset * self.element.bytes().cast_signed() as i64)
    }
}
