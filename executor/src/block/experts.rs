//! Rows of tokens on their way to the experts and back.
//!
//! Each rank sends every row to the rank that has the expert, sorted by expert; there, rows of all ranks
//! are put in the order of experts, so that each expert's rows are together. With sequence parallelism
//! the ranks that have the parts of the same experts then gather each other's rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use ir::collective::Collective;
use ir::graph::{OpId, OpKind, RouterScores};
use traces::timeline::Stream;

use super::routed::{Order, Routed, Sent};
use super::value::{Extra, Value};
use super::{BlockRun, Env, Gradients, Kept, Result};
use crate::array::{Array, Element, Indices};
use crate::communicator::Reduction;
use crate::gradient::Gradient;
use crate::mesh::part;
use crate::ops::Kernels;
use crate::ops::activation::Function;
use crate::ops::experts::{self, Rule};
use crate::ops::{attention, linear};

/// `rows` in the order of `places`; none of them if there are none.
fn reordered<B: Kernels>(rows: Array<B>, places: &[u32]) -> Array<B> {
    if places.is_empty() {
        return rows;
    }
    let indices = Indices::new(places, &[places.len()], &rows.device());
    B::select_rows(&rows, &indices)
}

impl<B: Kernels> BlockRun<'_, B> {
    /// The probability of each expert for each token.
    pub(super) fn router(&self, id: OpId, x: Array<B>) -> Array<B> {
        let weight = self.weight(id, "weight").expect("a router has a weight");
        let mut shape = x.shape();
        shape.pop();
        shape.push(weight.size(1));
        let logits = linear::forward(x.rows(1), weight, self.weight(id, "bias"));
        let probabilities = match self.router_scores(id) {
            RouterScores::Softmax => attention::softmax(logits.widened(), 1),
            RouterScores::Sigmoid => logits.widened().sigmoid(),
        };
        probabilities.reshape(&shape)
    }

    fn router_scores(&self, id: OpId) -> RouterScores {
        match &self.program.op(id).kind {
            OpKind::Router { routing, .. } => routing.scores,
            _ => panic!("only a router scores experts"),
        }
    }

    /// The gradient of the logits of a router from that of its probabilities.
    fn logits_grad(&self, id: OpId, gradient: Array<B>, kept: &mut Kept<B>) -> Result<Array<B>> {
        let place = self.program.placements.outputs[id.index()];
        let probabilities = self.take((id, place), kept)?.array().rows(1);
        let mut gradient = gradient.rows(1);
        if let Some(slopes) = self.slopes(id, kept)? {
            gradient = gradient + slopes.scale(self.env.gradient_scale.get());
        }
        let of_logits = match self.router_scores(id) {
            RouterScores::Softmax => attention::softmax_grad(probabilities, gradient, 1),
            RouterScores::Sigmoid => Function::Sigmoid.input_grad(probabilities, gradient),
        };
        Ok(of_logits.cast(self.env.element))
    }

    /// What a loss that balances the load of experts adds to the gradient of each probability, `[1, E]`,
    /// for a step's loss that is a sum over targets; none if the model has no such loss.
    ///
    /// ```text
    /// c / L  E f_e
    /// ```
    ///
    /// `f_e` is how many of the micro-batch's tokens chose expert `e` of `E`, by the number of tokens; `c`
    /// is the loss's weight and `L` the number of layers with experts.
    ///
    /// # Source
    ///
    /// Fedus et al. 2021 (arXiv 2101.03961), section 2.2: a loss for each layer, as in Megatron-LM. Hugging
    /// Face takes the tokens of all layers together, which stages of a pipeline cannot know.
    pub(super) fn balancing_slopes(
        &self,
        id: OpId,
        probabilities: &Array<B>,
    ) -> Result<Option<Array<B>>> {
        let env = self.env;
        let weight = env.numerics.router_auxiliary_loss;
        if weight == 0.0 {
            return Ok(None);
        }
        let OpKind::Router { num_experts, top_k, .. } = self.program.op(id).kind else {
            panic!("only a router balances the load of experts")
        };
        let host = probabilities.to_f64();
        let routing =
            experts::route(&host, num_experts as usize, top_k as usize, Rule::likeliest(false));
        let mut counts = env.counts_array(&routing.load());
        for (group, stream) in [(&env.context, Stream::Context), (&env.tensor, Stream::Tensor)] {
            let shares_tokens = stream == Stream::Context || env.layout.sequence_parallel;
            if shares_tokens && group.len() > 1 {
                counts = env.communicator.all_reduce(group, stream, counts, Reduction::Sum)?;
            }
        }
        let tokens = (env.micro_batch_size * env.sequence_length) as f64;
        let factor = weight / env.num_mixtures as f64 * num_experts as f64 / tokens;
        let slopes = counts.scale(factor).cast(probabilities.element());
        Ok(Some(slopes.reshape(&[1, num_experts as usize])))
    }

    /// What [`Self::balancing_slopes`] found in forward.
    fn slopes(&self, id: OpId, kept: &mut Kept<B>) -> Result<Option<Array<B>>> {
        if self.env.numerics.router_auxiliary_loss == 0.0 {
            return Ok(None);
        }
        match self.extra(id, kept)? {
            Some(Extra::Slopes(slopes)) => Ok(Some(slopes)),
            _ => Ok(None),
        }
    }

    /// Notes what balancing the load adds to the step's loss.
    fn note_auxiliary_loss(&self, id: OpId, kept: &mut Kept<B>) -> Result<()> {
        let Some(slopes) = self.slopes(id, kept)? else { return Ok(()) };
        let place = self.program.placements.outputs[id.index()];
        let probabilities = self.take((id, place), kept)?.array().rows(1);
        let loss = (probabilities * slopes).sum().item();
        // Tensor-parallel ranks that do not share the sequence have the same tokens.
        if self.env.layout.sequence_parallel || self.env.place.tensor == 0 {
            self.env.auxiliary_loss.set(self.env.auxiliary_loss.get() + loss);
        }
        Ok(())
    }

    pub(super) fn router_input_grad(
        &self,
        id: OpId,
        gradient: Array<B>,
        kept: &mut Kept<B>,
    ) -> Result<Array<B>> {
        self.note_auxiliary_loss(id, kept)?;
        let mut shape = gradient.shape();
        let weight = self.weight(id, "weight").expect("a router has a weight");
        shape.pop();
        shape.push(weight.size(0));
        let logits = self.logits_grad(id, gradient, kept)?;
        Ok(linear::input_grad(logits, weight).reshape(&shape))
    }

    pub(super) fn router_weight_grad(
        &self,
        id: OpId,
        gradient: Array<B>,
        kept: &mut Kept<B>,
        gradients: &mut Gradients<'_, B>,
    ) -> Result<()> {
        let x = self.input(id, 0, kept)?.array().rows(1);
        let logits = self.logits_grad(id, gradient, kept)?;
        if self.program.op(id).parameters.len() > 1 {
            gradients(id, 1, Gradient::Ready(linear::bias_grad(logits.clone())));
        }
        let shape = vec![x.size(1), logits.size(1)];
        gradients(id, 0, Gradient::of_linear(x, logits, shape));
        Ok(())
    }

    /// Sends each token's row to the experts that its probabilities choose.
    pub(super) fn dispatch(
        &self,
        id: OpId,
        x: Array<B>,
        probabilities: &Array<B>,
        kept: &mut Kept<B>,
    ) -> Result<Routed<B>> {
        let env = self.env;
        let num_experts = probabilities.size(probabilities.rank() - 1);
        let OpKind::Dispatch { top_k } = self.program.op(id).kind else {
            panic!("only a dispatch sends rows to experts")
        };
        let host = probabilities.to_f64();
        let mut routing = experts::route(&host, num_experts, top_k as usize, self.rule(id, kept)?);
        if let Some(factor) = env.expert_capacity_factor {
            let num_choices = env.micro_batch_size * env.sequence_length * top_k as usize;
            let share = num_choices as f64 / num_experts as f64;
            let places = env.places(routing.choices(), top_k as usize, num_experts)?;
            routing = routing.limited((factor * share).ceil() as usize, &places);
        }
        let tokens = routing.rows();
        let rows = experts::dispatch(x.rows(1), &tokens);
        let ranks = env.expert.len();
        let local = num_experts / ranks;
        let by_expert = routing.counts();
        let counts: Vec<usize> = by_expert.chunks(local).map(|c| c.iter().sum()).collect();
        let from = env.exchange_counts(&by_expert, local)?;
        let order = Order { counts: from };
        let rows = env.exchange_rows(&rows, &counts)?;
        let rows = reordered(rows, &order.by_expert());
        let counts_here = order.expert_sizes();
        let sent =
            Arc::new(Sent { num_tokens: host.len() / num_experts, routing, tokens, counts, order });
        Ok(Routed { rows, counts: counts_here, sent, joined: None })
    }

    /// How the router that operator `id`, a dispatch, listens to has experts chosen.
    fn rule(&self, id: OpId, kept: &mut Kept<B>) -> Result<Rule> {
        let router = self.program.inputs[id.index()][1];
        let OpKind::Router { routing, .. } = &self.program.op(router).kind else {
            panic!("rows are sent where a router says")
        };
        let is_corrected = self.program.inputs[router.index()].len() > 1;
        let correction =
            if is_corrected { self.input(router, 1, kept)?.array().to_f64() } else { Vec::new() };
        Ok(Rule {
            normalise: routing.normalized,
            scaling: routing.scaling.0,
            groups: routing.groups,
            correction,
        })
    }

    /// The gradient of the tokens from those of the rows that were sent.
    pub(super) fn dispatch_grad(&self, gradient: Routed<B>) -> Result<Array<B>> {
        let sent = Arc::clone(&gradient.sent);
        let rows = self.env.returned(gradient)?;
        Ok(self.as_tokens(experts::dispatch_grad(rows, &sent.tokens, sent.num_tokens)))
    }

    /// Rows of tokens as `[batch, sequence, width]`.
    fn as_tokens(&self, rows: Array<B>) -> Array<B> {
        let batch = self.env.micro_batch_size;
        let (count, width) = (rows.size(0), rows.size(1));
        rows.reshape(&[batch, count / batch, width])
    }

    /// Brings the experts' outputs back and sums them by their weights; also the rows that came back.
    pub(super) fn combine(&self, routed: Routed<B>) -> Result<(Array<B>, Array<B>)> {
        let sent = Arc::clone(&routed.sent);
        let returned = self.env.returned(routed)?;
        let weights = sent.routing.weights();
        let summed = experts::combine(returned.clone(), &sent.tokens, &weights, sent.num_tokens);
        Ok((self.as_tokens(summed), returned))
    }

    /// The weight of each row that was sent, `[rows, 1]`.
    fn pair_weights(&self, sent: &Sent, element: Element) -> Array<B> {
        let weights = sent.routing.weights();
        let shape = [weights.len(), 1];
        Array::from_f64(weights, &shape, element, &self.env.device)
    }

    /// Gradients of the experts' outputs and of the probabilities.
    pub(super) fn combine_grad(
        &self,
        id: OpId,
        gradient: Array<B>,
        kept: &mut Kept<B>,
    ) -> Result<Vec<Option<Value<B>>>> {
        let env = self.env;
        let probabilities = self.input(id, 1, kept)?.array();
        let Some(Extra::Returned(returned, sent)) = self.extra(id, kept)? else {
            panic!("a combination keeps the rows that came back")
        };
        let gradient = experts::dispatch(gradient.rows(1), &sent.tokens);
        let of_weights = (gradient.clone() * returned).sum_dim(1).to_f64();
        let shape = probabilities.shape();
        let of_probabilities = sent.routing.probability_grad(&probabilities.to_f64(), &of_weights);
        let of_probabilities =
            Array::from_f64(of_probabilities, &shape, probabilities.element(), &env.device);
        let weights = self.pair_weights(&sent, gradient.element());
        let mut rows = env.exchange_rows(&(gradient * weights), &sent.counts)?;
        rows = reordered(rows, &sent.order.by_expert());
        let counts = sent.order.expert_sizes();
        let of_rows = Routed { rows, counts, sent, joined: None };
        Ok(vec![Some(Value::Routed(of_rows)), Some(Value::Array(of_probabilities))])
    }

    /// A linear layer of which each expert has its own.
    pub(super) fn grouped_linear(&self, id: OpId, routed: &Routed<B>) -> Routed<B> {
        let weight = self.weight(id, "weight").expect("experts have weights");
        let bias = self.weight(id, "bias").filter(|_| self.adds_bias(id));
        let rows = linear::grouped_forward(routed.rows.clone(), &routed.counts, weight, bias);
        routed.with_rows(rows)
    }

    pub(super) fn grouped_input_grad(&self, id: OpId, gradient: &Routed<B>) -> Routed<B> {
        let weight = self.weight(id, "weight").expect("experts have weights");
        let rows = linear::grouped_input_grad(gradient.rows.clone(), &gradient.counts, weight);
        gradient.with_rows(rows)
    }

    pub(super) fn grouped_weight_grad(
        &self,
        id: OpId,
        x: Routed<B>,
        gradient: Routed<B>,
        gradients: &mut Gradients<'_, B>,
    ) {
        if self.program.op(id).parameters.len() > 1 {
            let grad = linear::grouped_bias_grad(&gradient.counts, gradient.rows.clone());
            gradients(id, 1, Gradient::Ready(grad));
        }
        gradients(
            id,
            0,
            Gradient::Ready(linear::grouped_weight_grad(x.rows, &x.counts, gradient.rows)),
        );
    }
}

