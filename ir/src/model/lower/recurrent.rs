//! Lowering of sequence mixers: attention, Mamba, Mamba-2, the delta rule, lightning attention, short convolutions.

use super::attention::{Scope, parameter};
use super::{CarriedValues, Lowering};
use crate::graph::{Activation, BlockBuilder, Dim, DimName, GraphError, OpKind, Recurrence, Value};
use crate::model::transformer::{
    Convolution, Decays, DeltaNet, Lightning, Mixer, Norm, SelectiveScan, StateSpace,
};

/// Number of positions in a chunk of the delta rule: that of flash-linear-attention.
const DELTA_CHUNK: u64 = 64;

/// Number of positions between the states that the selective scan saves: that of mamba's
/// `selective_scan_fwd_kernel.cuh`.
const SCAN_CHUNK: u64 = 2048;

impl Lowering {
    /// The output of `mixer`; its operators are named after its kind.
    pub(super) fn mixer(
        &self,
        block: &mut BlockBuilder,
        mixer: &Mixer,
        x: Value,
        carried: &mut CarriedValues,
    ) -> Result<Value, GraphError> {
        match mixer {
            Mixer::Attention(attention) => {
                self.attention(block, "attention", attention, [x, x], carried)
            }
            Mixer::StateSpace(mamba) => self.state_space(block, mamba, x),
            Mixer::SelectiveScan(mamba) => self.selective_scan(block, mamba, x),
            Mixer::DeltaNet(net) => self.delta_net(block, net, x),
            Mixer::Lightning(lightning) => self.lightning(block, lightning, x),
            Mixer::Convolution(convolution) => self.convolution(block, convolution, x),
            Mixer::Parallel(mixers) => {
                let outputs = mixers.iter().map(|mixer| self.mixer(block, mixer, x, carried));
                let outputs: Vec<_> = outputs.collect::<Result<_, _>>()?;
                block.push("mixer.sum", OpKind::Add, &outputs)
            }
            Mixer::None => Ok(x),
        }
    }

