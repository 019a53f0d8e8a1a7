//! Recurrences and short convolutions over the sequence.

use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use executor_kernels::ops::recurrence::{delta_rule, state_space};
use executor_kernels::ops::short_convolution::ShortConvolution;
use ir::graph::{OpId, OpKind, Recurrence};

use super::forward::function_of;
use super::value::Extra;
use super::{BlockRun, Result, SavedActivations};

/// A recurrence of a rank's heads, with its inputs.
enum LocalRecurrence<B: Kernels> {
    StateSpace(
        state_space::ScanInputs<B>,
        state_space::ScanParameters<B>,
        state_space::ScanConstants,
    ),
    DeltaRule(delta_rule::DeltaInputs<B>, delta_rule::DeltaParameters<B>, usize),
}

impl<B: Kernels> BlockRun<'_, B> {
    fn convolution(&self, id: OpId) -> ShortConvolution<B> {
        let OpKind::ShortConvolution { activation, .. } = self.program.op(id).kind else {
            panic!("only a convolution convolves")
        };
        let part = |name| Some(self.env.exchanged_part(&self.weight(id, name)?));
        ShortConvolution {
            weight: part("weight").expect("a convolution has a weight").rows(1),
            bias: part("bias").map(Array::flatten),
            function: activation.map(function_of),
        }
    }

    /// The output of operator `id`, a short convolution.
    pub(super) fn convolved(&self, id: OpId, kept: &mut SavedActivations<B>) -> Result<Array<B>> {
        let [x] = self.over_all_positions(id, kept)?;
        let shape = x.shape();
        if self.program.exchanges_input(id, 0) {
            let exchanged = vec![x.clone()];
            kept.extras.insert(id, Extra::Recurrence { exchanged, saved: None });
        }
        Ok(self.convolution(id).forward(features_joined(x)).reshape(&shape))
    }

    /// The gradient of the input of operator `id`, a short convolution.
    pub(super) fn convolved_input_grad(
        &self,
        id: OpId,
        grad: Array<B>,
        kept: &mut SavedActivations<B>,
    ) -> Result<Array<B>> {
        let [x] = self.over_all_positions(id, kept)?;
        let shape = x.shape();
        let (x, grad) = (features_joined(x), features_joined(grad));
        self.env.own_positions(self.convolution(id).input_grad(x, grad).reshape(&shape))
    }

    /// The gradients of the parameters of operator `id`, a short convolution, in their order.
    pub(super) fn convolved_weight_grad(
        &self,
        id: OpId,
        grad: Array<B>,
        kept: &mut SavedActivations<B>,
    ) -> Result<Vec<Array<B>>> {
        let [x] = self.over_all_positions(id, kept)?;
        let (x, grad) = (features_joined(x), features_joined(grad));
        Ok(self.of_weights(id, self.convolution(id).weight_grad(x, grad)))
    }

    /// Gradients of parameters of operator `id` for all heads, from those for the heads that the rank has.
    fn of_weights(&self, id: OpId, grads: impl IntoIterator<Item = Array<B>>) -> Vec<Array<B>> {
        let weights = self.weights[id.index()].iter();
        weights.zip(grads).map(|(it, grad)| self.env.among_all_heads(grad, &it.shape())).collect()
    }

    /// The output of operator `id`, a recurrence.
    pub(super) fn recurrence(&self, id: OpId, kept: &mut SavedActivations<B>) -> Result<Array<B>> {
        let inputs = self.inputs_over_all_positions(id, kept)?;
        let slots = inputs.iter().enumerate();
        let exchanged = slots.filter(|(slot, _)| self.program.exchanges_input(id, *slot));
        let exchanged: Vec<_> = exchanged.map(|(_, input)| input.clone()).collect();
        let (output, saved) = match self.local_recurrence(id, inputs) {
            LocalRecurrence::StateSpace(inputs, parameters, rule) => {
                (state_space::forward(&inputs, &parameters, rule), None)
            }
            LocalRecurrence::DeltaRule(inputs, parameters, chunk) => {
                let (output, saved) = delta_rule::forward(&inputs, &parameters, chunk);
                (output, Some(saved))
            }
        };
        kept.extras.insert(id, Extra::Recurrence { exchanged, saved });
        self.env.own_positions(output)
    }

    /// Gradients of the inputs of operator `id`, a recurrence. Gradients of its parameters are saved in `kept`.
    pub(super) fn recurrence_grad(
        &self,
        id: OpId,
        grad: Array<B>,
        kept: &mut SavedActivations<B>,
    ) -> Result<Vec<Array<B>>> {
        let grad = self.env.all_positions(grad)?;
        let inputs = self.inputs_over_all_positions(id, kept)?;
        let (of_inputs, of_parameters) = match self.local_recurrence(id, inputs) {
            LocalRecurrence::StateSpace(inputs, parameters, rule) => {
                let (inputs, parameters) = state_space::grads(&inputs, &parameters, rule, grad);
                let state_space::ScanInputs { x, b, c, time_step } = inputs;
                let state_space::ScanParameters { a_log, skip, time_bias } = parameters;
                (vec![x, b, c, time_step], vec![a_log, skip, time_bias])
            }
            LocalRecurrence::DeltaRule(inputs, parameters, chunk) => {
                let Some(Extra::Recurrence { saved: Some(saved), .. }) = self.extra(id, kept)?
                else {
                    panic!("a delta rule keeps its arrays")
                };
                let (inputs, parameters) =
                    delta_rule::grads(&inputs, &parameters, &saved, chunk, grad);
                let delta_rule::DeltaInputs { query, key, value, beta, decay } = inputs;
                let delta_rule::DeltaParameters { a_log, time_bias } = parameters;
                (vec![query, key, value, beta, decay], vec![a_log, time_bias])
            }
        };
        if self.program.op(id).is_trained() {
            let of_parameters = self.of_weights(id, of_parameters).into_iter();
            kept.of_parameters.insert(id, of_parameters.enumerate().collect());
        }
        let back = of_inputs.into_iter().enumerate().map(|(slot, grad)| {
            if self.program.exchanges_input(id, slot) {
                self.env.own_positions(grad)
            } else {
                Ok(grad)
            }
        });
        back.collect()
    }

    fn over_all_positions(
        &self,
        id: OpId,
        kept: &mut SavedActivations<B>,
    ) -> Result<[Array<B>; 1]> {
        let inputs = self.inputs_over_all_positions(id, kept)?;
        Ok(inputs.try_into().expect("a convolution has one input"))
    }

    /// The inputs of operator `id`, over all positions: as saved, or exchanged between context-parallel ranks.
    fn inputs_over_all_positions(
        &self,
        id: OpId,
        kept: &mut SavedActivations<B>,
    ) -> Result<Vec<Array<B>>> {
        let saved = match kept.extras.get(&id) {
            Some(Extra::Recurrence { exchanged, .. }) => exchanged.clone(),
            _ => Vec::new(),
        };
        let mut saved = saved.into_iter();
        let slots = 0..self.program.inputs[id.index()].len();
        let inputs = slots.map(|slot| {
            let is_exchanged = self.program.exchanges_input(id, slot);
            if is_exchanged && let Some(saved) = saved.next() {
                return Ok(saved);
            }
            let own = self.input(id, slot, kept)?.array();
            if is_exchanged { self.env.all_positions(own) } else { Ok(own) }
        });
        inputs.collect()
    }

    /// The recurrence of operator `id`, of the heads that the rank has.
    fn local_recurrence(&self, id: OpId, inputs: Vec<Array<B>>) -> LocalRecurrence<B> {
        let OpKind::Recurrence { kind, chunk } = self.program.op(id).kind else {
            panic!("only a recurrence has a rule")
        };
        let chunk = chunk as usize;
        let mut inputs = inputs.into_iter();
        let mut input = || inputs.next().expect("a recurrence has its inputs");
        let parameter = |name: &str| {
            let parameter = self.weight(id, name).expect("a recurrence has its parameters");
            self.env.exchanged_part(&parameter)
        };
        let (a_log, time_bias) = (parameter("A_log"), parameter("dt_bias"));
        match kind {
            Recurrence::StateSpace { time_steps } => {
                let [x, b, c, time_step] = std::array::from_fn(|_| input());
                let time_steps = time_steps.map(|limit| limit.0);
                let inputs = state_space::ScanInputs { x, b, c, time_step };
                let parameters =
                    state_space::ScanParameters { a_log, skip: parameter("D"), time_bias };
                let rule = state_space::ScanConstants { chunk, time_steps };
                LocalRecurrence::StateSpace(inputs, parameters, rule)
            }
            Recurrence::DeltaRule => {
                let [query, key, value, beta, decay] = std::array::from_fn(|_| input());
                let inputs = delta_rule::DeltaInputs { query, key, value, beta, decay };
                let parameters = delta_rule::DeltaParameters { a_log, time_bias };
                LocalRecurrence::DeltaRule(inputs, parameters, chunk)
            }
            other => panic!("a checked program has no recurrence {other:?}"),
        }
    }
}

/// `[b, s, ..]` with all features in one dimension.
fn features_joined<B: Kernels>(x: Array<B>) -> Array<B> {
    let [batch, length] = [x.size(0), x.size(1)];
    let features = x.num_elements() / (batch * length).max(1);
    x.reshape(&[batch, length, features])
}
