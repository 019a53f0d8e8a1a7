//! Moves of tensors and gradients between placements along the tensor-parallel axis.

use std::ops::Range;

use executor_communicators::{CollectiveCall, Group, InFlight, Reduction};
use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use ir::collective::Collective;
use ir::graph::{DimName, Placement, Tensor};
use traces::timeline::{Activity, Stream};

use super::routed::Routed;
use super::value::Value;
use super::{BlockRun, Env, Result};
use crate::mesh::part;

impl<B: Kernels> BlockRun<'_, B> {
    /// Moves `value`, of the graph's tensor `tensor`, from one placement to another.
    pub(super) fn moved(
        &self,
        value: Value<B>,
        from: Placement,
        to: Placement,
        tensor: &Tensor,
    ) -> Result<Value<B>> {
        let env = self.env;
        if from == to || env.tensor.len() == 1 {
            return Ok(value);
        }
        assert!(to != Placement::Partial, "partial sums are made by operators alone");
        match (value, from.moved_to(to)) {
            (Value::Tokens, _) => Ok(Value::Tokens),
            (Value::Array(array), collective) => {
                let moving = env.start_moving(array, collective, [from, to], tensor)?;
                moving.wait().map(Value::Array)
            }
            (Value::Routed(routed), Some(collective)) => self.routed_moved(routed, collective),
            (Value::Routed(_), None) => panic!("routed rows are moved by collectives alone"),
        }
    }

    /// Starts to gather an array of the graph's tensor `tensor` from one placement to another; none, and nothing is
    /// started, where the move is not a plain all-gather.
    pub(super) fn started(
        &self,
        array: &Array<B>,
        from: Placement,
        to: Placement,
        tensor: &Tensor,
    ) -> Result<Option<InFlight<Array<B>>>> {
        let env = self.env;
        let is_gather = from != to && from.moved_to(to) == Some(Collective::AllGather);
        if env.tensor.len() == 1 || !is_gather {
            return Ok(None);
        }
        env.start_all_gather(array.clone(), from, tensor).map(Some)
    }

    /// Starts to move a gradient of `tensor` from the placement `to` of its use back to the tensor's placement `from`.
    /// If it is partial, each rank has a summand.
    pub(super) fn start_moving_back(
        &self,
        gradient: Value<B>,
        from: Placement,
        to: Placement,
        is_partial: bool,
        tensor: &Tensor,
    ) -> Result<InFlight<Value<B>>> {
        let env = self.env;
        if env.tensor.len() == 1 {
            return Ok(InFlight::done(gradient));
        }
        match (gradient, from.gradient_moved_back(to, is_partial)) {
            (Value::Array(array), collective) => {
                let moving = env.start_moving(array, collective, [to, from], tensor)?;
                Ok(moving.map(Value::Array))
            }
            (Value::Routed(routed), Some(collective)) => {
                self.routed_moved(routed, collective).map(InFlight::done)
            }
            (value, _) => Ok(InFlight::done(value)),
        }
    }

    /// Routed rows, or their gradient, moved by a collective.
    fn routed_moved(&self, routed: Routed<B>, collective: Collective) -> Result<Value<B>> {
        let env = self.env;
        Ok(Value::Routed(match collective {
            Collective::AllReduce => {
                let rows = env.all_reduce_among(&env.expert_tensor, routed.rows.clone())?;
                routed.with_rows(rows)
            }
            Collective::ReduceScatter => env.reduce_scatter_routed(routed)?,
            Collective::AllGather => env.gather_routed(routed)?,
            other => panic!("routed rows are not moved by {other:?}"),
        }))
    }
}

/// The dimension along which `tensor` is sharded.
fn dim(tensor: &Tensor, placement: Placement) -> usize {
    let Placement::Shard(name) = placement else {
        panic!("only a shard is cut along a dimension, not {placement:?}")
    };
    let position = tensor.dims.iter().position(|dim| dim.name == name);
    position.unwrap_or_else(|| panic!("{tensor} is not cut along {}", DimName::to_string(&name)))
}

impl<B: Kernels> Env<B> {
    /// Records `run` as a collective of the current action.
    pub(crate) fn recorded<T>(
        &self,
        stream: Stream,
        collective: Collective,
        bytes: u64,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let activity = Activity::Collective { collective, action: self.action.get() };
        self.recorder.record(stream, activity, bytes, run)
    }

