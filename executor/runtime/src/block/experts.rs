//! Exchange of tokens' rows with experts.
//!
//! Each rank sends every row to the rank of its expert, sorted by expert; there, the rows of all ranks are reordered by
//! expert, so that each expert's rows are contiguous. With sequence parallelism the expert-tensor-parallel ranks then
//! gather each other's rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use executor_communicators::{CollectiveCall, Reduction};
use executor_kernels::array::{Array, Element, Indices};
use executor_kernels::ops::Kernels;
use executor_kernels::ops::activation::Function;
use executor_kernels::ops::experts::{self, ExpertCounts, RoutingRule, Sorted};
use executor_kernels::ops::{attention, linear};
use ir::collective::Collective;
use ir::graph::{OpId, OpKind, RouterScores};
use traces::timeline::Stream;

use super::routed::{Exchanged, Order, Routed, Sent};
use super::value::{Extra, Value};
use super::{BlockRun, Env, Gradients, Result, SavedActivations};
use crate::gradient::Gradient;

/// `rows` reordered by `places`; unchanged if `places` is empty.
fn reordered<B: Kernels>(rows: Array<B>, places: &[u32]) -> Array<B> {
    if places.is_empty() {
        return rows;
    }
    let indices = Indices::new(places, &[places.len()], &rows.device());
    B::select_rows(&rows, &indices)
}

