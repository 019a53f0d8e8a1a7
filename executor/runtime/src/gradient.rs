//! Gradients of parameters, and their sums over micro-batches.

use executor_kernels::array::{Array, Element};
use executor_kernels::ops::Kernels;

/// A gradient of a parameter's part.
pub(crate) enum Gradient<B: Kernels> {
    /// A computed gradient.
    Ready(Array<B>),
    /// The product `left right`, `[m, k]` by `[k, n]`, in this shape: computed and added in one kernel where a backend
    /// has one.
    Product { left: Array<B>, right: Array<B>, shape: Vec<usize> },
}

impl<B: Kernels> Gradient<B> {
    /// The gradient of the weight of a linear layer, `[in, out]` in another shape, from the inputs `[rows, in]` and the
    /// gradient of the outputs, `[rows, out]`.
    pub(crate) fn of_linear(x: Array<B>, grad: Array<B>, shape: Vec<usize>) -> Self {
        Self::Product { left: x.transpose(), right: grad, shape }
    }

    /// The transpose of a matrix's gradient.
    pub(crate) fn transposed(self) -> Self {
        match self {
            Self::Ready(array) => Self::Ready(array.transpose()),
            Self::Product { left, right, mut shape } => {
                shape.reverse();
                Self::Product { left: right.transpose(), right: left.transpose(), shape }
            }
        }
    }

    fn computed(self) -> Array<B> {
        match self {
            Self::Ready(array) => array,
            Self::Product { left, right, shape } => B::matmul(left, right).reshape(&shape),
        }
    }
}

/// The sum of a parameter's gradients.
#[derive(Clone, Debug)]
enum Sum<B: Kernels> {
    Apart(Array<B>),
    /// At the parameter's offset of the flat array.
    InPlace,
}

/// The sums of gradients of the parameters of a unit.
#[derive(Debug)]
pub(crate) struct GradientSums<B: Kernels> {
    sums: Vec<Option<Sum<B>>>,
    /// The flat array of all sums, allocated once one is written into it. Parts that were not written are undefined.
    flat: Option<Array<B>>,
}

impl<B: Kernels> GradientSums<B> {
    /// Sums for `num_parameters` parameters, all empty.
    pub(crate) fn new(num_parameters: usize) -> Self {
        Self { sums: (0..num_parameters).map(|_| None).collect(), flat: None }
    }

    /// Adds a gradient of a parameter, which begins at `start` in the flat array of `flat_len` elements.
    pub(crate) fn add(
        &mut self,
        index: usize,
        gradient: Gradient<B>,
        element: Element,
        [start, flat_len]: [usize; 2],
    ) {
        let gradient = match gradient {
            Gradient::Product { left, right, shape } => {
                let adds = match &self.sums[index] {
                    None => Some(false),
                    Some(Sum::InPlace) => Some(true),
                    Some(Sum::Apart(_)) => None,
                };
                if let Some(adds) = adds.filter(|_| B::adds_products()) {
                    let new = || Array::empty_of(&[flat_len], element.into(), &right.device());
                    let flat = self.flat.get_or_insert_with(new);
                    if B::matmul_into(flat, start, [&left, &right], adds) {
                        self.sums[index] = Some(Sum::InPlace);
                        return;
                    }
                }
                Gradient::Product { left, right, shape }
            }
            ready @ Gradient::Ready(_) => ready,
        };
        let gradient = gradient.computed().cast(element);
        let sum = match self.sums[index].take() {
            None => gradient,
            Some(Sum::Apart(sum)) => sum + gradient,
            Some(Sum::InPlace) => self.part(start, &gradient.shape()) + gradient,
        };
        self.sums[index] = Some(Sum::Apart(sum));
    }

    /// Returns whether there are any sums.
    pub(crate) fn is_some(&self) -> bool {
        self.sums.iter().any(Option::is_some)
    }

    /// The sum of a parameter's gradients, of this shape.
    pub(crate) fn get(&self, index: usize, start: usize, shape: &[usize]) -> Option<Array<B>> {
        self.sums[index].as_ref().map(|sum| match sum {
            Sum::Apart(sum) => sum.clone(),
            Sum::InPlace => self.part(start, shape),
        })
    }

    /// Replaces the sum of a parameter's gradients.
    pub(crate) fn set(&mut self, index: usize, sum: Array<B>) {
        self.sums[index] = Some(Sum::Apart(sum));
    }

    /// Takes all sums as one flat array of `flat_len` elements: zeros for parameters without gradients, and for
    /// padding. `parts` has each parameter's offset and number of elements.
    pub(crate) fn take(
        &mut self,
        parts: impl Iterator<Item = [usize; 2]>,
        flat_len: usize,
        element: Element,
        device: &B::Device,
    ) -> Array<B> {
        let zeros = |len: usize| Array::zeros(&[len], element, device);
        let flat = self.flat.take();
        let mut apart = Vec::with_capacity(self.sums.len() + 1);
        let mut end = 0;
        for ([start, len], sum) in parts.zip(&mut self.sums) {
            end = start + len;
            let part = match sum.take() {
                Some(Sum::InPlace) => continue,
                Some(Sum::Apart(sum)) => sum.flatten(),
                None => zeros(len),
            };
            apart.push((start, part));
        }
        if end < flat_len {
            apart.push((end, zeros(flat_len - end)));
        }
        match flat {
            None => Array::concat(apart.into_iter().map(|(_, part)| part).collect(), 0),
            Some(flat) => {
                apart.into_iter().fold(flat, |flat, (start, part)| flat.with(start, part))
            }
        }
    }

    /// Bytes that the sums take.
    pub(crate) fn num_bytes(&self) -> u64 {
        let apart = self.sums.iter().flatten().filter_map(|sum| match sum {
            Sum::Apart(sum) => Some(sum.num_bytes()),
            Sum::InPlace => None,
        });
        apart.sum::<u64>() + self.flat.as_ref().map_or(0, Array::num_bytes)
    }

    /// A parameter's part of the flat array.
    fn part(&self, start: usize, shape: &[usize]) -> Array<B> {
        let flat = self.flat.as_ref().expect("what is in place has a place");
        flat.narrow(0, start..start + shape.iter().product::<usize>()).reshape(shape)
    }
}