    /// The sum over tensor-parallel ranks.
    pub(super) fn all_reduce(&self, array: Array<B>) -> Result<Array<B>> {
        self.all_reduce_among(&self.tensor, array)
    }

    /// The sum over `group`: tensor-parallel ranks, or expert-tensor-parallel ones.
    pub(crate) fn all_reduce_among(&self, group: &Group, array: Array<B>) -> Result<Array<B>> {
        self.start_all_reduce(group, array, Reduction::Sum)?.wait()
    }

    /// The maximum over tensor-parallel ranks.
    pub(super) fn greatest(&self, array: Array<B>) -> Result<Array<B>> {
        self.start_all_reduce(&self.tensor, array, Reduction::Max)?.wait()
    }

    /// Starts to move an array of the graph's tensor `tensor`, or its gradient, from one placement to another by
    /// `collective`. Without a collective, a shard of an array that each rank has whole is the rank's own part of it.
    fn start_moving(
        &self,
        array: Array<B>,
        collective: Option<Collective>,
        [from, to]: [Placement; 2],
        tensor: &Tensor,
    ) -> Result<InFlight<Array<B>>> {
        match collective {
            Some(Collective::AllReduce) => {
                self.start_all_reduce(&self.tensor, array, Reduction::Sum)
            }
            Some(Collective::ReduceScatter) => self.start_reduce_scatter(array, dim(tensor, to)),
            Some(Collective::AllGather) => self.start_all_gather(array, from, tensor),
            Some(Collective::AllToAll) => {
                self.all_to_all(&array, dim(tensor, from), dim(tensor, to)).map(InFlight::done)
            }
            _ if matches!(to, Placement::Shard(_)) && from != to => {
                Ok(InFlight::done(self.own_part(&array, dim(tensor, to))))
            }
            _ => Ok(InFlight::done(array)),
        }
    }

    fn start_all_reduce(
        &self,
        group: &Group,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<InFlight<Array<B>>> {
        self.recorded(Stream::Tensor, Collective::AllReduce, array.num_bytes(), || {
            let call = CollectiveCall::AllReduce { array, reduction };
            self.communicator.on(group, Stream::Tensor).start(call)
        })
    }

    fn start_reduce_scatter(&self, array: Array<B>, dim: usize) -> Result<InFlight<Array<B>>> {
        self.recorded(Stream::Tensor, Collective::ReduceScatter, array.num_bytes(), || {
            let sizes = self.parts(array.size(dim)).map(|part| part.len()).collect();
            let call =
                CollectiveCall::ReduceScatter { array, dim, sizes, reduction: Reduction::Sum };
            self.communicator.on(&self.tensor, Stream::Tensor).start(call)
        })
    }

    /// Starts to concatenate the shards of all tensor-parallel ranks.
    fn start_all_gather(
        &self,
        array: Array<B>,
        from: Placement,
        tensor: &Tensor,
    ) -> Result<InFlight<Array<B>>> {
        let bytes = array.num_bytes() * self.tensor.len() as u64;
        let dim = dim(tensor, from);
        self.recorded(Stream::Tensor, Collective::AllGather, bytes, || {
            let (group, stream) = (&self.tensor, Stream::Tensor);
            // Only vocabulary shards may differ in size between ranks.
            if from != Placement::Shard(DimName::Vocabulary) {
                let call = CollectiveCall::AllGather { array, dim };
                return self.communicator.on(group, stream).start(call);
            }
            let parts = self.communicator.on(group, stream).all_gather(array, None)?;
            Ok(InFlight::done(Array::concat(parts, dim)))
        })
    }

    fn all_to_all(&self, array: &Array<B>, from: usize, to: usize) -> Result<Array<B>> {
        self.recorded(Stream::Tensor, Collective::AllToAll, array.num_bytes(), || {
            let parts = self.parts(array.size(to)).map(|part| array.narrow(to, part)).collect();
            let (group, stream) = (&self.tensor, Stream::Tensor);
            let parts = self.communicator.on(group, stream).all_to_all(parts, None)?;
            Ok(Array::concat(parts, from))
        })
    }

    /// This rank's part along dimension `dim`.
    fn own_part(&self, array: &Array<B>, dim: usize) -> Array<B> {
        array.narrow(dim, self.tensor_part(array.size(dim)))
    }

    /// The parts of all tensor-parallel ranks along a dimension of this size.
    fn parts(&self, size: usize) -> impl Iterator<Item = Range<usize>> + use<B> {
        let count = self.tensor.len();
        (0..count).map(move |index| part(size, count, index))
    }
}