impl<B: Kernels> Env<B> {
    /// For each choice of this rank's tokens, how many of the same expert come before it among all tokens of
    /// the micro-batch, which context-parallel ranks, and tensor-parallel ones with sequence parallelism,
    /// have parts of: so a layout changes nothing about which tokens find a place.
    fn places(&self, choices: &[usize], top_k: usize, num_experts: usize) -> Result<Vec<usize>> {
        let own = self.token_numbers();
        let rows = own.iter().zip(choices.chunks_exact(top_k));
        let numbered: Vec<usize> =
            rows.flat_map(|(token, choices)| [&[*token], choices].concat()).collect();
        let mut all = vec![self.counts_array(&numbered)];
        for (group, stream) in [(&self.tensor, Stream::Tensor), (&self.context, Stream::Context)] {
            let shares_tokens = stream == Stream::Context || self.layout.sequence_parallel;
            if shares_tokens && group.len() > 1 {
                let joined = Array::concat(all, 0);
                all = self.communicator.all_gather(group, stream, joined)?;
            }
        }
        let all = counts_of(&Array::concat(all, 0));
        let by_token: BTreeMap<usize, &[usize]> =
            all.chunks_exact(top_k + 1).map(|row| (row[0], &row[1..])).collect();
        let in_order: Vec<usize> = by_token.values().copied().flatten().copied().collect();
        let places = experts::places(&in_order, num_experts);
        let by_token: BTreeMap<usize, &[usize]> =
            by_token.into_keys().zip(places.chunks_exact(top_k)).collect();
        Ok(own.iter().flat_map(|token| by_token[token]).copied().collect())
    }

