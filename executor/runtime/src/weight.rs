//! Weights of operators.

use std::sync::Arc;

use executor_kernels::array::{Array, Element};
use executor_kernels::ops::Kernels;
use ir::graph::WeightFormat;

use crate::quantised::{Rows, dequantised};

/// A weight of an operator.
#[derive(Clone, Debug)]
pub(crate) enum Weight<B: Kernels> {
    /// In the element type that kernels read.
    Plain(Array<B>),
    /// Quantised.
    Quantised(Arc<Quantised<B>>),
}

/// A quantised weight.
#[derive(Debug)]
pub(crate) struct Quantised<B: Kernels> {
    pub(crate) codes: Array<B>,
    pub(crate) scales: Array<B>,
    pub(crate) rows: Rows,
    pub(crate) format: WeightFormat,
    pub(crate) element: Element,
    /// Sizes of the weight's dimensions in the order of rows.
    pub(crate) sizes: Vec<usize>,
    /// For each of the weight's dimensions, its index in the order of rows.
    pub(crate) order: Vec<usize>,
}

impl<B: Kernels> Weight<B> {
    /// The weight in the form that kernels read, dequantised if necessary.
    pub(crate) fn array(&self) -> Array<B> {
        match self {
            Self::Plain(array) => array.clone(),
            Self::Quantised(it) => {
                let codes = it.codes.clone();
                let rows = dequantised(codes, &it.scales, it.rows, it.format, it.element);
                rows.reshape(&it.sizes).permute(&it.order)
            }
        }
    }

    /// Sizes of its dimensions, outermost first.
    pub(crate) fn shape(&self) -> Vec<usize> {
        match self {
            Self::Plain(array) => array.shape(),
            Self::Quantised(it) => it.order.iter().map(|place| it.sizes[*place]).collect(),
        }
    }

    /// The transpose, dequantised if necessary.
    pub(crate) fn transpose(self) -> Self {
        Self::Plain(self.array().transpose())
    }
}
