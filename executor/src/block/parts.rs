//! Parts of tensors, and tensors of parts.

use std::ops::Range;

use ir::graph::{DimName, OpId, Tensor};

use super::value::Value;
use super::{BlockRun, Kept, Result};
use crate::array::Array;
use crate::ops::Kernels;

/// Which dimension of a tensor is called `name`.
fn position(tensor: &Tensor, name: DimName) -> usize {
    let position = tensor.dims.iter().position(|dim| dim.name == name);
    position.expect("an operator was given the dimensions that it needs")
}

impl<B: Kernels> BlockRun<'_, B> {
    /// The dimension that operator `id` takes a part of, and which part. Layouts do not cut it.
    pub(super) fn sliced(&self, id: OpId, name: DimName, start: usize) -> (usize, Range<usize>) {
        let output = &self.program.op(id).output;
        let dim = position(output, name);
        let ir::graph::Extent::Fixed(size) = output.dims[dim].extent else {
            panic!("a part has a fixed size")
        };
        (dim, start..start + size as usize)
    }

    /// Its inputs side by side; those that lack dimensions of the first are repeated along them.
    pub(super) fn concat(&self, id: OpId, over: DimName, kept: &mut Kept<B>) -> Result<Array<B>> {
        let parts = self.repeated(id, over, kept)?;
        let dim = position(&self.program.op(id).output, over);
        Ok(Array::concat(parts, dim))
    }

    /// The inputs of operator `id`, each as the first is but for the dimension `over`.
    fn repeated(&self, id: OpId, over: DimName, kept: &mut Kept<B>) -> Result<Vec<Array<B>>> {
        let sources = &self.program.inputs[id.index()];
        let first = &self.program.op(sources[0]).output;
        let dim = position(first, over);
        let mut shape = Vec::new();
        let mut parts = Vec::with_capacity(sources.len());
        for (slot, source) in sources.iter().enumerate() {
            let part = self.input(id, slot, kept)?.array();
            let own = &self.program.op(*source).output;
            if slot == 0 {
                shape = part.shape();
            }
            shape[dim] = part.size(position(own, over));
            let with_ones: Vec<usize> = first
                .dims
                .iter()
                .enumerate()
                .map(|(at, dim)| if own.dim(dim.name).is_some() { shape[at] } else { 1 })
                .collect();
            parts.push(part.reshape(&with_ones).expand(&shape));
        }
        Ok(parts)
    }

    /// The gradients of its inputs from that of operator `id`, which put them side by side.
    pub(super) fn concat_grad(
        &self,
        id: OpId,
        over: DimName,
        gradient: &Array<B>,
    ) -> Vec<Option<Value<B>>> {
        let sources = &self.program.inputs[id.index()];
        let first = &self.program.op(sources[0]).output;
        let dim = position(first, over);
        let mut start = 0;
        let mut gradients = Vec::with_capacity(sources.len());
        for source in sources {
            let own = &self.program.op(*source).output;
            let ir::graph::Extent::Fixed(size) = own.dims[position(own, over)].extent else {
                panic!("a part has a fixed size")
            };
            let mut part = gradient.narrow(dim, start..start + size as usize);
            start += size as usize;
            let mut shape = Vec::new();
            for (at, dim) in first.dims.iter().enumerate() {
                if own.dim(dim.name).is_some() {
                    shape.push(part.size(at));
                } else {
                    part = part.sum_dim(at);
                }
            }
            gradients.push(Some(Value::Array(part.reshape(&shape))));
        }
        gradients
    }
}
