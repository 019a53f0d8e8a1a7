//! Ring attention: attention over a sequence sharded by context parallelism, where keys and values go round a ring.
//!
//! # Source
//!
//! Liu, Zaharia and Abbeel 2023, *Ring Attention with Blockwise Transformers* (arXiv 2310.01889).

use std::ops::Range;

use executor_communicators::Tag;
use executor_kernels::array::{Array, ElementExt};
use executor_kernels::ops::Kernels;
use executor_kernels::ops::attention::{
    self, Bias, Buckets, Grads, KeyVisibility, ProbabilityDropout, Scoring, alibi_slopes,
};
use executor_kernels::ops::dropout::Extract;
use ir::collective::Collective;
use ir::graph::{AlibiSlopes, AttentionMask, DimName, OpId, OpKind, PositionBias};
use traces::timeline::Stream;

use super::value::Extra;
use super::{BlockRun, Env, Result, SavedActivations, segments};

/// Names of the parameters that attention may have.
pub(super) const TABLE: &str = "relative_bias";
const SINKS: &str = "sinks";

impl<B: Kernels> BlockRun<'_, B> {
    /// The output of operator `id`, an attention.
    pub(super) fn attend(&self, id: OpId, kept: &mut SavedActivations<B>) -> Result<Array<B>> {
        if self.env.exchanges_heads() {
            return self.attend_by_heads(id, kept);
        }
        let heads = self.heads(id);
        let [query, key, value] = [0, 1, 2].map(|slot| self.input(id, slot, kept));
        let [query, key, value] = [query?.array(), key?.array(), value?.array()];
        let scoring = self.scoring(id, &query, &heads, kept);
        let attended = self.env.attention(query, key, value, self.mask(id), &scoring)?;
        let (output, log_sum_exp) = self.with_sinks(id, attended, &heads);
        kept.extras.insert(id, Extra::LogSumExp(log_sum_exp));
        Ok(output)
    }

    /// Gradients of the queries, keys and values of operator `id`. Gradients of its parameters are saved in `kept`.
    pub(super) fn attend_grad(
        &self,
        id: OpId,
        gradient: Array<B>,
        kept: &mut SavedActivations<B>,
    ) -> Result<[Array<B>; 3]> {
        if self.env.exchanges_heads() {
            return self.attend_by_heads_grad(id, kept, gradient);
        }
        let heads = self.heads(id);
        let [query, key, value] = [0, 1, 2].map(|slot| self.input(id, slot, kept));
        let [query, key, value] = [query?.array(), key?.array(), value?.array()];
        let place = self.program.placements.outputs[id.index()];
        let output = self.take((id, place), kept)?.array();
        let Some(Extra::LogSumExp(log_sum_exp)) = self.extra(id, kept)? else {
            panic!("attention keeps its log-sum-exp")
        };
        let scoring = self.scoring(id, &query, &heads, kept);
        self.keep_sinks_grad(id, [&output, &log_sum_exp, &gradient], &heads, kept);
        let given = [query, key, value];
        let mask = self.mask(id);
        let grads =
            self.env.attention_grad(given, output, log_sum_exp, gradient, mask, &scoring)?;
        self.keep_parameter_grad(id, TABLE, grads.table, &heads, kept);
        Ok([grads.query, grads.key, grads.value])
    }

    /// This rank's heads of operator `id`, an attention.
    pub(super) fn heads(&self, id: OpId) -> Range<usize> {
        self.env.tensor_part(self.num_heads(id))
    }

    fn num_heads(&self, id: OpId) -> usize {
        let query = self.program.inputs[id.index()][0];
        let heads = self.program.op(query).output.dim(DimName::Heads);
        let number = heads.and_then(|dim| dim.extent.fixed());
        number.expect("queries have a fixed number of heads") as usize
    }

    /// Number of positions of a sequence in the input of operator `id` at `slot`, on all ranks together.
    fn num_positions(&self, id: OpId, slot: usize) -> usize {
        let source = self.program.inputs[id.index()][slot];
        let sequence = self.program.op(source).output.dim(DimName::Sequence);
        self.size_of(sequence.expect("attention is to positions"))
    }

    /// The mask of operator `id`, an attention.
    pub(super) fn mask(&self, id: OpId) -> AttentionMask {
        match self.program.op(id).kind {
            OpKind::Attention { mask, .. } => mask,
            _ => panic!("only attention has a mask"),
        }
    }

    /// The scoring of operator `id` for some of its heads.
    pub(super) fn scoring(
        &self,
        id: OpId,
        query: &Array<B>,
        heads: &Range<usize>,
        kept: &SavedActivations<B>,
    ) -> Scoring<B> {
        let OpKind::Attention { scores, dropout, .. } = &self.program.op(id).kind else {
            panic!("only attention makes scores")
        };
        let scale = scores.scale.map_or_else(|| attention::scale(query), |scale| scale.0);
        let bias = match scores.bias {
            PositionBias::None => Bias::None,
            PositionBias::Alibi(rule) => {
                let slopes = alibi_slopes(rule, self.num_heads(id))[heads.clone()].to_vec();
                if rule == AlibiSlopes::Rounded {
                    Bias::Rounded { slopes, factor: scale }
                } else {
                    let element = ElementExt::widened(self.env.element);
                    Bias::Slopes(Array::from_f64(slopes, &[heads.len()], element, &self.env.device))
                }
            }
            PositionBias::Relative { num_buckets, max_distance, both_ways } => {
                let table = self.of_heads(id, TABLE, heads).expect("biases have a table");
                let (count, max_distance) = (num_buckets as usize, max_distance as usize);
                Bias::Table(table, Buckets { count, max_distance, both_ways })
            }
        };
        let dropout = (dropout.0 > 0.0).then(|| ProbabilityDropout {
            dropout: self.dropout(id, dropout.0, kept),
            heads: Extract { indices: heads.clone().collect(), of: self.num_heads(id) },
            num_queries: self.num_positions(id, 0),
            num_keys: self.num_positions(id, 1),
        });
        Scoring { scale, soft_cap: scores.soft_cap.map(|cap| cap.0), bias, dropout }
    }

    /// The slice of a parameter of operator `id` for some heads; heads are its last dimension.
    fn of_heads(&self, id: OpId, name: &str, heads: &Range<usize>) -> Option<Array<B>> {
        let parameter = self.weight(id, name)?;
        let first = heads.start - self.heads(id).start;
        Some(parameter.narrow(parameter.rank() - 1, first..first + heads.len()))
    }

    /// Output and log-sum-exp with the attention sinks of some heads, where there are any.
    pub(super) fn with_sinks(
        &self,
        id: OpId,
        (output, log_sum_exp): (Array<B>, Array<B>),
        heads: &Range<usize>,
    ) -> (Array<B>, Array<B>) {
        match self.of_heads(id, SINKS, heads) {
            Some(sinks) => attention::with_sinks(output, log_sum_exp, sinks),
            None => (output, log_sum_exp),
        }
    }

    /// Saves the gradient of the attention sinks of some heads, where there are any.
    pub(super) fn keep_sinks_grad(
        &self,
        id: OpId,
        [output, log_sum_exp, gradient]: [&Array<B>; 3],
        heads: &Range<usize>,
        kept: &mut SavedActivations<B>,
    ) {
        let grad = self.of_heads(id, SINKS, heads).map(|sinks| {
            attention::sinks_grad(sinks, output.clone(), log_sum_exp.clone(), gradient.clone())
        });
        self.keep_parameter_grad(id, SINKS, grad, heads, kept);
    }

    /// Saves the gradient of a parameter for some heads; it is zero for the rank's other heads.
    pub(super) fn keep_parameter_grad(
        &self,
        id: OpId,
        name: &str,
        grad: Option<Array<B>>,
        heads: &Range<usize>,
        kept: &mut SavedActivations<B>,
    ) {
        let op = self.program.op(id);
        let index = op.parameters.iter().position(|parameter| parameter.name == name);
        let (Some(grad), Some(index), true) = (grad, index, op.is_trained()) else { return };
        let all = self.heads(id);
        let grad = if heads.len() == all.len() {
            grad
        } else {
            let mut shape = grad.shape();
            let dim = shape.len() - 1;
            shape[dim] = all.len();
            let nothing = Array::zeros(&shape, grad.element(), &grad.device());
            nothing.add_at(dim, heads.start - all.start, grad)
        };
        kept.of_parameters.entry(id).or_default().push((index, grad));
    }
}