impl<B: Kernels> BlockRun<'_, B> {
    /// The score of each expert for each token.
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

    /// The gradient of a router's logits, from the gradient of its probabilities.
    fn logits_grad(
        &self,
        id: OpId,
        gradient: Array<B>,
        kept: &mut SavedActivations<B>,
    ) -> Result<Array<B>> {
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

    /// Slopes of the load-balancing loss: the terms, `[1, E]`, that it adds to the gradient of each probability, where
    /// the step's loss is a sum over targets; none if the model has no such loss.
    ///
    /// ```text
    /// c / L  E f_e
    /// ```
    ///
    /// `f_e` is the number of the micro-batch's tokens that chose expert `e`, divided by the number of tokens; `E` is
    /// the number of experts, `c` the loss's weight and `L` the number of layers with experts.
    ///
    /// # Source
    ///
    /// Fedus et al. 2021 (arXiv 2101.03961), section 2.2: a loss for each layer, as in Megatron-LM. Hugging Face has
    /// one loss over the tokens of all layers, which stages of a pipeline cannot know.
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
        let rule = RoutingRule::likeliest(top_k as usize, false);
        let choices = experts::choose(&probabilities.clone().rows(1), None, &rule);
        let mut counts = experts::load(&choices.experts, num_experts as usize);
        for (group, stream) in [(&env.context, Stream::Context), (&env.tensor, Stream::Tensor)] {
            let shares_tokens = stream == Stream::Context || env.layout.sequence_parallel;
            if shares_tokens && group.len() > 1 {
                counts = env.communicator.on(group, stream).all_reduce(counts, Reduction::Sum)?;
            }
        }
        let tokens = (env.micro_batch_size * env.sequence_length) as f64;
        let factor = weight / env.num_mixtures as f64 * num_experts as f64 / tokens;
        let slopes = counts.scale(factor).cast(probabilities.element());
        Ok(Some(slopes.reshape(&[1, num_experts as usize])))
    }

    /// The slopes that [`Self::balancing_slopes`] gave in forward.
    fn slopes(&self, id: OpId, kept: &mut SavedActivations<B>) -> Result<Option<Array<B>>> {
        if self.env.numerics.router_auxiliary_loss == 0.0 {
            return Ok(None);
        }
        match self.extra(id, kept)? {
            Some(Extra::Slopes(slopes)) => Ok(Some(slopes)),
            _ => Ok(None),
        }
    }

    /// Adds the load-balancing loss to the step's auxiliary losses.
    fn note_auxiliary_loss(&self, id: OpId, kept: &mut SavedActivations<B>) -> Result<()> {
        let Some(slopes) = self.slopes(id, kept)? else { return Ok(()) };
        let place = self.program.placements.outputs[id.index()];
        let probabilities = self.take((id, place), kept)?.array().rows(1);
        // Without sequence parallelism, tensor-parallel ranks have the same tokens.
        if self.env.layout.sequence_parallel || self.env.place.tensor == 0 {
            self.env.auxiliary_losses.borrow_mut().push((probabilities * slopes).sum());
        }
        Ok(())
    }

    pub(super) fn router_input_grad(
        &self,
        id: OpId,
        gradient: Array<B>,
        kept: &mut SavedActivations<B>,
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
        kept: &mut SavedActivations<B>,
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

    /// Sends each token's row to the experts that are chosen by its probabilities.
    pub(super) fn dispatch(
        &self,
        id: OpId,
        x: Array<B>,
        probabilities: &Array<B>,
        kept: &mut SavedActivations<B>,
    ) -> Result<Routed<B>> {
        let env = self.env;
        let num_experts = probabilities.size(probabilities.rank() - 1);
        let OpKind::Dispatch { top_k } = self.program.op(id).kind else {
            panic!("only a dispatch sends rows to experts")
        };
        let rule = self.rule(id, top_k as usize);
        let correction = self.correction(id, kept)?;
        let probabilities = probabilities.clone().rows(1);
        let choices = experts::choose(&probabilities, correction.as_ref(), &rule);
        let sorted = match env.expert_capacity_factor {
            None => experts::sort(&choices.experts, num_experts),
            Some(factor) => env.sorted_within(factor, &choices.experts, num_experts)?,
        };
        let rows = experts::dispatch(&x.rows(1), &sorted);
        let (rows, counts, exchanged) = env.to_experts(rows, &sorted)?;
        let sent = Sent { rule, choices, sorted, exchanged, counts: counts.clone() };
        Ok(Routed { rows, counts, sent: Arc::new(sent), joined: None })
    }

    /// The router of operator `id`, a dispatch.
    fn router_of(&self, id: OpId) -> OpId {
        self.program.inputs[id.index()][1]
    }

    /// The rule by which the router of `id` chooses experts.
    fn rule(&self, id: OpId, top_k: usize) -> RoutingRule {
        let OpKind::Router { routing, .. } = &self.program.op(self.router_of(id)).kind else {
            panic!("rows are sent where a router says")
        };
        RoutingRule {
            top_k,
            normalise: routing.normalized,
            scaling: routing.scaling.0,
            groups: routing.groups,
        }
    }

    /// The correction that the router adds to each expert's probability, for the choice only.
    fn correction(&self, id: OpId, kept: &mut SavedActivations<B>) -> Result<Option<Array<B>>> {
        let router = self.router_of(id);
        let is_corrected = self.program.inputs[router.index()].len() > 1;
        Ok(if is_corrected { Some(self.input(router, 1, kept)?.array()) } else { None })
    }

    /// The gradient of the tokens, from the gradients of the dispatched rows.
    pub(super) fn dispatch_grad(&self, gradient: Routed<B>) -> Result<Array<B>> {
        let sent = Arc::clone(&gradient.sent);
        let rows = self.env.returned(gradient)?;
        Ok(self.as_tokens(experts::dispatch_grad(rows, &sent.sorted)))
    }

    /// Rows of tokens as `[batch, sequence, width]`.
    fn as_tokens(&self, rows: Array<B>) -> Array<B> {
        let batch = self.env.micro_batch_size;
        let (count, width) = (rows.size(0), rows.size(1));
        rows.reshape(&[batch, count / batch, width])
    }

    /// Brings the experts' outputs back, and returns their weighted sum for each token, and the rows that came back.
    pub(super) fn combine(&self, routed: Routed<B>) -> Result<(Array<B>, Array<B>)> {
        let sent = Arc::clone(&routed.sent);
        let returned = self.env.returned(routed)?;
        let summed = experts::combine(returned.clone(), &sent.sorted, &sent.choices);
        Ok((self.as_tokens(summed), returned))
    }

    /// Gradients of the experts' outputs and of the probabilities.
    pub(super) fn combine_grad(
        &self,
        id: OpId,
        gradient: Array<B>,
        kept: &mut SavedActivations<B>,
    ) -> Result<Vec<Option<Value<B>>>> {
        let env = self.env;
        let probabilities = self.input(id, 1, kept)?.array();
        let Some(Extra::Returned(returned, sent)) = self.extra(id, kept)? else {
            panic!("a combination keeps the rows that came back")
        };
        let (gradient, shape) = (gradient.rows(1), probabilities.shape());
        let Sent { rule, choices, sorted, .. } = &*sent;
        let of_weights = experts::combine_weight_grad(returned, gradient.clone(), sorted);
        let of_probabilities =
            experts::probability_grad(&probabilities.rows(1), choices, of_weights, rule);
        let rows = experts::combine_input_grad(&gradient, sorted, choices);
        let rows = match &sent.exchanged {
            None => rows,
            Some(exchanged) => {
                let rows =
                    env.exchange_rows(&rows, &exchanged.counts, &exchanged.order.source_sizes())?;
                reordered(rows, &exchanged.order.by_expert())
            }
        };
        let counts = sent.counts.clone();
        let of_rows = Routed { rows, counts, sent, joined: None };
        let of_probabilities = of_probabilities.reshape(&shape);
        Ok(vec![Some(Value::Routed(of_rows)), Some(Value::Array(of_probabilities))])
    }

    /// A linear layer with a weight for each expert.
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
        let grad = linear::grouped_weight_grad(x.rows, &x.counts, gradient.rows);
        gradients(id, 0, Gradient::Ready(grad));
    }
}