    /// The numbers of this rank's tokens within the micro-batch, as rows have them.
    fn token_numbers(&self) -> Vec<usize> {
        let positions = self.positions();
        let own = if self.layout.sequence_parallel {
            part(positions.len(), self.tensor.len(), self.place.tensor as usize)
        } else {
            0..positions.len()
        };
        let of_sequence = |sequence: usize| {
            let first = sequence * self.sequence_length;
            positions[own.clone()].iter().map(move |position| first + *position as usize)
        };
        (0..self.micro_batch_size).flat_map(of_sequence).collect()
    }

    /// From how many rows of each expert this rank sends, how many rows of each of its experts each rank
    /// sends here.
    fn exchange_counts(&self, by_expert: &[usize], local: usize) -> Result<Vec<Vec<usize>>> {
        if self.expert.len() == 1 {
            return Ok(vec![by_expert.to_vec()]);
        }
        let parts = by_expert.chunks(local).map(|counts| self.counts_array(counts)).collect();
        let parts = self.communicator.all_to_all(&self.expert, Stream::Expert, parts)?;
        Ok(parts.iter().map(|part| counts_of(part)).collect())
    }

    /// Counts as an array: numbers below 2^53, exactly.
    fn counts_array(&self, counts: &[usize]) -> Array<B> {
        let values = counts.iter().map(|count| *count as f64).collect();
        Array::from_f64(values, &[counts.len()], Element::F64, &self.device)
    }

