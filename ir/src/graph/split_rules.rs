//! Rules for splitting an operator along an axis: the placements of its inputs and output, and its part on a rank.

use super::block::{Block, OpId};
use super::builder::BlockBuilder;
use super::op::{NormKind, Op, OpKind};
use super::parameter::Parameter;
use super::splits::{
    AxisPlacement, ByMeshAxis, MESH_AXES, SharedParameter, SplitDim, SplitExchange, SplitOp,
};
use super::tensor::{Dim, DimName, ElementType, Extent, Sizes, Tensor};
use super::window::Window2d;
use crate::collective::Collective;

impl Block {
    /// All ways of splitting an operator over a mesh; the first splits nothing. Dimensions whose size the mesh does
    /// not divide are not split.
    pub fn split_op(&self, op: OpId, sizes: Sizes, mesh: ByMeshAxis<u32>) -> Vec<SplitOp> {
        let fixed = |tensor: &Tensor| Tensor {
            dims: tensor
                .dims
                .iter()
                .map(|dim| Dim::fixed(dim.name, dim.extent.resolve(sizes)))
                .collect(),
            element: tensor.element,
        };
        let inputs = self.inputs(op).iter().map(|source| fixed(&self.op(*source).output));
        let op = self.op(op);
        let kind = match &op.kind {
            OpKind::Reshape { .. } => OpKind::Reshape { dims: fixed(&op.output).dims },
            kind => kind.clone(),
        };
        let whole = OpPart::whole(kind, inputs.collect(), fixed(&op.output));
        let choices = |ranks: u32| {
            let dims = SplitDim::ALL.into_iter().map(Some).filter(move |_| ranks > 1);
            std::iter::once(None).chain(dims)
        };
        let [inner, outer] = mesh;
        let splits =
            choices(inner).flat_map(|first| choices(outer).map(move |second| [first, second]));
        splits.filter_map(|splits| whole.split(op, splits, mesh)).collect()
    }
}

/// A part of an operator while it is split axis by axis.
#[derive(Clone, Debug)]
struct OpPart {
    kind: OpKind,
    inputs: Vec<Tensor>,
    output: Tensor,
    wanted: Vec<ByMeshAxis<AxisPlacement>>,
    left: ByMeshAxis<AxisPlacement>,
    exchanges: Vec<SplitExchange>,
}

impl OpPart {
    fn whole(kind: OpKind, inputs: Vec<Tensor>, output: Tensor) -> Self {
        let wanted = vec![[AxisPlacement::Whole; MESH_AXES]; inputs.len()];
        let left = [AxisPlacement::Whole; MESH_AXES];
        Self { kind, inputs, output, wanted, left, exchanges: Vec::new() }
    }

    /// The operator split along each axis; `None` where it cannot be.
    fn split(
        &self,
        op: &Op,
        splits: ByMeshAxis<Option<SplitDim>>,
        mesh: ByMeshAxis<u32>,
    ) -> Option<SplitOp> {
        let mut part = self.clone();
        let mut sizes = vec![part.parameter_elements(op)?];
        for (axis, split) in splits.iter().enumerate() {
            if let Some(dim) = split {
                part.along(axis, *dim, mesh[axis].into())?;
            }
            sizes.push(part.parameter_elements(op)?);
        }
        let of = |index: usize| {
            let is_cut = |axis: usize| sizes[axis][index] != sizes[axis + 1][index];
            let is_summed =
                |axis: usize| splits[axis].is_some_and(|dim| !dim.is_summed()) && !is_cut(axis);
            SharedParameter {
                elements: sizes[MESH_AXES][index],
                is_summed: std::array::from_fn(is_summed),
                is_tied: op.parameters[index].tied_to.is_some(),
            }
        };
        let parameters =
            if op.is_trained() { (0..sizes[0].len()).map(of).collect() } else { Vec::new() };
        let block = part.block(op)?;
        let Self { wanted, left: output, exchanges, .. } = part;
        Some(SplitOp { splits, wanted, output, parameters, exchanges, block })
    }

    /// The operator with its inputs, as a block of its own.
    fn block(&self, op: &Op) -> Option<Block> {
        let mut block = BlockBuilder::new(op.name.clone());
        let inputs: Vec<OpId> = self
            .inputs
            .iter()
            .enumerate()
            .map(|(slot, tensor)| block.input(format!("input {slot}"), tensor.clone()))
            .collect();
        let value = if self.kind == OpKind::Input {
            block.input(op.name.clone(), self.output.clone())
        } else {
            block.push(op.name.clone(), self.kind.clone(), &inputs).ok()?
        };
        block.set_learning(value, op.learning);
        Some(block.finish([value]))
    }

