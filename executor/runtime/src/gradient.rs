//! Gradients of parameters, and their sums over micro-batches.

use executor_kernels::array::{Array, Element};
use executor_kernels::ops::Kernels;

/// A gradient of a parameter's part.
pub(crate) enum Gradient<B: Kernels> {
    /// As it is.
    Ready(Array<B>),
    /// `left right`, `[m, k]` by `[k, n]`, of this shape: computed where it is added, by the same kernel where a
    /// backend has one.
    Product { left: Array<B>, right: Array<B>, shape: Vec<usize> },
}

impl<B: Kernels> Gradient<B> {
    /// That of the weight of a linear layer, `[in, out]` in another shape, from rows `[rows, in]` and the gradient of
    /// what became of them, `[rows, out]`.
    pub(crate) fn of_linear(x: Array<B>, grad: Array<B>, shape: Vec<usize>) -> Self {
        Self::Product { left: x.transpose(), right: grad, shape }
    }

    /// The other way round: of a matrix.
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
    /// In its place of the flat array.
    InPlace,
}

/// The sums of gradients of the parameters of a unit.
#[derive(Debug)]
pub(crate) struct GradientSums<B: Kernels> {
    sums: Vec<Option<Sum<B>>>,
    /// All of them one after the other, once one was written there. What was not written is anything.
    flat: Option<Array<B>>,
}

impl<B: Kernels> GradientSums<B> {
    /// Those of so many parameters: none yet.
    pub(crate) fn new(num_parameters: usize) -> Self {
        Self { sums: (0..num_parameters).map(|_| None).collect(), flat: None }
    }

    /// Adds a gradient of a parameter, of which there are `len` elements from `start` on in the flat array, which has
    /// `flat_len`.
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

    /// Whether there are any.
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

    /// Takes another sum in the place of the one that is there.
    pub(crate) fn set(&mut self, index: usize, sum: Array<B>) {
        self.sums[index] = Some(Sum::Apart(sum));
    }

    /// All of them as one flat array of `flat_len` elements, and none are left here: zeros for parameters without, and
    /// behind the last. Parameters have so many elements, from these on.
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

    /// Bytes that they take.
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