impl<B: Kernels> Env<B> {
    /// The output for the rank's queries, and the log-sum-exp of each query's scores. Keys and values of the other
    /// ranks circulate, overlapped with computation.
    pub(super) fn attention(
        &self,
        query: Array<B>,
        key: Array<B>,
        value: Array<B>,
        mask: AttentionMask,
        scoring: &Scoring<B>,
    ) -> Result<(Array<B>, Array<B>)> {
        if self.context.len() == 1 {
            let visibility = KeyVisibility { mask, query_start: 0, key_start: 0 };
            return Ok(attention::forward(query, key, value, scoring, visibility));
        }
        let own = self.segments.clone();
        let queries = query.split(1, &lengths(&own));
        let mut sums: Vec<Option<(Array<B>, Array<B>)>> = vec![None; queries.len()];
        let mut circulating = [key, value];
        for step in 0..self.context.len() {
            let keys_of = self.ring_segments(step);
            let is_last = step + 1 == self.context.len();
            if !is_last {
                self.send_on(&circulating)?;
            }
            let keys = circulating[0].split(1, &lengths(&keys_of));
            let values = circulating[1].split(1, &lengths(&keys_of));
            for (segment, (query, sum)) in own.iter().zip(queries.iter().zip(&mut sums)) {
                for (from, (key, value)) in keys_of.iter().zip(keys.iter().zip(&values)) {
                    let visibility =
                        KeyVisibility { mask, query_start: segment.start, key_start: from.start };
                    if visibility.sees_nothing(segment.len(), from.len()) {
                        continue;
                    }
                    let (query, key, value) = (query.clone(), key.clone(), value.clone());
                    let part = attention::forward(query, key, value, scoring, visibility);
                    *sum = Some(match sum.take() {
                        Some(sum) => attention::merge(sum, part),
                        None => part,
                    });
                }
            }
            if !is_last {
                circulating = self.receive_on(&circulating)?;
            }
        }
        let sums = sums.into_iter().map(|sum| sum.expect("a query sees its own key"));
        let (outputs, log_sum_exps): (Vec<_>, Vec<_>) = sums.unzip();
        Ok((Array::concat(outputs, 1), Array::concat(log_sum_exps, 2)))
    }

