//! Norms: of rows that a rank has whole, and of rows whose features are sharded over tensor-parallel ranks.

use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use executor_kernels::ops::norm::{self, Statistics};
use ir::graph::{DimName, NormKind, OpId, OpKind};

use super::parts::{repeated, summed};
use super::value::Extra;
use super::{BlockRun, Result, SavedActivations};

/// A norm with this rank's parts of its parameters.
struct Norm<B: Kernels> {
    kind: NormKind,
    /// Number of trailing dimensions that are normalised.
    trailing: usize,
    epsilon: f64,
    weight: Option<Array<B>>,
    bias: Option<Array<B>>,
}

impl<B: Kernels> Norm<B> {
    /// Returns whether scale and shift have more dimensions than are normalised, with values for each head.
    fn has_weights_of_heads(&self) -> bool {
        let parameter = self.weight.as_ref().or(self.bias.as_ref());
        self.kind != NormKind::BatchNorm && parameter.is_some_and(|it| it.rank() > self.trailing)
    }
}

impl<B: Kernels> BlockRun<'_, B> {
    fn read_norm(&self, id: OpId) -> Norm<B> {
        let OpKind::Norm { kind, over, epsilon, unit_offset, .. } = &self.program.op(id).kind
        else {
            panic!("only a norm normalises")
        };
        let weight = self.weight(id, "weight");
        Norm {
            kind: *kind,
            trailing: over.len(),
            epsilon: epsilon.0,
            weight: if *unit_offset { weight.map(|weight| weight.shift(1.0)) } else { weight },
            bias: self.weight(id, "bias"),
        }
    }

    /// The number of features of whole rows, where these are sharded over tensor-parallel ranks, and the share that
    /// each rank counts: one over the number of copies of key-value heads.
    fn shared_width(&self, id: OpId) -> Option<(usize, f64)> {
        let is_shared =
            self.env.tensor.len() > 1 && self.program.placements.sharded_reductions.contains(&id);
        let OpKind::Norm { over, .. } = &self.program.op(id).kind else { return None };
        let size = |name: &DimName| {
            let size = self.program.op(id).output.dim(*name)?.extent.fixed()?;
            Some(size as usize)
        };
        let width: Option<usize> = over.iter().map(size).product();
        let ranks = self.env.tensor.len();
        let heads = size(&DimName::KvHeads).filter(|_| over.contains(&DimName::KvHeads));
        let copies = heads.map_or(1, |heads| (ranks / heads).max(1));
        width.filter(|_| is_shared).map(|width| (width, 1.0 / copies as f64))
    }

    /// The normalised `x`, and its statistics.
    pub(super) fn norm(&self, id: OpId, x: Array<B>) -> Result<(Array<B>, Statistics<B>)> {
        let norm = self.read_norm(id);
        if norm.kind == NormKind::BatchNorm {
            return Ok(norm::batch_norm_forward(x, norm.weight, norm.bias, norm.epsilon));
        }
        let (shape, rows) = (x.shape(), x.rows(norm.trailing));
        let of_heads = norm.has_weights_of_heads();
        let flat = |parameter: &Option<Array<B>>| parameter.clone().map(Array::flatten);
        let parameters =
            if of_heads { [None, None] } else { [flat(&norm.weight), flat(&norm.bias)] };
        let [weight, bias] = parameters;
        let (y, statistics) = match self.shared_width(id) {
            Some((width, share)) => {
                let own = norm::sum_of_squares(rows.clone()).scale(share);
                let sum = self.env.all_reduce(own)?;
                let statistics = Statistics::of_sum_of_squares(sum, width, norm.epsilon);
                (norm::normalise(rows, &statistics, weight, bias), statistics)
            }
            None => norm::forward(norm.kind, rows, weight, bias, norm.epsilon),
        };
        let mut y = y.reshape(&shape);
        if of_heads {
            if let Some(weight) = norm.weight {
                y = y * self.of_heads_repeated(id, weight, &shape);
            }
            if let Some(bias) = norm.bias {
                y = y + self.of_heads_repeated(id, bias, &shape);
            }
        }
        Ok((y, statistics))
    }

    /// The gradient of the input of operator `id`, a norm.
    pub(super) fn norm_input_grad(
        &self,
        id: OpId,
        gradient: Array<B>,
        kept: &mut SavedActivations<B>,
    ) -> Result<Array<B>> {
        let norm = self.read_norm(id);
        let x = self.input(id, 0, kept)?.array();
        let statistics = self.statistics(id, kept)?;
        if norm.kind == NormKind::BatchNorm {
            return Ok(norm::batch_norm_input_grad(x, &statistics, norm.weight, gradient));
        }
        let shape = x.shape();
        let (gradient, weight) = match norm.weight.clone() {
            Some(weight) if norm.has_weights_of_heads() => {
                (gradient * self.of_heads_repeated(id, weight, &shape), None)
            }
            weight => (gradient, weight.map(Array::flatten)),
        };
        let (x, gradient) = (x.rows(norm.trailing), gradient.rows(norm.trailing));
        let grad = match self.shared_width(id) {
            // Ranks with copies have summands of the gradient, and each subtracts its share of the projection.
            Some((width, share)) => {
                let own =
                    norm::projection(x.clone(), &statistics, weight.clone(), gradient.clone())
                        .scale(share);
                let projection = self.env.all_reduce(own)?;
                norm::input_grad_of_projection(x, &statistics, weight, gradient, projection, width)
            }
            None => norm::input_grad(norm.kind, x, &statistics, weight, gradient),
        };
        Ok(grad.reshape(&shape))
    }

    /// The gradients of the scale and shift of operator `id`, a norm.
    pub(super) fn norm_weight_grad(
        &self,
        id: OpId,
        gradient: Array<B>,
        kept: &mut SavedActivations<B>,
    ) -> Result<[Array<B>; 2]> {
        let norm = self.read_norm(id);
        let x = self.input(id, 0, kept)?.array();
        let statistics = self.statistics(id, kept)?;
        if norm.kind == NormKind::BatchNorm {
            return Ok(norm::batch_norm_weight_grad(x, &statistics, gradient).into());
        }
        if norm.has_weights_of_heads() {
            let shape = x.shape();
            let (own, dims) = (&self.program.op(id).parameters[0].dims, self.given(id, 0));
            let normalised = norm::normalise(x.rows(norm.trailing), &statistics, None, None);
            let scale = gradient.clone() * normalised.reshape(&shape);
            return Ok([summed(scale, own, dims), summed(gradient, own, dims)]);
        }
        let (x, gradient) = (x.rows(norm.trailing), gradient.rows(norm.trailing));
        Ok(norm::weight_grad(norm.kind, x, &statistics, gradient).into())
    }

    /// A scale or shift with values for each head, repeated for every row.
    fn of_heads_repeated(&self, id: OpId, parameter: Array<B>, shape: &[usize]) -> Array<B> {
        repeated(parameter, &self.program.op(id).parameters[0].dims, self.given(id, 0), shape)
    }

    fn statistics(&self, id: OpId, kept: &mut SavedActivations<B>) -> Result<Statistics<B>> {
        match self.extra(id, kept)? {
            Some(Extra::Statistics(statistics)) => Ok(statistics),
            _ => panic!("a norm keeps its statistics"),
        }
    }
}
