//! Dropout of a rank's part of a tensor.

use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use executor_kernels::ops::dropout::{Dropout, Extract};
use ir::graph::{Dim, DimName, Extent, OpId, OpKind, Placement};

use super::{BlockRun, SavedActivations};

impl<B: Kernels> BlockRun<'_, B> {
    /// `x`, the input of operator `id` or the gradient of its output, times the dropout mask.
    pub(super) fn dropped(&self, id: OpId, x: Array<B>, kept: &SavedActivations<B>) -> Array<B> {
        let op = self.program.op(id);
        let OpKind::Dropout { rate } = op.kind else { panic!("only dropout drops") };
        let place = self.program.placements.outputs[id.index()];
        let dims = op.output.dims.iter().filter(|dim| dim.name != DimName::Batch);
        let dims: Vec<Extract> = dims.map(|dim| self.extract(id, *dim, place)).collect();
        let mask = self.dropout(id, rate.0, kept).mask(x.size(0), &dims, x.element(), &x.device());
        x * mask
    }

    /// The random numbers of operator `id` for the samples of a micro-batch.
    pub(super) fn dropout(&self, id: OpId, rate: f64, kept: &SavedActivations<B>) -> Dropout {
        let key = [self.env.seed, self.number as u64, id.index() as u64];
        Dropout { rate, key, first_sample: kept.micro_batch.first_sample }
    }

    /// Size of a dimension, on all ranks together.
    pub(super) fn size_of(&self, dim: Dim) -> usize {
        match dim.extent {
            Extent::Batch => self.env.micro_batch_size,
            Extent::Sequence => self.env.sequence_length,
            Extent::Blocks(length) => self.env.sequence_length.div_ceil(length as usize),
            Extent::Fixed(size) => size as usize,
        }
    }

    /// This rank's indices of a dimension of operator `id`'s output.
    fn extract(&self, id: OpId, dim: Dim, place: Placement) -> Extract {
        let of = self.size_of(dim);
        if dim.extent == Extent::Sequence {
            let indices = self.positions(id).into_iter().map(|position| position as usize);
            Extract { indices: indices.collect(), of }
        } else if place == Placement::Shard(dim.name) {
            Extract { indices: self.env.tensor_part(of).collect(), of }
        } else {
            Extract::whole(of)
        }
    }
}