    /// Gradients of the inputs of attention. Keys and values circulate once more, and their gradients with them; a rank
    /// adds the gradients from its own queries once those from the other ranks' queries have come round.
    pub(super) fn attention_grad(
        &self,
        [query, key, value]: [Array<B>; 3],
        output: Array<B>,
        log_sum_exp: Array<B>,
        gradient: Array<B>,
        mask: AttentionMask,
        scoring: &Scoring<B>,
    ) -> Result<Grads<B>> {
        if self.context.len() == 1 {
            let visibility = KeyVisibility { mask, query_start: 0, key_start: 0 };
            return Ok(attention::input_grad(
                query,
                key,
                value,
                output,
                log_sum_exp,
                gradient,
                scoring,
                visibility,
            ));
        }
        let own = self.segments.clone();
        let queries = query.split(1, &lengths(&own));
        let outputs = output.split(1, &lengths(&own));
        let log_sum_exps = log_sum_exp.split(2, &lengths(&own));
        let gradients = gradient.split(1, &lengths(&own));
        let mut of_queries: Vec<Array<B>> = queries.iter().map(|q| zeros_like(q)).collect();
        // Gradients of the rank's own keys and values stay on the rank; gradients of circulating ones circulate with
        // them.
        let mut of_own = [zeros_like(&key), zeros_like(&value)];
        let mut of_circulating = of_own.clone();
        let mut of_table = None;
        let mut circulating = [key, value];
        for step in 0..self.context.len() {
            let keys_of = self.ring_segments(step);
            let is_last = step + 1 == self.context.len();
            if !is_last {
                self.send_on(&circulating)?;
            }
            let keys = circulating[0].split(1, &lengths(&keys_of));
            let values = circulating[1].split(1, &lengths(&keys_of));
            let mut of_keys: Vec<Array<B>> = keys.iter().map(|k| zeros_like(k)).collect();
            let mut of_values: Vec<Array<B>> = values.iter().map(|v| zeros_like(v)).collect();
            for (i, segment) in own.iter().enumerate() {
                for (j, from) in keys_of.iter().enumerate() {
                    let visibility =
                        KeyVisibility { mask, query_start: segment.start, key_start: from.start };
                    if visibility.sees_nothing(segment.len(), from.len()) {
                        continue;
                    }
                    let grads = attention::input_grad(
                        queries[i].clone(),
                        keys[j].clone(),
                        values[j].clone(),
                        outputs[i].clone(),
                        log_sum_exps[i].clone(),
                        gradients[i].clone(),
                        scoring,
                        visibility,
                    );
                    of_queries[i] = of_queries[i].clone() + grads.query;
                    of_keys[j] = of_keys[j].clone() + grads.key;
                    of_values[j] = of_values[j].clone() + grads.value;
                    of_table = match (of_table, grads.table) {
                        (Some(sum), Some(grad)) => Some(sum + grad),
                        (sum, grad) => sum.or(grad),
                    };
                }
            }
            let here = [Array::concat(of_keys, 1), Array::concat(of_values, 1)];
            if !is_last {
                circulating = self.receive_on(&circulating)?;
            }
            if step == 0 {
                of_own = here;
            } else {
                let [keys, values] = of_circulating;
                let [of_keys, of_values] = here;
                let here = [keys + of_keys, values + of_values];
                self.send_on(&here)?;
                of_circulating = self.receive_on(&here)?;
            }
        }
        let [[own_keys, own_values], [of_keys, of_values]] = [of_own, of_circulating];
        Ok(Grads {
            query: Array::concat(of_queries, 1),
            key: own_keys + of_keys,
            value: own_values + of_values,
            table: of_table,
        })
    }

