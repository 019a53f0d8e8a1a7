//! Weights as operators find them.

use std::sync::Arc;

use executor_kernels::array::{Array, Element};
use executor_kernels::ops::Kernels;
use ir::graph::WeightFormat;

use crate::quantised::{Rows, dequantised};

/// A weight, as an operator finds it.
#[derive(Clone, Debug)]
pub(crate) enum Weight<B: Kernels> {
    /// As kernels read it.
    Plain(Array<B>),
    /// In few bits.
    Quantised(Arc<Quantised<B>>),
}

/// A weight in few bits.
#[derive(Debug)]
pub(crate) struct Quantised<B: Kernels> {
    pub(crate) codes: Array<B>,
    pub(crate) scales: Array<B>,
    pub(crate) rows: Rows,
    pub(crate) format: WeightFormat,
    pub(crate) element: Element,
    /// Sizes of the weight's dimensions in the order in which rows have them.
    pub(crate) sizes: Vec<usize>,
    /// Of each of the weight's dimensions, its place in that order.
    pub(crate) order: Vec<usize>,
}

impl<B: Kernels> Weight<B> {
    /// What a kernel reads.
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

    /// Rows and columns exchanged.
    pub(crate) fn transpose(self) -> Self {
        Self::Plain(self.array().transpose())
    }
}