    /// Elements of each parameter.
    fn parameter_elements(&self, op: &Op) -> Option<Vec<u64>> {
        let block = self.block(op)?;
        let part = block.op(OpId(self.inputs.len()));
        Some(part.parameters.iter().map(Parameter::num_elements).collect())
    }

    /// Splits the part along an axis of `ranks`; `None` where the operator has no such dimension, or where `ranks`
    /// does not divide it.
    #[expect(clippy::too_many_lines, reason = "a table: one arm an operator")]
    fn along(&mut self, axis: usize, split: SplitDim, ranks: u64) -> Option<()> {
        match (&mut self.kind, split) {
            (OpKind::Gather | OpKind::Buffer { .. }, _) => None,
            (
                OpKind::Linear { contracted, .. } | OpKind::GroupedLinear { contracted, .. },
                SplitDim::InFeatures,
            ) => {
                let name = *contracted.first()?;
                self.sums_over(axis, name, ranks)
            }
            (
                OpKind::Linear { produced, .. } | OpKind::GroupedLinear { produced, .. },
                SplitDim::OutFeatures,
            ) => {
                let produced = produced.first_mut()?;
                divide(produced, ranks)?;
                let name = produced.name;
                self.reads(axis, name, ranks)
            }
            (
                OpKind::Linear { contracted, .. } | OpKind::GroupedLinear { contracted, .. },
                SplitDim::Batch | SplitDim::Sequence,
            ) => {
                let name = split.names()[0];
                if contracted.contains(&name) { None } else { self.each(axis, name, ranks) }
            }
            (OpKind::Linear { .. } | OpKind::GroupedLinear { .. }, _) => None,
            (OpKind::Embedding { entries, .. }, SplitDim::InFeatures) => {
                divide(entries, ranks)?;
                self.left[axis] = AxisPlacement::Partial;
                Some(())
            }
            (OpKind::Embedding { width, .. }, SplitDim::OutFeatures) => {
                divide(width, ranks)?;
                let name = width.name;
                self.reads(axis, name, ranks)
            }
            (
                OpKind::Router { .. } | OpKind::Embedding { .. },
                SplitDim::Batch | SplitDim::Sequence,
            ) => self.each(axis, split.names()[0], ranks),
            (OpKind::Router { .. } | OpKind::Embedding { .. }, _) => None,
            (
                OpKind::Conv2d { groups: 1, .. } | OpKind::ConvTranspose2d { groups: 1, .. },
                SplitDim::InChannels,
            ) => self.sums_over(axis, DimName::Channels, ranks),
            (
                OpKind::Conv2d { groups: 1, out_channels, .. }
                | OpKind::ConvTranspose2d { groups: 1, out_channels, .. },
                SplitDim::OutChannels,
            ) => {
                *out_channels = divided(*out_channels, ranks)?;
                self.reads(axis, DimName::Channels, ranks)
            }
            (
                OpKind::Conv2d { groups, out_channels, .. }
                | OpKind::ConvTranspose2d { groups, out_channels, .. },
                SplitDim::OutChannels,
            ) => {
                *groups = divided(*groups, ranks)?;
                *out_channels = divided(*out_channels, ranks)?;
                self.each(axis, DimName::Channels, ranks)
            }
            (
                OpKind::Conv2d { window, .. }
                | OpKind::MaxPool2d(window)
                | OpKind::AveragePool2d(window),
                SplitDim::Height | SplitDim::Width,
            ) => {
                let window = *window;
                self.borders(axis, split, ranks, &window)
            }
            (
                OpKind::AdaptiveAveragePool2d { .. }
                | OpKind::Upsample2d { .. }
                | OpKind::ConvTranspose2d { .. },
                SplitDim::Height | SplitDim::Width,
            ) => None,
            (
                OpKind::Attention { .. } | OpKind::AttentionScores | OpKind::AttentionValues,
                SplitDim::Heads,
            ) => self.heads(axis, ranks),
            (OpKind::CrossEntropy { over, .. }, SplitDim::InFeatures) => {
                let name = *over;
                self.shares_rows(axis, name, ranks)
            }
            (OpKind::Flatten, SplitDim::OutFeatures) => {
                let first = self.inputs[0].dims.iter().find(|dim| dim.name != DimName::Batch)?.name;
                self.renames(axis, first, DimName::Features, ranks)
            }
            (OpKind::PatchesToSequence, SplitDim::OutFeatures) => {
                self.renames(axis, DimName::Channels, DimName::Hidden, ranks)
            }
            (OpKind::PatchesToSequence, SplitDim::Sequence) => {
                self.renames(axis, DimName::Height, DimName::Sequence, ranks)
            }
            (
                OpKind::Attention { .. }
                | OpKind::AttentionScores
                | OpKind::AttentionValues
                | OpKind::Indexer { .. }
                | OpKind::Compress { .. }
                | OpKind::Recurrence { .. }
                | OpKind::ShortConvolution { .. }
                | OpKind::Flatten
                | OpKind::PatchesToSequence,
                split,
            ) => (split == SplitDim::Batch).then(|| self.each(axis, DimName::Batch, ranks))?,
            (_, split) => {
                let name = self.free_dim(split)?;
                self.each(axis, name, ranks)
            }
        }
    }

