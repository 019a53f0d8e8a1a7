//! Lowering of one layer: its sublayers, norms and residual sums.

use super::attention::{ADAPTER, parameter};
use super::{Carried, CarriedValues, Lowering, linear};
use crate::graph::{BlockBuilder, Dim, DimName, EmbeddedRows, GraphError, OpKind, Real, Value};
use crate::model::transformer::{DropoutRates, FeedForward, Layer, Mixer, NormPlacement};

/// Name of the norm that all layers' own embeddings share.
const OWN_NORM: &str = "own_embedding.shared_norm";

impl Lowering {
    /// Residual stream after `layer`, from the layer's input and the tensors in `carried`, to which the layer may add.
    pub(super) fn layer(
        &self,
        block: &mut BlockBuilder,
        layer: &Layer,
        x: Value,
        carried: &mut CarriedValues,
    ) -> Result<Value, GraphError> {
        let y = match layer.norm_placement {
            NormPlacement::ParallelShared | NormPlacement::ParallelSeparate => {
                self.parallel_layer(block, layer, x, carried)
            }
            NormPlacement::Pre
            | NormPlacement::PreWithResidual
            | NormPlacement::PostResidual
            | NormPlacement::PostBlock
            | NormPlacement::Sandwich => self.sequential_layer(block, layer, x, carried),
        }?;
        let y = self.own_embedding(block, layer, y, carried)?;
        for (name, count) in &layer.numbers {
            let dims = vec![Dim::fixed(DimName::Features, *count)];
            block.add_parameter(y, parameter(name, dims));
        }
        Ok(y)
    }

    fn sequential_layer(
        &self,
        block: &mut BlockBuilder,
        layer: &Layer,
        x: Value,
        carried: &mut CarriedValues,
    ) -> Result<Value, GraphError> {
        let DropoutRates { attention_output, feed_forward_output, .. } = self.dropout;
        let mut x = match &layer.mixer {
            Mixer::None => x,
            mixer => {
                let name = mixer_name(mixer);
                let given = self.shared_block(block, layer, x, carried)?;
                self.sublayer(block, layer, name, attention_output, [x, given], |block, x| {
                    self.mixer(block, mixer, x, carried)
                })?
            }
        };
        let encoder = carried.get(&Carried::EncoderOutput).copied();
        if let (Some(attention), Some(encoder)) = (&layer.cross_attention, encoder) {
            let name = "cross_attention";
            x = self.sublayer(block, layer, name, attention_output, [x; 2], |block, x| {
                self.attention(block, name, attention, [x, encoder], carried)
            })?;
        }
        if matches!(layer.feed_forward, FeedForward::None) {
            return Ok(x);
        }
        let (raw, mut shortcut_output) = (x, None);
        let y = self.sublayer(block, layer, "mlp", feed_forward_output, [x; 2], |block, x| {
            if let Some(shortcut) = &layer.shortcut {
                shortcut_output =
                    Some(self.mixture(block, "experts", &shortcut.mixture, x, raw)?);
            }
            self.feed_forward(block, layer, x, raw)
        })?;
        let (Some(shortcut), Some(shortcut_output)) = (&layer.shortcut, shortcut_output) else {
            return Ok(y);
        };
        block.set_prefix("second.");
        let y = self.sequential_layer(block, &shortcut.second, y, carried)?;
        block.set_prefix("");
        block.push("experts.residual", OpKind::Add, &[y, shortcut_output])
    }

    /// `x` with the layer's own embedding of tokens, where it has one (transformers' `modeling_gemma3n.py`,
    /// `project_per_layer_inputs` and `Gemma3nTextDecoderLayer`). The library does lookup and projection for all
    /// layers at once; here each layer has its part of the table and of the projection, so that these are where they
    /// are used.
    fn own_embedding(
        &self,
        block: &mut BlockBuilder,
        layer: &Layer,
        x: Value,
        carried: &CarriedValues,
    ) -> Result<Value, GraphError> {
        let embedded = carried.get(&Carried::Embedding).copied();
        let (Some(own), Some(embedded)) = (layer.own_embedding, embedded) else { return Ok(x) };
        let tokens = block.input("tokens", self.tokens());
        let width = Dim::fixed(DimName::Latent, own.size);
        let entries = Dim::fixed(DimName::Vocabulary, own.vocab_size);
        let table = OpKind::Embedding { entries, width, rows: EmbeddedRows::Tokens { ahead: 0 } };
        let looked_up = block.push("own_embedding.tokens", table, &[tokens])?;
        let (hidden, latent) = ([DimName::Hidden], [DimName::Latent]);
        let name = "own_embedding.projection";
        let projected = linear(block, name, &hidden, &[width], false, embedded)?;
        let name = if own.has_norm { OWN_NORM } else { "own_embedding.projection_norm" };
        let projected = self.norm(block, name, own.norm, &latent, projected)?;
        if !own.has_norm {
            block.tie_weight(projected, OWN_NORM);
        }
        let own_input = block.push("own_embedding.sum", OpKind::Add, &[projected, looked_up])?;
        let gate = linear(block, "own_embedding.gate", &hidden, &[width], false, x)?;
        let kind = OpKind::GatedActivation(own.activation);
        let gated = block.push("own_embedding.gated", kind, &[gate, own_input])?;
        self.recompute_if_flash(block, gated);
        let back = linear(block, "own_embedding.output", &latent, &[self.hidden], false, gated)?;
        let back = self.norm(block, "own_embedding.norm", layer.norm, &hidden, back)?;
        block.push("own_embedding.residual", OpKind::Add, &[x, back])
    }

