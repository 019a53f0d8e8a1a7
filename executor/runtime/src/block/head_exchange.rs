//! Attention and recurrences over a sequence sharded by context parallelism, by all-to-all: each rank gets all
//! positions of some heads.
//!
//! # Source
//!
//! Jacobs et al. 2023, *DeepSpeed Ulysses* (arXiv 2309.14509).

use std::ops::Range;

use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use executor_kernels::ops::attention::{self, KeyVisibility};
use ir::collective::Collective;
use ir::graph::{AttentionMask, OpId};
use traces::timeline::Stream;

use super::attention::TABLE;
use super::value::{Attended, Extra};
use super::{BlockRun, Env, Result, SavedActivations};
use crate::mesh::part;

/// The dimensions of queries, keys and values, `[batch, sequence, heads, features]`, that are exchanged.
const SEQUENCE: usize = 1;
const HEADS: usize = 2;

impl<B: Kernels> BlockRun<'_, B> {
    /// The output of operator `id`, an attention, at the rank's positions.
    pub(super) fn attend_by_heads(
        &self,
        id: OpId,
        kept: &mut SavedActivations<B>,
    ) -> Result<Array<B>> {
        let attended = self.recompute_attention(id, kept)?;
        let output = attended.output.clone();
        kept.extras.insert(id, Extra::Attended(attended));
        let [output] = self.env.exchange([output], SEQUENCE, HEADS)?;
        Ok(output)
    }

    /// Gradients of queries, keys and values at the rank's positions.
    pub(super) fn attend_by_heads_grad(
        &self,
        id: OpId,
        kept: &mut SavedActivations<B>,
        gradient: Array<B>,
    ) -> Result<[Array<B>; 3]> {
        let attended = match kept.extras.get(&id) {
            Some(Extra::Attended(attended)) => attended.clone(),
            _ => self.recompute_attention(id, kept)?,
        };
        let Attended { query, key, value, output, log_sum_exp } = attended;
        let [gradient] = self.env.exchange([gradient], HEADS, SEQUENCE)?;
        let heads = self.exchanged_heads(id);
        let scoring = self.scoring(id, &query, &heads, kept);
        self.keep_sinks_grad(id, [&output, &log_sum_exp, &gradient], &heads, kept);
        let grads = attention::input_grad(
            query,
            key,
            value,
            output,
            log_sum_exp,
            gradient,
            &scoring,
            visibility(self.mask(id)),
        );
        self.keep_parameter_grad(id, TABLE, grads.table, &heads, kept);
        self.env.exchange([grads.query, grads.key, grads.value], SEQUENCE, HEADS)
    }

    /// Attention of all positions over the rank's part of the heads.
    fn recompute_attention(&self, id: OpId, kept: &mut SavedActivations<B>) -> Result<Attended<B>> {
        let [query, key, value] = [0, 1, 2].map(|slot| self.input(id, slot, kept));
        let given = [query?.array(), key?.array(), value?.array()];
        let [query, key, value] = self.env.exchange(given, HEADS, SEQUENCE)?;
        let heads = self.exchanged_heads(id);
        let (scoring, visibility) =
            (self.scoring(id, &query, &heads, kept), visibility(self.mask(id)));
        let given = (query.clone(), key.clone(), value.clone());
        let attended = attention::forward(given.0, given.1, given.2, &scoring, visibility);
        let (output, log_sum_exp) = self.with_sinks(id, attended, &heads);
        Ok(Attended { query, key, value, output, log_sum_exp })
    }

    /// The heads of which this rank has all positions after the exchange.
    fn exchanged_heads(&self, id: OpId) -> Range<usize> {
        let own = self.heads(id);
        let share = self.env.exchanged_range(own.len());
        own.start + share.start..own.start + share.end
    }
}

/// Visibility where all queries and keys are on this rank.
const fn visibility(mask: AttentionMask) -> KeyVisibility {
    KeyVisibility { mask, query_start: 0, key_start: 0 }
}

impl<B: Kernels> Env<B> {
    /// Returns whether context parallelism exchanges heads (all-to-all).
    pub(super) fn exchanges_heads(&self) -> bool {
        self.layout.sharding().head_exchange() > 1
    }

    /// All positions, in their order, of the rank's part of the heads, from its positions of all heads.
    pub(super) fn all_positions(&self, x: Array<B>) -> Result<Array<B>> {
        if self.context.len() == 1 {
            return Ok(x);
        }
        let [x] = self.exchange([x], HEADS, SEQUENCE)?;
        let segments = self.all_segments();
        let lengths: Vec<usize> = segments.iter().map(ExactSizeIterator::len).collect();
        let mut parts: Vec<_> = segments.iter().zip(x.split(SEQUENCE, &lengths)).collect();
        parts.sort_by_key(|(segment, _)| segment.start);
        Ok(Array::concat(parts.into_iter().map(|(_, part)| part).collect(), SEQUENCE))
    }

    /// The inverse of [`Self::all_positions`].
    pub(super) fn own_positions(&self, x: Array<B>) -> Result<Array<B>> {
        if self.context.len() == 1 {
            return Ok(x);
        }
        let segments = self.all_segments().into_iter();
        let parts = segments.map(|segment| x.narrow(SEQUENCE, segment)).collect();
        let [x] = self.exchange([Array::concat(parts, SEQUENCE)], SEQUENCE, HEADS)?;
        Ok(x)
    }

    /// The rank's part of a parameter of heads, where each context-parallel rank has a part of the heads.
    pub(super) fn exchanged_part(&self, parameter: &Array<B>) -> Array<B> {
        parameter.narrow(0, self.exchanged_range(parameter.size(0)))
    }

    /// The gradient of a parameter of all heads, from that for the rank's heads; zero for the others.
    pub(super) fn among_all_heads(&self, grad: Array<B>, shape: &[usize]) -> Array<B> {
        let mut own = shape.to_vec();
        let range = self.exchanged_range(shape[0]);
        own[0] = range.len();
        let grad = grad.reshape(&own);
        if self.context.len() == 1 {
            return grad;
        }
        Array::zeros(shape, grad.element(), &grad.device()).add_at(0, range.start, grad)
    }

    fn exchanged_range(&self, size: usize) -> Range<usize> {
        part(size, self.context.len(), self.place.context as usize)
    }

    /// All-to-all between context-parallel ranks: splits arrays along `cut`, and concatenates the parts along `joined`.
    fn exchange<const N: usize>(
        &self,
        arrays: [Array<B>; N],
        cut: usize,
        joined: usize,
    ) -> Result<[Array<B>; N]> {
        let bytes = arrays.iter().map(Array::num_bytes).sum();
        let count = self.context.len();
        let exchanged = self.recorded(Stream::Context, Collective::AllToAll, bytes, || {
            let exchange = |array: Array<B>| {
                let parts = array.split(cut, &vec![array.size(cut) / count; count]);
                // Heads and positions divide evenly over ranks: all parts have one shape.
                let shapes = vec![parts[0].shape(); count];
                let (group, stream) = (&self.context, Stream::Context);
                let came = self.communicator.on(group, stream).all_to_all(parts, Some(&shapes))?;
                Ok(Array::concat(came, joined))
            };
            arrays.into_iter().map(exchange).collect::<Result<Vec<_>>>()
        })?;
        let Ok(exchanged) = <[Array<B>; N]>::try_from(exchanged) else {
            unreachable!("as many arrays come as go")
        };
        Ok(exchanged)
    }
}