    /// The dimension that `split` stands for, in an operator that treats its elements alike; `None` where the operator
    /// computes sums or statistics over that dimension, or reads parts of it.
    fn free_dim(&self, split: SplitDim) -> Option<DimName> {
        let tensor = self.inputs.first().unwrap_or(&self.output);
        let name = split.names().iter().copied().find(|name| tensor.dim(*name).is_some())?;
        let is_bound = match &self.kind {
            // Ranks compute statistics over their own samples, as replicas do, but not over parts of an image.
            OpKind::Norm { kind: NormKind::BatchNorm, .. } => {
                matches!(name, DimName::Height | DimName::Width)
            }
            OpKind::Norm { kind: NormKind::GroupNorm { .. }, .. } => {
                matches!(name, DimName::Channels | DimName::Height | DimName::Width)
            }
            OpKind::Norm { over, .. } | OpKind::Reduce { over, .. } => over.contains(&name),
            OpKind::Reshape { .. } => tensor.dim(name) != self.output.dim(name),
            OpKind::Pad { dim } | OpKind::Take { dim } | OpKind::Slice { dim, .. } => {
                dim.name == name
            }
            OpKind::Softmax { over }
            | OpKind::CrossEntropy { over, .. }
            | OpKind::Concat { over } => *over == name,
            OpKind::FirstToken | OpKind::PrependParameter => name == DimName::Sequence,
            OpKind::Dispatch { .. } | OpKind::Combine => {
                !matches!(name, DimName::Batch | DimName::Sequence)
            }
            _ => false,
        };
        (!is_bound).then_some(name)
    }

    /// Splits over a dimension of inputs and output; an input that lacks it is read whole.
    fn each(&mut self, axis: usize, name: DimName, ranks: u64) -> Option<()> {
        let position = self.inputs.first().and_then(|tensor| position(tensor, name));
        for (slot, tensor) in self.inputs.iter_mut().enumerate() {
            // Operators with equal input shapes may name the dimensions differently.
            let like_first =
                position.filter(|_| matches!(self.kind, OpKind::Add | OpKind::GatedActivation(_)));
            let dim = tensor.dims.iter().position(|dim| dim.name == name).or(like_first);
            self.wanted[slot][axis] = match dim {
                Some(dim) => {
                    divide(&mut tensor.dims[dim], ranks)?;
                    AxisPlacement::Shard(tensor.dims[dim].name)
                }
                None => AxisPlacement::Read,
            };
        }
        self.left[axis] = match self.output.dims.iter_mut().find(|dim| dim.name == name) {
            Some(dim) => {
                divide(dim, ranks)?;
                AxisPlacement::Shard(name)
            }
            None => AxisPlacement::Partial,
        };
        if let OpKind::AddParameter { dims } | OpKind::Parameter { dims } | OpKind::Reshape { dims } =
            &mut self.kind
            && let Some(dim) = dims.iter_mut().find(|dim| dim.name == name)
        {
            divide(dim, ranks)?;
        }
        Some(())
    }

    /// Reads its inputs whole and outputs shards of a dimension.
    fn reads(&mut self, axis: usize, name: DimName, ranks: u64) -> Option<()> {
        for (wanted, tensor) in self.wanted.iter_mut().zip(&self.inputs) {
            let has_gradient = tensor.element != ElementType::Index;
            wanted[axis] = if has_gradient { AxisPlacement::Read } else { AxisPlacement::Whole };
        }
        divide(self.output.dims.iter_mut().find(|dim| dim.name == name)?, ranks)?;
        self.left[axis] = AxisPlacement::Shard(name);
        Some(())
    }

    /// Reads shards of a dimension that is summed over, and outputs partial sums.
    fn sums_over(&mut self, axis: usize, name: DimName, ranks: u64) -> Option<()> {
        let input = self.inputs.first_mut()?;
        divide(input.dims.iter_mut().find(|dim| dim.name == name)?, ranks)?;
        self.wanted[0][axis] = AxisPlacement::Shard(name);
        self.left[axis] = AxisPlacement::Partial;
        Some(())
    }

