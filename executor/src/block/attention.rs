//! Attention over a sequence that ranks share: keys and values go round a ring.
//!
//! # Source
//!
//! Liu, Zaharia and Abbeel 2023, *Ring Attention with Blockwise Transformers* (arXiv 2310.01889).

use std::ops::Range;

use ir::collective::Collective;
use ir::graph::AttentionMask;
use traces::timeline::Stream;

use super::{Env, Result, segments};
use crate::array::Array;
use crate::communicator::Tag;
use crate::ops::Kernels;
use crate::ops::attention::{self, Visibility, scale};

impl<B: Kernels> Env<B> {
    /// What the rank's queries attend to, and the logarithm of the sum of exponentials of each query's
    /// scores. Keys and values of the other ranks come round while those at hand are worked on.
    pub(super) fn attention(
        &self,
        query: Array<B>,
        key: Array<B>,
        value: Array<B>,
        mask: AttentionMask,
    ) -> Result<(Array<B>, Array<B>)> {
        let scale = scale(&query);
        if self.context.len() == 1 {
            let visibility = Visibility { mask, query_start: 0, key_start: 0 };
            return Ok(attention::forward(query, key, value, scale, visibility));
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
                        Visibility { mask, query_start: segment.start, key_start: from.start };
                    if visibility.sees_nothing(segment.len(), from.len()) {
                        continue;
                    }
                    let (query, key, value) = (query.clone(), key.clone(), value.clone());
                    let part = attention::forward(query, key, value, scale, visibility);
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

    /// Gradients of queries, keys and values. Keys and values go round once more, and their gradients
    /// with them; a rank adds those from its own queries when the others are home.
    pub(super) fn attention_grad(
        &self,
        [query, key, value]: [Array<B>; 3],
        output: Array<B>,
        log_sum_exp: Array<B>,
        gradient: Array<B>,
        mask: AttentionMask,
    ) -> Result<[Array<B>; 3]> {
        let scale = scale(&query);
        if self.context.len() == 1 {
            let visibility = Visibility { mask, query_start: 0, key_start: 0 };
            let (query, key, value) = attention::input_grad(
                query,
                key,
                value,
                output,
                log_sum_exp,
                gradient,
                scale,
                visibility,
            );
            return Ok([query, key, value]);
        }
        let own = self.segments.clone();
        let queries = query.split(1, &lengths(&own));
        let outputs = output.split(1, &lengths(&own));
        let log_sum_exps = log_sum_exp.split(2, &lengths(&own));
        let gradients = gradient.split(1, &lengths(&own));
        let mut of_queries: Vec<Array<B>> = queries.iter().map(|q| zeros_like(q)).collect();
        // Gradients of the rank's own keys and values stay; those of the ones that are here go with them.
        let mut of_own = [zeros_like(&key), zeros_like(&value)];
        let mut of_circulating = of_own.clone();
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
                        Visibility { mask, query_start: segment.start, key_start: from.start };
                    if visibility.sees_nothing(segment.len(), from.len()) {
                        continue;
                    }
                    let (dq, dk, dv) = attention::input_grad(
                        queries[i].clone(),
                        keys[j].clone(),
                        values[j].clone(),
                        outputs[i].clone(),
                        log_sum_exps[i].clone(),
                        gradients[i].clone(),
                        scale,
                        visibility,
                    );
                    of_queries[i] = of_queries[i].clone() + dq;
                    of_keys[j] = of_keys[j].clone() + dk;
                    of_values[j] = of_values[j].clone() + dv;
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
        Ok([Array::concat(of_queries, 1), own_keys + of_keys, own_values + of_values])
    }

    /// The parts of the sequence whose keys are here after so many steps of the ring.
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