    /// Mamba-2: inputs, `B`, `C` and time steps of each head; the first three go through a convolution. Then the scan,
    /// its gate and norm.
    fn state_space(
        &self,
        block: &mut BlockBuilder,
        mamba: &StateSpace,
        x: Value,
    ) -> Result<Value, GraphError> {
        let mut scope = Scope { block, name: "mamba" };
        let groups = Dim::fixed(DimName::Groups, mamba.num_groups);
        let heads = Dim::fixed(DimName::Features, mamba.num_heads / mamba.num_groups);
        let features = Dim::fixed(DimName::HeadDim, mamba.head_dim);
        let state = Dim::fixed(DimName::State, mamba.state_size);
        let hidden = [DimName::Hidden];
        let project = |scope: &mut Scope<'_>, part: &str, dims: &[Dim]| {
            scope.linear(part, &hidden, dims, mamba.bias, x)
        };
        let inner = [groups, heads, features];
        let gate = project(&mut scope, "gate", &inner)?;
        let parts = [("input", &inner[..]), ("b", &[groups, state]), ("c", &[groups, state])];
        let (kernel, activation) = (mamba.kernel, Some(mamba.activation));
        let short = OpKind::ShortConvolution { kernel, bias: mamba.convolution_bias, activation };
        let mut inputs = Vec::new();
        for (part, dims) in parts {
            let projected = project(&mut scope, part, dims)?;
            inputs.push(scope.push(&format!("{part}_convolution"), short.clone(), &[projected])?);
        }
        inputs.push(project(&mut scope, "time_step", &[groups, heads])?);
        let kind = Recurrence::StateSpace { time_steps: mamba.time_steps };
        let scan = OpKind::Recurrence { kind, chunk: mamba.chunk };
        let y = scope.push("scan", scan, &inputs)?;
        let gated = OpKind::GatedActivation(Activation::Silu);
        let mut y = scope.push("gated", gated, &[gate, y])?;
        self.recompute_if_flash(scope.block, y);
        if let Some(norm) = mamba.norm {
            let over = [DimName::Features, DimName::HeadDim];
            let untrained = Norm { weight: false, bias: false, ..norm };
            y = self.norm(scope.block, "mamba.gated_norm", untrained, &over, y)?;
            scope.block.add_parameter(y, parameter("weight", inner.to_vec()));
        }
        let contracted = [DimName::Groups, DimName::Features, DimName::HeadDim];
        scope.linear("output", &contracted, &[self.hidden], mamba.output_bias, y)
    }

    /// Mamba: a convolution of the input, from which `B`, `C` and time steps are computed; then the scan and its gate.
    fn selective_scan(
        &self,
        block: &mut BlockBuilder,
        mamba: &SelectiveScan,
        x: Value,
    ) -> Result<Value, GraphError> {
        let SelectiveScan { rank, state_size, kernel, bias, .. } = *mamba;
        let mut scope = Scope { block, name: "mamba" };
        let inner = [Dim::fixed(DimName::Intermediate, mamba.inner_size)];
        let latent = |size: u64| Dim::fixed(DimName::Latent, size);
        let hidden = [DimName::Hidden];
        let gate = scope.linear("gate", &hidden, &inner, bias, x)?;
        let input = scope.linear("input", &hidden, &inner, bias, x)?;
        let activation = Some(Activation::Silu);
        let short = OpKind::ShortConvolution { kernel, bias: mamba.convolution_bias, activation };
        let input = scope.push("input_convolution", short, &[input])?;
        let made = [latent(rank + 2 * state_size)];
        let made = scope.linear("parameters", &[DimName::Intermediate], &made, false, input)?;
        let mut start = 0;
        let mut part = |scope: &mut Scope<'_>, name: &str, size: u64| {
            let slice = OpKind::Slice { dim: latent(size), start };
            start += size;
            let y = scope.push(name, slice, &[made])?;
            let name = format!("mamba.{name}_norm");
            match mamba.norm {
                Some(norm) => self.norm(scope.block, &name, norm, &[DimName::Latent], y),
                None => Ok(y),
            }
        };
        let step = part(&mut scope, "step", rank)?;
        let b = part(&mut scope, "b", state_size)?;
        let c = part(&mut scope, "c", state_size)?;
        let step = scope.linear("time_step", &[DimName::Latent], &inner, true, step)?;
        let scan = OpKind::Recurrence { kind: Recurrence::SelectiveScan, chunk: SCAN_CHUNK };
        let y = scope.push("scan", scan, &[input, b, c, step])?;
        let gated = OpKind::GatedActivation(Activation::Silu);
        let y = scope.push("gated", gated, &[gate, y])?;
        self.recompute_if_flash(scope.block, y);
        scope.linear("output", &[DimName::Intermediate], &[self.hidden], bias, y)
    }

    /// The gated delta rule: queries, keys and values through convolutions, the rule, each head's norm, and its gate.
    fn delta_net(
        &self,
        block: &mut BlockBuilder,
        net: &DeltaNet,
        x: Value,
    ) -> Result<Value, GraphError> {
        let mut scope = Scope { block, name: "delta_net" };
        let keys = [
            Dim::fixed(DimName::KvHeads, net.num_key_heads),
            Dim::fixed(DimName::HeadDim, net.key_dim),
        ];
        let heads = Dim::fixed(DimName::Heads, net.num_value_heads);
        let values = [heads, Dim::fixed(DimName::HeadDim, net.value_dim)];
        let hidden = [DimName::Hidden];
        // With decays for each feature, keys and values have the same number of heads.
        let keys = if net.decays == Decays::Heads { keys } else { [heads, keys[1]] };
        let (kernel, activation) = (net.kernel, Some(net.activation));
        let short = OpKind::ShortConvolution { kernel, bias: false, activation };
        let mut inputs = Vec::new();
        for (part, dims) in [("query", &keys), ("key", &keys), ("value", &values)] {
            let projected = scope.linear(part, &hidden, dims, false, x)?;
            inputs.push(scope.push(&format!("{part}_convolution"), short.clone(), &[projected])?);
        }
        inputs.push(scope.linear("beta", &hidden, &[heads], false, x)?);
        let low_rank = |scope: &mut Scope<'_>, part: &str, rank: u64, dims: &[Dim]| {
            let down = [Dim::fixed(DimName::Latent, rank)];
            let down = scope.linear(&format!("{part}_down"), &hidden, &down, false, x)?;
            scope.linear(&format!("{part}_up"), &[DimName::Latent], dims, false, down)
        };
        let whole = |scope: &mut Scope<'_>, part: &str, dims: &[Dim]| {
            scope.linear(part, &hidden, dims, false, x)
        };
        let (kind, decay, gate) = match net.decays {
            Decays::Heads => {
                let decay = whole(&mut scope, "decay", &[heads])?;
                (Recurrence::DeltaRule, decay, whole(&mut scope, "gate", &values)?)
            }
            Decays::Features => {
                let decay = whole(&mut scope, "decay", &keys)?;
                (Recurrence::DeltaRuleByFeature, decay, whole(&mut scope, "gate", &values)?)
            }
            Decays::LowRankFeatures { rank, gate } => {
                let decay = low_rank(&mut scope, "decay", rank, &keys)?;
                let gate = if gate {
                    low_rank(&mut scope, "gate", rank, &values)?
                } else {
                    whole(&mut scope, "gate", &values)?
                };
                (Recurrence::DeltaRuleByFeature, decay, gate)
            }
        };
        inputs.push(decay);
        let rule = OpKind::Recurrence { kind, chunk: DELTA_CHUNK };
        let y = scope.push("rule", rule, &inputs)?;
        let y = self.norm(scope.block, "delta_net.head_norm", net.norm, &[DimName::HeadDim], y)?;
        let function = match net.decays {
            Decays::Heads => Activation::Silu,
            Decays::Features | Decays::LowRankFeatures { .. } => Activation::Sigmoid,
        };
        let y = scope.push("gated", OpKind::GatedActivation(function), &[gate, y])?;
        self.recompute_if_flash(scope.block, y);
        let contracted = [DimName::Heads, DimName::HeadDim];
        scope.linear("output", &contracted, &[self.hidden], false, y)
    }

    /// Lightning attention: activated queries, keys and values, a recurrence with fixed decays, a norm and a gate.
    fn lightning(
        &self,
        block: &mut BlockBuilder,
        lightning: &Lightning,
        x: Value,
    ) -> Result<Value, GraphError> {
        let mut scope = Scope { block, name: "lightning" };
        let heads = [
            Dim::fixed(DimName::Heads, lightning.num_heads),
            Dim::fixed(DimName::HeadDim, lightning.head_dim),
        ];
        let hidden = [DimName::Hidden];
        let mut inputs = Vec::new();
        for part in ["query", "key", "value"] {
            let projected = scope.linear(part, &hidden, &heads, false, x)?;
            let activation = OpKind::Activation(lightning.activation);
            let activated = scope.push(&format!("{part}_activation"), activation, &[projected])?;
            self.recompute_if_flash(scope.block, activated);
            inputs.push(activated);
        }
        let kind = OpKind::Recurrence { kind: Recurrence::FixedDecay, chunk: lightning.chunk };
        let y = scope.push("core", kind, &inputs)?;
        let over = [DimName::Heads, DimName::HeadDim];
        let y = self.norm(scope.block, "lightning.heads_norm", lightning.norm, &over, y)?;
        let gate = scope.linear("gate", &hidden, &heads, false, x)?;
        let y = scope.push("gated", OpKind::GatedActivation(Activation::Sigmoid), &[gate, y])?;
        self.recompute_if_flash(scope.block, y);
        scope.linear("output", &over, &[self.hidden], false, y)
    }

    /// LFM2: two gates and a value from one projection; the first gate multiplies the input of the convolution, the
    /// second its output.
    fn convolution(
        &self,
        block: &mut BlockBuilder,
        convolution: &Convolution,
        x: Value,
    ) -> Result<Value, GraphError> {
        let Convolution { kernel, bias } = *convolution;
        let mut scope = Scope { block, name: "convolution" };
        let (Dim { extent, .. }, hidden) = (self.hidden, [DimName::Hidden]);
        let features = [Dim { name: DimName::Features, extent }];
        let project =
            |scope: &mut Scope<'_>, part: &str| scope.linear(part, &hidden, &features, bias, x);
        let first = project(&mut scope, "b")?;
        let second = project(&mut scope, "c")?;
        let value = project(&mut scope, "x")?;
        let gated = scope.push("gated", OpKind::Multiply, &[first, value])?;
        let short = OpKind::ShortConvolution { kernel, bias, activation: None };
        let convolved = scope.push("core", short, &[gated])?;
        let y = scope.push("opened", OpKind::Multiply, &[second, convolved])?;
        scope.linear("output", &[DimName::Features], &[self.hidden], bias, y)
    }
}