impl<B: Kernels> Env<B> {
    /// Choices `[rows, top_k]` in the order of experts, without choices beyond the capacity of an expert, which is
    /// `factor` times its even share of a micro-batch. Capacity is counted over all ranks that have parts of the
    /// micro-batch, so the host computes it.
    fn sorted_within(
        &self,
        factor: f64,
        experts: &Indices<B>,
        num_experts: usize,
    ) -> Result<Sorted<B>> {
        let top_k = experts.shape()[1];
        let choices: Vec<usize> =
            experts.to_vec().into_iter().map(|expert| expert as usize).collect();
        let num_choices = self.micro_batch_size * self.sequence_length * top_k;
        let capacity = (factor * num_choices as f64 / num_experts as f64).ceil() as usize;
        let places = self.places(&choices, top_k, num_experts)?;
        let sent = choices.iter().zip(places);
        let sent: Vec<Option<u32>> =
            sent.map(|(expert, place)| (place < capacity).then_some(*expert as u32)).collect();
        Ok(Sorted::of_known(&sent, [num_experts, top_k], &self.device))
    }

    /// For each choice of this rank's tokens, the number of earlier choices of the same expert among all tokens of the
    /// micro-batch, of which context-parallel ranks, and tensor-parallel ranks with sequence parallelism, have only
    /// parts. So the layout does not change which tokens are dropped.
    fn places(&self, choices: &[usize], top_k: usize, num_experts: usize) -> Result<Vec<usize>> {
        let own = self.token_numbers();
        let rows = own.iter().zip(choices.chunks_exact(top_k));
        let numbered: Vec<usize> =
            rows.flat_map(|(token, choices)| [&[*token], choices].concat()).collect();
        // Exact in fp32 below 2^24, which is more than a micro-batch's tokens.
        let numbered = numbered.into_iter().map(|number| number as f64).collect::<Vec<_>>();
        let shape = [numbered.len()];
        let mut all = Array::from_f64(numbered, &shape, Element::F32, &self.device);
        for (group, stream) in [(&self.tensor, Stream::Tensor), (&self.context, Stream::Context)] {
            let shares_tokens = stream == Stream::Context || self.layout.sequence_parallel;
            if shares_tokens && group.len() > 1 {
                let call = CollectiveCall::AllGather { array: all, dim: 0 };
                all = self.communicator.on(group, stream).start(call)?.wait()?;
            }
        }
        let all = counts_of(&all);
        let by_token: BTreeMap<usize, &[usize]> =
            all.chunks_exact(top_k + 1).map(|row| (row[0], &row[1..])).collect();
        let in_order: Vec<usize> = by_token.values().copied().flatten().copied().collect();
        let places = experts::places(&in_order, num_experts);
        let by_token: BTreeMap<usize, &[usize]> =
            by_token.into_keys().zip(places.chunks_exact(top_k)).collect();
        Ok(own.iter().flat_map(|token| by_token[token]).copied().collect())
    }

    /// Indices of this rank's tokens within the micro-batch, in the order of rows.
    fn token_numbers(&self) -> Vec<usize> {
        let positions = self.positions();
        let own = if self.layout.sequence_parallel {
            self.tensor_part(positions.len())
        } else {
            0..positions.len()
        };
        let of_sequence = |sequence: usize| {
            let first = sequence * self.sequence_length;
            positions[own.clone()].iter().map(move |position| first + *position as usize)
        };
        (0..self.micro_batch_size).flat_map(of_sequence).collect()
    }

