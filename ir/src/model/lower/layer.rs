//! Lowering of one layer: its sublayers, norms and residual sums.

use super::Lowering;
use super::attention::parameter;
use crate::graph::{BlockBuilder, Dim, DimName, GraphError, OpKind, Real, Value};
use crate::model::transformer::{DropoutRates, FeedForward, Layer, Mixer, NormPlacement};

impl Lowering {
    /// Residual stream after `layer`, from its input and the encoder's output.
    pub(super) fn layer(
        &self,
        block: &mut BlockBuilder,
        layer: &Layer,
        x: Value,
        encoder: Option<Value>,
    ) -> Result<Value, GraphError> {
        let y = match layer.norm_placement {
            NormPlacement::ParallelShared | NormPlacement::ParallelSeparate => {
                self.parallel_layer(block, layer, x)
            }
            NormPlacement::Pre
            | NormPlacement::PreWithResidual
            | NormPlacement::PostResidual
            | NormPlacement::PostBlock
            | NormPlacement::Sandwich => self.sequential_layer(block, layer, x, encoder),
        }?;
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
        encoder: Option<Value>,
    ) -> Result<Value, GraphError> {
        let DropoutRates { attention_output, feed_forward_output, .. } = self.dropout;
        let mut x = match &layer.mixer {
            Mixer::None => x,
            mixer => {
                let name = mixer_name(mixer);
                self.sublayer(block, layer, name, attention_output, x, |block, x| {
                    self.mixer(block, mixer, x)
                })?
            }
        };
        if let (Some(attention), Some(encoder)) = (&layer.cross_attention, encoder) {
            let name = "cross_attention";
            x = self.sublayer(block, layer, name, attention_output, x, |block, x| {
                self.attention(block, name, attention, x, encoder)
            })?;
        }
        if matches!(layer.feed_forward, FeedForward::None) {
            return Ok(x);
        }
        self.sublayer(block, layer, "mlp", feed_forward_output, x, |block, x| {
            self.feed_forward(block, layer, x)
        })
    }

    /// A sublayer: `compute`, with the layer's norms, dropout and residual sum.
    fn sublayer(
        &self,
        block: &mut BlockBuilder,
        layer: &Layer,
        name: &str,
        dropout: Real,
        x: Value,
        compute: impl FnOnce(&mut BlockBuilder, Value) -> Result<Value, GraphError>,
    ) -> Result<Value, GraphError> {
        let placement = layer.norm_placement;
        let norm = |block: &mut BlockBuilder, name: String, x: Value| {
            self.norm(block, &name, layer.norm, &[DimName::Hidden], x)
        };
        let input = match placement {
            NormPlacement::Pre | NormPlacement::PreWithResidual | NormPlacement::Sandwich => {
                norm(block, format!("{name}.norm"), x)?
            }
            _ => x,
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
    ) -> Result<Value, GraphError> {
        let hidden = [DimName::Hidden];
        let mut norm = |name: &str| self.norm(block, name, layer.norm, &hidden, x);
        let [for_attention, for_mlp] = if layer.norm_placement == NormPlacement::ParallelSeparate {
            [norm("attention.parallel_norm")?, norm("mlp.parallel_norm")?]
        } else {
            [norm("attention.norm")?; 2]
        };
        let attention = self.mixer(block, &layer.mixer, for_attention)?;
        let mlp = self.feed_forward(block, layer, for_mlp)?;
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

    fn feed_forward(
        &self,
        block: &mut BlockBuilder,
        layer: &Layer,
        x: Value,
    ) -> Result<Value, GraphError> {
        match &layer.feed_forward {
            FeedForward::Dense(mlp) => self.mlp(block, "mlp", mlp, x),
            FeedForward::Mixture(mixture) => self.mixture(block, mixture, x),
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