    /// Reads shards of the dimension `from` and outputs shards of `to`, whose outermost part is `from`.
    fn renames(&mut self, axis: usize, from: DimName, to: DimName, ranks: u64) -> Option<()> {
        divide(self.inputs[0].dims.iter_mut().find(|dim| dim.name == from)?, ranks)?;
        divide(self.output.dims.iter_mut().find(|dim| dim.name == to)?, ranks)?;
        self.wanted[0][axis] = AxisPlacement::Shard(from);
        self.left[axis] = AxisPlacement::Shard(to);
        Some(())
    }

    /// Splits queries, keys and values over heads; an input without heads is read whole.
    fn heads(&mut self, axis: usize, ranks: u64) -> Option<()> {
        for (slot, tensor) in self.inputs.iter_mut().enumerate() {
            let of_heads = |dim: &&mut Dim| matches!(dim.name, DimName::Heads | DimName::KvHeads);
            self.wanted[slot][axis] = match tensor.dims.iter_mut().find(of_heads) {
                Some(dim) => {
                    divide(dim, ranks)?;
                    AxisPlacement::Shard(dim.name)
                }
                None => AxisPlacement::Read,
            };
        }
        let heads = self.output.dims.iter_mut().find(|dim| dim.name == DimName::Heads)?;
        divide(heads, ranks)?;
        self.left[axis] = AxisPlacement::Shard(DimName::Heads);
        Some(())
    }

    /// Splits rows or columns of an image. A window that is larger than its stride also reads some from the
    /// neighbours.
    fn borders(
        &mut self,
        axis: usize,
        split: SplitDim,
        ranks: u64,
        window: &Window2d,
    ) -> Option<()> {
        let side = usize::from(split == SplitDim::Width);
        let name = split.names()[0];
        let [stride, padding] = [window.stride, window.padding].map(|of_sides| of_sides[side]);
        let kernel = window.reach(side).filter(|_| !window.rounds_up)?;
        let input = self.inputs.first_mut()?;
        let dim = input.dims.iter_mut().find(|dim| dim.name == name)?;
        divide(dim, ranks)?;
        let own = size(*dim);
        let output = self.output.dims.iter_mut().find(|dim| dim.name == name)?;
        divide(output, ranks)?;
        // The input rows from which a rank's output rows are computed, with the padding at its own borders.
        let rows = (size(*output) - 1) * stride + kernel;
        let taken = rows.checked_sub(2 * padding).filter(|rows| *rows > 0)?;
        let neighbours = kernel.saturating_sub(stride);
        // Missing rows or columns can come only from direct neighbours.
        if neighbours > own {
            return None;
        }
        dim.extent = Extent::Fixed(taken);
        let others: u64 =
            input.dims.iter().filter(|dim| dim.name != name).map(|dim| size(*dim)).product();
        self.wanted[0][axis] = AxisPlacement::Shard(name);
        self.left[axis] = AxisPlacement::Shard(name);
        if neighbours > 0 {
            self.exchanges.push(SplitExchange {
                axis,
                collective: Collective::SendReceive,
                elements: neighbours * others,
                element: input.element,
                times: [1, 1],
            });
        }
        Some(())
    }

    /// Splits the classes of a loss: maximum, sum of exponentials and the target's logit of each row are all-reduced.
    fn shares_rows(&mut self, axis: usize, name: DimName, ranks: u64) -> Option<()> {
        let logits = self.inputs.first_mut()?;
        divide(logits.dims.iter_mut().find(|dim| dim.name == name)?, ranks)?;
        let rows =
            logits.dims.iter().filter(|dim| dim.name != name).map(|dim| size(*dim)).product();
        self.wanted[0][axis] = AxisPlacement::Shard(name);
        self.exchanges.push(SplitExchange {
            axis,
            collective: Collective::AllReduce,
            elements: rows,
            element: ElementType::Float32,
            times: [3, 0],
        });
        Some(())
    }
}

fn position(tensor: &Tensor, name: DimName) -> Option<usize> {
    tensor.dims.iter().position(|dim| dim.name == name)
}

/// Size of a dimension that is fixed.
fn size(dim: Dim) -> u64 {
    dim.extent.fixed().expect("sizes of split operators are fixed")
}

fn divided(size: u64, ranks: u64) -> Option<u64> {
    size.is_multiple_of(ranks).then_some(size / ranks).filter(|part| *part > 0)
}

fn divide(dim: &mut Dim, ranks: u64) -> Option<()> {
    dim.extent = Extent::Fixed(divided(size(*dim), ranks)?);
    Some(())
}
