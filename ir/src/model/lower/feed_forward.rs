//! Lowering of feed-forward blocks and mixtures of experts.

use super::attention::{Scope, parameter};
use super::{Lowering, linear};
use crate::graph::{
    Activation, BlockBuilder, Dim, DimName, GraphError, Learning, OpKind, Value, WeightFormat,
};
use crate::model::transformer::{Correction, Mixture, Mlp};

impl Lowering {
    /// Dense feed-forward block.
    pub(super) fn mlp(
        &self,
        block: &mut BlockBuilder,
        name: &str,
        mlp: &Mlp,
        x: Value,
    ) -> Result<Value, GraphError> {
        let inner = self.inner(block, name, mlp, x, linear)?;
        let rate = self.dropout.intermediate;
        let inner = Self::dropout(block, &format!("{name}.inner_dropout"), rate, inner)?;
        let down = format!("{name}.down");
        linear(block, &down, &[DimName::Intermediate], &[self.hidden], mlp.down_bias, inner)
    }

    /// Mixture of experts: router, dispatch, experts, combine, and the shared block; of the block's normalised input,
    /// and the residual stream as it is.
    pub(super) fn mixture(
        &self,
        block: &mut BlockBuilder,
        prefix: &str,
        mixture: &Mixture,
        x: Value,
        raw: Value,
    ) -> Result<Value, GraphError> {
        let Mixture { num_experts, top_k, router_bias: bias, routing, .. } = *mixture;
        let router = OpKind::Router { num_experts, top_k, bias, routing };
        let mut scope = Scope { block, name: prefix };
        let hidden = [DimName::Hidden];
        let own = |scope: &mut Scope<'_>, part: &str, x: Value, otherwise: Value| {
            let norm = mixture.own_norms;
            norm.map_or(Ok(otherwise), |norm| self.named_norm(scope, part, norm, &hidden, x))
        };
        let mut given = vec![own(&mut scope, "router.norm", raw, x)?];
        let for_experts = own(&mut scope, "experts.norm", raw, x)?;
        if mixture.correction != Correction::None {
            let zero = mixture.zero_experts.map_or(0, |zero| zero.count);
            let dims = vec![Dim::fixed(DimName::Experts, num_experts + zero)];
            let counts = mixture.correction == Correction::Parameter;
            let buffer = OpKind::Buffer { dims, counts };
            let correction = scope.push("router.correction", buffer, &[])?;
            scope.block.set_learning(correction, Learning::Frozen(WeightFormat::Plain));
            given.push(correction);
        }
        let probabilities = scope.push("router", router, &given)?;
        if let Some(zero) = mixture.zero_experts {
            let produced = [Dim::fixed(DimName::Latent, zero.count)];
            scope.linear("router.zero", &hidden, &produced, bias, given[0])?;
        }
        if mixture.own_norms.is_some() {
            let dims = vec![Dim::fixed(DimName::Experts, num_experts)];
            scope.block.add_parameter(probabilities, parameter("expert_scale", dims));
        }
        // Routed tokens have a width of their own where the model projects them, with biases like the shared block.
        let has_biases = mixture.shared.is_some_and(|shared| shared.up_bias);
        let width = mixture.latent_size.map(|size| Dim::fixed(DimName::Hidden, size));
        let routed = match width {
            Some(width) => {
                scope.linear("latent_down", &hidden, &[width], has_biases, for_experts)?
            }
            None => for_experts,
        };
        let dispatch = OpKind::Dispatch { top_k };
        let tokens = scope.push("dispatch", dispatch, &[routed, probabilities])?;

        let grouped = |block: &mut BlockBuilder,
                       name: &str,
                       contracted: &[DimName],
                       produced: &[Dim],
                       bias: bool,
                       x: Value| {
            let (contracted, produced) = (contracted.to_vec(), produced.to_vec());
            let kind = OpKind::GroupedLinear { num_experts, contracted, produced, bias };
            block.push(name, kind, &[x])
        };
        let expert = &mixture.expert;
        let name = format!("{prefix}.experts");
        let inner = self.inner(scope.block, &name, expert, tokens, grouped)?;
        if let Some(zero) = mixture.zero_experts.filter(|zero| zero.has_weights) {
            let inner = expert.intermediate_size.saturating_mul(1 + u64::from(expert.gated));
            let inner = Dim::fixed(DimName::Intermediate, inner);
            let dims = vec![Dim::fixed(DimName::Experts, zero.count), self.hidden, inner];
            scope.block.add_parameter(tokens, parameter("unused", dims));
        }
        let (contracted, produced) = ([DimName::Intermediate], [width.unwrap_or(self.hidden)]);
        let (name, bias) = (format!("{name}.down"), expert.down_bias);
        let outputs = grouped(scope.block, &name, &contracted, &produced, bias, inner)?;

        let mut routed = scope.push("combine", OpKind::Combine, &[outputs, probabilities])?;
        if width.is_some() {
            routed = scope.linear("latent_up", &hidden, &[self.hidden], has_biases, routed)?;
        }
        let routed = own(&mut scope, "experts.post_norm", routed, routed)?;
        let Some(shared) = &mixture.shared else { return Ok(routed) };
        let shared = self.mlp(scope.block, &format!("{prefix}.shared"), shared, x)?;
        let shared = own(&mut scope, "shared.post_norm", shared, shared)?;
        let shared = if mixture.shared_gate { self.gated(scope.block, shared, x)? } else { shared };
        scope.push("shared.sum", OpKind::Add, &[routed, shared])
    }

    /// Inner tensor of a feed-forward block; `project` adds its linear layers, dense or grouped.
    fn inner(
        &self,
        block: &mut BlockBuilder,
        name: &str,
        mlp: &Mlp,
        x: Value,
        project: impl Fn(
            &mut BlockBuilder,
            &str,
            &[DimName],
            &[Dim],
            bool,
            Value,
        ) -> Result<Value, GraphError>,
    ) -> Result<Value, GraphError> {
        let produced = [Dim::fixed(DimName::Intermediate, mlp.intermediate_size)];
        let prefix = name;
        let narrow = Scope { block, name }.adapter("inner", mlp.adapter_rank, x)?;
        let up = |block: &mut BlockBuilder, part: &str| {
            let name = format!("{name}.{part}");
            let y = project(block, &name, &[DimName::Hidden], &produced, mlp.up_bias, x)?;
            Scope { block, name: prefix }.adapted(part, narrow, &produced, y)
        };
        let activation = format!("{name}.activation");
        let inner = if mlp.gated {
            let gate = up(block, "gate")?;
            let value = up(block, "up")?;
            let function = match mlp.clamp {
                Some(limit) => OpKind::ClampedSwiGlu { limit },
                None => OpKind::GatedActivation(mlp.activation),
            };
            block.push(activation, function, &[gate, value])?
        } else {
            let value = up(block, "up")?;
            block.push(activation, OpKind::Activation(mlp.activation), &[value])?
        };
        self.recompute_if_flash(block, inner);
        Ok(inner)
    }

    /// Output of the shared block, weighted for each token by a sigmoid gate.
    fn gated(
        &self,
        block: &mut BlockBuilder,
        shared: Value,
        x: Value,
    ) -> Result<Value, GraphError> {
        let score = linear(block, "mlp.shared_gate", &[DimName::Hidden], &[], false, x)?;
        let sigmoid = OpKind::Activation(Activation::Sigmoid);
        let weight = block.push("mlp.shared_gate.activation", sigmoid, &[score])?;
        self.recompute_if_flash(block, weight);
        block.push("mlp.shared.weighted", OpKind::Multiply, &[shared, weight])
    }
}