    /// The segments of the sequence whose keys are on this rank after `step` steps of the ring.
    fn ring_segments(&self, step: usize) -> Vec<Range<usize>> {
        let degree = self.context.len();
        let from = (self.place.context as usize + degree - step) % degree;
        let length = self.sequence_length;
        segments(length, self.layout.context_parallel_kind, degree, from)
    }

    fn send_on(&self, arrays: &[Array<B>; 2]) -> Result<()> {
        let degree = self.context.len();
        let next = self.context.ranks()[(self.place.context as usize + 1) % degree];
        for array in arrays {
            self.communicator.send(next, Tag::Stream(Stream::Context), array.clone())?;
        }
        Ok(())
    }

    fn receive_on(&self, like: &[Array<B>; 2]) -> Result<[Array<B>; 2]> {
        let degree = self.context.len();
        let previous = self.context.ranks()[(self.place.context as usize + degree - 1) % degree];
        let bytes = like.iter().map(Array::num_bytes).sum();
        self.recorded(Stream::Context, Collective::SendReceive, bytes, || {
            let receive = || self.communicator.receive(previous, Tag::Stream(Stream::Context));
            Ok([receive()?, receive()?])
        })
    }
}

fn lengths(segments: &[Range<usize>]) -> Vec<usize> {
    segments.iter().map(ExactSizeIterator::len).collect()
}

fn zeros_like<B: Kernels>(array: &Array<B>) -> Array<B> {
    Array::zeros(&array.shape(), array.element(), &array.device())
}
