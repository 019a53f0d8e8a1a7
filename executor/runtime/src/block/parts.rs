//! Slices, concatenation, and broadcasts of tensors.

use std::ops::Range;

use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use ir::graph::{Dim, DimName, OpId, Tensor};

use super::value::Value;
use super::{BlockRun, Result, SavedActivations};

/// `array` of dimensions `own`, repeated along the dimensions of `dims` that it lacks, to the sizes `shape`.
pub(super) fn repeated<B: Kernels>(
    array: Array<B>,
    own: &[Dim],
    dims: &[Dim],
    shape: &[usize],
) -> Array<B> {
    let is_there = |dim: &Dim| own.iter().any(|it| it.name == dim.name);
    let sizes = dims.iter().zip(shape);
    let with_ones: Vec<usize> =
        sizes.map(|(dim, size)| if is_there(dim) { *size } else { 1 }).collect();
    array.reshape(&with_ones).expand(shape)
}

/// `array` of dimensions `dims`, summed over the dimensions that `own` lacks.
pub(super) fn summed<B: Kernels>(mut array: Array<B>, own: &[Dim], dims: &[Dim]) -> Array<B> {
    let mut shape = Vec::new();
    for (at, dim) in dims.iter().enumerate() {
        if own.iter().any(|it| it.name == dim.name) {
            shape.push(array.size(at));
        } else {
            array = array.sum_dim(at);
        }
    }
    array.reshape(&shape)
}

/// Index of the dimension `name` of a tensor.
fn position(tensor: &Tensor, name: DimName) -> usize {
    let position = tensor.dims.iter().position(|dim| dim.name == name);
    position.expect("an operator was given the dimensions that it needs")
}

impl<B: Kernels> BlockRun<'_, B> {
    /// The dimensions of the input of operator `id` at `slot`.
    pub(super) fn given(&self, id: OpId, slot: usize) -> &[Dim] {
        &self.program.op(self.program.inputs[id.index()][slot]).output.dims
    }

    /// The dimension along which operator `id` takes a slice, and the slice's range. Layouts do not shard this
    /// dimension.
    pub(super) fn sliced(&self, id: OpId, name: DimName, start: usize) -> (usize, Range<usize>) {
        let output = &self.program.op(id).output;
        let dim = position(output, name);
        let size = output.dims[dim].extent.fixed().expect("a part has a fixed size");
        (dim, start..start + size as usize)
    }

    /// The inputs of operator `id`, repeated along dimensions of the first that they lack, and concatenated.
    pub(super) fn concat(
        &self,
        id: OpId,
        over: DimName,
        kept: &mut SavedActivations<B>,
    ) -> Result<Array<B>> {
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
            parts.push(repeated(part, &own.dims, &first.dims, &shape));
        }
        Ok(Array::concat(parts, position(&self.program.op(id).output, over)))
    }

    /// The gradients of the inputs of operator `id`, a concatenation, from that of its output.
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
            let extent = own.dims[position(own, over)].extent;
            let size = extent.fixed().expect("a part has a fixed size");
            let part = gradient.narrow(dim, start..start + size as usize);
            start += size as usize;
            gradients.push(Some(Value::Array(summed(part, &own.dims, &first.dims))));
        }
        gradients
    }
}