    /// Sends rows to the ranks of their experts. Returns the rows received, in the order of experts, and their number
    /// for each expert. With several expert-parallel ranks, the host waits for the counts by which it splits rows.
    fn to_experts(
        &self,
        rows: Array<B>,
        sorted: &Sorted<B>,
    ) -> Result<(Array<B>, ExpertCounts<B>, Option<Exchanged>)> {
        let ranks = self.expert.len();
        if ranks == 1 {
            return Ok((rows, sorted.counts.clone(), None));
        }
        let local = sorted.counts.num_experts() / ranks;
        let own = sorted.counts.numbers();
        let parts = own.split(0, &vec![local; ranks]);
        let (group, stream, shapes) = (&self.expert, Stream::Expert, vec![vec![local]; ranks]);
        let came = self.communicator.on(group, stream).all_to_all(parts, Some(&shapes))?;
        let known = counts_of(&Array::concat([vec![own], came].concat(), 0));
        let (own, came) = known.split_at(local * ranks);
        let counts: Vec<usize> = own.chunks(local).map(|of_rank| of_rank.iter().sum()).collect();
        let order = Order { counts: came.chunks(local).map(<[usize]>::to_vec).collect() };
        let came = self.exchange_rows(&rows, &counts, &order.source_sizes())?;
        let rows = reordered(came, &order.by_expert());
        let here = ExpertCounts::known(order.expert_sizes(), &self.device);
        Ok((rows, here, Some(Exchanged { counts, order })))
    }

    /// Sends `go` rows to each expert-parallel rank, in order; returns the rows received, `come` from each rank.
    fn exchange_rows(&self, rows: &Array<B>, go: &[usize], come: &[usize]) -> Result<Array<B>> {
        self.recorded(Stream::Expert, Collective::AllToAll, rows.num_bytes(), || {
            let (group, stream, parts) = (&self.expert, Stream::Expert, rows.split(0, go));
            let shapes = shapes_of_rows(rows, come);
            let came = self.communicator.on(group, stream).all_to_all(parts, Some(&shapes))?;
            Ok(Array::concat(came, 0))
        })
    }

    /// Rows from the experts, back in the order in which this rank sent them.
    fn returned(&self, routed: Routed<B>) -> Result<Array<B>> {
        assert!(routed.joined.is_none(), "joined rows are parted before they return");
        let Some(Exchanged { counts, order }) = &routed.sent.exchanged else {
            return Ok(routed.rows);
        };
        let rows = reordered(routed.rows, &order.by_source());
        self.exchange_rows(&rows, &order.source_sizes(), counts)
    }

    /// The rows of all expert-tensor-parallel ranks, in the order of experts.
    pub(super) fn gather_routed(&self, routed: Routed<B>) -> Result<Routed<B>> {
        let group = &self.expert_tensor;
        let bytes = routed.rows.num_bytes() * group.len() as u64;
        let (order, parts) = self.recorded(Stream::Tensor, Collective::AllGather, bytes, || {
            let stream = Stream::Tensor;
            let call = CollectiveCall::AllGather { array: routed.counts.numbers(), dim: 0 };
            let counts = self.communicator.on(group, stream).start(call)?.wait()?;
            let num_experts = routed.counts.num_experts();
            let counts = counts_of(&counts);
            let counts = counts.chunks(num_experts).map(<[usize]>::to_vec).collect();
            let order = Order { counts };
            let shapes = shapes_of_rows(&routed.rows, &order.source_sizes());
            let rows = routed.rows.clone();
            let rows = self.communicator.on(group, stream).all_gather(rows, Some(&shapes))?;
            Ok((order, rows))
        })?;
        let rows = reordered(Array::concat(parts, 0), &order.by_expert());
        let counts = ExpertCounts::known(order.expert_sizes(), &self.device);
        Ok(Routed { rows, counts, sent: routed.sent, joined: Some(Arc::new(order)) })
    }

    /// This rank's rows of the sum over expert-tensor-parallel ranks.
    pub(super) fn reduce_scatter_routed(&self, routed: Routed<B>) -> Result<Routed<B>> {
        let order = routed.joined.expect("only joined rows are parted");
        let rows = reordered(routed.rows, &order.by_source());
        let rows =
            self.recorded(Stream::Tensor, Collective::ReduceScatter, rows.num_bytes(), || {
                let (sizes, reduction) = (order.source_sizes(), Reduction::Sum);
                let call = CollectiveCall::ReduceScatter { array: rows, dim: 0, sizes, reduction };
                self.communicator.on(&self.expert_tensor, Stream::Tensor).start(call)?.wait()
            })?;
        let counts = routed.sent.counts.clone();
        Ok(Routed { rows, counts, sent: routed.sent, joined: None })
    }
}

/// Shapes of parts of an array with these numbers of rows.
fn shapes_of_rows<B: Kernels>(rows: &Array<B>, counts: &[usize]) -> Vec<Vec<usize>> {
    let shape = rows.shape();
    counts.iter().map(|count| [&[*count], &shape[1..]].concat()).collect()
}

fn counts_of<B: Kernels>(array: &Array<B>) -> Vec<usize> {
    array.to_f64().into_iter().map(|count| count as usize).collect()
}
