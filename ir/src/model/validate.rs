//! Checks of a whole transformer, after which its graph can be built and counted.

use super::error::ModelError;
use super::fields::MOST;
use super::lower::{self, GraphOptions};
use super::transformer::{
    Attention, Embedding, FeedForward, Layer, Layers, Mixer, Mixture, Mlp, Transformer,
};
use crate::graph::{Graph, RotaryScaling, Rotation};

/// Upper bound on the number of parameters, such that sums of them and of their bytes fit 64 bits.
const MOST_PARAMETERS: f64 = (1u64 << 62) as f64;
/// Largest number of positions of sound.
const MOST_FRAMES: u64 = 1 << 24;
/// Largest width of an image, in pixels.
const MOST_PIXELS: u64 = 1 << 16;

/// Checks that sizes are consistent with each other and that the parameters can be counted.
pub(super) fn check(transformer: &Transformer, architecture: &str) -> Result<(), ModelError> {
    let check = Check { architecture };
    let encoder = transformer.encoder.iter().flat_map(|encoder| &encoder.layers);
    for Layers { layer, .. } in transformer.layers.iter().chain(encoder) {
        check.layer(layer)?;
    }
    check.embedding(&transformer.embedding)?;
    if let Some(sound) = transformer.encoder.as_ref().and_then(|encoder| encoder.sound) {
        check.range("max_source_positions", sound.max_source_positions, MOST_FRAMES)?;
    }
    check.range("vocab_size", transformer.head.num_classes, MOST)?;
    let options = GraphOptions { multi_token_prediction: true, ..GraphOptions::default() };
    let graph = lower::lower(transformer, options)
        .map_err(|source| ModelError::Graph { architecture: architecture.to_owned(), source })?;
    check.num_parameters(&graph)
}

struct Check<'a> {
    architecture: &'a str,
}