    /// Input of the mixer: the residual stream, with the output of the layer's shared block where it has one.
    fn shared_block(
        &self,
        block: &mut BlockBuilder,
        layer: &Layer,
        x: Value,
        carried: &mut CarriedValues,
    ) -> Result<Value, GraphError> {
        let embedded = carried.get(&Carried::Embedding).copied();
        let (Some(shared), Some(embedded)) = (&layer.shared_block, embedded) else { return Ok(x) };
        let prefix = |index: u64| format!("shared{index}.");
        let hidden = [DimName::Hidden];
        let first = block.num_ops();
        block.set_prefix(prefix(shared.index));
        let joined = OpKind::Concat { over: DimName::Hidden };
        let y = block.push("joined", joined, &[x, embedded])?;
        let y = self.norm(block, "attention.norm", layer.norm, &hidden, y)?;
        let y = self.attention(block, "attention", &shared.attention, [y, y], carried)?;
        let y = self.norm(block, "mlp.norm", layer.norm, &hidden, y)?;
        let y = self.mlp(block, "mlp", &shared.mlp, y)?;
        if shared.index != shared.owner {
            block.tie_since(first, &prefix(shared.owner), |name| name.contains(ADAPTER));
        }
        let y = linear(block, "output", &hidden, &[self.hidden], false, y)?;
        let y = block.push("sum", OpKind::Add, &[x, y]);
        block.set_prefix("");
        y
    }

    /// A sublayer: `compute`, with the layer's norms, dropout and residual sum; its inputs are the residual stream `x`
    /// and the tensor that is read in place of it.
    fn sublayer(
        &self,
        block: &mut BlockBuilder,
        layer: &Layer,
        name: &str,
        dropout: Real,
        [x, given]: [Value; 2],
        compute: impl FnOnce(&mut BlockBuilder, Value) -> Result<Value, GraphError>,
    ) -> Result<Value, GraphError> {
        let placement = layer.norm_placement;
        let norm = |block: &mut BlockBuilder, name: String, x: Value| {
            self.norm(block, &name, layer.norm, &[DimName::Hidden], x)
        };
        let streams =
            self.streams.map(|it| self.weighted_streams(block, name, it, x)).transpose()?;
        let given = streams.as_ref().map_or(given, |streams| streams.sum);
        let input = match placement {
            NormPlacement::Pre | NormPlacement::PreWithResidual | NormPlacement::Sandwich => {
                norm(block, format!("{name}.norm"), given)?
            }
            _ => given,
        };
        let output = compute(block, input)?;
        let output = match placement {
            NormPlacement::PostBlock | NormPlacement::Sandwich => {
                norm(block, format!("{name}.post_norm"), output)?
            }
            _ => output,
        };
        let output = Self::dropout(block, &format!("{name}.dropout"), dropout, output)?;
        let output = self.summand(block, name, output)?;
        if let Some(streams) = streams {
            return self.added_to_streams(block, name, streams, [x, output]);
        }
        let x = if placement == NormPlacement::PreWithResidual { input } else { x };
        let sum = block.push(format!("{name}.residual"), OpKind::Add, &[x, output])?;
        if placement == NormPlacement::PostResidual {
            norm(block, format!("{name}.norm"), sum)
        } else {
            Ok(sum)
        }
    }

    /// A layer with attention and feed-forward in parallel.
    fn parallel_layer(
        &self,
        block: &mut BlockBuilder,
        layer: &Layer,
        x: Value,
        carried: &mut CarriedValues,
    ) -> Result<Value, GraphError> {
        let hidden = [DimName::Hidden];
        let mut norm = |name: &str| self.norm(block, name, layer.norm, &hidden, x);
        let [for_attention, for_mlp] = if layer.norm_placement == NormPlacement::ParallelSeparate {
            [norm("attention.parallel_norm")?, norm("mlp.parallel_norm")?]
        } else {
            [norm("attention.norm")?; 2]
        };
        let attention = self.mixer(block, &layer.mixer, for_attention, carried)?;
        let mlp = self.feed_forward(block, layer, for_mlp, x)?;
        let DropoutRates { attention_output, feed_forward_output, .. } = self.dropout;
        if *attention_output == 0.0 && *feed_forward_output > 0.0 {
            let sum = block.push("sum", OpKind::Add, &[attention, mlp])?;
            let sum = Self::dropout(block, "dropout", feed_forward_output, sum)?;
            let sum = self.summand(block, "sum", sum)?;
            return block.push("residual", OpKind::Add, &[x, sum]);
        }
        let attention = Self::dropout(block, "attention.dropout", attention_output, attention)?;
        let attention = self.summand(block, "attention", attention)?;
        let mlp = Self::dropout(block, "mlp.dropout", feed_forward_output, mlp)?;
        let mlp = self.summand(block, "mlp", mlp)?;
        block.push("residual", OpKind::Add, &[x, attention, mlp])
    }

    /// Output of the feed-forward block from its normalised input and from the residual stream itself.
    fn feed_forward(
        &self,
        block: &mut BlockBuilder,
        layer: &Layer,
        x: Value,
        raw: Value,
    ) -> Result<Value, GraphError> {
        match &layer.feed_forward {
            FeedForward::Dense(mlp) => self.mlp(block, "mlp", mlp, x),
            FeedForward::Mixture(mixture) => self.mixture(block, "mlp", mixture, x, raw),
            FeedForward::None => Ok(x),
        }
    }
}

/// Name of a mixer's sublayer.
const fn mixer_name(mixer: &Mixer) -> &'static str {
    match mixer {
        Mixer::Attention(_) => "attention",
        Mixer::StateSpace(_) | Mixer::SelectiveScan(_) => "mamba",
        Mixer::DeltaNet(_) => "delta_net",
        Mixer::Lightning(_) => "lightning",
        Mixer::Convolution(_) => "convolution",
        Mixer::Parallel(_) => "mixer",
        Mixer::None => "",
    }
}