    /// Sends so many rows to each rank that shares the experts, in order; the rows that come, by rank.
    fn exchange_rows(&self, rows: &Array<B>, counts: &[usize]) -> Result<Array<B>> {
        if self.expert.len() == 1 {
            return Ok(rows.clone());
        }
        self.recorded(Stream::Expert, Collective::AllToAll, rows.num_bytes(), || {
            let parts = rows.split(0, counts);
            let parts = self.communicator.all_to_all(&self.expert, Stream::Expert, parts)?;
            Ok(Array::concat(parts, 0))
        })
    }

    /// Rows from the experts back in the order in which this rank sent them.
    fn returned(&self, routed: Routed<B>) -> Result<Array<B>> {
        assert!(routed.joined.is_none(), "joined rows are parted before they return");
        let order = &routed.sent.order;
        let rows = reordered(routed.rows, &order.by_source());
        self.exchange_rows(&rows, &order.source_sizes())
    }

    /// The rows of all ranks that share each expert, in the order of experts.
    pub(super) fn gather_routed(&self, routed: Routed<B>) -> Result<Routed<B>> {
        let group = &self.expert_tensor;
        let bytes = routed.rows.num_bytes() * group.len() as u64;
        let (counts, parts) =
            self.recorded(Stream::Tensor, Collective::AllGather, bytes, || {
                let counts = self.counts_array(&routed.sent.order.expert_sizes());
                let counts = self.communicator.all_gather(group, Stream::Tensor, counts)?;
                let rows = routed.rows.clone();
                Ok((counts, self.communicator.all_gather(group, Stream::Tensor, rows)?))
            })?;
        let order = Order { counts: counts.iter().map(|part| counts_of(part)).collect() };
        let rows = reordered(Array::concat(parts, 0), &order.by_expert());
        let counts = order.expert_sizes();
        Ok(Routed { rows, counts, sent: routed.sent, joined: Some(Arc::new(order)) })
    }

    /// This rank's rows of the sum over those ranks.
    pub(super) fn reduce_scatter_routed(&self, routed: Routed<B>) -> Result<Routed<B>> {
        let order = routed.joined.expect("only joined rows are parted");
        let rows = reordered(routed.rows, &order.by_source());
        let rows =
            self.recorded(Stream::Tensor, Collective::ReduceScatter, rows.num_bytes(), || {
                let parts = rows.split(0, &order.source_sizes());
                self.communicator.reduce_scatter(
                    &self.expert_tensor,
                    Stream::Tensor,
                    parts,
                    Reduction::Sum,
                )
            })?;
        let counts = routed.sent.order.expert_sizes();
        Ok(Routed { rows, counts, sent: routed.sent, joined: None })
    }
}

fn counts_of<B: Kernels>(array: &Array<B>) -> Vec<usize> {
    array.to_f64().into_iter().map(|count| count as usize).collect()
}