impl Check<'_> {
    fn layer(&self, layer: &Layer) -> Result<(), ModelError> {
        self.mixer(&layer.mixer)?;
        if let Some(attention) = &layer.cross_attention {
            self.attention(attention)?;
        }
        if let Some(shared) = &layer.shared_block {
            self.attention(&shared.attention)?;
            self.mlp(&shared.mlp)?;
        }
        if let Some(shortcut) = &layer.shortcut {
            self.mixture(&shortcut.mixture)?;
            self.layer(&shortcut.second)?;
        }
        match &layer.feed_forward {
            FeedForward::Dense(mlp) => self.mlp(mlp),
            FeedForward::Mixture(mixture) => self.mixture(mixture),
            FeedForward::None => Ok(()),
        }
    }

    fn mixer(&self, mixer: &Mixer) -> Result<(), ModelError> {
        match mixer {
            Mixer::Attention(attention) => self.attention(attention),
            Mixer::StateSpace(mamba) => self.groups("heads", mamba.num_heads, mamba.num_groups),
            Mixer::DeltaNet(net) => {
                self.groups("value heads", net.num_value_heads, net.num_key_heads)
            }
            Mixer::Parallel(mixers) => mixers.iter().try_for_each(|mixer| self.mixer(mixer)),
            Mixer::SelectiveScan(_) | Mixer::Lightning(_) | Mixer::Convolution(_) | Mixer::None => {
                Ok(())
            }
        }
    }

    /// Requires that each of `groups` has the same number of heads of a recurrence.
    fn groups(&self, what: &str, heads: u64, groups: u64) -> Result<(), ModelError> {
        if groups > 0 && heads.is_multiple_of(groups) {
            return Ok(());
        }
        let architecture = self.architecture.to_owned();
        Err(ModelError::UnsupportedVariant {
            architecture,
            variant: format!("{heads} {what} of a recurrence in {groups} groups"),
        })
    }

    fn attention(&self, attention: &Attention) -> Result<(), ModelError> {
        let (heads, kv_heads) = (attention.num_heads, attention.num_kv_heads);
        self.range("num_attention_heads", heads, MOST)?;
        self.range("num_key_value_heads", kv_heads, MOST)?;
        self.range("head_dim", attention.head_dim, MOST)?;
        if let Some(rotation) = &attention.rotary {
            let latent = attention.latent.as_ref();
            let all = latent.map_or(attention.head_dim, |latent| latent.qk_rope_head_dim);
            self.rotation(rotation, rotation.features.unwrap_or(all))?;
        }
        if heads % kv_heads == 0 {
            return Ok(());
        }
        Err(ModelError::NotDivisible {
            architecture: self.architecture.to_owned(),
            field: "num_attention_heads",
            value: heads,
            divisor_field: "num_key_value_heads",
            divisor: kv_heads,
        })
    }

    /// Checks the rotation of `features` features of a head.
    fn rotation(&self, rotation: &Rotation, features: u64) -> Result<(), ModelError> {
        let unsupported = |variant: String| {
            let architecture = self.architecture.to_owned();
            Err(ModelError::UnsupportedVariant { architecture, variant })
        };
        // A partial rotation may have an odd number of features: the library builds such models, though most families
        // cannot run them.
        if rotation.features.is_none() && !features.is_multiple_of(2) {
            return unsupported(format!("rotation of {features} features, which go in pairs,"));
        }
        if let RotaryScaling::LongRope { short_factor, long_factor, .. } = &rotation.scaling {
            for (name, factors) in [("short_factor", short_factor), ("long_factor", long_factor)] {
                if factors.len() as u64 != features / 2 {
                    let (given, pairs) = (factors.len(), features / 2);
                    return unsupported(format!("{given} numbers in `{name}` for {pairs} pairs"));
                }
            }
        }
        Ok(())
    }

    fn mixture(&self, mixture: &Mixture) -> Result<(), ModelError> {
        self.range("num_experts", mixture.num_experts, MOST)?;
        self.range("num_experts_per_tok", mixture.top_k, MOST)?;
        if mixture.top_k > mixture.num_experts {
            return Err(ModelError::TooFewExperts {
                architecture: self.architecture.to_owned(),
                top_k: mixture.top_k,
                num_experts: mixture.num_experts,
            });
        }
        self.mlp(&mixture.expert)?;
        mixture.shared.as_ref().map_or(Ok(()), |shared| self.mlp(shared))
    }

    fn mlp(&self, mlp: &Mlp) -> Result<(), ModelError> {
        self.range("intermediate_size", mlp.intermediate_size, MOST)
    }

    fn embedding(&self, embedding: &Embedding) -> Result<(), ModelError> {
        match embedding {
            Embedding::Tokens { .. } => Ok(()),
            Embedding::Patches { image_size, patch_size, .. } => {
                self.range("image_size", *image_size, MOST_PIXELS)?;
                self.range("patch_size", *patch_size, *image_size)
            }
        }
    }

    fn range(&self, field: &str, value: u64, most: u64) -> Result<(), ModelError> {
        if (1..=most).contains(&value) {
            return Ok(());
        }
        Err(ModelError::OutOfRange {
            architecture: self.architecture.to_owned(),
            field: field.to_owned(),
            least: 1,
            most,
            found: value.to_string(),
        })
    }

    /// Checks the number of parameters in floating point, which does not overflow; tied parameters count twice.
    fn num_parameters(&self, graph: &Graph) -> Result<(), ModelError> {
        let counts = graph.class_counts();
        let of_class = graph.classes().map(|(class, block)| {
            let parameters = block.nodes().flat_map(|node| &node.op.parameters);
            let elements = parameters.map(|parameter| {
                let sizes = parameter.dims.iter().map(|dim| dim.extent.fixed().unwrap_or(1));
                sizes.map(|size| size as f64).product::<f64>()
            });
            elements.sum::<f64>() * f64::from(counts[class.0])
        });
        let total = of_class.sum::<f64>();
        if total < MOST_PARAMETERS {
            return Ok(());
        }
        Err(ModelError::TooLarge {
            architecture: self.architecture.to_owned(),
            parameters: format!("{total:.1e}"),
        })
    }
}
